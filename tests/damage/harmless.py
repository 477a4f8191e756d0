"""Changes that look like damage but are normal, so `check` must not report them."""

from __future__ import annotations

from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from tests.damage.cluster_damage import offload
from tests.damage.entry_damage import one_copy, set_ack_quorum
from tests.damage.ledger_damage import take_out
from tests.damage.patient import NotApplicableError, Patient, by_name, counted, has_data, has_many


def _cursor(topic: Topic, name: str) -> str:
    return f"{topic.path}/{name}"


def never_loaded(patient: Patient) -> None:
    """Add a topic with a subscription whose record is empty or has no ledgers."""
    name = TopicName.parse(f"public/default/new-{patient.rng.randrange(10**9)}")
    patient.put(name.path, patient.rng.choice([b"", ManagedLedgerInfo().SerializeToString()]))
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=-1, markDeleteEntryId=-1)
    patient.put(name.cursor_path("sub"), info.SerializeToString())


def trimmed(patient: Patient) -> None:
    """Trim the first ledgers, with a subscription that is still positioned in one of them."""
    topic = patient.choose(lambda topic: has_many(topic) and not patient.records(topic))
    first = counted(topic)[0]
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=first, markDeleteEntryId=0)
    patient.put(_cursor(topic, "behind"), info.SerializeToString())
    take_out(patient, topic, first)
    patient.remove(ledger_path(first))


def emptied(patient: Patient) -> None:
    """Trim all ledgers but the last, with a subscription at the end of the trimmed data."""
    topic = patient.choose(lambda topic: has_data(topic) and not patient.records(topic))
    last = counted(topic)[-1]
    ends = [(last, topic.ledgers[-2].counted - 1), (topic.ledgers[-1].ledger_id, -1)]
    at = patient.rng.choice(ends)
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=at[0], markDeleteEntryId=at[1])
    patient.put(_cursor(topic, "at-the-end"), info.SerializeToString())
    for ledger_id in counted(topic):
        take_out(patient, topic, ledger_id)
        patient.remove(ledger_path(ledger_id))


def discarded(patient: Patient) -> None:
    """Put a subscription at entry -1 of an empty ledger that was deleted, also between other ledgers."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(counted(topic)))
    after = patient.rng.choice([ledger.ledger_id for ledger in topic.ledgers])
    free = [
        number for number in range(after + 1, after + 50) if ledger_path(number) not in patient.store.values
    ]
    below = [ledger_id for ledger_id in free if ledger_id < topic.ledgers[-1].ledger_id]
    if not below:
        raise NotApplicableError
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=below[0], markDeleteEntryId=-1)
    patient.put(_cursor(topic, "on-nothing"), info.SerializeToString())


def empty_last_deleted(patient: Patient) -> None:
    """Delete the empty last ledger, as some releases do before they write the ledger list."""
    source = patient.need_entries()
    topic = patient.choose(
        lambda topic: has_data(topic) and source.last_entry(topic.ledgers[-1].ledger_id) is None
    )
    patient.remove(ledger_path(topic.ledgers[-1].ledger_id))


def terminated_at_the_end(patient: Patient) -> None:
    """Terminate a topic at its last entry."""
    topic = patient.choose(has_data)
    if patient.bookkeeper(topic.ledgers[-1].ledger_id).last_entry != -1:
        raise NotApplicableError
    info, ledger = patient.info(topic), topic.ledgers[-2]
    info.terminatedPosition.ledgerId = ledger.ledger_id
    info.terminatedPosition.entryId = ledger.counted - 1
    patient.put(topic.path, info.SerializeToString())


def closed_without_entries(patient: Patient) -> None:
    """List a ledger without a count in the middle; BookKeeper closed it without entries."""
    topic = patient.choose(lambda topic: has_data(topic) and not patient.records(topic))
    value = patient.store.values[ledger_path(topic.ledgers[-1].ledger_id)].value
    free = topic.ledgers[0].ledger_id + 1
    if ledger_path(free) in patient.store.values or free > topic.ledgers[-1].ledger_id:
        raise NotApplicableError
    if patient.bookkeeper(topic.ledgers[-1].ledger_id).last_entry != -1:
        raise NotApplicableError
    patient.put(ledger_path(free), value)
    info = patient.info(topic)
    info.ledgerInfo.add(ledgerId=free)
    info.ledgerInfo.sort(key=lambda ledger: ledger.ledgerId)
    patient.put(topic.path, info.SerializeToString())


def offloaded(patient: Patient) -> None:
    """Offload a ledger, and perhaps delete it from BookKeeper."""
    patient.need_entries()
    deleted = patient.rng.random() < 0.5
    _, ledger_id, uuid = offload(patient, complete=True, deleted=deleted)
    patient.damage.objects.add((ledger_id, uuid))


def a_copy_less(patient: Patient) -> None:
    """Lose single copies of entries, so that the ack quorum is still met."""
    _, ledger_id, bookie, _ = one_copy(patient)
    patient.damage.lost[bookie, ledger_id] = lambda entry_id: entry_id % 7 == 0
    set_ack_quorum(patient, ledger_id, 1)


def pending_acks(patient: Patient) -> None:
    """Add a partition's pending-ack log, which is named like a partition but has no partitioned topic."""
    base = "public/default/alone-partition-0-sub__transaction_pending_ack"
    patient.put(TopicName.parse(base).path, b"")


HARMLESS = by_name(
    *(never_loaded, trimmed, emptied, discarded, empty_last_deleted, terminated_at_the_end),
    *(closed_without_entries, offloaded, a_copy_less, pending_acks),
)
