"""Describe entries as documents: their headers and, if they are opened, their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NotRequired, TypedDict

from pulsar_meta.codecs.backends import Verdict
from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError, UsageError
from pulsar_meta.codecs.frames.batch import DEFAULT_MAX_SIZE, OpenedEntry, open_entry
from pulsar_meta.codecs.frames.entry_json import (
    FrameFacts,
    MessageDocument,
    OpenedFacts,
    PayloadForm,
    frame_to_json,
    opened_to_json,
)
from pulsar_meta.codecs.frames.frame import Frame
from pulsar_meta.codecs.names import SnapshotKind
from pulsar_meta.codecs.transactions.log_entries import (
    LogDocument,
    decode_log_entry,
    log_entry_to_json,
    possible_readings,
)
from pulsar_meta.codecs.transactions.snapshots import decode_snapshot
from pulsar_meta.jobs.entries.entry_reading import DataEntry, EntryPlace, Readable, find_frame
from pulsar_meta.jobs.entries.filters import EntryFilter, FilterCounts, FilterVerdict, WhereDocument
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.topic import Report, SegmentNames
from pulsar_meta.jobs.transactions.outcomes import OutcomeFacts


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """How to dump entries: `deep` opens them; payloads are text in `form`, or files in `directory`."""

    deep: bool = False
    form: PayloadForm | None = None
    directory: Path | None = None
    max_size: int = DEFAULT_MAX_SIZE


class LogFacts(TypedDict, total=False):
    """The records of a log entry. `readings` has every possible reading if the ledger's owner is unknown."""

    log: LogDocument
    readings: list[LogDocument]


class EntryHead(SegmentNames, LogFacts):
    """The entry's position, and the facts that need no frame."""

    ledger_id: int
    entry_id: int
    size: int
    frame_checksum: Verdict
    digest: Verdict


class EntryDocument(EntryHead, FrameFacts, OpenedFacts, OutcomeFacts):
    """An entry in the form that `dump-entries` prints. `size` excludes BookKeeper's header and digest."""

    compacted_from: NotRequired[EntryPlace]
    where: NotRequired[WhereDocument]


def describe(entry: DataEntry, form: EntryFormat, look: DumpOptions, report: Report) -> EntryDocument:
    """Describe one entry, and report its faults."""
    faults = _Faults(f"entry {entry.ledger_id}:{entry.entry_id}", report)
    frame, compacted_from, reason = find_frame(entry.data, form)
    head: EntryHead = {
        **entry.segment,
        "ledger_id": entry.ledger_id,
        "entry_id": entry.entry_id,
        "size": len(entry.data),
        "frame_checksum": "absent",
        "digest": entry.digest,
        **_records(entry, frame, form, faults),
    }
    _report_frame(frame, reason, entry, form, report)
    if frame is None:
        messages: OpenedFacts = {"messages": []} if look.deep else {}
        return {**head, "metadata": {}, **messages, "unopened": f"no frame: {reason}"}
    document: EntryDocument = {**head, **frame_to_json(frame)}
    if compacted_from is not None:
        document["compacted_from"] = compacted_from
    if look.deep:
        document |= _opened(entry, frame, form, look, faults)
    return document


def _report_frame(
    frame: Frame | None, reason: str | None, entry: DataEntry, form: EntryFormat, report: Report
) -> None:
    """Report an entry that should be a frame but is not (`reason`), or a frame with a wrong checksum."""
    faults = _Faults(f"entry {entry.ledger_id}:{entry.entry_id}", report)
    if frame is not None:
        if frame.checksum == "bad":
            faults.add("the checksum of its frame does not fit")
    elif form.content is None and (form.frames or entry.digest != "ok"):
        faults.add(f"no frame can be read in it: {reason}")


def write_payloads(directory: Path, entry: DataEntry, opened: OpenedEntry) -> list[str]:
    """Write the payload of each message to its own file, and return the names of the files."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError("no directory: payloads are written into one", source=str(directory)) from error
    names = []
    for message in opened.messages:
        place = "" if message.batch_index is None else f"-{message.batch_index}"
        path = directory / f"{entry.ledger_id}-{entry.entry_id}{place}.payload"
        path.write_bytes(message.payload)
        names.append(str(path))
    return names


def _records(entry: DataEntry, frame: Frame | None, form: EntryFormat, faults: _Faults) -> LogFacts:
    """The `log` records of an entry, or possible `readings` of an entry whose ledger has no known owner.

    A frame and a batch of records begin with the same bytes, so only a frame with a correct checksum is
    certain.
    """
    if form.log is not None:
        try:
            return {"log": log_entry_to_json(decode_log_entry(form.log, entry.data))}
        except DecodeError as error:
            faults.add(str(error))
            return {}
    if form.content is not None or form.frames or (frame is not None and frame.checksum != "bad"):
        return {}
    readings = [log_entry_to_json(reading) for reading in possible_readings(entry.data)]
    return {"readings": readings} if readings else {}


@dataclass(frozen=True, slots=True)
class _Faults:
    source: str
    report: Callable[[PulsarMetaError], None]

    def add(self, message: str) -> None:
        self.report(DecodeError(message, source=self.source))


def _opened(
    entry: DataEntry, frame: Frame, form: EntryFormat, look: DumpOptions, faults: _Faults
) -> OpenedFacts:
    try:
        opened = open_entry(frame, max_size=look.max_size, partly=True)
    except DecodeError as error:
        faults.add(str(error))
        return {"messages": [], "unopened": str(error)}
    document = opened_to_json(opened, look.form)
    if form.snapshot is not None:
        _add_snapshots(document["messages"], opened, form.snapshot, faults)
    if opened.fault is not None:
        faults.add(str(opened.fault))
        document["unopened"] = str(opened.fault)
    if look.directory is not None:
        names = write_payloads(look.directory, entry, opened)
        for message, name in zip(document["messages"], names, strict=True):
            message["payload_file"] = name
    return document


def _add_snapshots(
    documents: list[MessageDocument], opened: OpenedEntry, kind: SnapshotKind, faults: _Faults
) -> None:
    """Add the decoded transaction buffer snapshot to each message as `snapshot`; null if there is none."""
    for document, message in zip(documents, opened.messages, strict=True):
        try:
            document["snapshot"] = decode_snapshot(kind, message.payload) if message.payload else None
        except DecodeError as error:
            faults.add(f"no snapshot of a transaction buffer can be read in it: {error}")


def matching_entries(
    entries: Iterable[Readable], chosen: EntryFilter, counts: FilterCounts, report: Report
) -> Iterator[tuple[DataEntry, EntryFormat, FilterVerdict]]:
    """Yield the entries that match, with the verdicts. All entries that can contain messages are counted.

    A damaged frame that does not match is reported here, because `describe` does not see it.
    """
    for entry, form in entries:
        if form.content is not None:
            continue
        frame, _, reason = find_frame(entry.data, form)
        verdict = FilterVerdict(False, None, why="have no frame") if frame is None else chosen.decide(frame)
        counts.add(verdict)
        if verdict.matches:
            yield entry, form, verdict
        else:
            _report_frame(frame, reason, entry, form, report)


def describe_matching(
    entries: Iterable[Readable],
    chosen: EntryFilter,
    counts: FilterCounts,
    look: DumpOptions,
    count: int | None,
    report: Report,
) -> Iterator[EntryDocument]:
    """Yield a document for each entry that matches, at most `count`, with the verdict as `where`.

    If a batch was opened to decide, `messages` has only the matching messages.
    """
    for entry, form, verdict in islice(matching_entries(entries, chosen, counts, report), count):
        document = describe(entry, form, look, report)
        document["where"] = verdict.document()
        if verdict.messages is not None and "messages" in document:
            matching = set(verdict.messages)
            document["messages"] = [one for one in document["messages"] if one["batch_index"] in matching]
        yield document
