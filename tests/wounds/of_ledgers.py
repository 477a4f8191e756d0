"""Wounds of ledgers: BookKeeper's metadata, and the list in a topic's record."""

from __future__ import annotations

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.wounds.patient import GARBAGE, NotHereError, Patient, by_name, counted, has_data, has_many


def metadata_gone(patient: Patient) -> None:
    """A ledger with a count is gone from BookKeeper."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    patient.remove(ledger_path(ledger_id))
    patient.expect("ledger-without-metadata", topic, ledger_id, patient.if_read(topic, ledger_id))


def last_metadata_gone(patient: Patient) -> None:
    """The last ledger, whose count nobody wrote down, is gone from BookKeeper."""
    topic = patient.choose(has_data)
    last = topic.ledgers[-1].ledger_id
    patient.remove(ledger_path(last))
    read = [one.mark_delete.entry_id for one in patient.states(topic) if one.mark_delete.ledger_id == last]
    had = patient.entries is not None and patient.entries.last_entry(last) is not None
    if had or max(read, default=-1) >= 0:
        patient.expect("ledger-without-metadata", topic, last)
    elif patient.entries is None:
        patient.expect("ledger-without-metadata", topic, last, Severity.WARNING)


def metadata_garbage(patient: Patient) -> None:
    """A ledger's metadata is garbage, cut, or empty."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    path = ledger_path(ledger_id)
    cut = patient.store.values[path].value[:40]
    patient.put(path, patient.rng.choice([GARBAGE, b"BookieMetadataFormatVersion\t3\n", cut, b""]))
    patient.expect("record-undecodable", topic, ledger_id)


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


def list_is_short(patient: Patient) -> None:
    """The list counts fewer entries than BookKeeper closed the ledger with, and they are there."""
    topic = patient.choose(lambda topic: has_data(topic) and topic.ledgers[0].counted > 2)
    info = patient.info(topic)
    info.ledgerInfo[0].entries -= 1
    info.ledgerInfo[0].size -= 1
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-end-high", topic, topic.ledgers[0].ledger_id, Severity.WARNING)


def counts_zero(patient: Patient) -> None:
    """The list has no entries of a ledger in the middle."""
    topic = patient.choose(has_data)
    info, at = patient.info(topic), patient.rng.randrange(len(counted(topic)))
    for name in ("entries", "size", "timestamp"):
        setattr(info.ledgerInfo[at], name, 0)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-counts-zero", topic, info.ledgerInfo[at].ledgerId)


def take_out(patient: Patient, topic: Topic, ledger_id: int) -> None:
    """Take a ledger out of a topic's list."""
    info = patient.info(topic)
    kept = [ledger for ledger in info.ledgerInfo if ledger.ledgerId != ledger_id]
    del info.ledgerInfo[:]
    info.ledgerInfo.extend(kept)
    patient.put(topic.path, info.SerializeToString())


def not_listed(patient: Patient) -> None:
    """A ledger of the middle is not in the list."""
    topic = patient.choose(has_many)
    ledger_id = patient.rng.choice(counted(topic)[1:])
    take_out(patient, topic, ledger_id)
    patient.expect("ledger-not-listed", topic, ledger_id)


def _put_in(patient: Patient, topic: Topic, other: Topic, ledger_id: int) -> None:
    """Put a ledger of another topic into a list."""
    info = patient.info(topic)
    ledger = next(one for one in patient.info(other).ledgerInfo if one.ledgerId == ledger_id)
    info.ledgerInfo.add().CopyFrom(ledger)
    info.ledgerInfo.sort(key=lambda one: one.ledgerId)
    patient.put(topic.path, info.SerializeToString())


def in_two_topics(patient: Patient) -> None:
    """A ledger of another topic is in the list, too."""
    topic, other = patient.choose(has_data), patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(other))
    _put_in(patient, topic, other, ledger_id)
    patient.expect("ledger-in-two-topics", topic, ledger_id)


def foreign(patient: Patient) -> None:
    """A ledger of another topic is in the list, and in no other."""
    topic, other = patient.choose(has_data), patient.choose(has_many)
    ledger_id = patient.rng.choice(counted(other)[1:])
    _put_in(patient, topic, other, ledger_id)
    take_out(patient, other, ledger_id)
    patient.expect("ledger-foreign", topic, ledger_id)
    patient.expect("ledger-not-listed", other, ledger_id)


def terminated(patient: Patient) -> None:
    """The topic was terminated in its middle."""
    topic = patient.choose(has_data)
    info, ledger = patient.info(topic), patient.rng.choice(topic.ledgers[: len(counted(topic))])
    at = patient.rng.randrange(-1, ledger.counted - 1)
    info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = ledger.ledger_id, at
    patient.put(topic.path, info.SerializeToString())
    patient.expect("terminated-before-end", topic, ledger.ledger_id)


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


def policies_lost(patient: Patient) -> None:
    """A ledger of the topic with the policies of a namespace is gone."""
    name = "/__change_events"
    topic = patient.choose(lambda topic: topic.name.endswith(name) and bool(counted(topic)))
    ledger_id = patient.rng.choice(counted(topic))
    if patient.if_read(topic, ledger_id) is Severity.NOTE:
        raise NotHereError
    patient.remove(ledger_path(ledger_id))
    patient.expect("ledger-without-metadata", topic, ledger_id)
    patient.expect("system-topic-unreadable", topic)


WOUNDS = by_name(
    *(metadata_gone, last_metadata_gone, metadata_garbage, open_behind, end_differs, list_is_short),
    *(counts_zero, not_listed, in_two_topics, foreign, terminated, twice, unordered, policies_lost),
)
