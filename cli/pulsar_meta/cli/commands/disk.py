"""`disk`: what takes the place on bookies' disks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, OtherStores, StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.text import counted, looked_at, size, unsized
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.disk.usage import (
    DELETED,
    ORPHAN,
    Ownership,
    Usage,
    by_log,
    by_subscription,
    by_topic,
    ownership,
    total_of,
    usage_of,
)
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.scope import check_inhabited
from pulsar_meta.stores.base import Store


class By(StrEnum):
    """What a line is about."""

    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    LOG = "log"


def disk(
    shell: Shell,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    by: Annotated[
        By | None, typer.Option("--by", help="A line for each. Default: topic; log without a store.")
    ] = None,
    other_stores: OtherStores = None,
) -> None:
    """Show what takes the place on disks: topics and what belongs to them, subscriptions, entry logs.

    By topic: the bytes of its data, cursors, compacted data, indexes of delayed messages and schemas, and
    those of ledgers that nobody names (orphan) or that BookKeeper does not know (deleted: garbage collection
    takes them). By subscription: what each holds, and what nothing but it holds. By log: how much of each
    entry log is live, and the dead bytes that compaction would free. Each bookie's copy counts.

    Examples:
      pulsar-meta disk --entries bookie-disk:data/bookie --store zk://zk1:2181
      pulsar-meta disk --by subscription --entries bookie-disk:data/bookie
      pulsar-meta disk --by log --entries bookie-disk:data/bookie
    """
    urls, faults, unseen = shell.entries_urls(entries), Faults(shell), dict[str, str]()
    with ExitStack() as stack:
        has_store = store is not None or shell.settings.store is not None
        opened = stack.enter_context(shell.store(store)) if has_store else None
        if opened is None and by not in (None, By.LOG):
            raise UsageError(f"--by {by}: whose ledgers are is in the store, give --store URL")
        if opened is not None:
            check_inhabited(opened)
        source = stack.enter_context(open_entry_sources(urls, opened))
        usage = usage_of(source, faults)
        if opened is not None and opened.behind:
            # To a database as it was before, ledgers that are new on the disks are deleted ones.
            opened = stack.enter_context(shell.store(store))
        owned = None
        if opened is not None:
            beside = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
            others = OtherClusters(opened, beside, faults)
            owned = ownership(opened, source, usage, faults, unseen.__setitem__, others)
        rows, view = _answer(
            by or (By.LOG if opened is None else By.TOPIC), opened, source, usage, owned, faults
        )
        checked = {"ledgers": len(usage.ledgers), "entries": usage.total.entries}
        left_out = unseen | _left_out(owned) | unsized(usage.unsized)
        shell.emit(rows, view, about=lambda: (*map(redact, urls), looked_at(checked, left_out)))
        if view is LOGS:
            _sum_up(shell, rows)
        shell.account(checked, left_out)
        faults.end(source)


def _answer(
    by: By,
    store: Store | None,
    source: EntrySource,
    usage: Usage,
    owned: Ownership | None,
    faults: Faults,
) -> tuple[list[Document], View]:
    """Return the rows, and how they are shown."""
    if by is By.LOG or store is None or owned is None:
        return list(by_log(source, usage, owned, faults)), LOGS
    if by is By.SUBSCRIPTION:
        found = list(by_subscription(store, source, usage, faults))
        return sorted(found, key=lambda row: -(row["size"] or 0)), SUBSCRIPTIONS
    return list(by_topic(usage, owned)), TOPICS


def _sum_up(shell: Shell, rows: Sequence[Document]) -> None:
    """Say of a person's table what all logs come to."""
    parts = [f"{size(total_of(rows, name))} {name}" for name in ("live", "dead")]
    logs = counted(len(rows), "entry logs")
    shell.say(f"{size(total_of(rows, 'size'))} in {logs}: {', '.join(parts)} (compaction frees what is dead)")


def _left_out(owned: Ownership | None) -> dict[str, str]:
    if owned is None:
        return {"owners": "no --store"}
    return {} if owned.knows_ledgers else {"BookKeeper's metadata": "the store has none below /ledgers"}


def _topic_row(row: Document) -> list[str]:
    return [row["name"] or "", row["role"], *(str(row[name]) for name in ("ledgers", "entries", "size"))]


def _subscription_row(row: Document) -> list[str]:
    numbers = ("" if row[name] is None else str(row[name]) for name in ("ledgers", "size", "alone"))
    return [row["topic"], row["cursor"] or "(no subscription)", *numbers]


def _log_row(row: Document) -> list[str]:
    names = ("size", "live", "dead", DELETED, ORPHAN, "ledgers", "live_ledgers")
    numbers = ("" if row[name] is None else str(row[name]) for name in names)
    return [PurePath(row["log"]).name, row["bookie"] or "", "sealed" if row["sealed"] else "open", *numbers]


TOPICS = View(
    ["name", "as", "ledgers", "entries", "bytes"],
    _topic_row,
    frozenset({"ledgers", "entries", "bytes"}),
    fields=("name", "role", "ledgers", "entries", "size"),
    title="What takes the place on disks, by topic",
    bars={"bytes": "size"},
)
SUBSCRIPTIONS = View(
    ["topic", "subscription", "ledgers", "bytes", "by it alone"],
    _subscription_row,
    frozenset({"ledgers", "bytes", "by it alone"}),
    fields=("topic", "cursor", "ledgers", "size", "alone"),
    title="What subscriptions hold on disks",
    bars={"bytes": "size"},
)
LOGS = View(
    ["log", "bookie", "state", "bytes", "live", "dead", DELETED, ORPHAN, "ledgers", "live ledgers"],
    _log_row,
    frozenset({"bytes", "live", "dead", DELETED, ORPHAN, "ledgers", "live ledgers"}),
    fields=(
        "log", "bookie", "sealed", "size", "ledgers", "live_ledgers", "live", "dead", "deleted", "orphan",
    ),
    title="What takes the place on disks, by entry log",
    bars={"bytes": "size", "dead": "dead"},
)  # fmt: skip
