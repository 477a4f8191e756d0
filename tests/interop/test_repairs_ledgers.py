"""Repairs of ledgers, lists and counters against real brokers: what the wound did, what is read afterwards.

One cluster a version: a topic for each wound, all wounded while nothing runs. A broker is started on a copy
of that, which shows what the wound does; another on the repaired store, from which every message that is left
is read and compared with what was sent.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb import SEQUENTIAL_ID
from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.interop.changed_records import (
    delete,
    edit,
    edit_ledger,
    edit_topic,
    topic_record,
)
from tests.servers.pulsar import PulsarStandalone, release

pytestmark = pytest.mark.interop

SENT, ACKNOWLEDGED, PARTITIONS = 35, 3, 2
SETTINGS = {
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    # What has no metadata stays on the bookie for as long as this takes.
    "gcWaitTime": "3000000",
}
# How long nothing has to come until nothing will; and how long it may take when something has to.
QUIET_MS, PATIENCE_MS = 6_000, 90_000
SUBSCRIPTION = "audit"


@dataclass(frozen=True)
class Wound:
    """What is done to a topic, what mends it, and what is read before and after, of 35 messages.

    `before` is None where nothing can be read at all: the topic does not load. Where entries are missing that
    are counted the broker reads fewer at once each time it tries again: it gets at most to `stalls_at`.
    `reader`: also somebody without a subscription reads what is left.
    """

    code: str
    make: Callable[[Store, str], None]
    repair: tuple[str, ...]
    before: Sequence[int] | None
    after: Sequence[int] = tuple(range(SENT))
    with_disks: bool = False
    reader: bool = True
    stalls_at: int = 0


def ledger_of(store: Store, topic: str, at: int) -> int:
    return topic_record(store, topic).ledgerInfo[at].ledgerId


def metadata_gone(at: int) -> Callable[[Store, str], None]:
    return lambda store, topic: delete(store, ledger_path(ledger_of(store, topic, at)))


def record_gone(store: Store, topic: str) -> None:
    delete(store, TopicName.parse(topic).path)


def record_garbage(store: Store, topic: str) -> None:
    edit(store, TopicName.parse(topic).path, lambda value: b"\xff\xfe\xfd garbage \x00\x01")


def counts_zero(store: Store, topic: str) -> None:
    def change(info: ManagedLedgerInfo) -> None:
        info.ledgerInfo[1].entries = info.ledgerInfo[1].size = info.ledgerInfo[1].timestamp = 0

    edit_topic(store, topic, change)


def ends_at(at: int, last: int) -> Callable[[Store, str], None]:
    def change(metadata: LedgerMetadataFormat) -> None:
        metadata.state, metadata.lastEntryId = LedgerMetadataFormat.CLOSED, last

    return lambda store, topic: edit_ledger(store, ledger_of(store, topic, at), change)


def not_listed(store: Store, topic: str) -> None:
    def change(info: ManagedLedgerInfo) -> None:
        del info.ledgerInfo[1]

    edit_topic(store, topic, change)


def one_entry_more(store: Store, topic: str) -> None:
    """List and metadata count an entry that no bookie has."""

    def change(info: ManagedLedgerInfo) -> None:
        info.ledgerInfo[1].entries = 11

    ends_at(1, 10)(store, topic)
    edit_topic(store, topic, change)


def terminated(store: Store, topic: str) -> None:
    def change(info: ManagedLedgerInfo) -> None:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = info.ledgerInfo[1].ledgerId, 4

    edit_topic(store, topic, change)


LEFT = (*range(10), *range(20, SENT))
WOUNDS = {
    "metadata-middle": Wound(
        "ledger-without-metadata", metadata_gone(1), ("ledger-metadata", "TOPIC"), range(10)
    ),
    "metadata-by-disks": Wound(
        "ledger-without-metadata", metadata_gone(0), ("ledger-metadata", "TOPIC"), range(0), with_disks=True
    ),
    "metadata-last": Wound(
        "ledger-without-metadata", metadata_gone(3), ("ledger-metadata", "TOPIC"), range(30)
    ),
    "record-gone": Wound("topic-record-lost", record_gone, ("topic-record", "TOPIC"), range(0)),
    "record-garbage": Wound("record-undecodable", record_garbage, ("topic-record", "TOPIC"), None),
    "not-listed": Wound("ledger-not-listed", not_listed, ("topic-record", "TOPIC"), LEFT),
    "counts-zero": Wound("ledger-counts-zero", counts_zero, ("count", "TOPIC"), LEFT),
    "end-low": Wound("ledger-end-low", ends_at(1, 4), ("count", "TOPIC"), (*range(15), *range(20, SENT))),
    "end-high": Wound(
        "ledger-end-high", ends_at(1, 14), ("count", "TOPIC"), range(10), with_disks=True, stalls_at=20
    ),
    "ledger-lost": Wound(
        "ledger-without-metadata", metadata_gone(1), ("missing-ledger", "TOPIC", "1"), range(10), LEFT
    ),
    "entry-lost": Wound(
        "", one_entry_more, ("missing-ledger", "TOPIC", "1", "--only-absent"), range(10),
        with_disks=True, reader=False, stalls_at=20,
    ),
    "tail-lost": Wound(
        "ledger-end-differs", one_entry_more, ("count", "TOPIC"), range(10), with_disks=True, stalls_at=20
    ),
    "terminated": Wound("terminated-before-end", terminated, ("termination", "TOPIC"), range(15)),
    "terminated-at-end": Wound(
        "terminated-before-end", terminated, ("termination", "TOPIC", "--at-end"), range(15), with_disks=True
    ),
}  # fmt: skip


def name_of(wound: str) -> str:
    return f"persistent://public/default/{wound}"


@dataclass
class Clinic:
    """A standalone with a topic for each wound, and what was sent to each."""

    pulsar: PulsarStandalone
    folder: Path
    sent: dict[str, list[str]] = field(default_factory=dict)

    @property
    def store(self) -> str:
        return self.pulsar.store_url

    @property
    def disks(self) -> tuple[str, str]:
        return "--entries", f"bookie-disk:{self.pulsar.bookie_dirs[0]}"

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Run pulsar-meta on the stopped store; return what it wrote and said."""
        done = as_text(
            pulsar_meta_here(*words, "--store", self.store, env=environment(self.folder / "state"))
        )
        assert done.returncode == code, (words, done.stderr)
        return done.stdout, done.stderr

    def keep(self, name: str) -> None:
        """Keep a copy of all data of the stopped standalone."""
        for number, place in enumerate((self.pulsar.metadata_dir, *self.pulsar.bookie_dirs)):
            shutil.copytree(place, self.folder / name / str(number))

    def go_back(self, name: str) -> None:
        """Have the data again of which a copy was kept."""
        for number, place in enumerate((self.pulsar.metadata_dir, *self.pulsar.bookie_dirs)):
            shutil.rmtree(place)
            shutil.copytree(self.folder / name / str(number), place)

    def client(self) -> Any:
        import pulsar as client

        logger = client.ConsoleLogger(client.LoggerLevel.Error)
        return client.Client(self.pulsar.service_url, logger=logger, operation_timeout_seconds=30)

    def send(self, topic: str, count: int) -> None:
        client = self.client()
        consumer = client.subscribe(topic, SUBSCRIPTION, initial_position=_earliest())
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(count):
            producer.send(f"{topic} {number}".encode())
        self.sent[topic] = [f"{topic} {number}" for number in range(count)]
        for _ in range(ACKNOWLEDGED):
            consumer.acknowledge_cumulative(consumer.receive(PATIENCE_MS))
        client.close()

    def read(
        self, topic: str, expected: int | None, *, subscribed: bool, digests: bool = False
    ) -> list[str] | None:
        """Return what a reader, or the subscription, is given; None where the topic does not load.

        `expected`: so many have to come, and no more; None: as many as come. `digests`: of each the beginning
        of its SHA-256.
        """
        client = self.client()
        try:
            if subscribed:
                consumer = client.subscribe(topic, SUBSCRIPTION)
                take: Callable[[int], Any] = lambda wait: consumer.receive(wait)  # noqa: E731
            else:
                reader = client.create_reader(topic, _start())
                take = lambda wait: reader.read_next(wait)  # noqa: E731
            taken = _taken(take, expected)
            return [sha256(one).hexdigest()[:16] if digests else one.decode() for one in taken]
        except Exception:
            if expected is not None:
                raise
            return None
        finally:
            client.close()


def _taken(take: Callable[[int], Any], expected: int | None) -> Iterator[bytes]:
    import pulsar as client

    count = 0
    while True:
        try:
            message = take(PATIENCE_MS if expected is not None and count < expected else QUIET_MS)
        except client.Timeout:
            return
        count += 1
        yield message.data()


def _earliest() -> Any:
    import pulsar as client

    return client.InitialPosition.Earliest


def _start() -> Any:
    import pulsar as client

    return client.MessageId.earliest


def everywhere(read: Callable[[str], Any]) -> dict[str, Any]:
    """Return what is read of each wound's topic; stalled readers wait side by side."""
    with ThreadPoolExecutor(len(WOUNDS)) as pool:
        return dict(zip(WOUNDS, pool.map(read, WOUNDS), strict=True))


def chosen(clinic: Clinic, wound: str, numbers: Sequence[int]) -> list[str]:
    return [clinic.sent[name_of(wound)][number] for number in numbers]


@pytest.fixture(scope="module")
def clinic(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    if release(version) < (2, 11):
        pytest.skip("needs a standalone on RocksDB")
    with PulsarStandalone(version, settings=SETTINGS) as pulsar:
        clinic = Clinic(pulsar, tmp_path_factory.mktemp("clinic"))
        pulsar.admin("PUT", "persistent/public/default/parted/partitions", PARTITIONS)
        parts = [f"{name_of('parted')}-partition-{number}" for number in range(PARTITIONS)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: clinic.send(name, SENT), [*map(name_of, WOUNDS), *parts]))
        pulsar.stop()
        with open_store(clinic.store, read_only=False) as store:
            for wound, done in WOUNDS.items():
                done.make(store, name_of(wound))
            delete(store, TopicName.parse("parted").partitioned_path)
        clinic.keep("wounded")
        yield clinic


def words_of(clinic: Clinic, wound: str) -> list[str]:
    """Return what follows on `repair` to mend a wound."""
    name, done = name_of(wound), WOUNDS[wound]
    words = [name if word == "TOPIC" else word for word in done.repair]
    if words[0] == "missing-ledger":
        with open_store(clinic.store) as store:
            words[2] = str(ledger_of(store, name, int(words[2])))
    gives_up = words[0] == "missing-ledger" or done.code == "ledger-end-differs"
    return [*words, "--confirm", name] if gives_up else words


def test_wounds_and_their_repairs(clinic: Clinic, version: str) -> None:
    # What the doctor says.
    found = {
        (finding["topic"], finding["code"])
        for finding in map(
            json.loads, clinic.run("check", "-o", "ndjson", *clinic.disks, code=1)[0].splitlines()
        )
        if "topic" in finding
    }
    for wound, done in WOUNDS.items():
        assert not done.code or (name_of(wound), done.code) in found

    # What a broker makes of it.
    clinic.pulsar.start()
    before = everywhere(lambda wound: clinic.read(name_of(wound), None, subscribed=False))
    for wound, done in WOUNDS.items():
        if done.before is None:
            assert before[wound] is None, wound
        else:
            read = range(min(len(before[wound]), done.stalls_at)) if done.stalls_at else done.before
            assert len(read) >= len(done.before)
            assert before[wound] == chosen(clinic, wound, read), wound
    partition = f"{name_of('parted')}-partition-0"
    refused = clinic.read(partition, None, subscribed=False) is None
    assert refused == (release(version) >= (4, 1))
    clinic.pulsar.stop()

    # The repairs, and what the doctor says then.
    clinic.go_back("wounded")
    for wound, done in WOUNDS.items():
        disks = clinic.disks if done.with_disks else ()
        clinic.run("repair", *words_of(clinic, wound), "--yes", *disks)
    clinic.run("repair", "partitions", "parted", "--yes")
    for wound in WOUNDS:
        stated = clinic.run("check", name_of(wound), "-o", "ndjson", "--severity", "error", code=0)
        assert stated[0] == "", wound

    # What a broker makes of that: everything that is left, for readers and for the subscription.
    clinic.pulsar.start()

    def after(wound: str) -> None:
        done, name = WOUNDS[wound], name_of(wound)
        kept = chosen(clinic, wound, done.after)
        if done.reader:
            assert clinic.read(name, len(kept), subscribed=False) == kept, wound
        rest = kept[ACKNOWLEDGED:]
        assert clinic.read(name, len(rest), subscribed=True) == rest, wound

    everywhere(after)
    for number in range(PARTITIONS):
        name = f"{name_of('parted')}-partition-{number}"
        assert clinic.read(name, SENT, subscribed=False) == clinic.sent[name]
    clinic.pulsar.stop()


def test_a_generator_that_was_set_back(clinic: Clinic) -> None:
    """Each topic that is loaded gets a new ledger: under an id that was used, or lower than its others."""
    clinic.go_back("wounded")
    topic = f"{name_of('parted')}-partition-1"
    clinic.run("repair", "partitions", "parted", "--yes")
    with open_store(clinic.store, read_only=False) as store:
        back: Any = store
        ids = [ledger.ledgerId for ledger in topic_record(store, topic).ledgerInfo]
        right = store.next_sequence("/ledgers/idgen") or 0
        back._write({SEQUENTIAL_ID.decode(): (0).to_bytes(8, "big")})
    clinic.keep("set-back")
    clinic.pulsar.start()
    clinic.read(topic, None, subscribed=False)
    clinic.pulsar.stop()
    with open_store(clinic.store) as store:
        low = [
            ledger.ledgerId for ledger in topic_record(store, topic).ledgerInfo if ledger.ledgerId < ids[-1]
        ]
    # A free id was used again, or loading failed at those that are not, and each try used one up.
    said = clinic.pulsar.log.read_bytes()
    assert set(low) - set(ids) or b"Bad ledger metadata version error code: -17" in said

    clinic.go_back("set-back")
    stated = clinic.run("repair", "generator", "--yes", *clinic.disks)[0]
    assert "the next number of /ledgers/idgen" in stated
    with open_store(clinic.store) as store:
        assert (store.next_sequence("/ledgers/idgen") or 0) >= max(ids)
        assert (store.next_sequence("/ledgers/idgen") or 0) <= right
    clinic.pulsar.start()
    client = clinic.client()
    client.create_producer(topic, batching_enabled=False).send(b"one more")
    client.close()
    assert clinic.read(topic, SENT + 1, subscribed=False) == [*clinic.sent[topic], "one more"]
    clinic.pulsar.stop()


def test_striped_ledgers(capture: Callable[[str], Path], tmp_path: Path) -> None:
    """Three bookies, two copies of each entry; without disks nobody knows which bookies have which entry.

    The metadata of all ledgers with entries but the first is gone, and the last of the list is recovered.
    """
    data, by_disks = capture("pulsar-4.2.4-3bookies"), {"plain": False, "orders": True}
    truth = json.loads((data / "truth.json").read_text())
    pulsar = PulsarStandalone("4.2.4", data=data, settings=SETTINGS)
    clinic = Clinic(pulsar, tmp_path)
    with open_store(clinic.store, read_only=False) as store:
        for topic in map(name_of, by_disks):
            leave_first_metadata(store, topic)
    disks = [word for folder in pulsar.bookie_dirs for word in ("--entries", f"bookie-disk:{folder}")]
    for wound, with_disks in by_disks.items():
        clinic.run("repair", "ledger-metadata", wound, "--yes", *(disks if with_disks else ()))
    with pulsar:
        for topic in map(name_of, by_disks):
            sent = [message["sha"] for message in truth[topic]["messages"]]
            read = clinic.read(topic, len(sent), subscribed=False, digests=True)
            assert read == sent, topic


def leave_first_metadata(store: Store, topic: str) -> None:
    def change(info: ManagedLedgerInfo) -> None:
        kept = [ledger for ledger in info.ledgerInfo if ledger.entries]
        del info.ledgerInfo[:]
        info.ledgerInfo.extend(kept)

    edit_topic(store, topic, change)
    for ledger in topic_record(store, topic).ledgerInfo[1:]:
        delete(store, ledger_path(ledger.ledgerId))
