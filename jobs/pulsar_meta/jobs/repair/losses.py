"""What becomes unreachable when the record of a topic, cursor, schema or ledger is removed or replaced.

Entries stay on the bookies at first. Without the record no broker reads them, and the bookies delete the
entries of a ledger without metadata at their next garbage collection.

Source: apache/bookkeeper ScanAndCompareGarbageCollector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor, managed_place
from pulsar_meta.codecs.names import (
    LEDGERS,
    MANAGED_LEDGERS,
    SCALABLE_TOPICS,
    TopicName,
    decode_name,
    ledger_of_path,
    split_scalable_path,
)
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.topics.backlog import Backlog, backlog, common_entries
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, bookkeeper_ledger_of, has_metadata
from pulsar_meta.jobs.topics.other_clusters import OtherClusters, OtherOwner, Tree
from pulsar_meta.jobs.topics.owners import (
    SCHEMAS,
    Gaps,
    Owner,
    named_by,
    named_by_cursor,
    owner_in_custom,
    owners_of,
)
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.topic import Ledger, Position, topic_of, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import ABSENT, Store, Versioned

_TREES: Final = (MANAGED_LEDGERS, SCHEMAS, LEDGERS, SCALABLE_TOPICS)


@dataclass(frozen=True, slots=True)
class Losses:
    """What a change makes unreachable: one sentence per loss.

    `confirm` is the name that a person has to write out first, the topic's where it is known. It is None if
    nothing is lost.
    """

    texts: tuple[str, ...] = ()
    confirm: str | None = None


NOTHING: Final = Losses()
# Stores of other clusters, or what was read from them, to share it between many records.
Others = Sequence[Store] | OtherClusters


def _clusters(store: Store, others: Others) -> OtherClusters:
    return others if isinstance(others, OtherClusters) else OtherClusters(store, others)


def removal_losses(store: Store, record: Versioned, others: Others = ()) -> Losses:
    """Tell what becomes unreachable if a record is removed.

    `others` are stores of other clusters that keep their ledgers in the same BookKeeper. Clusters below
    another root of `store` are found without them. Removing the record of a ledger reads the records of all
    topics, cursors and schemas, because any of them may name it.
    """
    if record.version == ABSENT:
        return NOTHING
    root, path = _split_root(record.path)
    seen = record._replace(path=path)
    ledger_id = ledger_of_path(path)
    if ledger_id is not None:
        return _of_ledger(store, root, ledger_id, seen, others)
    if path.startswith(f"{SCHEMAS}/"):
        return _of_schema(seen)
    scalable = split_scalable_path(path)
    if scalable is not None:
        text = f"{scalable}: the list of its segments becomes unreachable, and with it all their entries"
        return Losses((text,), str(scalable))
    place = managed_place(path, seen.value)
    if place is None:
        return NOTHING
    if place[1] is not None:
        return _of_cursor(seen, place[0], place[1])
    return NOTHING if _is_shadow(store, place[0], seen) else _of_topic(store, seen, place[0])


def change_losses(store: Store, record: Versioned, value: bytes, others: Others = ()) -> Losses:
    """Tell what becomes unreachable if a record gets another value.

    These are entries of ledgers that leave a list or end earlier, schema versions, entries that a cursor has
    not acknowledged and passes, and its acknowledgements. A ledger of another cluster (`others` as in
    `removal_losses`) that enters a list counts too, because trimming it deletes the other cluster's data.
    """
    root, path = _split_root(record.path)
    new = record._replace(path=path, value=value)
    try:
        texts = list(_change_texts(store, root, record._replace(path=path), new, others))
    except DecodeError:
        return removal_losses(store, record, others)
    name = _changed_name(store, root, new, others) if texts else None
    return Losses(tuple(texts), name)


def _change_texts(store: Store, root: str, seen: Versioned, new: Versioned, others: Others) -> Iterator[str]:
    """Yield the losses of a change. Raises DecodeError if one of the two values can't be read."""
    ledger_id = ledger_of_path(seen.path)
    if ledger_id is not None:
        yield from shorter_ledger_texts(ledger_id, seen, new)
    elif seen.path.startswith(f"{SCHEMAS}/"):
        gone = _versions(seen) - _versions(new)
        if gone:
            yield f"{_schema_topic(seen.path)}: {_versions_text(len(gone))} unreachable"
    elif (place := managed_place(seen.path, new.value)) is not None:
        if place[1] is None:
            yield from _list_changes(store, root, place[0], seen, new, others)
        elif seen.version != ABSENT:
            yield from _cursor_changes(store, root, place[0], place[1], seen, new)


def _changed_name(store: Store, root: str, new: Versioned, others: Others) -> str:
    """Return the name that confirms a change: the topic's if one is known."""
    ledger_id = ledger_of_path(new.path)
    if ledger_id is not None:
        return _of_ledger(store, root, ledger_id, new, others).confirm or f"ledger {ledger_id}"
    if new.path.startswith(f"{SCHEMAS}/"):
        return _schema_topic(new.path)
    place = managed_place(new.path, new.value)
    return new.path if place is None else str(place[0])


def shorter_ledger_texts(ledger_id: int, seen: Versioned, new: Versioned) -> Iterator[str]:
    """Yield the loss if a ledger ends earlier. Raises DecodeError if one of the two values can't be read."""
    if seen.version == ABSENT:
        return
    before, after = bookkeeper_ledger_of(ledger_id, seen), bookkeeper_ledger_of(ledger_id, new)
    if (
        after.last_entry is not None
        and before.last_entry is not None
        and after.last_entry < before.last_entry
    ):
        count = before.last_entry - after.last_entry
        yield f"ledger {ledger_id}: its last {_count_text(count, 'entry', 'entries')} unreachable"


def _list_changes(
    store: Store, root: str, name: TopicName, seen: Versioned, new: Versioned, others: Others
) -> Iterator[str]:
    before = () if seen.version == ABSENT else topic_of(seen).ledgers
    after = {ledger.ledger_id: ledger for ledger in topic_of(new).ledgers}
    gone = [ledger for ledger in before if ledger.ledger_id not in after and ledger.entries != 0]
    if gone:
        yield f"{name}: {entries_text(gone)} in {_ledgers(len(gone))} become unreachable"
    for ledger in before:
        count = after[ledger.ledger_id].entries if ledger.ledger_id in after else None
        if count is not None and ledger.entries is not None and count < ledger.entries:
            text = _count_text(ledger.entries - count, "entry", "entries")
            yield f"{name}: ledger {ledger.ledger_id} ends earlier: its last {text} unreachable"
    added = after.keys() - {ledger.ledger_id for ledger in before}
    theirs = _clusters(store, others).owners(added) if added and not root else {}
    for ledger_id, owners in theirs.items():
        yield f"{name}: ledger {ledger_id} belongs to another cluster, {owners[0]}: trimming deletes its data"


def _cursor_changes(
    store: Store, root: str, name: TopicName, cursor: str, seen: Versioned, new: Versioned
) -> Iterator[str]:
    """Yield what a cursor passes and forgets. Its state in a ledger is not read."""
    info, after = decode_cursor(seen.value), decode_cursor(new.value)
    if STATE_IN_RECORD != info.cursorsLedgerId != after.cursorsLedgerId:
        yield f"{name}: the subscription {cursor!r} loses its state in ledger {info.cursorsLedgerId}"
        return
    with suppress(NotFoundError, DecodeError):
        listed = topic_of(store.read(f"{root}{name.path}")).ledgers
        ledgers = list(with_bookkeeper(store if has_metadata(store) else None, listed, lambda error: None))
        yield from move_texts(ledgers, str(name), cursor, info, after)


def move_texts(
    ledgers: Sequence[Ledger],
    topic: str,
    cursor: str,
    before: ManagedCursorInfo | PositionInfo,
    after: ManagedCursorInfo | PositionInfo,
) -> Iterator[str]:
    """Yield how many unacknowledged entries a cursor passes, and how many acknowledgements it loses."""
    old, new = _backlog(ledgers, before), _backlog(ledgers, after)
    both = common_entries(old, new)
    if old.entries > both:
        text = _count_text(old.entries - both, "entry", "entries", verb=("is", "are"))
        yield f"{topic}: {text} skipped that the subscription {cursor!r} has not acknowledged"
    if new.entries > both:
        text = _count_text(new.entries - both, "acknowledgement", "acknowledgements", verb=("is", "are"))
        yield f"{topic}: {text} lost, and the subscription {cursor!r} gets these entries again"


def _backlog(ledgers: Sequence[Ledger], state: ManagedCursorInfo | PositionInfo) -> Backlog:
    if isinstance(state, ManagedCursorInfo):
        position = Position(state.markDeleteLedgerId, state.markDeleteEntryId)
    else:
        position = Position(state.ledgerId, state.entryId)
    return backlog(ledgers, position, acks_of(state))


def entries_text(ledgers: Iterable[Ledger]) -> str:
    """Return how many entries some ledgers have: "7 entries", or "at least 7 entries" if one is open."""
    known = list(ledgers)
    count = sum(ledger.entries or 0 for ledger in known)
    unknown = any(ledger.entries is None for ledger in known)
    if unknown and not count:
        return "an unknown number of entries"
    return f"{'at least ' if unknown else ''}{count} {'entry' if count == 1 else 'entries'}"


def _split_root(path: str) -> tuple[str, str]:
    """Split a path into the root of its cluster and the path as that cluster has it."""
    starts = [at for tree in _TREES if (at := path.find(f"{tree}/")) > 0]
    if not starts or path.startswith(tuple(f"{tree}/" for tree in _TREES)):
        return "", path
    return path[: min(starts)], path[min(starts) :]


def _is_shadow(store: Store, name: TopicName, seen: Versioned) -> bool:
    """Return True if a topic only lists the ledgers of the topic that it is a shadow of."""
    with suppress(DecodeError):
        return ShadowSources(store).of(name, topic_of(seen).properties) is not None
    return False


def _of_topic(store: Store, seen: Versioned, name: TopicName) -> Losses:
    try:
        ledgers = topic_of(seen).ledgers
    except DecodeError:
        text = f"{name}: its record can't be read: the entries of all ledgers in it become unreachable"
        return Losses((text,), str(name))
    known = list(with_bookkeeper(store if has_metadata(store) else None, ledgers, lambda error: None))
    used = [ledger for ledger in known if ledger.entries != 0]
    if not used:
        return NOTHING
    text = f"{name}: {entries_text(used)} in {_ledgers(len(used))} become unreachable"
    return Losses((text,), str(name))


def _of_cursor(seen: Versioned, name: TopicName, cursor: str) -> Losses:
    text = f"{name}: the subscription {cursor!r} is lost"
    try:
        info = decode_cursor(seen.value)
    except DecodeError:
        return Losses(
            (f"{text}; its record can't be read: its position and acknowledgements go with it",), str(name)
        )
    if info.cursorsLedgerId != STATE_IN_RECORD:
        text += f", with its position and acknowledgements in ledger {info.cursorsLedgerId}"
    else:
        acked = acks_of(info).entry_count
        more = f" and {acked} single acknowledgements" if acked else ""
        text += f", with its position {info.markDeleteLedgerId}:{info.markDeleteEntryId}{more}"
    owned = named_by_cursor(seen.path, str(name), cursor, info, None, lambda path, why: None)
    named = [owner for owner in owned if owner.role != "cursor"]
    texts = [f"ledger {owner.ledger_id}, {_role(owner)}, becomes unreachable" for owner in named]
    return Losses((text, *texts), str(name))


def _of_schema(seen: Versioned) -> Losses:
    name = _schema_topic(seen.path)
    if not seen.value:
        return NOTHING
    try:
        count = len(_versions(seen))
    except DecodeError:
        return Losses((f"{name}: all versions of its schema are lost; the record can't be read",), name)
    text = f"{name}: {_versions_text(count)} unreachable"
    return Losses((f"{text}; messages can't be decoded with them any more",), name)


def _versions(record: Versioned) -> set[int]:
    locator = parse_message(SchemaLocator, record.value) if record.value else SchemaLocator()
    return {entry.version for entry in locator.index} | ({locator.info.version} if record.value else set())


def _versions_text(count: int) -> str:
    return _count_text(count, "version of its schema", "versions of its schema")


def _schema_topic(path: str) -> str:
    """Return the full name of the topic that has its schema at a path."""
    namespace, _, local = path.removeprefix(f"{SCHEMAS}/").rpartition("/")
    with suppress(DecodeError):
        local = decode_name(local)
    return f"persistent://{namespace}/{local}"


def _of_ledger(store: Store, root: str, ledger_id: int, seen: Versioned, others: Others) -> Losses:
    if is_empty_ledger(ledger_id, seen):
        return NOTHING
    gaps = Gaps(lambda error: None)
    named = _named(store, root, ledger_id, gaps)
    theirs = _clusters(store, others).owners([ledger_id]).get(ledger_id, []) if not root else []
    return ledger_losses(ledger_id, seen, named, theirs, gaps)


def is_empty_ledger(ledger_id: int, seen: Versioned) -> bool:
    """Return True if BookKeeper's metadata says that a ledger has no entries."""
    with suppress(DecodeError):
        return bookkeeper_ledger_of(ledger_id, seen).last_entry == -1
    return False


def ledger_losses(
    ledger_id: int, seen: Versioned, named: Sequence[Owner], theirs: Sequence[OtherOwner], gaps: Gaps
) -> Losses:
    """Return the losses if BookKeeper's metadata of a ledger is removed.

    `named` are the records that name the ledger, `theirs` those of other clusters, and `gaps` the records
    that can't be read.
    """
    known = None
    with suppress(DecodeError):
        known = bookkeeper_ledger_of(ledger_id, seen)
    created_for = None if known is None else owner_in_custom(ledger_id, known.custom)
    texts = list(_ledger_texts(ledger_id, known, named, theirs))
    if not texts:
        texts.append(_unnamed_text(ledger_id, known, created_for))
    if gaps.records:
        texts.append(f"records that can't be read and may refer to ledger {ledger_id}: {gaps.records}")
    owner = next(iter((*named, *(one.owner for one in theirs), created_for)), None)
    return Losses(tuple(texts), f"ledger {ledger_id}" if owner is None else _name(owner))


def _named(store: Store, root: str, ledger_id: int, gaps: Gaps) -> list[Owner]:
    """Return the records of the ledger's own cluster that name it."""
    if not root:
        return owners_of([ledger_id], store, None, gaps.broken)[ledger_id]
    found = []
    for record in Tree(store, root).records():
        try:
            owners = named_by(record, None, lambda path, why: None)
            found += [owner for owner in owners if owner.ledger_id == ledger_id]
        except DecodeError as error:
            gaps.broken(error)
    return found


def _ledger_texts(
    ledger_id: int, known: BookkeeperLedger | None, named: Sequence[Owner], theirs: Sequence[OtherOwner]
) -> Iterator[str]:
    entries = _entries_of(known)
    for owner in named:
        yield f"ledger {ledger_id} is {_role(owner)} of {owner.name}: {entries} become unreachable"
    for other in theirs:
        yield f"ledger {ledger_id} belongs to another cluster, {other}: {entries} become unreachable"


def _unnamed_text(ledger_id: int, known: BookkeeperLedger | None, created_for: Owner | None) -> str:
    entries = _entries_of(known)
    if created_for is None:
        return f"ledger {ledger_id} has {entries}; bookies delete them once its metadata is gone"
    return (
        f"ledger {ledger_id} was created as {_role(created_for)} of {created_for.name}, which doesn't name it"
        f" now; bookies delete {entries} once its metadata is gone"
    )


def _entries_of(known: BookkeeperLedger | None) -> str:
    last = None if known is None else known.last_entry
    return entries_text([Ledger(0, entries=None if last is None else last + 1)])


def _role(owner: Owner) -> str:
    match owner.role:
        case "data":
            return "data"
        case "cursor":
            return f"the state of the subscription {owner.cursor!r}"
        case "compacted":
            return "the compacted data"
        case "schema":
            return "a schema"
    return f"an index of delayed messages of {owner.cursor!r}"


def _name(owner: Owner) -> str:
    """Return the full name of the topic that a ledger belongs to."""
    return owner.name if "://" in owner.name else f"persistent://{owner.name}"


def _ledgers(count: int) -> str:
    return f"{count} ledger{'' if count == 1 else 's'}"


def _count_text(count: int, singular: str, plural: str, verb: tuple[str, str] = ("becomes", "become")) -> str:
    """Return a count with its noun and verb: "1 entry becomes", "2 entries become"."""
    return f"1 {singular} {verb[0]}" if count == 1 else f"{count} {plural} {verb[1]}"
