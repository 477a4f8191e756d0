"""Real clusters whose metadata store was deleted: they come up on the rebuilt one and serve every message."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from pulsar_meta.jobs.topics.topic import every_topic
from pulsar_meta.stores.registry import open_store
from tests.cli.program import pulsar_meta_here
from tests.servers import bookie_data
from tests.servers.cluster import Broker, Cluster
from tests.servers.jvm import JavaFailed, Jvm
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop

READ = "tests.servers.clients.java_reader:read_all"
PRODUCE = "tests.servers.clients.java:produce"
TRANSACTIONS = "persistent://public/default/txn"
TERMINATED = "persistent://public/default/terminated"
SETTINGS = {"transactionCoordinatorEnabled": "true", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
STRIPED = {"EnsembleSize": "3", "WriteQuorum": "2", "AckQuorum": "2"}
WRITTEN = [f"persistent://public/default/striped-{number}" for number in range(4)]
# Of two that share a reader of transaction snapshots one may wait in vain in a broker; the topic loads again.
ATTEMPTS = 4
Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Lost:
    """A capture of which only the disks are left: its truth, and the ledgers that each topic had then."""

    folder: Path
    version: str
    topics: Mapping[str, set[int]]
    truth: Mapping[str, Messages]

    @classmethod
    def of(cls, folder: Path) -> Lost:
        stated: dict[str, Any] = {}
        for name in ("truth.json", "truth-after-revert.json"):
            file = folder / name
            stated |= json.loads(file.read_text()) if file.exists() else {}
        truth = {topic: said["messages"] for topic, said in stated.items() if "reader_error" not in said}
        version = folder.name.split("-")[1]
        return cls(folder, version, ledgers_of([folder / "metadata.ndjson"]), truth)

    def names(self) -> dict[int, str]:
        """Return what a person knows: the topic of each ledger, also of those that were deleted."""
        files = sorted(self.folder.glob("metadata*.ndjson"))
        return {ledger: topic for topic, ledgers in ledgers_of(files).items() for ledger in ledgers}


def ledgers_of(files: Iterable[Path]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for file in files:
        with open_store(f"snapshot:{file}") as store:
            for topic in every_topic(store, print):
                found.setdefault(topic.name, set()).update(ledger.ledger_id for ledger in topic.ledgers)
    return found


def run(folder: Path, *words: object) -> Any:
    ran = pulsar_meta_here(*map(str, words), "-o", "json", folder=folder)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def rebuilt(lost: Lost, data: Path, *, gone: str | None = None) -> Path:
    """Rebuild from copies of the disks, without the disk `gone`; return the snapshot."""
    data.mkdir()
    words = ["rebuild", "--entries", f"bookie-disk:{data}"]
    for disk in sorted(lost.folder.glob("bookie[0-9]*")):
        if disk.name == gone:
            words += ["--lost-bookie", bookie_data.address((disk / "current" / "VERSION").read_bytes())]
        else:
            shutil.copytree(disk, data / disk.name)
    found = data.parent / "found.ndjson.zst"
    run(data, *words, "--output", found, "--names", names_file(lost, data.parent, words))
    return found


def restored(found: Path, target: str) -> int:
    """Bring a snapshot into an empty store; return the next ledger id there."""
    words = "restore", f"snapshot:{found}", "--store", target, "--allow-unreadable", "--yes"
    floor = run(found.parent, *words)["counters"]["/ledgers/idgen"]
    assert isinstance(floor, int)
    return floor


def names_file(lost: Lost, into: Path, words: Sequence[str]) -> Path:
    """Write what a person knows of the ledgers that are on the disks, as --unnamed asks for it."""
    lines = run(into, *words, "--unnamed")
    known, file = lost.names(), into / "names"
    for line in lines:
        line["topic"] = next((known[one] for one in line["ledgers"] if one in known), None)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def identity(message: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(message[key] for key in ("l", "e", "b", "sha", "key"))


def read(pulsar: PulsarStandalone | Broker, java: Jvm, topic: str) -> Messages:
    for _ in range(ATTEMPTS - 1):
        with suppress(JavaFailed):
            return cast(Messages, java.call(READ, pulsar.service_url, topic))
    return cast(Messages, java.call(READ, pulsar.service_url, topic))


def check(
    lost: Lost, pulsar: PulsarStandalone | Broker, java: Jvm, written: Mapping[str, set[str]], floor: int
) -> int:
    """Read every topic; return how many messages of the truth there were.

    What comes beside the truth lies in ledgers that the topic had let go of, or was written since.
    """
    count = 0
    for topic, stated in lost.truth.items():
        if not stated and topic not in written:
            continue
        found = read(pulsar, java, topic)
        before = [identity(row) for row in found if row["l"] in lost.topics[topic]]
        assert before == [identity(one) for one in stated], topic
        since = [row for row in found if row["l"] >= floor]
        assert len(since) == len(written.get(topic, ()))
        assert {one["sha"] for one in since} == written.get(topic, set()), topic
        count += len(stated)
    return count


def write_on(lost: Lost, pulsar: PulsarStandalone | Broker, java: Jvm) -> dict[str, set[str]]:
    """Write to every topic, to one in transactions too; return the hashes of what readers are to get."""
    written: dict[str, set[str]] = {}
    for number, topic in enumerate(topic for topic in lost.truth if topic != TERMINATED):
        payloads = [f"since {number} {place}".encode() for place in range(5)]
        java.call(
            PRODUCE, pulsar.service_url, topic, [{"payload": payload, "key": "k"} for payload in payloads], {}
        )
        written[topic] = {sha(payload) for payload in payloads}
    for end in ("commit", "abort"):
        payload = f"since, {end}".encode()
        java.call(PRODUCE, pulsar.service_url, TRANSACTIONS, [{"payload": payload}], {"transaction": end})
        if end == "commit":
            written[TRANSACTIONS].add(sha(payload))
    return written


def sha(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("pulsar-4.0.7", None),
        ("pulsar-4.2.4", None),
        ("pulsar-4.2.4-3bookies", None),
        ("pulsar-4.2.4-3bookies", "bookie2"),
    ],
    ids=["4.0.7", "4.2.4", "3bookies", "2of3bookies"],
)
def test_a_cluster_without_its_store(
    name: str, gone: str | None, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    """In place of a disk that is `gone` there is a new bookie, which has nothing."""
    comes_up(Lost.of(capture(name)), tmp_path / "data", gone, least=10_000)


def test_a_cluster_of_three_that_was_just_written(tmp_path: Path) -> None:
    """A 4.0.7, of which no capture has three bookies: ledgers of two runs, striped over them."""
    folder = tmp_path / "made-4.0.7"
    three = {f"managedLedgerDefault{name}": number for name, number in STRIPED.items()}
    with (
        PulsarStandalone("4.0.7", bookies=3, settings=SETTINGS | three) as pulsar,
        Jvm(pulsar.version, heap="512m") as java,
    ):
        for part in range(2):
            for topic in WRITTEN:
                messages = [{"payload": f"{topic} {part} {at}".encode(), "key": str(at)} for at in range(300)]
                java.call(PRODUCE, pulsar.service_url, topic, messages, {"batch": 50})
            for end in ("commit", "abort"):
                messages = [{"payload": f"{end} {part}".encode()}]
                java.call(PRODUCE, pulsar.service_url, TRANSACTIONS, messages, {"transaction": end})
            if not part:
                java.call("tests.servers.clients.java:close")
                pulsar.stop()
                pulsar.start()
        truth = {topic: {"messages": read(pulsar, java, topic)} for topic in (*WRITTEN, TRANSACTIONS)}
        java.call("tests.servers.clients.java:close")
        pulsar.stop()
        folder.mkdir()
        pulsar.save_data(folder)
    (folder / "truth.json").write_text(json.dumps(truth))
    run(folder, "snapshot", folder / "metadata.ndjson", "--store", f"rocksdb:{folder / 'rocksdb'}")
    lost = Lost.of(folder)
    assert all(len(lost.topics[topic]) > 1 for topic in WRITTEN)
    comes_up(lost, tmp_path / "data", None, least=2 * 300 * len(WRITTEN) + 2)


def comes_up(lost: Lost, data: Path, gone: str | None, *, least: int) -> None:
    """Check that a standalone serves every message on a rebuilt store, then new ones, also started anew."""
    floor = restored(rebuilt(lost, data, gone=gone), f"rocksdb:{data / 'rocksdb'}")
    check_is_clean(f"rocksdb:{data / 'rocksdb'}", data, gone=gone)
    total = sum(map(len, lost.truth.values()))
    bookies = bookie_data.count(lost.folder)
    with (
        PulsarStandalone(lost.version, data=data, settings=SETTINGS, bookies=bookies) as pulsar,
        Jvm(lost.version, heap="512m") as java,
    ):
        assert check(lost, pulsar, java, {}, floor) == total >= least
        written = write_on(lost, pulsar, java)
        java.call("tests.servers.clients.java:close")
        pulsar.stop()
        check_is_clean(pulsar.store_url, *pulsar.bookie_dirs, gone=gone)
        pulsar.start()
        assert check(lost, pulsar, java, written, floor) == total


def check_is_clean(store: str, *disks: Path, gone: str | None = None) -> None:
    """Run `check` with the disks: it finds nothing, or no error if a disk is gone.

    It also finds that the bookies are stopped, which is left out.
    """
    entries = [word for disk in disks for word in ("--entries", f"bookie-disk:{disk}")]
    findings = run(disks[0], "check", "--store", store, *entries, "--except", "bookie-unreachable")
    assert gone or findings == []


class Reborn(Cluster):
    """A broker and a bookie over a ZooKeeper that has what was rebuilt; `floor` is its next ledger id."""

    def __init__(self, version: str, disk: Path, found: Path) -> None:
        settings = {"clusterName": "standalone", **SETTINGS}
        super().__init__(racks=["A"], version=version, settings=settings)
        self._disk, self._found = disk, found
        self._ports = bookie_data.BoundPorts()
        self.floor = 0

    def bring_up(self) -> None:
        directory = self.bookie_dirs[0]
        cookie = bookie_data.copy_disk(self._disk, directory)
        self._bookies.ports[0] = int(bookie_data.address(cookie).rpartition(":")[2])
        self._bookies.zookeeper.start()
        self.floor = restored(self._found, self.store_url)
        with open_store(self.store_url, read_only=False) as store:
            held = store.read(bookie_data.cookie_path(cookie))
            store.put(held.path, cookie, held.version)
        self._ports.take([directory])
        self._bookies.start(0)
        self.start(0)

    def restart(self) -> None:
        """Stop broker and bookie in good order, and start them again."""
        self.stop(0)
        self._bookies.stop(0)
        self._bookies.start(0)
        self.start(0)

    def close(self) -> None:
        super().close()
        self._ports.release()


def test_a_cluster_on_zookeeper(capture: Callable[[str], Path], tmp_path: Path) -> None:
    """A broker, a bookie and the ZooKeeper into which the store is restored, in processes of their own."""
    lost, data = Lost.of(capture("pulsar-4.2.4")), tmp_path / "data"
    found = rebuilt(lost, data)
    total = sum(map(len, lost.truth.values()))
    with Reborn(lost.version, data / "bookie0", found) as cluster, Jvm(lost.version, heap="512m") as java:
        broker = cluster.brokers[0]
        assert check(lost, broker, java, {}, cluster.floor) == total > 10_000
        written = write_on(lost, broker, java)
        java.call("tests.servers.clients.java:close")
        cluster.restart()
        assert check(lost, broker, java, written, cluster.floor) == total
