"""`repair partitions`: the record of a partitioned topic, by the partitions that exist.

Sources: apache/pulsar PartitionedTopicMetadata, PIP-414 (a partition without that record is refused).
"""

from __future__ import annotations

from typing import Any

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_edit import edit_json
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.repair.repair import Repair, becoming
from pulsar_meta.jobs.rewrite.rules import current
from pulsar_meta.jobs.topics.partitions import MOST, partitions_with_record
from pulsar_meta.stores.base import ABSENT, Store, Versioned


def repair_partitions(store: Store, name: TopicName, wanted: int | None = None) -> Repair:
    """Return what gives a partitioned topic its record: `wanted` partitions, else as many as there are.

    A number in the record that is higher stays: partitions come into being when they are first used.
    UsageError for a partition's name, or fewer than there are; NotFoundError where no partition exists.
    """
    if name.partition is not None:
        raise UsageError(f"{name} is a partition: name its topic, {name.partitioned}")
    there = [one.partition or 0 for one in partitions_with_record(store, name, MOST)]
    if not there and wanted is None:
        raise NotFoundError(f"no partition of {name} (--count N says how many it has)", source=store.url)
    least = max(there, default=-1) + 1
    if wanted is not None and wanted < least:
        raise UsageError(f"--count {wanted}: there is a partition {least - 1}; partitions are never dropped")
    seen = current(store, name.partitioned_path)
    held = _document(seen)
    before = held.get("partitions", 0) if held else 0
    count = wanted if wanted is not None else max(least, before)
    said = [
        f"{name}: {_was(seen, held)}; {len(there)} partitions have a record, the last of them {least - 1}"
    ]
    absent = sorted(set(range(count)) - set(there))
    if absent:
        said.append(f"{len(absent)} of {count} partitions have none yet, the first of them {absent[0]}")
    return Repair(
        "partitions",
        (becoming(seen, _value(seen, held, count)),),
        checked={"partitions": len(there)},
        said=tuple(said),
    )


def _document(seen: Versioned) -> dict[str, Any] | None:
    """Return what the record says, None where that makes no sense."""
    try:
        held = read_json_object(seen.value)
    except DecodeError:
        return None
    count = held.get("partitions")
    return held if type(count) is int and 0 <= count <= MOST else None


def _was(seen: Versioned, held: dict[str, Any] | None) -> str:
    if seen.version == ABSENT:
        return "no record"
    return "the record cannot be read" if held is None else f"the record says {held['partitions']}"


def _value(seen: Versioned, held: dict[str, Any] | None, count: int) -> bytes:
    """Return the record with that number; whatever else it says stays."""
    if held is None:
        return b'{"partitions":%d,"deleted":false}' % count
    return edit_json(seen.value.decode(), held | {"partitions": count}).text.encode()
