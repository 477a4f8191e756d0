"""Check entries layer by layer, so that a fault names the broken layer.

    ledger    BookKeeper does not know it as the topic does
    missing   no source has the entry            sizes     a size claims more bytes than there are
    header    another ledger or entry id         metadata  protobuf that does not parse
    digest    BookKeeper's digest                payload   does not decompress to the size it says
    length    not the sum of bytes so far        batch     not the messages that the entry claims
    checksum  the frame's CRC-32C                index     does not continue the entry before
    copy      a copy on one of several bookies is damaged or lost (`copy_check`)
    log       an entry log is missing, or has other bytes where entries should be (`log_faults`)

Sources: apache/bookkeeper DigestManager, LedgerHandle (length); apache/pulsar Commands, PIP-70.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NotRequired

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.batch import DEFAULT_MAX_SIZE, decompress_payload, split_batch, why_unopened
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import Frame
from pulsar_meta.codecs.names import LogKind
from pulsar_meta.codecs.transactions.log_entries import decode_log_entry
from pulsar_meta.entries.base import EntrySource, Outcome, RawEntry, entry_of, outcome_of
from pulsar_meta.jobs.entries.copy_check import BadCopy, CopyReport
from pulsar_meta.jobs.entries.entry_blocks import Patience, read_blocks
from pulsar_meta.jobs.entries.entry_choice import (
    Range,
)
from pulsar_meta.jobs.entries.entry_reading import find_frame
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.placement import Placement, placement
from pulsar_meta.jobs.topics.topic import SegmentNames

if TYPE_CHECKING:
    from pulsar_meta.codecs.columns.words import Positions
    from pulsar_meta.jobs.entries.block_check import Soundness
    from pulsar_meta.jobs.entry_reader import Block


# The part of an entry, or of a ledger, that has a fault.
Layer = Literal[
    "ledger", "missing", "record", "header", "digest", "length", "sizes", "metadata", "checksum", "payload",
    "batch", "index", "copy", "log",
]  # fmt: skip


class EntryFault(SegmentNames):
    """One fault of an entry, or (-1) of the ledger itself, as `verify-entries` prints it.

    A fault of the layer `copy` names the bookie, the file and the offset of the damaged copy, how many of the
    copies are good, and BookKeeper's command that replaces it. File and offset are null if they are unknown,
    as with running bookies.

    A fault of the layer `log` names a damaged or missing entry log. It counts the entries and ledgers that it
    affects, the entries that are `lost` because no copy of them is good, and the faults that it explains. Its
    ledger and entry are -1.
    """

    ledger_id: int
    entry_id: int
    layer: Layer
    fault: str
    bookie: NotRequired[str]
    file: NotRequired[str | None]
    offset: NotRequired[int | None]
    good: NotRequired[int]
    copies: NotRequired[int]
    repair: NotRequired[str]
    entries: NotRequired[int]
    ledgers: NotRequired[int]
    lost: NotRequired[int]
    consequences: NotRequired[int]


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """An entry log that lacks entries which a bookie's index places in it.

    `why` is empty if the log does not exist.
    """

    bookie: str | None
    file: str
    why: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of an entry or a ledger.

    `entry_id` is the first of several missing entries, and -1 for a fault of the ledger itself. `copy` is
    set for the layer `copy`, and `log` if the entry's log does not have the entry.
    """

    ledger_id: int
    entry_id: int
    layer: Layer
    fault: str
    copy: BadCopy | None = None
    log: DamagedLog | None = None


@dataclass(frozen=True, slots=True)
class IndexMark:
    """An index and its entry. For the first entry of a ledger, it is the index before that entry."""

    index: int
    entry_id: int


@dataclass(slots=True)
class LedgerReport:
    """The result of checking a range of one ledger. The two marks connect it to its neighbours.

    `copies` counts the copies that were verified on several bookies. `elsewhere` counts entries that are only
    on bookies whose disks were not given. `cut` is True if the range ends before the ledger does, so the next
    range does not continue it. `segment` names the segment of a scalable topic. `not_checked` names the
    bookies whose copies could not be read, with the reasons.
    """

    ledger_id: int
    entries: int = 0
    copies: int = 0
    elsewhere: int = 0
    faults: list[Fault] = field(default_factory=list)
    before: IndexMark | None = None
    last: IndexMark | None = None
    cut: bool = False
    segment: SegmentNames = field(default_factory=SegmentNames)
    not_checked: dict[str, str] = field(default_factory=dict)

    def documents(self) -> Iterator[EntryFault]:
        """Yield the faults as they are printed."""
        for fault in self.faults:
            document: EntryFault = {
                **self.segment,
                "ledger_id": fault.ledger_id,
                "entry_id": fault.entry_id,
                "layer": fault.layer,
                "fault": fault.fault,
            }
            if fault.copy is not None:
                document |= fault.copy.document(fault.ledger_id)
            yield document

    def add_copies(self, report: CopyReport) -> None:
        """Add the damaged copies of entries."""
        self.copies = report.copies
        self.not_checked |= {f"copies on bookie {name}": why for name, why in report.not_checked.items()}
        for copy in report.bad:
            text = copy.text(self.ledger_id)
            self.faults.append(Fault(self.ledger_id, copy.entry_id, "copy", text, copy))

    @property
    def lacks_entries(self) -> bool:
        """Return whether entries are missing, so that the next index is unknown."""
        layers = ("missing", "record", "sizes", "metadata")
        return bool(self.elsewhere) or any(fault.layer in layers for fault in self.faults)


def check_range(
    part: Range,
    source: EntrySource,
    form: EntryFormat,
    *,
    max_size: int = DEFAULT_MAX_SIZE,
    patience: Patience | None = None,
    incomplete: frozenset[str] = frozenset(),
) -> LedgerReport:
    """Check a ledger's entries within a range. The faults are in order.

    `patience` is shared by all ranges that are checked together. Entries that only the `incomplete` bookies
    should have are not missing.
    """
    cut = part.last is not None and part.last + 1 != part.ledger.entries
    check = _LedgerCheck(
        LedgerReport(part.ledger.ledger_id, cut=cut, segment=part.segment), form, max_size, part.first
    )
    check.placement = placement(part.ledger, source, incomplete)
    expected = part.first
    try:
        ledger_id, patience = part.ledger.ledger_id, patience or Patience()
        for held in read_blocks(source, ledger_id, part.first, part.last, form, patience):
            if isinstance(held, tuple):
                expected = check.next(*held, expected)
            else:
                expected = check.block(held, source, expected)
    except DecodeError as error:
        # The source itself is wrong: it claims more entries than a ledger can have.
        check.report.faults.append(Fault(part.ledger.ledger_id, -1, "ledger", error.message))
        return check.report
    if part.ledger.entries:
        end = part.ledger.entries - 1
        check.missing(expected, end if part.last is None else min(end, part.last))
    return check.report


def check_joints(reports: Iterator[LedgerReport]) -> Iterator[LedgerReport]:
    """Yield the reports of a topic's ledgers in order, with a fault for each index that skips or repeats."""
    known: IndexMark | None = None
    for report in reports:
        if known is not None and report.before is not None and known.index != report.before.index:
            jump = _jump(known.index, report.before.index)
            report.faults.append(Fault(report.ledger_id, report.before.entry_id, "index", jump))
        known = None if report.lacks_entries or report.cut else report.last or known
        yield report


class _LedgerCheck:
    """The check of one ledger; it keeps the state after the last entry."""

    def __init__(self, report: LedgerReport, form: EntryFormat, max_size: int, first: int) -> None:
        self.report, self._format, self._max_size = report, form, max_size
        self._from_start = first == 0
        self._length: int | None = 0 if self._from_start else None
        self._index: int | None = None
        self.placement = Placement()

    def next(self, entry_id: int, outcome: Outcome, expected: int) -> int:
        """Check an entry, and that no entry is missing since `expected`; return the next entry id."""
        self.missing(expected, entry_id - 1)
        self.entry(entry_id, outcome)
        return entry_id + 1

    def block(self, block: Block, source: EntrySource, expected: int) -> int:
        """Check the entries of a block, those without a fault all at once; return the next entry id."""
        from pulsar_meta.jobs.entries.block_check import State, check_block

        soundness = check_block(block, State(expected, self._length, self._index), self._max_size)
        entry_ids, sound = block.entry_ids, soundness.sound
        changes = (sound[1:] != sound[:-1]).nonzero()[0] + 1
        for start, end in pairwise([0, *changes.tolist(), len(sound)]):
            if sound[start]:
                self._sound(soundness, entry_ids, range(start, end))
            else:
                for entry_id in entry_ids[start:end].tolist():
                    expected = self.next(entry_id, outcome_of(source, block.ledger_id, entry_id), expected)
            expected = int(entry_ids[end - 1]) + 1
        return expected

    def _sound(self, soundness: Soundness, entry_ids: Positions, rows: range) -> None:
        """Count neighbours without a fault, and keep the state after them."""
        self.report.entries += len(rows)
        self._length = int(soundness.lengths[rows[-1]])
        numbered = soundness.numbered[rows.start : rows.stop].nonzero()[0] + rows.start
        if not len(numbered):
            return
        if self._from_start and self.report.before is None and not self.report.lacks_entries:
            self.report.before = IndexMark(int(soundness.before[numbered[0]]), int(entry_ids[numbered[0]]))
        self._index = int(soundness.indexes[numbered[-1]])
        self.report.last = IndexMark(self._index, int(entry_ids[numbered[-1]]))

    def missing(self, first: int, last: int) -> None:
        if last < first:
            return
        count = self.placement.count(first, last)
        self.report.elsewhere += self.placement.elsewhere(first, last)
        entry_id = self.placement.first(first, last)
        if entry_id is not None:
            others = "" if count == last - first + 1 else f" up to {last} that should be here"
            more = "" if count == 1 else f", nor the {count - 1} after it{others}"
            self._fault(entry_id, "missing", f"no source has it{more}")
        self._length = self._index = None

    def entry(self, entry_id: int, outcome: Outcome) -> None:
        self.report.entries += 1
        try:
            data, sound = self._data(entry_of(outcome))
        except (DecodeError, NotFoundError) as error:
            self._fault(entry_id, "record", error.message)
            self._length = self._index = None
            return
        frame, compacted_from, reason = find_frame(data, self._format)
        if frame is not None:
            self._frame(entry_id, frame, numbered=compacted_from is None)
        elif self._format.content is None and (self._format.frames or not sound):
            self._fault(entry_id, "metadata" if str(reason).startswith("not a") else "sizes", str(reason))
            self._index = None
        elif self._format.log is not None:
            self._records(entry_id, data, self._format.log)

    def _records(self, entry_id: int, data: memoryview, log: LogKind) -> None:
        try:
            decode_log_entry(log, data)
        except DecodeError as error:
            self._fault(entry_id, "metadata", str(error))

    def _data(self, raw: RawEntry) -> tuple[memoryview, bool]:
        """Return the data of an entry, and whether its digest is right."""
        if not raw.bookie:
            self._length = None
            return memoryview(raw.data), False
        entry = decode_bookie_entry(raw.data, self._format.digest_type, password=self._format.password)
        if (entry.ledger_id, entry.entry_id) != (raw.ledger_id, raw.entry_id):
            self._fault(raw.entry_id, "header", f"it says it is {entry.ledger_id}:{entry.entry_id}")
        if entry.digest == "bad":
            self._fault(raw.entry_id, "digest", f"its {entry.digest_type} digest does not fit")
        if self._length is not None and entry.length != self._length + len(entry.data):
            expected = self._length + len(entry.data)
            self._fault(raw.entry_id, "length", f"expected {expected} bytes so far, it says {entry.length}")
        self._length = entry.length
        return entry.data, entry.digest == "ok"

    def _frame(self, entry_id: int, frame: Frame, *, numbered: bool) -> None:
        if frame.checksum == "bad":
            self._fault(entry_id, "checksum", "the CRC-32C of its frame does not fit")
        if numbered:
            self._numbers(entry_id, frame)
        if why_unopened(frame.metadata) is None:
            self._payload(entry_id, frame)

    def _numbers(self, entry_id: int, frame: Frame) -> None:
        """Check that the index continues; skip entries without one, because not every broker writes it."""
        if frame.index is None:
            return
        before = frame.index - frame.index_width
        if self._index is not None and before != self._index:
            self._fault(entry_id, "index", _jump(self._index, before))
        if self._from_start and self.report.before is None and not self.report.lacks_entries:
            self.report.before = IndexMark(before, entry_id)
        self._index = frame.index
        self.report.last = IndexMark(frame.index, entry_id)

    def _payload(self, entry_id: int, frame: Frame) -> None:
        try:
            payload = decompress_payload(frame.metadata, frame.payload, max_size=self._max_size)
        except DecodeError as error:
            self._fault(entry_id, "payload", str(error))
            return
        if not frame.metadata.HasField("num_messages_in_batch"):
            return
        try:
            count = sum(1 for _ in split_batch(payload, frame.message_count))
        except DecodeError as error:
            self._fault(entry_id, "batch", str(error))
            return
        if count not in (frame.message_count, len(frame.metadata.compacted_batch_indexes)):
            self._fault(entry_id, "batch", f"{count} messages, it says {frame.message_count}")

    def _fault(self, entry_id: int, layer: Layer, text: str) -> None:
        self.report.faults.append(Fault(self.report.ledger_id, entry_id, layer, text))


def _jump(expected: int, found: int) -> str:
    """Describe how the index before an entry differs from the index of the entry before it."""
    if found > expected:
        return f"{found - expected} indexes are left out: {expected + 1} to {found}"
    return f"{expected - found} indexes are given again: {found + 1} to {expected}"
