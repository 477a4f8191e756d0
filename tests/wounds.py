"""Wounds made on a copy of a capture's store, each with what the doctor has to say of it, and where.

    python -m tests.wounds FOLDER... [--seed N] [--count N]

FOLDER is an unpacked capture. Each wound is made on a fresh copy, then pairs of wounds; ends with exit code 1
where a finding is missing, or one is there that nothing explains.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from pulsar_meta.codecs.metadata.cursor import decode_cursor
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName, ledger_path, split_managed_ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.known import CheckOptions
from pulsar_meta.jobs.check.run import checkup
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, read_bookkeeper_ledger
from pulsar_meta.jobs.topics.cursors import state_of
from pulsar_meta.jobs.topics.owners import bucket_ledgers, named_by
from pulsar_meta.jobs.topics.topic import Topic, read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store

GARBAGE = b"\xff\xfe\xfd garbage \x00\x01"
NOWHERE = 987_654


class NotHereError(Exception):
    """The capture has nothing that could be wounded so."""


class Expected(NamedTuple):
    """A finding: its code, its topic (or the path where it is no topic's), its ledger; 0 for any."""

    code: str
    where: str
    ledger_id: int | None = None


@dataclass
class Patient:
    """A copy of a store that is wounded, with the topics that can be."""

    store: MemoryStore
    rng: Random
    expected: set[Expected] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)

    def topics(self) -> list[Topic]:
        """Return the topics that nothing was done to yet."""
        places = [split_managed_ledger_path(path) for path in self.store.values]
        names = [place[0] for place in places if place and place[1] is None]
        return [read_topic(self.store, name) for name in names if str(name) not in self.touched]

    def choose(self, fitting: Callable[[Topic], bool]) -> Topic:
        """Return one of the topics that fit, which no other wound will touch."""
        possible = [topic for topic in self.topics() if fitting(topic)]
        if not possible:
            raise NotHereError
        chosen = self.rng.choice(possible)
        self.touched.add(chosen.name)
        return chosen

    def put(self, path: str, value: bytes) -> None:
        """Write a value whatever was there."""
        held = self.store.values.get(path)
        created, modified = (None, None) if held is None else (held.created, held.modified)
        self.store.values[path] = Versioned(path, value, 1, created, modified)

    def remove(self, path: str) -> None:
        """Remove a value."""
        del self.store.values[path]

    def expect(self, code: str, topic: Topic | str, ledger_id: int | None = None) -> None:
        """Note what the doctor has to find."""
        self.expected.add(Expected(code, topic if isinstance(topic, str) else topic.name, ledger_id))

    def info(self, topic: Topic) -> ManagedLedgerInfo:
        """Return the message of a topic's record."""
        return decode_managed_ledger(self.store.values[topic.path].value)

    def metadata(self, ledger_id: int, change: Callable[[LedgerMetadataFormat], None]) -> None:
        """Change what BookKeeper says of a ledger."""
        path = ledger_path(ledger_id)
        decoded = decode_ledger_metadata(self.store.values[path].value)
        change(decoded.metadata)
        self.put(path, encode_ledger_metadata(decoded))

    def cursors(self, topic: Topic) -> list[tuple[str, ManagedCursorInfo]]:
        """Return the paths and records of a topic's cursors whose state is in the record."""
        paths = [path for path in self.store.values if path.startswith(f"{topic.path}/")]
        found = [(path, decode_cursor(self.store.values[path].value)) for path in paths]
        return [(path, info) for path, info in found if state_of(info, None).state is not None]

    def bookkeeper(self, ledger_id: int) -> BookkeeperLedger:
        """Return what BookKeeper says of a ledger."""
        return read_bookkeeper_ledger(self.store, ledger_id)


Wound = Callable[[Patient], None]


def counted(topic: Topic) -> list[int]:
    """Return the ids of the ledgers of which the list has a count."""
    return [ledger.ledger_id for ledger in topic.ledgers if ledger.counted]


def ordinary(topic: Topic) -> bool:
    """Return whether a topic is no system topic and not terminated."""
    return "__" not in topic.name and topic.terminated is None


def has_data(topic: Topic) -> bool:
    """Return whether a topic has closed ledgers with entries before its last one."""
    return ordinary(topic) and bool(counted(topic)) and topic.ledgers[-1].counted == 0


def has_many(topic: Topic) -> bool:
    """Return whether a topic has at least three such ledgers."""
    return has_data(topic) and len(counted(topic)) >= 3


def metadata_gone(patient: Patient) -> None:
    """A ledger with a count is gone from BookKeeper."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    patient.remove(ledger_path(ledger_id))
    patient.expect("ledger-without-metadata", topic, ledger_id)


def last_metadata_gone(patient: Patient) -> None:
    """The last ledger, whose count nobody wrote down, is gone from BookKeeper."""
    topic = patient.choose(has_data)
    patient.remove(ledger_path(topic.ledgers[-1].ledger_id))
    patient.expect("ledger-without-metadata", topic, topic.ledgers[-1].ledger_id)


def metadata_garbage(patient: Patient) -> None:
    """A ledger's metadata is garbage."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    patient.put(ledger_path(ledger_id), patient.rng.choice([GARBAGE, b"BookieMetadataFormatVersion\t3\n"]))
    patient.expect("record-undecodable", topic, ledger_id)


def topic_garbage(patient: Patient) -> None:
    """A topic's record is cut or garbage."""
    topic = patient.choose(has_data)
    patient.put(topic.path, GARBAGE)
    patient.expect("record-undecodable", topic)


def topic_gone(patient: Patient) -> None:
    """A topic's record is gone, or empty."""
    topic = patient.choose(has_data)
    if patient.rng.random() < 0.5:
        patient.put(topic.path, b"")
    else:
        patient.remove(topic.path)
    patient.expect("topic-record-lost", topic)


def topic_is_a_cursor(patient: Patient) -> None:
    """A topic's record has the bytes of a cursor's."""
    topic = patient.choose(has_data)
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=7, lastActive=1)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("record-wrong-kind", topic)


def cursor_broken(patient: Patient) -> None:
    """A cursor's record is empty, or garbage."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(patient.cursors(topic)))
    path, _ = patient.rng.choice(patient.cursors(topic))
    empty = patient.rng.random() < 0.5
    patient.put(path, b"" if empty else GARBAGE)
    patient.expect("record-empty" if empty else "record-undecodable", topic)


def cursor_beyond(patient: Patient) -> None:
    """A cursor stands behind the end of its topic."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(patient.cursors(topic)))
    path, info = patient.rng.choice(patient.cursors(topic))
    last = topic.ledgers[-1].ledger_id
    # Where an open ledger ends nobody can say.
    inside = [] if patient.bookkeeper(last).last_entry is None else [(last, 17)]
    info.markDeleteLedgerId, info.markDeleteEntryId = patient.rng.choice([*inside, (last + 5, 3)])
    del info.individualDeletedMessages[:]
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-beyond-end", topic)


def cursor_ledger_gone(patient: Patient) -> None:
    """A cursor's state lies in a ledger that there is not."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(patient.cursors(topic)))
    path, info = patient.rng.choice(patient.cursors(topic))
    info.cursorsLedgerId = NOWHERE
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-ledger-missing", topic, NOWHERE)


def cursor_ledger_foreign(patient: Patient) -> None:
    """A cursor's state should lie in a data ledger."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(patient.cursors(topic)))
    path, info = patient.rng.choice(patient.cursors(topic))
    info.cursorsLedgerId = counted(topic)[0]
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-ledger-foreign", topic, counted(topic)[0])


def open_behind(patient: Patient) -> None:
    """BookKeeper has a ledger open that the list has closed."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))

    def reopen(metadata: LedgerMetadataFormat) -> None:
        metadata.state = patient.rng.choice([LedgerMetadataFormat.OPEN, LedgerMetadataFormat.IN_RECOVERY])
        metadata.ClearField("lastEntryId")
        metadata.length = 0

    patient.metadata(ledger_id, reopen)
    patient.expect("ledger-open-behind", topic, ledger_id)


def end_differs(patient: Patient) -> None:
    """BookKeeper's last entry is lower or higher than the count of the list."""
    topic = patient.choose(lambda topic: has_data(topic) and topic.ledgers[0].counted > 2)
    ledger = topic.ledgers[0]
    low = patient.rng.random() < 0.5

    def move(metadata: LedgerMetadataFormat) -> None:
        metadata.lastEntryId += -1 - patient.rng.randrange(ledger.counted - 1) if low else 10

    patient.metadata(ledger.ledger_id, move)
    patient.expect("ledger-end-low" if low else "ledger-end-high", topic, ledger.ledger_id)


def counts_zero(patient: Patient) -> None:
    """The list has no entries of a ledger in the middle."""
    topic = patient.choose(has_data)
    info, at = patient.info(topic), patient.rng.randrange(len(counted(topic)))
    for name in ("entries", "size", "timestamp"):
        setattr(info.ledgerInfo[at], name, 0)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-counts-zero", topic, info.ledgerInfo[at].ledgerId)


def not_listed(patient: Patient) -> None:
    """A ledger of the middle is not in the list."""
    topic = patient.choose(has_many)
    ledger_id = patient.rng.choice(counted(topic)[1:])
    info = patient.info(topic)
    kept = [ledger for ledger in info.ledgerInfo if ledger.ledgerId != ledger_id]
    del info.ledgerInfo[:]
    info.ledgerInfo.extend(kept)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-not-listed", topic, ledger_id)


def foreign(patient: Patient) -> None:
    """A ledger of another topic is in the list, too."""
    topic, other = patient.choose(has_data), patient.choose(has_data)
    info = patient.info(topic)
    ledger = patient.rng.choice([one for one in patient.info(other).ledgerInfo if one.entries])
    info.ledgerInfo.add().CopyFrom(ledger)
    info.ledgerInfo.sort(key=lambda one: one.ledgerId)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-in-two-topics", topic, ledger.ledgerId)
    if max(one.ledgerId for one in info.ledgerInfo) == ledger.ledgerId:
        patient.touched.add("last")


def terminated(patient: Patient) -> None:
    """The topic was terminated in its middle."""
    topic = patient.choose(has_data)
    info, first = patient.info(topic), topic.ledgers[0]
    info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = first.ledger_id, -1
    patient.put(topic.path, info.SerializeToString())
    patient.expect("terminated-before-end", topic, first.ledger_id)


def twice(patient: Patient) -> None:
    """The list has a ledger twice."""
    topic = patient.choose(has_data)
    info = patient.info(topic)
    info.ledgerInfo.insert(0, info.ledgerInfo[0])
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-duplicate", topic, topic.ledgers[0].ledger_id)


def unordered(patient: Patient) -> None:
    """The list is in another order."""
    topic = patient.choose(has_data)
    info = patient.info(topic)
    info.ledgerInfo.sort(key=lambda one: -one.ledgerId)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-unordered", topic)


def parent_gone(patient: Patient) -> None:
    """The record of a partitioned topic is gone, garbage, or has too low a number."""
    base = TopicName.parse("public/default/parted")
    patient.touched |= {str(base.with_partition(number)) for number in range(3)}
    match patient.rng.randrange(3):
        case 0:
            patient.remove(base.partitioned_path)
            for number in range(3):
                patient.expect("partition-without-parent", str(base.with_partition(number)))
        case 1:
            patient.put(base.partitioned_path, b'{"partitions"')
            patient.expect("record-undecodable", base.partitioned_path)
        case _:
            patient.put(base.partitioned_path, b'{"partitions":2,"deleted":false}')
            patient.expect("partition-beyond-count", str(base.with_partition(2)))


def cursor_at(path: str, patient: Patient) -> ManagedCursorInfo:
    """Return the record of a cursor."""
    return decode_cursor(patient.store.values[path].value)


def compacted(patient: Patient) -> tuple[Topic, str]:
    """Return a topic that points to compacted data, and the path of its compaction cursor."""

    def points(topic: Topic) -> bool:
        path = f"{topic.path}/__compaction"
        return path in patient.store.values and bool(cursor_at(path, patient).properties)

    topic = patient.choose(points)
    return topic, f"{topic.path}/__compaction"


def compaction_gone(patient: Patient) -> None:
    """The compaction cursor, or its pointer, is gone."""
    topic, path = compacted(patient)
    info = cursor_at(path, patient)
    ledger_id = info.properties[0].value
    end = patient.bookkeeper(ledger_id).compacted_to
    if patient.rng.random() < 0.5 and end is not None and end >= (topic.ledgers[0].ledger_id, 0):
        patient.remove(path)
    else:
        del info.properties[:]
        patient.put(path, info.SerializeToString())
    patient.expect("compaction-pointer-lost", topic, ledger_id)


def compacted_ledger_gone(patient: Patient) -> None:
    """The ledger with the compacted data is gone."""
    topic, path = compacted(patient)
    ledger_id = cursor_at(path, patient).properties[0].value
    patient.remove(ledger_path(ledger_id))
    patient.expect("compaction-ledger-missing", topic, ledger_id)
    if "__" in topic.name:
        patient.expect("system-topic-unreadable", topic)


def bucket_gone(patient: Patient) -> None:
    """An index of delayed messages is gone, or nobody names it."""
    topic = patient.choose(
        lambda topic: (
            topic.name.endswith("delayed-buckets")
            and bool(list(bucket_ledgers(cursor_at(f"{topic.path}/later", patient))))
        )
    )
    path = f"{topic.path}/later"
    info = cursor_at(path, patient)
    ledger_id = patient.rng.choice(list(bucket_ledgers(info)))
    if patient.rng.random() < 0.5:
        patient.remove(ledger_path(ledger_id))
        patient.expect("bucket-ledger-missing", topic, ledger_id)
    else:
        kept = [one for one in info.cursorProperties if one.value != str(ledger_id)]
        del info.cursorProperties[:]
        info.cursorProperties.extend(kept)
        patient.put(path, info.SerializeToString())
        patient.expect("orphan-bucket", ledger_path(ledger_id), ledger_id)


def schema_ledger_gone(patient: Patient) -> None:
    """The ledger with a schema is gone, or the schema's record is garbage."""
    paths = [path for path, record in patient.store.values.items() if record.value]
    path = patient.rng.choice([path for path in paths if path.startswith("/schemas/public/")])
    [owner] = named_by(patient.store.values[path], None, lambda path, why: None)
    if patient.rng.random() < 0.5:
        patient.remove(ledger_path(owner.ledger_id))
        patient.expect("schema-ledger-missing", f"persistent://{owner.name}", owner.ledger_id)
    else:
        patient.put(path, GARBAGE)
        patient.expect("record-undecodable", path)


def orphan(patient: Patient) -> None:
    """A ledger that nobody names, whoever made it."""
    topic = patient.choose(has_data)
    value = patient.store.values[ledger_path(topic.ledgers[-1].ledger_id)].value
    decoded = decode_ledger_metadata(value)
    match patient.rng.randrange(3):
        case 0:
            # Created by a broker that was killed before it named it.
            decoded.metadata.state = LedgerMetadataFormat.OPEN
            decoded.metadata.ClearField("lastEntryId")
        case 1:
            del decoded.metadata.customMetadata[:]
        case _:
            decoded.metadata.customMetadata.add(key="pulsar/cursor", value=b"gone")
    patient.put(ledger_path(NOWHERE - 1), encode_ledger_metadata(decoded))
    patient.expect("orphan-ledger", ledger_path(NOWHERE - 1), NOWHERE - 1)


def bookie_unknown(patient: Patient) -> None:
    """A ledger lies on a bookie of which there is no cookie."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))

    def rename(metadata: LedgerMetadataFormat) -> None:
        metadata.segment[0].ensembleMember[0] = "nobody:3181"

    patient.metadata(ledger_id, rename)
    patient.expect("bookie-unknown", topic, ledger_id)


def cursors_alone(patient: Patient) -> None:
    """A topic and its ledgers are gone, its cursors are there."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(patient.cursors(topic)))
    patient.remove(topic.path)
    for ledger in topic.ledgers:
        patient.remove(ledger_path(ledger.ledger_id))
    patient.expect("cursor-without-topic", topic)


WOUNDS: dict[str, Wound] = {
    wound.__name__: wound
    for wound in (
        *(metadata_gone, last_metadata_gone, metadata_garbage, topic_garbage, topic_gone, topic_is_a_cursor),
        *(cursor_broken, cursor_beyond, cursor_ledger_gone, cursor_ledger_foreign, open_behind, end_differs),
        *(counts_zero, not_listed, foreign, terminated, twice, unordered, parent_gone, compaction_gone),
        *(compacted_ledger_gone, bucket_gone, schema_ledger_gone, orphan, bookie_unknown, cursors_alone),
    )
}


def healthy(folder: Path) -> MemoryStore:
    """Return a copy of a capture's store."""
    store = MemoryStore()
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as snapshot:
        store.values = {record.path: record for record in snapshot.scan()}
    return store


def wounded(store: MemoryStore, rng: Random, wounds: Sequence[Wound]) -> Patient:
    """Return a copy of a store with wounds."""
    copy = MemoryStore()
    copy.values = dict(store.values)
    patient = Patient(copy, rng)
    for wound in wounds:
        wound(patient)
    return patient


def examined(
    store: MemoryStore, source: EntrySource | None = None, *names: str, every_ledger: bool = False
) -> list[Finding]:
    """Return what the doctor finds."""
    options = CheckOptions(min_age=0, every_ledger=every_ledger)
    return list(checkup(store, source, names, options).findings())


def place_of(finding: Finding) -> Expected:
    """Return a finding as it is expected."""
    return Expected(finding.code, finding.topic or finding.path or "", finding.ledger_id)


def compare(patient: Patient, before: set[Expected], source: EntrySource | None = None) -> list[str]:
    """Return what the doctor missed, and what it made up."""
    found = {place_of(finding) for finding in examined(patient.store, source)} - before
    return [
        *(f"missed {one}" for one in sorted(map(str, patient.expected - found))),
        *(f"made up {one}" for one in sorted(map(str, found - patient.expected))),
    ]


def trials(store: MemoryStore, seed: int, count: int) -> Iterator[tuple[str, list[str]]]:
    """Yield wounds by name, alone and in pairs, with what was wrong in what the doctor said of them."""
    before = {place_of(finding) for finding in examined(store)}
    names = list(WOUNDS)
    for number in range(count):
        rng = Random(f"{seed} {number}")
        chosen = [names[number % len(names)]] if number < 2 * len(names) else rng.sample(names, 2)
        with suppress(NotHereError):
            patient = wounded(store, rng, [WOUNDS[name] for name in chosen])
            yield f"{number} {' and '.join(chosen)}", compare(patient, before)


def main() -> None:
    """Try wounds on captures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    wrong = 0
    for folder in options.folders:
        store = healthy(folder)
        errors = [one for one in examined(store) if one.severity is Severity.ERROR]
        print(f"{folder.name}: {len(errors)} errors in the capture itself")
        wrong += len(errors)
        for name, faults in trials(store, options.seed, options.count):
            wrong += bool(faults)
            for fault in faults:
                print(f"  {name}: {fault}")
        print(f"{folder.name}: {options.count} tried")
    print(f"wrong: {wrong}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
