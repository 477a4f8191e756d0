"""Wounds of entries: disks that lost all of a ledger, its end, its middle, or one bookie's copies."""

from __future__ import annotations

from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.wounds.patient import NotHereError, Patient, by_name, counted, has_data


def _ledger(patient: Patient) -> tuple[Topic, int, int]:
    """Return a topic, one of its ledgers of at least four entries, and its last entry."""
    source = patient.need_entries()
    topic = patient.choose(lambda topic: has_data(topic) and any(one.counted > 3 for one in topic.ledgers))
    ledger = patient.rng.choice([one for one in topic.ledgers if one.counted > 3])
    if source.last_entry(ledger.ledger_id) is None:
        raise NotHereError
    return topic, ledger.ledger_id, ledger.counted - 1


def entries_gone(patient: Patient) -> None:
    """No bookie has an entry of a ledger."""
    topic, ledger_id, _ = _ledger(patient)
    patient.damage.lost[None, ledger_id] = lambda entry_id: True
    patient.expect("ledger-without-entries", topic, ledger_id, patient.if_read(topic, ledger_id))


def tail_gone(patient: Patient) -> None:
    """The last entries of a ledger are on no bookie."""
    topic, ledger_id, last = _ledger(patient)
    first = patient.rng.randrange(1, last + 1)
    patient.damage.lost[None, ledger_id] = lambda entry_id: entry_id >= first
    patient.expect("ledger-end-differs", topic, ledger_id, patient.if_read(topic, ledger_id))


def middle_gone(patient: Patient) -> None:
    """One entry, or several, before the last one are on no bookie."""
    topic, ledger_id, last = _ledger(patient)
    gone = set(patient.rng.sample(range(last), patient.rng.randint(1, 2)))
    patient.damage.lost[None, ledger_id] = lambda entry_id: entry_id in gone
    patient.expect("entry-missing", topic, ledger_id, patient.if_read(topic, ledger_id))


def one_disk_lost(patient: Patient) -> None:
    """One bookie has lost all that it had of a ledger."""
    topic, ledger_id, bookie, write_quorum = one_copy(patient)
    patient.damage.lost[bookie, ledger_id] = lambda entry_id: True
    ack_quorum = patient.rng.choice([1, 2])
    promise(patient, ledger_id, ack_quorum)
    if ack_quorum < write_quorum:
        patient.expect("ledger-under-replicated", topic, ledger_id)
    else:
        read = patient.if_read(topic, ledger_id)
        patient.expect("ledger-below-ack-quorum", topic, ledger_id, read)


def one_copy(patient: Patient) -> tuple[Topic, int, str, int]:
    """Choose a ledger with copies; return its topic, its id, a bookie that has one, and the write quorum."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    known = patient.bookkeeper(ledger_id)
    if patient.disks is None or known.write_quorum < 2:
        raise NotHereError
    bookie = patient.rng.choice(sorted({one for part in known.segments for one in part.members}))
    return topic, ledger_id, bookie, known.write_quorum


def promise(patient: Patient, ledger_id: int, ack_quorum: int) -> None:
    """Have a ledger's writers have waited for so many copies."""

    def change(metadata: LedgerMetadataFormat) -> None:
        metadata.ackQuorumSize = ack_quorum

    patient.metadata(ledger_id, change)


WOUNDS = by_name(entries_gone, tail_gone, middle_gone, one_disk_lost)
