"""`verify-entries` reads every copy of an entry that it is given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.metadata.ledger_metadata import (
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.codecs.wire.bookie_protocol import IO_ERROR, NO_ENTRY, OK
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.entries.copy_check import disks_by_bookie
from pulsar_meta.jobs.topics.bookkeeper import BOOKIE_PROTOCOL
from pulsar_meta.proto.DataFormats_pb2 import BookieServiceInfoFormat, LedgerMetadataFormat
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, pulsar_meta_here
from tests.servers.scripted import STRANGE_SERVERS, BookieScript, Talk, bookie, closed_port, tcp_server

Capture = Callable[[str], Path]
NAME = "pulsar-4.2.4-3bookies"
LEDGER, ENTRY = 24, 7


class Damaged:
    """A copy of a capture, whose entries can be damaged on single bookies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def damage(self, count: int) -> list[tuple[str, str, int]]:
        """Damage copies of an entry; return the bookie, file and offset of each."""
        damaged: list[tuple[str, str, int]] = []
        with open_entries([f"bookie-disk:{self.folder}"]) as source:
            for bookie, disk in disks_by_bookie(source).items():
                for files, table in disk.located(LEDGER, ENTRY, ENTRY) or ():
                    location = table.location(ENTRY)
                    if location is not None and len(damaged) < count:
                        damaged.append((bookie, files.name(location >> 32), location & 0xFFFFFFFF))
        for _, file, offset in damaged:
            data = bytearray(Path(file).read_bytes())
            data[offset + 60] ^= 0xFF
            Path(file).write_bytes(data)
        return damaged

    def verify(self, *options: str) -> tuple[int, list[dict[str, Any]], str]:
        """Return the exit code, the faults and stderr of `verify-entries`."""
        words = [
            "--entries",
            f"bookie-disk:{self.folder}",
            "--store",
            f"snapshot:{self.folder}/metadata.ndjson",
        ]
        done = as_text(pulsar_meta_here("verify-entries", "plain", *words, *options, "-o", "ndjson"))
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture
def cluster(capture: Capture, tmp_path: Path) -> Damaged:
    return Damaged(shutil.copytree(capture(NAME), tmp_path / "cluster"))


def test_intact_copies_are_counted(cluster: Damaged) -> None:
    code, faults, summary = cluster.verify()
    assert (code, faults) == (0, [])
    checked = json.loads(summary.splitlines()[-1])["checked"]
    assert checked["copies"] == 2 * checked["entries"] > 0


@pytest.mark.parametrize("options", [(), ("--jobs", "2"), ("--limit", "20")])
def test_one_bad_copy_is_named_with_its_place_and_repair(cluster: Damaged, options: tuple[str, ...]) -> None:
    [(bookie, file, offset)] = cluster.damage(1)
    code, faults, _ = cluster.verify(*options)
    [fault] = faults
    assert code == 1
    assert (fault["ledger_id"], fault["entry_id"], fault["layer"]) == (LEDGER, ENTRY, "copy")
    assert (fault["bookie"], fault["file"], fault["offset"]) == (bookie, file, offset)
    assert (fault["good"], fault["copies"]) == (1, 2)
    assert fault["repair"] == f"bookkeeper shell recover -ledger {LEDGER} {bookie}"
    assert fault["repair"] in fault["fault"]


def test_an_entry_without_a_good_copy_has_no_repair(cluster: Damaged) -> None:
    places = cluster.damage(2)
    code, faults, _ = cluster.verify()
    copies = [fault for fault in faults if fault["layer"] == "copy"]
    assert (code, len(copies)) == (1, 2)
    assert {(fault["bookie"], fault["file"], fault["offset"]) for fault in copies} == set(places)
    assert all("repair" not in fault and fault["good"] == 0 for fault in copies)
    # No copy can replace the entry, so its own faults are reported, too.
    assert "digest" in {fault["layer"] for fault in faults}


def test_one_copy_is_the_fast_form_and_says_so(cluster: Damaged) -> None:
    cluster.damage(1)
    _, faults, summary = cluster.verify("--one-copy")
    assert all(fault["layer"] != "copy" for fault in faults)
    result = json.loads(summary.splitlines()[-1])
    assert "copies" not in result["checked"]
    assert result["not_checked"]["other copies"] == "--one-copy"


def test_copies_on_disks_that_were_not_given_are_not_checked(cluster: Damaged) -> None:
    shutil.rmtree(cluster.folder / "bookie2")
    _, faults, summary = cluster.verify()
    assert not [fault for fault in faults if fault["layer"] == "copy"]
    assert "their disks were not given" in json.loads(summary.splitlines()[-1])["not_checked"].values()


class Running:
    """Servers that answer with the entries on the disks of a capture, as its bookies would."""

    def __init__(self, folder: Path, store: Path, stack: ExitStack) -> None:
        """`store` is empty; it gets the metadata of LEDGER only."""
        self._store, self._stack = store, stack
        disks = stack.enter_context(open_entries([f"bookie-disk:{folder}"]))
        self.disks = disks_by_bookie(disks)
        with open_store(f"snapshot:{folder}/metadata.ndjson") as source, self.store() as target:
            record = source.read(ledger_path(LEDGER))
            target.put(record.path, record.value, ABSENT)
        for name, disk in self.disks.items():
            self.serve(name, bookie(answers_from(disk)))

    def store(self) -> Any:
        return open_store(f"dir:{self._store}", read_only=False)

    def serve(self, name: str, talk: Talk | None) -> None:
        """Register a server for a bookie, or a port without a server."""
        port = closed_port() if talk is None else self._stack.enter_context(tcp_server(talk))
        info = BookieServiceInfoFormat()
        info.endpoints.add(id="b", host="127.0.0.1", port=port, protocol=BOOKIE_PROTOCOL)
        path = f"/ledgers/available/{name}"
        with self.store() as store:
            versions = [record.version for record in store.scan(path)]
            store.put(path, info.SerializeToString(), versions[0] if versions else ABSENT)

    def replicas(self) -> list[str]:
        """The bookies of LEDGER:ENTRY."""
        return [name for name, disk in self.disks.items() if list(disk.entry_ids(LEDGER, ENTRY, ENTRY))]

    def verify(self, *options: str) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
        """Return the exit code, the faults and the summary of `verify-entries`."""
        words = ["--entries", "bookie:", "--store", f"dir:{self._store}", *options, "-o", "ndjson"]
        done = as_text(pulsar_meta_here("verify-entries", LEDGER, *words))
        return (
            done.returncode,
            list(map(json.loads, done.stdout.splitlines())),
            json.loads(done.stderr.splitlines()[-1]),
        )


def answers_from(
    disk: EntrySource, answer: Callable[[bytes], tuple[int, bytes]] | None = None
) -> BookieScript:
    """Answer from a disk, except that `answer` changes the answer for LEDGER:ENTRY."""

    def script(ledger_id: int, entry_id: int) -> tuple[int, bytes]:
        if entry_id < 0:
            entry_id = disk.last_entry(ledger_id) or 0
        try:
            data = bytes(disk.read(ledger_id, entry_id).data)
        except NotFoundError:
            return NO_ENTRY, b""
        changed = answer if (ledger_id, entry_id) == (LEDGER, ENTRY) else None
        return changed(data) if changed else (OK, data)

    return script


@pytest.fixture
def running(capture: Capture, tmp_path: Path) -> Iterator[Running]:
    with ExitStack() as stack:
        yield Running(capture(NAME), tmp_path / "store", stack)


def flipped(data: bytes) -> tuple[int, bytes]:
    return OK, data[:60] + bytes([data[60] ^ 0xFF]) + data[61:]


def io_error(_: bytes) -> tuple[int, bytes]:
    return IO_ERROR, b""


def no_entry(_: bytes) -> tuple[int, bytes]:
    return NO_ENTRY, b""


def test_every_copy_on_running_bookies_is_verified(running: Running) -> None:
    code, faults, summary = running.verify()
    assert (code, faults) == (0, [])
    assert summary["checked"]["copies"] == 2 * summary["checked"]["entries"] > 0
    assert summary.get("not_checked", {}) == {}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (flipped, "wrong CRC32C digest"),
        (io_error, "input/output error"),
        (no_entry, "has no copy of the entry"),
    ],
    ids=["flipped bits", "I/O error", "lost"],
)
@pytest.mark.parametrize("at", [0, 1], ids=["first replica", "second replica"])
@pytest.mark.parametrize("options", [(), ("--jobs", "2")])
def test_a_bad_copy_on_a_running_bookie_is_named(
    running: Running,
    answer: Callable[[bytes], tuple[int, bytes]],
    text: str,
    at: int,
    options: tuple[str, ...],
) -> None:
    name = running.replicas()[at]
    running.serve(name, bookie(answers_from(running.disks[name], answer)))
    code, faults, _ = running.verify(*options)
    [fault] = faults
    assert (code, fault["ledger_id"], fault["entry_id"], fault["layer"]) == (1, LEDGER, ENTRY, "copy")
    assert (fault["bookie"], fault["file"], fault["good"], fault["copies"]) == (name, None, 1, 2)
    assert text in fault["fault"]
    assert fault["repair"] == f"bookkeeper shell recover -ledger {LEDGER} {name}"
    assert running.verify("--one-copy")[2]["not_checked"] == {"other copies": "--one-copy"}


def test_a_bookie_that_lost_a_ledger_is_one_fault(running: Running) -> None:
    name = running.replicas()[0]
    expected = list(running.disks[name].entry_ids(LEDGER))
    running.serve(name, bookie(lambda ledger_id, entry_id: (NO_ENTRY, b"")))
    _, [fault], _ = running.verify()
    assert (fault["entry_id"], fault["bookie"]) == (expected[0], name)
    assert f"nor of {len(expected) - 1} more up to {expected[-1]}" in fault["fault"]


def test_no_copy_is_lost_while_the_ledger_is_open(running: Running) -> None:
    name = running.replicas()[0]
    running.serve(name, bookie(answers_from(running.disks[name], no_entry)))
    with running.store() as store:
        record = store.read(ledger_path(LEDGER))
        metadata = decode_ledger_metadata(record.value)
        metadata.metadata.state = LedgerMetadataFormat.OPEN
        metadata.metadata.ClearField("lastEntryId")
        store.put(record.path, encode_ledger_metadata(metadata), record.version)
    assert running.verify()[:2] == (0, [])


@pytest.mark.parametrize("talk", [None, STRANGE_SERVERS["hangs up"]], ids=["stopped", "hangs up"])
def test_copies_on_a_bookie_that_does_not_answer_are_not_checked(running: Running, talk: Talk | None) -> None:
    name = running.replicas()[0]
    running.serve(name, talk)
    code, faults, summary = running.verify()
    assert (code, faults) == (0, [])
    assert list(summary["not_checked"]) == [f"copies on bookie {name}"]
