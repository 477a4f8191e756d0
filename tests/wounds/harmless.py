"""What looks like a wound and is none: the doctor has nothing to say of it."""

from __future__ import annotations

from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from tests.wounds.of_entries import one_copy, promise
from tests.wounds.of_ledgers import take_out
from tests.wounds.of_rest import offload
from tests.wounds.patient import NotHereError, Patient, by_name, counted, has_data, has_many


def _cursor(topic: Topic, name: str) -> str:
    return f"{topic.path}/{name}"


def never_loaded(patient: Patient) -> None:
    """A topic has an empty record, or one without ledgers, and a subscription."""
    name = TopicName.parse(f"public/default/new-{patient.rng.randrange(10**9)}")
    patient.put(name.path, patient.rng.choice([b"", ManagedLedgerInfo().SerializeToString()]))
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=-1, markDeleteEntryId=-1)
    patient.put(name.cursor_path("sub"), info.SerializeToString())


def trimmed(patient: Patient) -> None:
    """The first ledgers are gone, from the list and from BookKeeper; a subscription stands in one of them."""
    topic = patient.choose(lambda topic: has_many(topic) and not patient.records(topic))
    first = counted(topic)[0]
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=first, markDeleteEntryId=0)
    patient.put(_cursor(topic, "behind"), info.SerializeToString())
    take_out(patient, topic, first)
    patient.remove(ledger_path(first))


def emptied(patient: Patient) -> None:
    """Everything was trimmed but the last ledger, and the subscription stands behind what was."""
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
    """A subscription stands at -1 of an empty ledger that was discarded, in the middle too."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(counted(topic)))
    after = patient.rng.choice([one.ledger_id for one in topic.ledgers])
    free = [one for one in range(after + 1, after + 50) if ledger_path(one) not in patient.store.values]
    below = [one for one in free if one < topic.ledgers[-1].ledger_id]
    if not below:
        raise NotHereError
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=below[0], markDeleteEntryId=-1)
    patient.put(_cursor(topic, "on-nothing"), info.SerializeToString())


def empty_last_deleted(patient: Patient) -> None:
    """The last ledger was empty: some releases delete it before they write the list."""
    source = patient.need_entries()
    topic = patient.choose(
        lambda topic: has_data(topic) and source.last_entry(topic.ledgers[-1].ledger_id) is None
    )
    patient.remove(ledger_path(topic.ledgers[-1].ledger_id))


def terminated_at_the_end(patient: Patient) -> None:
    """The topic was terminated where it ends."""
    topic = patient.choose(has_data)
    if patient.bookkeeper(topic.ledgers[-1].ledger_id).last_entry != -1:
        raise NotHereError
    info, ledger = patient.info(topic), topic.ledgers[-2]
    info.terminatedPosition.ledgerId = ledger.ledger_id
    info.terminatedPosition.entryId = ledger.counted - 1
    patient.put(topic.path, info.SerializeToString())


def closed_without_entries(patient: Patient) -> None:
    """The list has no count of a ledger in the middle, and BookKeeper closed it without entries."""
    topic = patient.choose(lambda topic: has_data(topic) and not patient.records(topic))
    value = patient.store.values[ledger_path(topic.ledgers[-1].ledger_id)].value
    free = topic.ledgers[0].ledger_id + 1
    if ledger_path(free) in patient.store.values or free > topic.ledgers[-1].ledger_id:
        raise NotHereError
    if patient.bookkeeper(topic.ledgers[-1].ledger_id).last_entry != -1:
        raise NotHereError
    patient.put(ledger_path(free), value)
    info = patient.info(topic)
    info.ledgerInfo.add(ledgerId=free)
    info.ledgerInfo.sort(key=lambda one: one.ledgerId)
    patient.put(topic.path, info.SerializeToString())


def offloaded(patient: Patient) -> None:
    """A ledger is in tiered storage, and perhaps no more in BookKeeper."""
    patient.need_entries()
    deleted = patient.rng.random() < 0.5
    _, ledger_id, uuid = offload(patient, complete=True, deleted=deleted)
    patient.damage.objects.add((ledger_id, uuid))


def a_copy_less(patient: Patient) -> None:
    """Single entries have fewer copies than the write quorum, as many as writers waited for."""
    _, ledger_id, bookie, _ = one_copy(patient)
    patient.damage.lost[bookie, ledger_id] = lambda entry_id: entry_id % 7 == 0
    promise(patient, ledger_id, 1)


def pending_acks(patient: Patient) -> None:
    """The pending acknowledgements of a partition have a name like a partition's, and no parent."""
    base = "public/default/alone-partition-0-sub__transaction_pending_ack"
    patient.put(TopicName.parse(base).path, b"")


HARMLESS = by_name(
    *(never_loaded, trimmed, emptied, discarded, empty_last_deleted, terminated_at_the_end),
    *(closed_without_entries, offloaded, a_copy_less, pending_acks),
)
