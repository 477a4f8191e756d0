"""Verification of entries of real brokers layer by layer, intact and damaged on purpose."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import BookieEntry, decode_bookie_entry, encode_bookie_entry
from pulsar_meta.codecs.frames.frame import Frame, decode_frame, encode_frame, encode_prefix
from pulsar_meta.entries.base import RUN, EntrySource, RawEntry
from pulsar_meta.jobs.entries.entry_check import Fault, LedgerReport, check_joints, check_range
from pulsar_meta.jobs.entries.entry_choice import Range
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata
from pulsar_meta.proto.TransactionLogs_pb2 import TransactionMetadataEntry
from tests.cli.program import as_text, pulsar_meta_here
from tests.entries.worn import Worn
from tests.jobs.captured_frames import frames_of

TOPICS = ("orders", "txn", "compacted", "parted", "chunked", "late-index")
LEDGER = 7
SEAL = EntryFormat("CRC32C", b"", frames=True)
Capture = Callable[[str], Path]


class Entries(EntrySource):
    """A ledger in memory."""

    def __init__(self, entries: dict[int, bytes], *, bookie: bool = True) -> None:
        self.url, self._entries, self._bookie = "memory:", entries, bookie

    def ledgers(self) -> list[int]:
        return [LEDGER]

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        return (id for id in sorted(self._entries) if id >= first and (last is None or id <= last))

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        if entry_id not in self._entries:
            raise NotFoundError("gone")
        return RawEntry(ledger_id, entry_id, self._entries[entry_id], self._bookie)


@pytest.fixture(scope="module")
def ledger(capture: Capture) -> dict[int, bytes]:
    """Thirty frames of a real topic as the entries of one ledger. Most are LZ4 batches."""
    entries, length = {}, 0
    for entry_id, frame in enumerate(frames_of(capture("pulsar-4.2.4"), "orders")[:30]):
        length += len(frame)
        entries[entry_id] = encode_bookie_entry(LEDGER, entry_id, entry_id - 1, length, frame)
    return entries


def check(entries: dict[int, bytes], *, known: int | None = None, form: EntryFormat = SEAL) -> LedgerReport:
    source: Any = Entries(entries)
    return check_range(Range(Ledger(LEDGER, known)), source, form)


def faults(entries: dict[int, bytes], **options: Any) -> list[tuple[int, str]]:
    return [(fault.entry_id, fault.layer) for fault in check(entries, **options).faults]


def resealed(data: bytes, change: Callable[[BookieEntry], BookieEntry]) -> bytes:
    """Apply a change to a bookie entry and compute its digest again."""
    entry = change(decode_bookie_entry(data))
    header = (entry.ledger_id, entry.entry_id, entry.last_confirmed, entry.length)
    return encode_bookie_entry(*header, entry.data)


def reframed(data: bytes, change: Callable[[Frame, MessageMetadata], None]) -> bytes:
    """Change an entry's MessageMetadata, keep its size, and compute its checksum and digest again."""

    def rebuild(entry: BookieEntry) -> BookieEntry:
        frame = decode_frame(entry.data)
        change(frame, frame.metadata)
        body = encode_frame(frame.metadata, frame.payload, broker_metadata=frame.broker_metadata)
        shift = len(body) - len(entry.data)
        return replace(entry, data=memoryview(body), length=entry.length + shift)

    return resealed(data, rebuild)


def batched(entries: dict[int, bytes]) -> int:
    """Return the id of an LZ4 batch that is neither the first nor the last entry."""
    for entry_id, data in list(entries.items())[3:-3]:
        metadata = decode_frame(decode_bookie_entry(data).data).metadata
        if metadata.num_messages_in_batch > 2 and metadata.compression:
            return entry_id
    raise AssertionError("no batch")


def test_entries_of_a_broker_have_no_faults(ledger: dict[int, bytes]) -> None:
    report = check(ledger, known=30)
    assert (report.entries, report.faults) == (30, [])
    assert report.before is not None
    assert report.last is not None
    assert report.before.index == -1


def test_each_layer_has_faults_of_its_own(ledger: dict[int, bytes]) -> None:
    at = batched(ledger)
    intact = ledger[at]

    def with_bytes(data: bytes) -> dict[int, bytes]:
        return {**ledger, at: data}

    flipped_digest = bytearray(intact)
    flipped_digest[33] ^= 1
    assert faults(with_bytes(bytes(flipped_digest))) == [(at, "digest")]

    def flip_checksum(entry: BookieEntry) -> BookieEntry:
        frame, data = decode_frame(entry.data), bytearray(entry.data)
        data[frame.metadata_offset - 1] ^= 1
        return replace(entry, data=memoryview(bytes(data)))

    assert faults(with_bytes(resealed(intact, flip_checksum))) == [(at, "checksum")]
    other = resealed(intact, lambda entry: replace(entry, entry_id=99))
    assert faults(with_bytes(other)) == [(at, "header")]
    longer = resealed(intact, lambda entry: replace(entry, length=entry.length + 1))
    assert faults(with_bytes(longer)) == [(at, "length"), (at + 1, "length")]

    def wrong_size(frame: Frame, metadata: MessageMetadata) -> None:
        metadata.uncompressed_size -= 1

    assert faults(with_bytes(reframed(intact, wrong_size))) == [(at, "payload")]

    def fewer_messages(frame: Frame, metadata: MessageMetadata) -> None:
        metadata.num_messages_in_batch -= 1

    assert faults(with_bytes(reframed(intact, fewer_messages))) == [(at, "index"), (at, "batch")]

    def other_index(frame: Frame, metadata: MessageMetadata) -> None:
        assert frame.broker_metadata is not None
        frame.broker_metadata.index += 3

    jumped = check(with_bytes(reframed(intact, other_index))).faults
    assert [(fault.entry_id, fault.layer) for fault in jumped] == [(at, "index"), (at + 1, "index")]
    assert jumped[0].fault.startswith("3 indexes are left out")
    assert jumped[1].fault.startswith("3 indexes are given again")


def test_frames_that_cannot_be_parsed_are_faults(ledger: dict[int, bytes]) -> None:
    prefix = encode_prefix(decode_frame(decode_bookie_entry(ledger[4]).data).broker_metadata)
    for body, layer in ((b"\0\0\xff\xff", "sizes"), (b"\0\0\0\x02\x0a\xff", "metadata")):
        data = resealed(ledger[4], lambda entry, body=body: replace(entry, data=memoryview(prefix + body)))  # type: ignore[misc]
        assert (4, layer) in faults({**ledger, 4: data})


def test_missing_entries_are_reported_once_per_run(ledger: dict[int, bytes]) -> None:
    left = {entry_id: data for entry_id, data in ledger.items() if entry_id not in (0, 5, 6, 29)}
    report = check(left, known=30)
    assert report.faults == [
        Fault(LEDGER, 0, "missing", "no source has it"),
        Fault(LEDGER, 5, "missing", "no source has it, nor the 1 after it"),
        Fault(LEDGER, 29, "missing", "no source has it"),
    ]


def test_too_few_bytes_for_an_entry_are_a_fault(ledger: dict[int, bytes]) -> None:
    assert faults({**ledger, 3: b"short"}) == [(3, "record")]


def test_indexes_continue_from_ledger_to_ledger(ledger: dict[int, bytes]) -> None:
    def part(first: int, last: int) -> LedgerReport:
        """Check a ledger made of these entries."""
        entries, length = {}, 0
        for number, entry_id in enumerate(range(first, last + 1)):
            frame = bytes(decode_bookie_entry(ledger[entry_id]).data)
            length += len(frame)
            entries[number] = encode_bookie_entry(LEDGER, number, number - 1, length, frame)
        return check(entries, known=len(entries))

    joined = list(check_joints(iter([part(0, 9), part(10, 29)])))
    assert not [fault for report in joined for fault in report.faults]
    torn = list(check_joints(iter([part(0, 9), part(12, 29)])))
    (fault,) = [fault for report in torn for fault in report.faults]
    assert (fault.entry_id, fault.layer, "left out" in fault.fault) == (0, "index", True)


def test_topics_of_a_capture_have_no_faults_in_any_layer(capture: Capture) -> None:
    folder = capture("pulsar-3.0.7")
    sources = ["--store", f"rocksdb:{folder}/rocksdb", "--entries", f"bookie-disk:{folder}/bookie0"]
    topics = ["orders", "txn", "compacted", "parted", "chunked", "late-index"]
    done = as_text(pulsar_meta_here("verify-entries", *topics, *sources))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "checked: 8 topics, 23 ledgers, 405 entries\n"


def test_the_command_prints_one_line_per_fault(capture: Capture, tmp_path: Path) -> None:
    frames = frames_of(capture("pulsar-4.2.4"), "orders")[:5]
    broken = bytearray(frames[2])
    broken[-1] ^= 1
    file = tmp_path / "frames"
    file.write_bytes(b"".join(len(f).to_bytes(4, "big") + bytes(f) for f in [*frames[:2], broken, frames[4]]))
    done = as_text(pulsar_meta_here("verify-entries", "--entries", f"frames:{file}"))
    lines = [line.split("\t")[:2] for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert ["0:2", "checksum"] in lines
    assert ["0:3", "index"] in lines
    assert {line[0] for line in lines} == {"0:2", "0:3"}


@pytest.mark.spark
@pytest.mark.usefixtures("session")
def test_spark_gives_the_same_result(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    sources = ["--store", f"rocksdb:{folder}/rocksdb", "--entries", f"bookie-disk:{folder}/bookie0"]
    engine = ["--engine", "spark", "--master", "local[2]"]
    done = as_text(pulsar_meta_here("verify-entries", "orders", "marks", *sources, *engine))
    assert (done.returncode, done.stdout) == (0, "")


def test_a_range_is_checked_alone(ledger: dict[int, bytes]) -> None:
    broken = dict(ledger) | {entry_id: ledger[entry_id][:-1] + b"?" for entry_id in (3, 8, 12)}
    source: Any = Entries(broken)
    report = check_range(Range(Ledger(LEDGER, 30), 5, 10), source, SEAL)
    assert (report.entries, report.cut) == (6, True)
    assert {fault.entry_id for fault in report.faults} == {8}
    intact: Any = Entries(ledger)
    for first, last in ((0, None), (29, 29), (7, None), (0, 4)):
        assert not check_range(Range(Ledger(LEDGER, 30), first, last), intact, SEAL).faults


def test_partial_ranges_are_not_joined(ledger: dict[int, bytes]) -> None:
    source: Any = Entries(ledger)
    known = Ledger(LEDGER, 30)
    for last in (9, None):
        reports = [check_range(Range(known, 0, last), source, SEAL), check_range(Range(known), source, SEAL)]
        jumps = [fault.layer for report in check_joints(iter(reports)) for fault in report.faults]
        assert jumps == ([] if last else ["index"])


@pytest.mark.parametrize(
    ("limits", "entries"),
    [(["--from", "-10"], 10), (["-n", "25"], 25), (["-n", "0"], 0), (["--from", "3", "--to", "4"], None)],
)
def test_limits_on_the_command_line_are_obeyed(
    capture: Capture, limits: list[str], entries: int | None
) -> None:
    folder = capture("pulsar-4.2.4")
    sources = ["--store", f"rocksdb:{folder}/rocksdb", "--entries", f"bookie-disk:{folder}/bookie0"]
    done = as_text(pulsar_meta_here("verify-entries", "orders", *sources, *limits, "-v"))
    assert (done.returncode, done.stdout) == (0, ""), done.stdout
    counts = re.search(r"(\d+) entries\n", done.stderr)
    counted = int(counts[1]) if counts else 0
    assert counted == entries if entries is not None else 2 < counted < 30


def test_a_ledger_is_checked_in_few_requests() -> None:
    source = Worn(2 * RUN, {RUN: DecodeError("broken")}, lambda entry_id: bytes(40))
    check_range(Range(Ledger(LEDGER, 2 * RUN)), source, EntryFormat())
    assert source.requests < RUN + 3
    source = Worn(2 * RUN, {}, lambda entry_id: bytes(40))
    check_range(Range(Ledger(LEDGER, 2 * RUN)), source, EntryFormat())
    assert source.requests == 1


def test_an_invalid_record_of_a_log_is_a_fault() -> None:
    form = EntryFormat("CRC32C", b"").of_topic("persistent://pulsar/system/__transaction_log_0")
    right = TransactionMetadataEntry(txnid_least_bits=1, txnid_most_bits=0).SerializeToString()
    entries, length = {}, 0
    for entry_id, data in enumerate((right, b"\xff", bytes.fromhex("0e010001ff"))):
        length += len(data)
        entries[entry_id] = encode_bookie_entry(LEDGER, entry_id, entry_id - 1, length, data)
    report = check(entries, form=form)
    assert [(fault.entry_id, fault.layer) for fault in report.faults] == [(1, "metadata"), (2, "metadata")]
