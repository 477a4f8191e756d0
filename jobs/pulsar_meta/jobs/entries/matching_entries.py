"""The entries that a filter lets through, with what decided it; here or by Spark, ledger by ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Range, Tell
from pulsar_meta.jobs.entries.entry_dump import DataEntry, Look, data_entry, describe, find_frame
from pulsar_meta.jobs.entries.entry_filter import EntryFilter, FilterCounts, Verdict
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat

Document = dict[str, Any]
Readable = tuple[DataEntry, EntryFormat]


def matching_entries(
    entries: Iterable[Readable], chosen: EntryFilter, counts: FilterCounts
) -> Iterator[tuple[DataEntry, EntryFormat, Verdict]]:
    """Yield the entries that match and why; every one is counted, but for those that never are messages."""
    for entry, form in entries:
        if form.content is not None:
            continue
        frame, _, _ = find_frame(entry.data, form)
        verdict = Verdict(False, None, why="have no frame") if frame is None else chosen.decide(frame)
        counts.add(verdict)
        if verdict.matches:
            yield entry, form, verdict


def describe_matching(
    entries: Iterable[Readable],
    chosen: EntryFilter,
    counts: FilterCounts,
    look: Look,
    count: int | None,
    tell: Tell,
) -> Iterator[Document]:
    """Yield a document for each entry that matches, at most `count`, with the verdict as `where`.

    Where messages of a batch were looked at, only those that match are left in `messages`.
    """
    for entry, form, verdict in islice(matching_entries(entries, chosen, counts), count):
        document = describe(entry, form, look, tell) | {"where": verdict.document()}
        if verdict.messages is not None and "messages" in document:
            matching = set(verdict.messages)
            document["messages"] = [one for one in document["messages"] if one["batch_index"] in matching]
        yield document


def readable_entries(part: Range, source: EntrySource, form: EntryFormat, tell: Tell) -> Iterator[Readable]:
    """Yield the entries of one ledger's range that can be read; those that cannot are told."""
    ledger_id = part.ledger.ledger_id
    for entry_id in source.entry_ids(ledger_id, part.first, part.last):
        try:
            yield data_entry(source.read(ledger_id, entry_id), form), form
        except DecodeError as error:
            where = f"entry {ledger_id}:{entry_id}"
            tell(DecodeError(f"{where}: {error.message}", offset=error.offset, source=error.source))
