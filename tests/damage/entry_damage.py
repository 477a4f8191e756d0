"""Damage to entries: a ledger loses all of them, its end, its middle, or the copies on one bookie."""

from __future__ import annotations

from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.damage.patient import NotApplicableError, Patient, by_name, counted, has_data


def _ledger(patient: Patient) -> tuple[Topic, int, int]:
    """Choose a ledger with at least four entries; return its topic, its id and its last entry."""
    source = patient.need_entries()
    topic = patient.choose(
        lambda topic: has_data(topic) and any(ledger.counted > 3 for ledger in topic.ledgers)
    )
    ledger = patient.rng.choice([ledger for ledger in topic.ledgers if ledger.counted > 3])
    if source.last_entry(ledger.ledger_id) is None:
        raise NotApplicableError
    return topic, ledger.ledger_id, ledger.counted - 1


def entries_gone(patient: Patient) -> None:
    """Lose every entry of a ledger on all bookies."""
    topic, ledger_id, _ = _ledger(patient)
    patient.damage.lost[None, ledger_id] = lambda entry_id: True
    patient.expect("ledger-without-entries", topic, ledger_id, patient.severity_of_loss(topic, ledger_id))


def tail_gone(patient: Patient) -> None:
    """Lose the last entries of a ledger on all bookies."""
    topic, ledger_id, last = _ledger(patient)
    first = patient.rng.randrange(1, last + 1)
    patient.damage.lost[None, ledger_id] = lambda entry_id: entry_id >= first
    patient.expect("ledger-end-differs", topic, ledger_id, patient.severity_of_loss(topic, ledger_id))


def middle_gone(patient: Patient) -> None:
    """Lose one or two entries before a ledger's last entry on all bookies."""
    topic, ledger_id, last = _ledger(patient)
    gone = set(patient.rng.sample(range(last), patient.rng.randint(1, 2)))
    patient.damage.lost[None, ledger_id] = lambda entry_id: entry_id in gone
    patient.expect("entry-missing", topic, ledger_id, patient.severity_of_loss(topic, ledger_id))


def one_disk_lost(patient: Patient) -> None:
    """Lose all entries of a ledger on one bookie."""
    topic, ledger_id, bookie, write_quorum = one_copy(patient)
    patient.damage.lost[bookie, ledger_id] = lambda entry_id: True
    ack_quorum = patient.rng.choice([1, 2])
    set_ack_quorum(patient, ledger_id, ack_quorum)
    if ack_quorum < write_quorum:
        patient.expect("ledger-under-replicated", topic, ledger_id)
    else:
        read = patient.severity_of_loss(topic, ledger_id)
        patient.expect("ledger-below-ack-quorum", topic, ledger_id, read)


def one_copy(patient: Patient) -> tuple[Topic, int, str, int]:
    """Choose a replicated ledger; return its topic, its id, one of its bookies and its write quorum."""
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    known = patient.bookkeeper(ledger_id)
    if patient.disks is None or known.write_quorum < 2:
        raise NotApplicableError
    bookie = patient.rng.choice(sorted({member for segment in known.segments for member in segment.members}))
    return topic, ledger_id, bookie, known.write_quorum


def set_ack_quorum(patient: Patient, ledger_id: int, ack_quorum: int) -> None:
    """Set the ack quorum of a ledger."""

    def change(metadata: LedgerMetadataFormat) -> None:
        metadata.ackQuorumSize = ack_quorum

    patient.change_metadata(ledger_id, change)


def end_is_short(patient: Patient) -> None:
    """Lower the end of a ledger in BookKeeper's metadata and in the topic's list."""
    topic, ledger_id, last = _ledger(patient)
    end = patient.rng.randrange(last)

    def shorten(metadata: LedgerMetadataFormat) -> None:
        metadata.lastEntryId = end

    patient.change_metadata(ledger_id, shorten)
    info = patient.info(topic)
    ledger = next(ledger for ledger in info.ledgerInfo if ledger.ledgerId == ledger_id)
    ledger.entries = end + 1
    patient.put(topic.path, info.SerializeToString())
    # A cursor may be after the new end, a batch index too.
    patient.undecided |= {"cursor-beyond-end", "cursor-ranges"}
    patient.expect("ledger-end-short", topic, ledger_id)


def digest_changed(patient: Patient) -> None:
    """Change the digest type in a ledger's metadata."""
    topic, ledger_id, _ = _ledger(patient)

    def change(metadata: LedgerMetadataFormat) -> None:
        metadata.digestType = LedgerMetadataFormat.CRC32

    patient.change_metadata(ledger_id, change)
    patient.expect("ledger-digest-differs", topic, ledger_id, patient.severity_of_loss(topic, ledger_id))


def password_changed(patient: Patient) -> None:
    """Change the password in a ledger's metadata."""
    topic, ledger_id, _ = _ledger(patient)

    def change(metadata: LedgerMetadataFormat) -> None:
        metadata.password = b"another"

    patient.change_metadata(ledger_id, change)
    patient.expect("ledger-password-differs", topic, ledger_id, patient.severity_of_loss(topic, ledger_id))


def index_behind(patient: Patient) -> None:
    """Lower the index that a topic's next message continues from."""
    patient.need_entries()
    topic = patient.choose(
        lambda topic: has_data(topic) and int(dict(topic.properties).get("index") or -1) > 0
    )
    info = patient.info(topic)
    index = next(pair for pair in info.properties if pair.key == "index")
    index.value = str(int(index.value) - 1)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("topic-index-behind", topic, counted(topic)[-1])


DAMAGE = by_name(
    *(entries_gone, tail_gone, middle_gone, one_disk_lost, end_is_short, digest_changed, index_behind),
    password_changed,
)
