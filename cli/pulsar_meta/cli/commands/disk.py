"""`disk`, `ledgers` and `whois`: disk usage, the ledgers on a disk, and the owner of a ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.disk_space import BOOKIES, FREED, add_up, change_of, check_change
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, OtherStores, StoreUrl
from pulsar_meta.cli.render.pages import Section
from pulsar_meta.cli.render.tables import Detail, View
from pulsar_meta.cli.render.text import checked_text, counted, size, unsized
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.disk.contents import ledger_lines, lines_by_log
from pulsar_meta.jobs.disk.space import Change, bookies_of, by_bookie, freed_by
from pulsar_meta.jobs.disk.usage import (
    DELETED,
    ORPHAN,
    Ownership,
    Usage,
    by_log,
    by_subscription,
    by_topic,
    ownership,
    report_unindexed,
    total_of,
    usage_of,
)
from pulsar_meta.jobs.disk.whois import IN_MEMORY
from pulsar_meta.jobs.disk.whois import whois as owners_and_reasons
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.topics.completeness import directories_not_given
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.scope import check_inhabited
from pulsar_meta.jobs.topics.topic import parse_ledger_id
from pulsar_meta.stores.base import Store


class By(StrEnum):
    """The subject of a line."""

    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    LOG = "log"
    BOOKIE = "bookie"


@dataclass(frozen=True)
class ChangeOptions:
    """Options for a change whose effect on disk space is shown."""

    if_deleted: Annotated[
        list[str] | None,
        typer.Option(
            "--if-deleted",
            metavar="SUBSCRIPTION",
            help="Show the bytes that deleting this subscription in every topic would free (repeatable).",
        ),
    ] = None
    if_retention: Annotated[
        str | None,
        typer.Option(
            "--if-retention",
            metavar="TIME",
            help="Show the bytes that this retention would free: 0, 90s, 12h, 7d.",
        ),
    ] = None


def disk(
    shell: Shell,
    change_options: ChangeOptions,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    by: Annotated[
        By | None,
        typer.Option("--by", help="Group by this. Default: topic, or log without a store."),
    ] = None,
    other_stores: OtherStores = None,
) -> None:
    """Show disk usage by topic, subscription, log or bookie.

    Use it when bookies run out of space, or before you delete something. Every bookie's copy counts.

    By topic, it shows the bytes of data, cursors, compacted data, indexes of delayed messages and schemas,
    and those of ledgers that no record refers to (orphan) or that BookKeeper has deleted but not yet
    garbage-collected (deleted). By subscription, it shows the bytes that each one retains, and the bytes
    that only this subscription retains. By log, it shows the live bytes of each entry log, and the dead
    bytes that compaction would free. By bookie, it counts every byte in the bookie's directories once, so
    that the columns add up to the result of `du --apparent-size`.

    --if-deleted and --if-retention show, for each topic and bookie, the bytes that a change would free.

    Examples:
      pulsar-meta disk --entries bookie-disk:data/bookie --store zk://zk1:2181
      pulsar-meta disk --by subscription --entries bookie-disk:data/bookie
      pulsar-meta disk --by log --entries bookie-disk:data/bookie
      pulsar-meta disk --by bookie --entries bookie-disk:data/bookie
      pulsar-meta disk --if-deleted reports --entries bookie-disk:data/bookie
    """
    urls, faults, unseen = shell.entries_urls(entries), Faults(shell), dict[str, str]()
    change = change_of(change_options.if_deleted or (), change_options.if_retention)
    with ExitStack() as stack:
        opened = _optional_store(shell, store, stack)
        check_change(change, by, has_store=opened is not None)
        if opened is None and by not in (None, By.LOG, By.BOOKIE):
            raise UsageError(f"--by {by} needs the owners of ledgers: add --store URL")
        if opened is not None:
            check_inhabited(opened)
        source = stack.enter_context(open_entry_sources(urls, opened))
        progress = stack.enter_context(shell.progress(unit="ledgers"))
        progress.stage("1/2 measuring the disks")
        usage = usage_of(source, faults.report, progress.advance)
        progress.stage("2/2 finding the owners")
        if opened is not None and opened.is_stale:
            # In an older state of the store, new ledgers on the disks would count as deleted.
            opened = stack.enter_context(shell.store(store))
        owned = None
        if opened is not None:
            other = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
            clusters = OtherClusters(opened, other, faults.report)
            report_unindexed(source, usage, opened, faults.report)
            owned = ownership(opened, source, usage, faults.report, unseen.__setitem__, clusters)
        by = by or (By.LOG if opened is None else By.TOPIC)
        rows, view = _rows(by, change, urls, opened, source, usage, owned, faults)
        checked = {"ledgers": len(usage.ledgers), "entries": usage.total.entries}
        left_out = unseen | _left_out(owned) | unsized(usage.unsized)
        left_out |= {str(gap): "its files are not counted" for gap in directories_not_given(source, urls)}
        if change is not None and change.retention is None:
            left_out["retention"] = "policies may keep ledgers longer, see --if-retention"
        shell.emit(rows, view, about=lambda: (*map(redact, urls), checked_text(checked, left_out)))
        if view is LOGS:
            _print_totals(shell, rows)
        elif view in (BOOKIES, FREED):
            add_up(shell, rows, change)
        shell.summary(checked, left_out)
        faults.finish(source)


def _optional_store(shell: Shell, url: str | None, stack: ExitStack) -> Store | None:
    has_store = url is not None or shell.settings.store is not None
    return stack.enter_context(shell.store(url)) if has_store else None


def _rows(
    by: By,
    change: Change | None,
    urls: Sequence[str],
    store: Store | None,
    source: EntrySource,
    usage: Usage,
    owned: Ownership | None,
    faults: Faults,
) -> tuple[list[Document], View]:
    """Return the rows with their view."""
    if change is not None and store is not None:
        return list(freed_by(change, bookies_of(urls), store, source, usage, faults.report)), FREED
    if by is By.BOOKIE:
        return list(by_bookie(bookies_of(urls), store, source, usage, owned, faults.report)), BOOKIES
    if by is By.LOG or store is None or owned is None:
        return list(by_log(source, usage, owned, faults.report)), LOGS
    if by is By.SUBSCRIPTION:
        rows = by_subscription(store, source, usage, faults.report)
        return sorted(rows, key=lambda row: -(row["size"] or 0)), SUBSCRIPTIONS
    return list(by_topic(usage, owned)), TOPICS


def _print_totals(shell: Shell, rows: Sequence[Document]) -> None:
    parts = [f"{size(total_of(rows, name))} {name}" for name in ("live", "dead")]
    logs = counted(len(rows), "entry logs")
    shell.note(f"{size(total_of(rows, 'size'))} in {logs}: {', '.join(parts)} (compaction frees dead bytes)")


def _left_out(owned: Ownership | None) -> dict[str, str]:
    if owned is None:
        return {"owners": "no --store"}
    return {} if owned.knows_ledgers else {"BookKeeper's metadata": "the store has no /ledgers"}


def _topic_row(row: Document) -> list[str]:
    return [row["name"] or "", row["role"], *(str(row[name]) for name in ("ledgers", "entries", "size"))]


def _subscription_row(row: Document) -> list[str]:
    numbers = ("" if row[name] is None else str(row[name]) for name in ("ledgers", "size", "alone"))
    return [row["topic"], row["cursor"] or "(no subscription)", *numbers]


def _log_row(row: Document) -> list[str]:
    names = ("size", "live", "dead", DELETED, ORPHAN, "ledgers", "live_ledgers")
    numbers = ("" if row[name] is None else str(row[name]) for name in names)
    return [PurePath(row["log"]).name, row["bookie"] or "", "sealed" if row["sealed"] else "open", *numbers]


@dataclass(frozen=True, slots=True)
class TopicsView(View):
    """Disk usage by topic; an HTML page also has a treemap."""

    def sections(self, documents: Iterable[Document]) -> Iterator[Section]:
        """Yield the treemap, then the table."""
        from pulsar_meta.cli.render.pictures import treemap

        rows = list(documents)
        if any(row["size"] for row in rows):
            yield treemap(rows)
        for section in View.sections(self, rows):
            yield replace(section, heading="Topics")


TOPICS = TopicsView(
    ["name", "as", "ledgers", "entries", "bytes"],
    _topic_row,
    frozenset({"ledgers", "entries", "bytes"}),
    fields=("name", "role", "ledgers", "entries", "size"),
    title="Disk usage by topic",
    bars={"bytes": "size"},
)
SUBSCRIPTIONS = View(
    ["topic", "subscription", "ledgers", "bytes", "by it alone"],
    _subscription_row,
    frozenset({"ledgers", "bytes", "by it alone"}),
    fields=("topic", "cursor", "ledgers", "size", "alone"),
    title="Disk usage by subscription",
    bars={"bytes": "size"},
)
LOGS = View(
    ["log", "bookie", "state", "bytes", "live", "dead", DELETED, ORPHAN, "ledgers", "live ledgers"],
    _log_row,
    frozenset({"bytes", "live", "dead", DELETED, ORPHAN, "ledgers", "live ledgers"}),
    fields=(
        "log", "bookie", "sealed", "size", "ledgers", "live_ledgers", "live", "dead", "deleted", "orphan",
    ),
    title="Disk usage by entry log",
    bars={"bytes": "size", "dead": "dead"},
)  # fmt: skip


def ledgers(
    shell: Shell,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    by_log: Annotated[
        bool, typer.Option("--by-log", help="One line per ledger and entry log, including deleted ledgers.")
    ] = False,
) -> None:
    """List the ledgers on disks with their sizes and files.

    Use it to see what a bookie's disk has; no store is needed (--store is for bookie:). Bytes are the sizes
    of records in entry logs. Times are those of the first and the last entry, if they are messages. With
    --by-log, the list comes from the entry logs instead of the bookie's index: from the ledger map at the end
    of a sealed log, which has no entry counts, else from the log's records.

    Examples:
      pulsar-meta ledgers --entries bookie-disk:data/bookie
      pulsar-meta ledgers --by-log --entries bookie-disk:data/bookie -o csv
    """
    urls, faults = shell.entries_urls(entries), Faults(shell)
    with ExitStack() as stack:
        source = stack.enter_context(open_entry_sources(urls, _optional_store(shell, store, stack)))
        counts = Counter[str]()
        lines = (
            lines_by_log(source, faults.report, lambda: counts.update(logs=1))
            if by_log
            else ledger_lines(source, faults.report)
        )
        shell.emit(_counted(lines, counts), BY_LOG if by_log else LEDGERS_VIEW)
        nouns = ("logs", "ledgers") if by_log else ("ledgers", "entries")
        shell.summary({noun: counts[noun] for noun in nouns}, unsized(counts["unsized"]))
        faults.finish(source)


def _counted(lines: Iterable[Document], counts: Counter[str]) -> Iterator[Document]:
    """Yield the lines, and count entries and different ledgers."""
    ledgers = set[int]()
    for line in lines:
        ledgers.add(line["ledger_id"])
        counts["entries"] += line["entries"] or 0
        counts["unsized"] += line.get("unsized", 0)
        yield line
    counts["ledgers"] = len(ledgers)


def _row(line: Document) -> list[str]:
    times = ("" if line[name] is None else iso_time(line[name]) or "" for name in ("first_time", "last_time"))
    numbers = (str(line[name]) for name in ("entries", "first_entry", "last_entry", "size"))
    return [str(line["ledger_id"]), line["bookie"] or "", *numbers, *times, ", ".join(line["files"])]


def _entry_log_row(line: Document) -> list[str]:
    entries = "" if line["entries"] is None else str(line["entries"])
    name = PurePath(line["log"]).name
    return [name, line["bookie"] or "", str(line["ledger_id"]), entries, str(line["size"]), line["read"]]


LEDGERS_VIEW = View(
    ["ledger", "bookie", "entries", "first", "last", "bytes", "first time", "last time", "files"],
    _row,
    frozenset({"ledger", "entries", "first", "last", "bytes"}),
    fields=(
        "ledger_id", "bookie", "entries", "first_entry", "last_entry", "size", "unsized", "first_time",
        "last_time", "files",
    ),
)  # fmt: skip
BY_LOG = View(
    ["log", "bookie", "ledger", "entries", "bytes", "read"],
    _entry_log_row,
    frozenset({"ledger", "entries", "bytes"}),
    fields=("log", "bookie", "ledger_id", "entries", "size", "read"),
)


def whois(
    shell: Shell,
    ledgers: Annotated[list[str], typer.Argument(metavar="LEDGER", help="Ledger ids.")],
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    other_stores: OtherStores = None,
) -> None:
    """Show the owners of ledgers, and why the ledgers are kept.

    Use it to find the topic of a ledger id in a log message, or to see why a ledger is not deleted. It
    searches topics, cursors, schemas, compacted data and indexes of delayed messages, and shows what
    BookKeeper's metadata says about the ledger's purpose. With --entries, it also shows how much of the
    ledger is in these sources; they are enough if you have no store. All ledgers need only one scan of the
    store.

    Examples:
      pulsar-meta whois 123 456 --store zk://zk1:2181
      pulsar-meta whois 123 --entries bookie-disk:data/bookie
    """
    ledger_ids = list(dict.fromkeys(map(parse_ledger_id, ledgers)))
    urls = list(entries or shell.settings.entries)
    faults, unseen = Faults(shell), dict[str, str]()
    with ExitStack() as stack:
        opened = _optional_store(shell, store, stack)
        if opened is None and not urls:
            raise UsageError("no store and no entries: add --store URL or --entries URL")
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        others = None
        if opened is not None:
            other = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
            others = OtherClusters(opened, other, faults.report)
        owners = owners_and_reasons(ledger_ids, opened, source, faults.report, unseen.__setitem__, others)
        documents = list(owners)
        shell.emit(documents, WHOIS_VIEW)
        left_out = dict(unseen)
        left_out |= {"owners": "no --store"} if opened is None else {IN_MEMORY: "not visible here"}
        left_out |= {"entries": "no --entries"} if source is None else {}
        if documents or not faults.worst:
            shell.summary({"ledgers": len(documents)}, left_out)
        faults.finish(source)


def _lines(document: Document) -> Iterator[str]:
    yield f"ledger {document['ledger_id']}  {_owner(document)}"
    known = ", ".join(_known(document))
    if known:
        yield f"  {known}"
    if document["bookies"]:
        yield f"  bookies: {', '.join(document['bookies'])}"
    yield from _here(document)
    for owner in document["named_by"]:
        shadow = f", a shadow of {owner['shadow_of']}" if "shadow_of" in owner else ""
        cluster = f"{owner['cluster']} " if "cluster" in owner else ""
        yield f"  referenced by {cluster}{owner['path']} ({owner['role']}{shadow})"
    if document["created_for"] is not None and not document["named_by"]:
        origin = document["created_for"]
        yield f"  created as {origin['role']} of {origin['name']}{_suffix(origin['cursor'])}"
    yield from (f"  kept: {reason}" for reason in document["kept_by"])


def _known(document: Document) -> Iterator[str]:
    """Yield the facts that BookKeeper and the topic have about a ledger."""
    if document["metadata"] in ("absent", "broken"):
        yield f"BookKeeper's metadata {document['metadata']}"
    if document["state"] is not None:
        yield document["state"]
    if document["entries"] is not None:
        yield counted(document["entries"], "entries")
    if document["size"] is not None:
        yield size(document["size"])
    for name in ("created", "closed"):
        if document[name] is not None:
            yield f"{name} {iso_time(document[name])}"


def _here(document: Document) -> Iterator[str]:
    """Yield the facts about a ledger in the sources of --entries."""
    if document["entries_here"] is None:
        return
    files = f" in {', '.join(document['files'])}" if document["files"] else ""
    yield f"  here: {counted(document['entries_here'], 'entries')}, {size(document['size_here'])}{files}"
    if document["content"] is not None:
        times = (iso_time(document[name]) for name in ("first_time", "last_time") if document[name])
        yield ", ".join(filter(None, [f"  holds: {document['content']}", " to ".join(filter(None, times))]))


def _owner(document: Document) -> str:
    if document["name"] is None:
        return "owner unknown" if document["metadata"] == "unread" else "no record refers to it"
    return f"{document['role']} of {document['name']}{_suffix(document['cursor'])}"


def _suffix(cursor: str | None) -> str:
    return "" if cursor is None else f" {cursor}"


FIELDS = (
    "ledger_id", "role", "name", "cursor", "metadata", "state", "entries", "size", "created", "closed",
    "bookies", "entries_here", "size_here", "files", "content", "first_time", "last_time",
    "created_for", "named_by", "kept_by", "scalable_topic",
)  # fmt: skip
WHOIS_VIEW = Detail(_lines, fields=FIELDS)
