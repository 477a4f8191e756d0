"""The disk space of each bookie with every byte counted once, and the space that a change would free.

Sizes are those of files and directories, as `du --apparent-size --block-size=1` adds them up.

Source: apache/pulsar ManagedLedgerImpl.internalTrimLedgers (ledgers that no cursor needs are deleted once
their retention is over, and never the last one).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Final, TypedDict

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_layout import DISK, BookieLayout, layouts_of
from pulsar_meta.jobs.cursors.subscriptions import SubscriptionReader
from pulsar_meta.jobs.disk.usage import DELETED, ORPHAN, Ownership, Usage, by_log
from pulsar_meta.jobs.disk.whois import retains
from pulsar_meta.jobs.topics.scope import Scope
from pulsar_meta.jobs.topics.topic import Ledger, Report, topics_in
from pulsar_meta.stores.base import Store

_JOURNAL: Final = ".txn"
# Directories of RocksDB databases, in a `current` directory, and index files of interleaved storage.
_DATABASES: Final = ("locations", "ledgers")
_INDEX_FILE: Final = ".idx"
# st_blocks counts blocks of this size (POSIX).
_BLOCK: Final = 512


class BookieUsage(TypedDict):
    """The bytes in a bookie's directories, by use. All but `held` and `allocated` add up to `size`.

    `live` are entries that the index refers to, without those of deleted and orphan ledgers, and `held` is
    the part of it that a subscription still needs. `held`, `deleted` and `orphan` are null without a store.
    `other` are headers and maps of entry logs, cookies, marks and directories. `allocated` is what `du`
    reports, which is less than `size` for sparse files.
    """

    bookie: str | None
    size: int
    live: int
    held: int | None
    deleted: int | None
    orphan: int | None
    dead: int
    journals: int
    index: int
    other: int
    allocated: int


class FreedSpace(TypedDict):
    """The bytes of a topic that a change would free on a bookie."""

    topic: str
    bookie: str | None
    ledgers: int
    size: int


@dataclass(frozen=True, slots=True)
class Change:
    """A change that would let brokers delete ledgers.

    `deleted` are names of subscriptions. `retention` is the time in milliseconds for which ledgers stay that
    no subscription needs, None if only ledgers that the deleted subscriptions hold count.
    """

    deleted: frozenset[str] = frozenset()
    retention: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerHolders:
    """A ledger and the subscriptions that need it; `undecided` have an unknown position and may need it.

    `every` are all subscriptions of the topic. Brokers never delete a topic's last ledger (`is_last`).
    """

    topic: str
    ledger: Ledger
    subscriptions: frozenset[str]
    undecided: frozenset[str]
    every: frozenset[str]
    is_last: bool


@dataclass(slots=True)
class _Files:
    """The bytes of a bookie's files, without the entry logs that were read."""

    journals: int = 0
    index: int = 0
    other: int = 0
    allocated: int = 0
    logs: set[str] = field(default_factory=set)


def bookies_of(urls: Sequence[str]) -> list[BookieLayout]:
    """Return the layout of every bookie below the `bookie-disk:` URLs, each once."""
    layouts: dict[tuple[Path, ...], BookieLayout] = {}
    for url in urls:
        if url.startswith(DISK):
            for layout in layouts_of(url):
                layouts.setdefault(layout.directories, layout)
    return list(layouts.values())


def by_bookie(
    layouts: Sequence[BookieLayout],
    store: Store | None,
    source: EntrySource,
    usage: Usage,
    owned: Ownership | None,
    report: Report,
) -> Iterator[BookieUsage]:
    """Yield the space of each bookie. Entry logs that can't be read are reported and count as `other`."""
    logs = {str(log["log"]): log for log in by_log(source, usage, owned, report)}
    held = None
    if store is not None and owned is not None:
        every = holders(store, source, usage, report)
        held = {each.ledger.ledger_id for each in every if each.subscriptions} - owned.gone
    for layout in layouts:
        files = _files_of(layout, frozenset(logs))
        mine = [log for path, log in logs.items() if path in files.logs]
        deleted, orphan = (
            None if owned is None else _sum_of(usage, owned, files.logs, role) for role in (DELETED, ORPHAN)
        )
        live, dead = sum(log["live"] for log in mine), sum(log["dead"] for log in mine)
        size = sum(log["size"] for log in mine) + files.journals + files.index + files.other
        yield {
            "bookie": layout.bookie_id,
            "size": size,
            "live": live - (deleted or 0) - (orphan or 0),
            "held": None if held is None else _sum_of_ledgers(usage, held, files.logs),
            "deleted": deleted,
            "orphan": orphan,
            "dead": dead,
            "journals": files.journals,
            "index": files.index,
            "other": size - live - dead - files.journals - files.index,
            "allocated": files.allocated,
        }


def _sum_of(usage: Usage, owned: Ownership, logs: set[str], role: str) -> int:
    ledgers = {ledger_id for ledger_id in usage.ledgers if owned.role(ledger_id) == role}
    return _sum_of_ledgers(usage, ledgers, logs)


def _sum_of_ledgers(usage: Usage, ledgers: set[int], logs: set[str]) -> int:
    live = (usage.live.get(path, {}) for path in logs)
    return sum(size for sizes in live for ledger_id, size in sizes.items() if ledger_id in ledgers)


def _files_of(layout: BookieLayout, logs: frozenset[str]) -> _Files:
    """Add up the files and directories of a bookie by use."""
    files = _Files()
    for current in layout.directories:
        for directory, _, names in os.walk(current):
            place = Path(directory)
            _add(files, place, current, logs)
            for name in names:
                _add(files, place / name, current, logs)
    return files


def _add(files: _Files, path: Path, current: Path, logs: frozenset[str]) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        # A running bookie deletes files meanwhile.
        return
    files.allocated += status.st_blocks * _BLOCK
    if str(path) in logs:
        files.logs.add(str(path))
    elif path.suffix == _JOURNAL:
        files.journals += status.st_size
    elif path.suffix == _INDEX_FILE or path.relative_to(current).parts[:1] in [
        (name,) for name in _DATABASES
    ]:
        files.index += status.st_size
    else:
        files.other += status.st_size


def holders(store: Store, source: EntrySource, usage: Usage, report: Report) -> Iterator[LedgerHolders]:
    """Yield every listed ledger on the disks with the subscriptions that need it."""
    reader = SubscriptionReader.of(store, source, report)
    for topic in topics_in(store, Scope(), report):
        # The source of a shadow topic decides which ledgers are kept.
        ledgers = topic.ledgers if topic.shadow is None else ()
        if not any(ledger.ledger_id in usage.ledgers for ledger in ledgers):
            continue
        subscriptions = list(reader.all(topic))
        with_ends = subscriptions[0].topic.ledgers if subscriptions else ledgers
        every = frozenset(each.name for each in subscriptions)
        undecided = frozenset(each.name for each in subscriptions if each.recovery.mark_delete is None)
        for ledger in with_ends:
            names = frozenset(each.name for each in subscriptions if retains(each, ledger))
            if ledger.ledger_id in usage.ledgers:
                yield LedgerHolders(topic.name, ledger, names, undecided, every, ledger is with_ends[-1])


def freed_by(
    change: Change,
    layouts: Sequence[BookieLayout],
    store: Store,
    source: EntrySource,
    usage: Usage,
    report: Report,
) -> list[FreedSpace]:
    """Return the space that a change would free, by topic and bookie, the most first.

    Raises NotFoundError if no topic with entries on the disks has one of the deleted subscriptions.
    """
    freed: dict[tuple[str, str | None], FreedSpace] = {}
    known = set[str]()
    sizes = _sizes_by_bookie(layouts, usage)
    now = int(time() * 1000)
    for each in holders(store, source, usage, report):
        known |= each.every
        if not _is_freed(each, change, now):
            continue
        for bookie, size in sizes.get(each.ledger.ledger_id, {}).items():
            row = freed.setdefault(
                (each.topic, bookie), {"topic": each.topic, "bookie": bookie, "ledgers": 0, "size": 0}
            )
            row["ledgers"] += 1
            row["size"] += size
    for name in sorted(change.deleted - known):
        raise NotFoundError(f"no topic on these disks has a subscription {name!r}", source=store.url)
    return sorted(freed.values(), key=lambda row: (-row["size"], row["topic"], row["bookie"] or ""))


def _is_freed(each: LedgerHolders, change: Change, now: int) -> bool:
    if each.is_last or not each.subscriptions | each.undecided <= change.deleted:
        return False
    if change.retention is None:
        return bool(each.subscriptions)
    return each.ledger.closed_at is not None and now - each.ledger.closed_at > change.retention


def _sizes_by_bookie(layouts: Sequence[BookieLayout], usage: Usage) -> dict[int, dict[str | None, int]]:
    """Return the bytes of each ledger on each bookie, without copies that are only in journals."""
    bookies = {str(place): layout.bookie_id for layout in layouts for place in layout.directories}
    sizes: dict[int, dict[str | None, int]] = {}
    for path, ledgers in usage.live.items():
        if path.endswith(_JOURNAL):
            continue
        bookie = bookies.get(str(Path(path).parent))
        for ledger_id, size in ledgers.items():
            known = sizes.setdefault(ledger_id, {})
            known[bookie] = known.get(bookie, 0) + size
    return sizes
