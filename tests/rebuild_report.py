"""A report that compares what `rebuild` makes of captures' disks with their metadata.

    python -m tests.rebuild_report CAPTURE…

Prints one line per capture, and one per subset of its disks if it has three. A line counts exact ledgers,
topics with all ledgers in one group, topics with the right name, groups with ledgers of two topics, and
cursors in the group of their topic. Then it does the same with each older store of the capture.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor
from pulsar_meta.codecs.metadata.ledger_metadata import decode_cookie, decode_ledger_metadata
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, TopicName, ledger_of_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.rebuild.evidence import Rebuilt
from pulsar_meta.jobs.rebuild.old_store import OldStore, read_old_store
from pulsar_meta.jobs.rebuild.rebuilt import Known, rebuilt_values
from pulsar_meta.jobs.topics.topic import every_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.registry import open_store


@dataclass(frozen=True, slots=True)
class Score:
    """How much was rebuilt correctly, as (right, total) pairs."""

    ledgers: tuple[int, int]
    whole: tuple[int, int]
    named: tuple[int, int]
    mixed: int
    cursors: tuple[int, int]
    faults: int

    def __str__(self) -> str:
        parts = [
            f"{name} {right} of {total}"
            for name, (right, total) in (
                ("ledgers exact", self.ledgers),
                ("topics whole", self.whole),
                ("named", self.named),
                ("cursors at their topics", self.cursors),
            )
        ]
        return f"{', '.join(parts)}, groups mixed {self.mixed}, faults {self.faults}"


def score(folder: Path, disks: Sequence[Path], old: str | None = None) -> Score:
    """Rebuild from some of a capture's disks, optionally with an older store, and compare."""
    faults: list[PulsarMetaError] = []
    urls = [f"bookie-disk:{disk}" for disk in disks]
    known = Known(lost=tuple(_lost(folder, disks)), old=_old(folder, old))
    with open_entries(urls) as source:
        made = list(rebuilt_values(source, faults.append, known))
    topic_of = _topics(folder)
    whole, named, mixed = _grouped(made, topic_of)
    return Score(_exact(folder, made), whole, named, mixed, _cursors(folder, made), len(faults))


def _lost(folder: Path, disks: Sequence[Path]) -> Iterator[str]:
    for disk in sorted(folder.glob("bookie[0-9]*")):
        if disk not in disks:
            cookie = decode_cookie((disk / "current" / "VERSION").read_bytes())
            yield cookie.fields.bookieHost


def _old(folder: Path, name: str | None) -> OldStore:
    if name is None:
        return OldStore()
    with open_store(f"snapshot:{folder / name}") as store:
        return read_old_store(store, print)


def _topics(folder: Path) -> dict[int, str]:
    """Return the topic of every ledger that any store of the capture refers to."""
    topic_of: dict[int, str] = {}
    for file in sorted(folder.glob("metadata*.ndjson")):
        with open_store(f"snapshot:{file}") as store:
            for topic in every_topic(store, print):
                topic_of |= {ledger.ledger_id: topic.name for ledger in topic.ledgers}
    return topic_of


def _exact(folder: Path, made: Sequence[Rebuilt]) -> tuple[int, int]:
    """Count equal ledgers, custom metadata aside, among those that both the store and the disks have."""
    rebuilt = {value.facts["ledger_id"]: value.value for value in made if "ledger_id" in value.facts}
    equal = both = 0
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        for record in store.scan(LEDGERS):
            ledger_id = ledger_of_path(record.path)
            if ledger_id in rebuilt:
                both += 1
                equal += _plain(rebuilt[ledger_id]) == _plain(record.value)
    return equal, both


def _plain(value: bytes | None) -> LedgerMetadataFormat | None:
    if value is None:
        return None
    metadata = decode_ledger_metadata(value).metadata
    for name in ("customMetadata", "ctime", "cToken"):
        metadata.ClearField(name)
    return metadata


def _grouped(
    made: Sequence[Rebuilt], topic_of: dict[int, str]
) -> tuple[tuple[int, int], tuple[int, int], int]:
    groups: dict[str, set[str]] = defaultdict(set)
    mixed, right = 0, set[str]()
    for rebuilt in made:
        topics = {topic_of[at] for at in rebuilt.facts.get("ledgers", ()) if at in topic_of}
        mixed += len(topics) > 1
        for topic in topics:
            groups[topic].add(rebuilt.path)
            if rebuilt.facts["topic"] == topic:
                right.add(topic)
    whole = sum(len(paths) == 1 for paths in groups.values())
    return (whole, len(groups)), (len(right), len(groups)), mixed


def _cursors(folder: Path, made: Sequence[Rebuilt]) -> tuple[int, int]:
    """Count the cursors in the right group, among those whose ledger is on the disks."""
    at: dict[int, str] = {}
    for file in sorted(folder.glob("metadata*.ndjson")):
        with open_store(f"snapshot:{file}") as store:
            for record in store.scan(MANAGED_LEDGERS):
                if record.path.count("/") == 6 and record.value:
                    ledger_id = decode_cursor(record.value).cursorsLedgerId
                    if ledger_id != STATE_IN_RECORD:
                        at[ledger_id] = record.path.rpartition("/")[0]
    topic_of = _topics(folder)
    paths = {rebuilt.facts["topic"]: rebuilt for rebuilt in made if rebuilt.facts.get("ledgers")}
    right = of = 0
    for rebuilt in made:
        wanted = at.get(rebuilt.facts.get("cursor_ledger") or -1)
        if wanted is not None:
            of += 1
            topic = paths.get(rebuilt.facts["topic"])
            names = {topic_of.get(ledger) for ledger in topic.facts["ledgers"]} if topic else set()
            there = rebuilt.path.rpartition("/")[0] == wanted
            right += there or any(name is not None and _is_at(name, wanted) for name in names)
    return right, of


def _is_at(topic: str, path: str) -> bool:
    return TopicName.parse(topic).path == path


def main() -> int:
    """Print a line for each capture and subset of its disks. Returns 1 if a group mixes two topics."""
    mixed = 0
    for name in sys.argv[1:]:
        folder = Path(name)
        disks = sorted(folder.glob("bookie[0-9]*"))
        for count in range(len(disks), 0, -1):
            for subset in combinations(disks, count):
                result = score(folder, subset)
                mixed += result.mixed
                print(f"{folder.name}, {' '.join(disk.name for disk in subset)}: {result}", flush=True)
        for old in sorted(folder.glob("metadata-after-step-*.ndjson")):
            result = score(folder, disks, old.name)
            mixed += result.mixed
            print(f"{folder.name}, with {old.name}: {result}", flush=True)
    return int(mixed > 0)


if __name__ == "__main__":
    sys.exit(main())
