"""Kinds of damage, each done to one ledger or topic of a scenario, with the finding that has to name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import (
    LEDGERS,
    TopicName,
    ledger_of_path,
    ledger_path,
    split_managed_ledger_path,
)
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from tests.damage_pairs.scenario import NotPossibleError, Scenario, counted

GARBAGE: Final = b"\xff\xfe\xfd garbage \x00\x01"
ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
Damage = Callable[[Scenario], None]
# What is told of a ledger whose entries no bookie has.
ABSENT: Final = "ledger-without-entries ledger-end-differs entry-missing entry-log-missing"


def unlisted(case: Scenario) -> None:
    """The list loses a ledger in its middle."""
    target = case.aim()
    case.unlist(target.topic, target.ledger_id)
    case.expect("ledger-not-listed", ERROR, target.name, target.ledger_id)


def lost_from_list_and_bookkeeper(case: Scenario) -> None:
    """A ledger in the middle is neither in the list nor in BookKeeper's metadata; the disks have it."""
    target = case.aim()
    case.unlist(target.topic, target.ledger_id)
    case.remove(ledger_path(target.ledger_id))
    case.expect("ledger-lost", ERROR, target.name, target.ledger_id, or_not_checked="entries")


def end_of_list_lost(case: Scenario) -> None:
    """List and metadata both lack the last ledgers: an older state of both was restored."""
    target = case.aim()
    for one in target.topic.ledgers:
        if one.ledger_id >= target.ledger_id:
            case.unlist(target.topic, one.ledger_id)
            case.store.values.pop(ledger_path(one.ledger_id), None)
    case.expect("ledger-lost", ERROR, target.name, target.ledger_id, or_not_checked="entries")


def metadata_gone(case: Scenario) -> None:
    """BookKeeper has no metadata of a listed ledger."""
    target = case.aim()
    case.remove(ledger_path(target.ledger_id))
    case.expect("ledger-without-metadata", NOTE, target.name, target.ledger_id)


def metadata_of_another_topic(case: Scenario) -> None:
    """The metadata of a ledger was written over by that of another topic's ledger."""
    target, other = case.aim(), case.choose()
    case.put(ledger_path(target.ledger_id), case.store.values[ledger_path(counted(other)[0])].value)
    case.expect("ledger-metadata-copied ledger-foreign", WARNING, target.name, target.ledger_id)


def metadata_of_a_sibling(case: Scenario) -> None:
    """The metadata of a ledger was written over by that of a ledger of the same topic that ends elsewhere."""
    target = case.aim()
    siblings = [one for one in target.topic.ledgers if one.counted and one.counted != target.entries]
    if not siblings:
        raise NotPossibleError
    case.put(ledger_path(target.ledger_id), case.store.values[ledger_path(siblings[0].ledger_id)].value)
    codes = "ledger-metadata-copied ledger-end-low ledger-end-high"
    case.expect(codes, WARNING, target.name, target.ledger_id)


def _rename(case: Scenario, ledger_id: int, name: TopicName | None) -> None:
    def change(metadata: LedgerMetadataFormat) -> None:
        kept = [pair for pair in metadata.customMetadata if pair.key != "pulsar/managed-ledger"]
        del metadata.customMetadata[:]
        metadata.customMetadata.extend(kept)
        if name is not None:
            value = name.path.removeprefix("/managed-ledgers/").encode()
            metadata.customMetadata.add(key="pulsar/managed-ledger", value=value)

    case.edit_metadata(ledger_id, change)


def custom_names_another_topic(case: Scenario) -> None:
    """The custom metadata of a ledger names another topic."""
    target, other = case.aim(), case.choose()
    _rename(case, target.ledger_id, TopicName.parse(other.name))
    case.expect("ledger-foreign ledger-in-two-topics", WARNING, target.name, target.ledger_id)


def custom_names_no_topic(case: Scenario) -> None:
    """The custom metadata of a ledger names a topic that does not exist."""
    target = case.aim()
    _rename(case, target.ledger_id, TopicName.parse("public/default/never-was"))
    case.expect("ledger-foreign topic-record-lost", WARNING, None, None)


def custom_is_gone(case: Scenario) -> None:
    """A ledger does not say whose it is, as after a rebuild."""
    _rename(case, case.aim().ledger_id, None)


def clone_between(case: Scenario) -> None:
    """A copy of a ledger's metadata is at an unused id between the topic's ledgers."""
    target = case.aim()
    used = {ledger_of_path(path) for path in case.store.values if path.startswith(LEDGERS)}
    ids = [one.ledger_id for one in target.topic.ledgers]
    free = [
        one for one in range(min(ids) + 1, max(ids)) if one not in used and not case.has_disk_entries(one)
    ]
    if not free:
        raise NotPossibleError
    clone = case.rng.choice(free)
    case.put(ledger_path(clone), case.store.values[ledger_path(target.ledger_id)].value)
    case.expect("ledger-metadata-copied ledger-not-listed orphan-ledger", NOTE, None, clone)


def clone_above(case: Scenario) -> None:
    """A copy of a ledger's metadata is at an id far above all others."""
    target = case.aim()
    case.put(ledger_path(987_654), case.store.values[ledger_path(target.ledger_id)].value)
    case.expect("ledger-metadata-copied ledger-not-listed orphan-ledger", NOTE, None, 987_654)


def _insert(case: Scenario, topic: Topic, other: Topic, ledger_id: int) -> None:
    source = next(one for one in other.ledgers if one.ledger_id == ledger_id)

    def change(info: ManagedLedgerInfo) -> None:
        info.ledgerInfo.add(
            ledgerId=ledger_id, entries=source.counted, size=source.size or 1, timestamp=source.closed_at or 1
        )
        info.ledgerInfo.sort(key=lambda one: one.ledgerId)

    case.edit_list(topic, change)


def foreign_in_list(case: Scenario) -> None:
    """The list has a ledger of another topic, too."""
    target, other = case.aim(), case.choose()
    ledger_id = case.rng.choice(counted(other))
    _insert(case, target.topic, other, ledger_id)
    case.expect("ledger-in-two-topics", ERROR, target.name, ledger_id)


def moved_to_another_list(case: Scenario) -> None:
    """A ledger is in the list of another topic and not in that of its own."""
    target, other = case.aim(), case.choose()
    case.unlist(target.topic, target.ledger_id)
    _insert(case, other, target.topic, target.ledger_id)
    case.expect("ledger-foreign", WARNING, other.name, target.ledger_id)


def record_gone(case: Scenario) -> None:
    """The topic's record is gone."""
    target = case.aim()
    case.remove(target.topic.path)
    case.expect("topic-record-lost", WARNING, target.name)


def record_empty(case: Scenario) -> None:
    """The topic's record is empty."""
    target = case.aim()
    case.put(target.topic.path, b"")
    case.expect("topic-record-lost", WARNING, target.name, or_not_checked="redacted")


def record_garbage(case: Scenario) -> None:
    """The topic's record is garbage, or cut."""
    target = case.aim()
    value = case.store.values[target.topic.path].value
    case.put(target.topic.path, case.rng.choice([GARBAGE, value[: len(value) // 2]]))
    case.expect(
        "record-undecodable record-wrong-kind ledger-not-listed topic-record-lost", ERROR, target.name
    )


def count_low(case: Scenario) -> None:
    """The list counts fewer entries of a ledger than there are."""
    target = case.aim()

    def change(info: ManagedLedgerInfo) -> None:
        for one in info.ledgerInfo:
            if one.ledgerId == target.ledger_id:
                one.entries -= 1

    case.edit_list(target.topic, change)
    case.expect("ledger-end-high", WARNING, target.name, target.ledger_id)


def count_zero(case: Scenario) -> None:
    """The list counts no entries of a ledger in its middle."""
    target = case.aim()

    def change(info: ManagedLedgerInfo) -> None:
        for one in info.ledgerInfo:
            if one.ledgerId == target.ledger_id:
                one.entries = one.size = one.timestamp = 0

    case.edit_list(target.topic, change)
    case.expect("ledger-counts-zero", ERROR, target.name, target.ledger_id)


def end_moved(by: int) -> Damage:
    """BookKeeper's metadata closes a ledger too early or too late."""

    def damage(case: Scenario) -> None:
        target = case.aim()

        def change(metadata: LedgerMetadataFormat) -> None:
            metadata.lastEntryId += by

        case.edit_metadata(target.ledger_id, change)
        codes = "ledger-end-low" if by < 0 else "ledger-end-high"
        case.expect(codes, WARNING, target.name, target.ledger_id)

    return damage


def entries_lost(case: Scenario) -> None:
    """No bookie has an entry of a ledger, although all of their disks are given."""
    target = case.aim()
    if not case.with_disks:
        raise NotPossibleError
    case.lose([target.ledger_id])
    case.expect("ledger-without-entries", NOTE, target.name, target.ledger_id)


def log_gone(case: Scenario) -> None:
    """An entry log is gone, of which the index knows."""
    target = case.aim()
    if not case.with_disks:
        raise NotPossibleError
    logs = case.logs_of(target.ledger_id)
    if not logs:
        raise NotPossibleError
    case.lost |= case.ledgers_in(logs)
    for log in logs:
        log.unlink()
    case.expect("entry-log-missing", WARNING, None)


def schema_metadata_gone(case: Scenario) -> None:
    """BookKeeper has no metadata of the ledger with a schema, which is on the disks."""
    path, ledger_id = _schema(case)
    case.remove(ledger_path(ledger_id))
    case.expect("schema-ledger-missing", WARNING, None, ledger_id)
    case.touched.add(path)


def schema_record_garbage(case: Scenario) -> None:
    """The record of a schema is garbage."""
    path, _ = _schema(case)
    case.put(path, GARBAGE)
    case.expect("record-undecodable", WARNING, path)


def _schema(case: Scenario) -> tuple[str, int]:
    found = []
    for path, record in case.store.values.items():
        if path.startswith("/schemas/") and record.value:
            found.append((path, parse_message(SchemaLocator, record.value).info.position.ledgerId))
    if not found:
        raise NotPossibleError
    return case.rng.choice(found)


def bookie_renamed(case: Scenario) -> None:
    """The metadata of a ledger names a bookie that does not exist."""
    target = case.aim()

    def change(metadata: LedgerMetadataFormat) -> None:
        for part in metadata.segment:
            part.ensembleMember[:] = [f"10.9.9.9:{3181 + at}" for at in range(len(part.ensembleMember))]

    case.edit_metadata(target.ledger_id, change)
    case.expect("bookie-unknown", ERROR, None)


def terminated_early(case: Scenario) -> None:
    """The topic is terminated before its end."""
    target = case.aim()

    def change(info: ManagedLedgerInfo) -> None:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = target.ledger_id, 0

    case.edit_list(target.topic, change)
    case.expect("terminated-before-end", ERROR, target.name)


def cursor_garbage(case: Scenario) -> None:
    """A cursor's record is cut at its half."""
    topic = case.choose(lambda topic: bool(_cursors(case, topic)))
    path = case.rng.choice(_cursors(case, topic))
    value = case.store.values[path].value
    case.put(path, value[: len(value) // 2] + b"\xff")
    case.expect("record-undecodable record-wrong-kind cursor-record-damaged", ERROR, topic.name)


def _cursors(case: Scenario, topic: Topic) -> list[str]:
    return [path for path in case.store.values if path.startswith(f"{topic.path}/")]


def cursor_ledger_gone(case: Scenario) -> None:
    """The ledger with a cursor's state is gone from BookKeeper's metadata."""
    found = []
    for path, record in case.store.values.items():
        place = split_managed_ledger_path(path)
        if place is not None and place[1] is not None and "__" not in path:
            info = decode_cursor(record.value)
            if info.cursorsLedgerId >= 0 and ledger_path(info.cursorsLedgerId) in case.store.values:
                found.append((str(place[0]), info.cursorsLedgerId))
    if not found:
        raise NotPossibleError
    name, ledger_id = case.rng.choice(found)
    case.remove(ledger_path(ledger_id))
    case.expect("cursor-ledger-missing", NOTE, name)


def shared_bookkeeper(case: Scenario) -> None:
    """A cluster below /west has a topic of the same name, whose ledgers are in the same BookKeeper."""
    _give_to_another_cluster(case, "/west", case.store)


def shared_bookkeeper_in_two_stores(case: Scenario) -> None:
    """A cluster in another store has a topic of the same name, with ledgers in the same BookKeeper."""
    other = type(case.store)("memory:other")
    case.others.append(other)
    _give_to_another_cluster(case, "", other)


def _give_to_another_cluster(case: Scenario, root: str, store: object) -> None:
    """Have another cluster, and not this one, list the ledgers of the topic from the target on."""
    target = case.aim()
    given = [one for one in counted(target.topic) if one >= target.ledger_id]
    info = ManagedLedgerInfo()
    for ledger in target.topic.ledgers:
        if ledger.ledger_id in given:
            info.ledgerInfo.add(
                ledgerId=ledger.ledger_id,
                entries=ledger.counted,
                size=ledger.size,
                timestamp=ledger.closed_at,
            )
            case.unlist(target.topic, ledger.ledger_id)
            case.foreign.add((target.name, ledger.ledger_id))
    assert isinstance(store, type(case.store))
    store.put(f"{root}{target.topic.path}", info.SerializeToString(), -1)


DAMAGES: Final[dict[str, Damage]] = {
    damage.__name__: damage
    for damage in (
        *(unlisted, lost_from_list_and_bookkeeper, end_of_list_lost, metadata_gone),
        *(
            metadata_of_another_topic,
            metadata_of_a_sibling,
            custom_names_another_topic,
            custom_names_no_topic,
        ),
        *(custom_is_gone, clone_between, clone_above, foreign_in_list, moved_to_another_list, record_gone),
        *(record_empty, record_garbage, count_low, count_zero, entries_lost, log_gone, schema_metadata_gone),
        *(schema_record_garbage, bookie_renamed, terminated_early, cursor_garbage, cursor_ledger_gone),
        *(shared_bookkeeper, shared_bookkeeper_in_two_stores),
    )
} | {"end_low": end_moved(-1), "end_high": end_moved(3)}
