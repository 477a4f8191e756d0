"""Panes for a topic (its ledgers on a timeline, its subscriptions and backlogs) and for a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from rich.text import Text

from pulsar_meta.cli.browse.drawing import LEGEND, Job, fault_line, line, lines, strip
from pulsar_meta.cli.browse.tree import Opened, Spot
from pulsar_meta.cli.cursor_states import CursorStates
from pulsar_meta.cli.render.cursors import DETAIL, backlog_of, place_of
from pulsar_meta.cli.render.pages import Part, Section
from pulsar_meta.cli.render.text import counted, size
from pulsar_meta.cli.render.values import document_lines
from pulsar_meta.cli.values import OTHER_BYTES
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.cursors.documents import MessageCounter, detail_of, line_of
from pulsar_meta.jobs.cursors.subscriptions import BacklogAges, Limits, Subscription, SubscriptionReader
from pulsar_meta.jobs.topics.related import old_part
from pulsar_meta.jobs.topics.topic import (
    Ledger,
    Report,
    Topic,
    contradictions,
    named,
    read_topic,
    with_bookkeeper,
)
from pulsar_meta.jobs.transactions.pending_acks import pending_acks
from pulsar_meta.jobs.values.biggest import measure
from pulsar_meta.jobs.values.value_inputs import ValueInput
from pulsar_meta.stores.base import Store, Versioned

NO_TOPIC: Final = "no topic here: choose one in the tree, or find it with /"
# Subscriptions of a topic that are shown at most.
SHOWN: Final = 200
# Columns of a ledger's strip; there is no room for more on a terminal with 80 columns.
TIMES: Final = 16


def ledgers_of(opened: Opened, spot: Spot) -> list[Text]:
    """Return a line for each ledger of a topic. Raises UnreachableError."""
    return list(_of_topics(opened, spot, _ledgers))


def cursors_of(opened: Opened, spot: Spot) -> list[Text]:
    """Return a few lines for each subscription of a topic, or all details of one. Raises UnreachableError."""
    return list(_of_topics(opened, spot, _subscriptions if spot.cursor is None else _subscription))


def topics_at(store: Store, spot: Spot, report: Report) -> Iterator[Topic]:
    """Yield the topic of a place, or the segments of a scalable topic; errors go to `report`."""
    if spot.topic is None:
        return
    name = TopicName.parse(spot.topic)
    if name.domain == "topic":
        yield from named(store, spot.topic, report)
        return
    try:
        yield read_topic(store, name, report)
    except (NotFoundError, DecodeError) as error:
        report(error)


def _of_topics(
    opened: Opened, spot: Spot, show: Callable[[SubscriptionReader, Topic, str | None], Iterator[Text]]
) -> Iterator[Text]:
    if spot.topic is None:
        yield line(NO_TOPIC, "dim")
        return
    faults: list[PulsarMetaError] = []
    yield from lines(filter(None, [old_part(opened.store, spot.topic)]), "warning")
    reader = SubscriptionReader.of(opened.store, opened.entries, faults.append)
    for topic in topics_at(opened.store, spot, faults.append):
        yield line(topic.name, "head")
        yield from show(reader, topic, spot.cursor)
    yield from map(fault_line, faults)


def _ledgers(reader: SubscriptionReader, topic: Topic, _: str | None) -> Iterator[Text]:
    known = reader.store if reader.knows_ledgers else None
    with_metadata = tuple(with_bookkeeper(known, topic.ledgers, reader.report))
    ledgers = reader.topic(replace(topic, ledgers=with_metadata)).ledgers
    if topic.terminated is not None:
        yield line("  terminated at {}:{}".format(*topic.terminated))
    if topic.snapshot is not None:
        yield line(f"  {topic.snapshot}", "warning")
    spans = list(_spans(ledgers))
    times = [time for span in spans for time in span if time is not None]
    whole = (min(times), max(times)) if times else (0, 0)
    if times:
        yield line("  {} to {}".format(*map(iso_time, whole)), "dim")
    columns = [_ledger(ledger) for ledger in ledgers]
    columns.insert(0, ("ledger", "entries", "size"))
    first, *rows = _aligned(columns)
    yield line(f"  {first} open, closed", "dim")
    for ledger, row, span in zip(ledgers, rows, spans, strict=True):
        yield line(f"  {row} {_on_time(span, whole)}{_notes(ledger)}")
        yield from lines((f"    {fault}" for fault in contradictions(ledger)), "error")


def _ledger(ledger: Ledger) -> tuple[str, str, str]:
    entries = "?" if ledger.entries is None else str(ledger.entries)
    return str(ledger.ledger_id), entries, "" if ledger.size is None else size(ledger.size)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield " ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))


def _notes(ledger: Ledger) -> str:
    notes = ["open"] if ledger.state == "open" else []
    if ledger.offload is not None:
        notes.append("offloaded" if ledger.offload.complete else "offload begun")
    if ledger.metadata == "broken":
        notes.append("broken metadata")
    notes += [f"{name}={value}" for name, value in ledger.properties]
    return f" {', '.join(notes)}" if notes else ""


# The times at which a ledger was opened and closed (ms), None if they are not recorded.
_Span = tuple[int | None, int | None]


def _spans(ledgers: Sequence[Ledger]) -> Iterator[_Span]:
    before: int | None = None
    for ledger in ledgers:
        created = ledger.bookkeeper.created if ledger.bookkeeper is not None else None
        yield created or before, ledger.closed_at
        before = ledger.closed_at


def _on_time(span: _Span, whole: tuple[int, int]) -> str:
    """Draw a ledger as a strip on the timeline; an open ledger reaches to the end."""
    first, last = (span[1] if span[0] is None else span[0]), span[1]
    if first is None:
        return " " * TIMES
    length, end = max(whole[1] - whole[0], 1), whole[1] if last is None else last
    # Visible, even if it was open only for a moment.
    width = max((end - first) / length, 0.5 / TIMES)
    start = min((first - whole[0]) / length, 1 - 0.5 / TIMES)
    return strip([Part(start, min(width, 1 - start))], TIMES)


def _subscriptions(reader: SubscriptionReader, topic: Topic, _: str | None) -> Iterator[Text]:
    messages = None if reader.source is None else MessageCounter(reader.source)
    cursors, ages = reader.all(topic), BacklogAges.today(reader.source)
    shown = False
    for cursor in islice(cursors, SHOWN):
        shown = True
        document = line_of(cursor, messages, ages)
        in_messages = document["backlog_messages"]
        left = f"backlog {backlog_of(dict(document)) or 'not known'}"
        left += "" if in_messages is None else f", {counted(in_messages, 'messages')}"
        yield line(f"  {cursor.name}", "head")
        yield line(f"    {document['position'] or 'position not known'}, {left}")
        yield line(f"    {_acked(cursor)}")
        yield line(f"    {place_of(dict(document))}", "dim")
    if not shown:
        yield line("  no subscriptions", "dim")
    elif next(cursors, None) is not None:
        yield line(f"  … more: pulsar-meta show-cursor {topic.name}", "warning")
    else:
        yield line(f"  acknowledged: {LEGEND}", "dim")


def _subscription(reader: SubscriptionReader, topic: Topic, cursor: str | None) -> Iterator[Text]:
    assert cursor is not None
    subscription = reader.one(topic, cursor)
    messages = None if reader.source is None else MessageCounter(reader.source)
    pending = pending_acks(reader.store, reader.source, TopicName.parse(topic.name), cursor)
    ages = BacklogAges.today(reader.source)
    document = dict(detail_of(subscription, messages, ages, Limits.of(None), pending))
    yield line(f"  of all entries of the topic: {_acked(subscription)}")
    for section in DETAIL.drawing(document):
        yield from _drawn(section)
    yield from lines(DETAIL.lines(document))


def _drawn(section: Section) -> Iterator[Text]:
    yield line(section.heading, "head")
    yield line(f"  {LEGEND} acknowledged", "dim")
    for row in section.rows:
        ledger, count, parts = row.cells
        yield line(f"  ledger {ledger.text:>8} {strip(parts.parts)} {count.text}")


def _acked(cursor: Subscription) -> str:
    """Draw the acknowledged entries of a topic as a strip, with the first ledger on the left."""
    left = cursor.backlog
    if left is None:
        return "not known"
    ends = list(_ends(cursor.topic.ledgers, left.runs))
    total = sum(count for _, count in ends)
    if not total:
        return "no entries"
    starts, at = dict[int, int](), 0
    for ledger_id, count in ends:
        starts[ledger_id] = at
        at += count
    runs = [(starts[run.ledger_id] + run.first, starts[run.ledger_id] + run.last + 1) for run in left.runs]
    more = "" if left.open_ledger is None else f" … ledger {left.open_ledger} is open"
    return strip(list(_between(runs, total))) + more


def _ends(ledgers: Iterable[Ledger], runs: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield each ledger with its number of entries (the known ones if it is open)."""
    known = {ledger_id: last + 1 for ledger_id, _, last in runs}
    for ledger in ledgers:
        yield ledger.ledger_id, known.get(ledger.ledger_id, 0) if ledger.entries is None else ledger.entries


def _between(runs: Iterable[tuple[int, int]], total: int) -> Iterator[Part]:
    """Yield the gaps between the runs of unacknowledged entries, as shares of the whole."""
    done = 0
    for first, end in (*runs, (total, total)):
        if first > done:
            yield Part(done / total, (first - done) / total)
        done = end


# The lines at the root, where `browse` opens.
_START: Final = (
    "  Topics are below managed-ledgers: tenant, namespace, persistent, topic, subscription.",
    "",
    "  /  find a topic, a subscription or an entry by name",
    "  c  check the whole store for damage, with the commands that repair it",
    "  ?  all keys",
)


def value_of(opened: Opened, spot: Spot) -> list[Text]:
    """Return the lines of the value at a place. Raises UnreachableError and DecodeError of the store."""
    stored = opened.store.find(spot.path)
    if spot.path == "/" and (stored is None or not stored.value):
        return [line("/", "head"), *lines(_START)]
    if stored is None:
        return [line(spot.path, "head"), line("  no value at this path", "dim")]
    value = ValueInput(opened.store.url, stored.value, stored.path, stored.version)
    options = DecodeOptions(show_secrets=opened.places.show_secrets)
    decoded = decode_document(
        stored.value, source=value.source, path=stored.path, version=stored.version, options=options
    )
    notes: list[str] = []
    fault = CursorStates(opened.store, opened.opening_entries, notes.append).add(value, decoded.document)
    head, *rest = document_lines(decoded.document)
    shown = [line(head, "head"), line(f"  {_facts(stored)}", "dim"), *lines(rest)]
    if decoded.error is not None and decoded.document.get("error") is None:
        shown.append(fault_line(decoded.error))
    elif decoded.error is None and not decoded.same_bytes:
        shown.append(line(f"  {OTHER_BYTES}", "warning"))
    return [*shown, *lines(notes, "warning"), *([] if fault is None else [fault_line(fault)])]


def _facts(stored: Versioned) -> str:
    times = [("created", stored.created), ("modified", stored.modified)]
    facts = [counted(len(stored.value), "bytes"), "ephemeral" if stored.ephemeral else ""]
    facts += [f"{name} {iso_time(time)}" for name, time in times if time]
    return ", ".join(filter(None, facts))


def sum_of(opened: Opened, path: str, job: Job) -> str:
    """Return the number and total size of the values at and below a path."""
    total = measure(opened.store.scan(path), 0, advance=job.advance).total
    return f"{counted(total.count, 'values')}, {size(total.size)}"
