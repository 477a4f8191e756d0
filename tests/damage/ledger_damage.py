"""Damage to ledgers: their metadata in BookKeeper, and the ledger list in a topic's record."""

from __future__ import annotations

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.damage.patient import GARBAGE, NotApplicableError, Patient, by_name, counted, has_data, has_many


def metadata_gone(patient: Patient) -> None:
    """Remove the BookKeeper metadata of a ledger that has a count in the list."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    patient.remove(ledger_path(ledger_id))
    patient.expect("ledger-without-metadata", topic, ledger_id, patient.severity_of_loss(topic, ledger_id))


def last_metadata_gone(patient: Patient) -> None:
    """Remove the BookKeeper metadata of the last ledger, which has no count yet."""
    topic = patient.choose(has_data)
    last = topic.ledgers[-1].ledger_id
    patient.remove(ledger_path(last))
    read = [
        state.mark_delete.entry_id for state in patient.states(topic) if state.mark_delete.ledger_id == last
    ]
    had = patient.entries is not None and patient.entries.last_entry(last) is not None
    if had or max(read, default=-1) >= 0:
        patient.expect("ledger-without-metadata", topic, last)
    elif patient.entries is None:
        patient.expect("ledger-without-metadata", topic, last, Severity.WARNING)


def metadata_garbage(patient: Patient) -> None:
    """Replace a ledger's metadata by garbage, by a cut value, or by nothing."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    path = ledger_path(ledger_id)
    cut = patient.store.values[path].value[:40]
    patient.put(path, patient.rng.choice([GARBAGE, b"BookieMetadataFormatVersion\t3\n", cut, b""]))
    patient.expect("record-undecodable", topic, ledger_id)


def open_behind(patient: Patient) -> None:
    """Reopen a ledger in BookKeeper that the list shows as closed."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))

    def reopen(metadata: LedgerMetadataFormat) -> None:
        metadata.state = patient.rng.choice([LedgerMetadataFormat.OPEN, LedgerMetadataFormat.IN_RECOVERY])
        metadata.ClearField("lastEntryId")
        metadata.length = 0

    patient.change_metadata(ledger_id, reopen)
    patient.expect("ledger-open-behind", topic, ledger_id)


def end_differs(patient: Patient) -> None:
    """Move BookKeeper's last entry below or above the count in the list."""
    topic = patient.choose(lambda topic: has_data(topic) and topic.ledgers[0].counted > 2)
    ledger = topic.ledgers[0]
    low = patient.rng.random() < 0.5

    def move(metadata: LedgerMetadataFormat) -> None:
        metadata.lastEntryId += -1 - patient.rng.randrange(ledger.counted - 1) if low else 10

    patient.change_metadata(ledger.ledger_id, move)
    patient.expect("ledger-end-low" if low else "ledger-end-high", topic, ledger.ledger_id)


def list_is_short(patient: Patient) -> None:
    """Lower a ledger's count in the list although BookKeeper has all of its entries."""
    topic = patient.choose(lambda topic: has_data(topic) and topic.ledgers[0].counted > 2)
    info = patient.info(topic)
    info.ledgerInfo[0].entries -= 1
    info.ledgerInfo[0].size -= 1
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-end-high", topic, topic.ledgers[0].ledger_id, Severity.WARNING)


def size_differs(patient: Patient) -> None:
    """Change the size of a ledger in the list, or in BookKeeper's metadata, which brokers don't use."""
    topic = patient.choose(has_data)
    info, at = patient.info(topic), patient.rng.randrange(len(counted(topic)))
    ledger, in_list = info.ledgerInfo[at], patient.rng.random() < 0.7

    def shrink(metadata: LedgerMetadataFormat) -> None:
        metadata.length //= 10

    if in_list:
        ledger.size = patient.rng.choice([ledger.size * 1000, ledger.size // 3, 0])
        patient.put(topic.path, info.SerializeToString())
    else:
        patient.change_metadata(ledger.ledgerId, shrink)
    is_harmless = not in_list and patient.entries is not None
    severity = Severity.NOTE if is_harmless else Severity.WARNING
    patient.expect("ledger-size-differs", topic, ledger.ledgerId, severity)


def counts_zero(patient: Patient) -> None:
    """Set the counts of a ledger in the list to zero."""
    topic = patient.choose(has_data)
    info, at = patient.info(topic), patient.rng.randrange(len(counted(topic)))
    for name in ("entries", "size", "timestamp"):
        setattr(info.ledgerInfo[at], name, 0)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-counts-zero", topic, info.ledgerInfo[at].ledgerId)


def take_out(patient: Patient, topic: Topic, ledger_id: int) -> None:
    """Remove a ledger from a topic's list."""
    info = patient.info(topic)
    kept = [ledger for ledger in info.ledgerInfo if ledger.ledgerId != ledger_id]
    del info.ledgerInfo[:]
    info.ledgerInfo.extend(kept)
    patient.put(topic.path, info.SerializeToString())


def not_listed(patient: Patient) -> None:
    """Remove a ledger after the first one from the list."""
    topic = patient.choose(has_many)
    ledger_id = patient.rng.choice(counted(topic)[1:])
    take_out(patient, topic, ledger_id)
    patient.expect("ledger-not-listed", topic, ledger_id)


def _insert(patient: Patient, topic: Topic, other: Topic, ledger_id: int) -> None:
    """Add a ledger of topic `other` to a topic's list."""
    info = patient.info(topic)
    ledger = next(ledger for ledger in patient.info(other).ledgerInfo if ledger.ledgerId == ledger_id)
    info.ledgerInfo.add().CopyFrom(ledger)
    info.ledgerInfo.sort(key=lambda ledger: ledger.ledgerId)
    patient.put(topic.path, info.SerializeToString())


def in_two_topics(patient: Patient) -> None:
    """List a ledger of another topic, which keeps it in its own list."""
    topic, other = patient.choose(has_data), patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(other))
    _insert(patient, topic, other, ledger_id)
    patient.expect("ledger-in-two-topics", topic, ledger_id)


def foreign(patient: Patient) -> None:
    """Move a ledger from another topic's list to this one."""
    topic, other = patient.choose(has_data), patient.choose(has_many)
    ledger_id = patient.rng.choice(counted(other)[1:])
    _insert(patient, topic, other, ledger_id)
    take_out(patient, other, ledger_id)
    patient.expect("ledger-foreign", topic, ledger_id)
    patient.expect("ledger-not-listed", other, ledger_id)


def terminated(patient: Patient) -> None:
    """Terminate a topic before its last entry."""
    topic = patient.choose(has_data)
    info, ledger = patient.info(topic), patient.rng.choice(topic.ledgers[: len(counted(topic))])
    at = patient.rng.randrange(-1, ledger.counted - 1)
    info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = ledger.ledger_id, at
    patient.put(topic.path, info.SerializeToString())
    patient.expect("terminated-before-end", topic, ledger.ledger_id)


def terminated_late(patient: Patient) -> None:
    """Terminate a topic after its last entry."""
    topic = patient.choose(has_data)
    metadata = patient.bookkeeper(topic.ledgers[-1].ledger_id)
    if metadata.last_entry is None:
        raise NotApplicableError
    info, last = patient.info(topic), topic.ledgers[-1].ledger_id
    info.terminatedPosition.ledgerId = last + patient.rng.choice([0, 5])
    info.terminatedPosition.entryId = metadata.last_entry + 3
    patient.put(topic.path, info.SerializeToString())
    patient.expect("terminated-after-end", topic, info.terminatedPosition.ledgerId)


def layout_invalid(patient: Patient) -> None:
    """Write ensembles that no client accepts into a ledger's metadata."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    kind = patient.rng.randrange(3)

    def change(metadata: LedgerMetadataFormat) -> None:
        if kind == 0:
            metadata.segment[0].firstEntryId = 10
        elif kind == 1:
            metadata.ackQuorumSize = metadata.quorumSize + 1
        else:
            metadata.ensembleSize = len(metadata.segment[0].ensembleMember) + 1
            metadata.segment[0].ensembleMember.append(metadata.segment[0].ensembleMember[0])

    patient.change_metadata(ledger_id, change)
    severity = patient.severity_of_loss(topic, ledger_id)
    patient.expect("ledger-metadata-invalid", topic, ledger_id, severity)


def twice(patient: Patient) -> None:
    """List a ledger twice."""
    topic = patient.choose(has_data)
    info = patient.info(topic)
    info.ledgerInfo.insert(0, info.ledgerInfo[0])
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-duplicate", topic, topic.ledgers[0].ledger_id)


def unordered(patient: Patient) -> None:
    """Reverse the order of the ledger list."""
    topic = patient.choose(has_data)
    info = patient.info(topic)
    info.ledgerInfo.sort(key=lambda ledger: -ledger.ledgerId)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("ledger-unordered", topic)


def policies_lost(patient: Patient) -> None:
    """Remove a ledger of the topic that stores a namespace's policies."""
    name = "/__change_events"
    topic = patient.choose(lambda topic: topic.name.endswith(name) and bool(counted(topic)))
    ledger_id = patient.rng.choice(counted(topic))
    if patient.severity_of_loss(topic, ledger_id) is Severity.NOTE:
        raise NotApplicableError
    patient.remove(ledger_path(ledger_id))
    patient.expect("ledger-without-metadata", topic, ledger_id)
    patient.expect("system-topic-unreadable", topic)


DAMAGE = by_name(
    *(metadata_gone, last_metadata_gone, metadata_garbage, open_behind, end_differs, list_is_short),
    *(counts_zero, not_listed, in_two_topics, foreign, terminated, twice, unordered, policies_lost),
    *(terminated_late, layout_invalid, size_differs),
)
