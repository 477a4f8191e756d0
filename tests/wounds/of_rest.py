"""Wounds of what belongs to no single topic: schemas, bookies, tiered storage, orphans, the generator."""

from __future__ import annotations

from uuid import UUID

from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.topics.owners import named_by
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import OffloadContext
from tests.wounds.patient import GARBAGE, NOWHERE, NotHereError, Patient, by_name, counted, has_data

COOKIES = "/ledgers/cookies/"
AVAILABLE = "/ledgers/available/"
# Of which every message names a version.
WITH_VERSIONS = ("public/default/strings",)


def schema_ledger_gone(patient: Patient) -> None:
    """The ledger with a schema is gone, or the schema's record is garbage."""
    paths = [path for path, record in patient.store.values.items() if record.value]
    path = patient.rng.choice([path for path in paths if path.startswith("/schemas/public/")])
    patient.once(path)
    [owner] = named_by(patient.store.values[path], None, lambda path, why: None)
    if patient.rng.random() < 0.5:
        patient.remove(ledger_path(owner.ledger_id))
        patient.expect("schema-ledger-missing", f"persistent://{owner.name}", owner.ledger_id)
    else:
        patient.put(path, GARBAGE)
        patient.expect("record-undecodable", path)


def schema_gone(patient: Patient) -> None:
    """The record of a schema is gone that messages name."""
    patient.need_entries()
    name = TopicName.parse(patient.rng.choice(WITH_VERSIONS))
    path = name.schema_path
    patient.once(path)
    patient.once(str(name))
    others = [one for one in patient.store.values if one.startswith("/schemas/public/")]
    if path not in others or not any(patient.store.values[one].value for one in others if one != path):
        raise NotHereError
    owners = list(named_by(patient.store.values[path], None, lambda path, why: None))
    patient.remove(path)
    first = next(one.ledger_id for one in read_topic(patient.store, name).ledgers if one.counted)
    patient.expect("schema-version-missing", str(name), first)
    for owner in owners:
        where = ledger_path(owner.ledger_id)
        patient.expect("orphan-ledger", where, owner.ledger_id, Severity.NOTE)


def orphan(patient: Patient) -> None:
    """A ledger that nobody names, whoever made it."""
    patient.once("orphan")
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
    patient.expect("orphan-ledger", ledger_path(NOWHERE - 1), NOWHERE - 1, Severity.NOTE)


def bookie_unknown(patient: Patient) -> None:
    """A ledger lies on a bookie of which there is no cookie."""
    patient.once("bookie-unknown")
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    copies = patient.bookkeeper(ledger_id).write_quorum

    def rename(metadata: LedgerMetadataFormat) -> None:
        metadata.segment[0].ensembleMember[0] = "nobody:3181"

    patient.metadata(ledger_id, rename)
    severity = Severity.ERROR if copies < 2 else Severity.WARNING
    patient.expect("bookie-unknown", topic, ledger_id, severity)


def bookie_stopped(patient: Patient) -> None:
    """A bookie that has ledgers is not registered, another one is."""
    patient.once("bookies")
    known = sorted(path for path in patient.store.values if path.startswith(COOKIES))
    bookies = [path.removeprefix(COOKIES) for path in known]
    stopped = patient.rng.choice(bookies)
    patient.store.values.pop(f"{AVAILABLE}{stopped}", None)
    if len(bookies) == 1:
        patient.put(f"{COOKIES}other:3181", patient.store.values[known[0]].value)
    for bookie in {*bookies, "other:3181"} - {stopped}:
        patient.put(f"{AVAILABLE}{bookie}", b"")
    severity = Severity.ERROR if len(bookies) == 1 else Severity.WARNING
    patient.expect("bookie-unreachable", f"{COOKIES}{stopped}", severity=severity)


def cookie_differs(patient: Patient) -> None:
    """The store has another directory in a bookie's cookie than the disk."""
    patient.need_entries()
    patient.once("cookie")
    path = patient.rng.choice(sorted(path for path in patient.store.values if path.startswith(COOKIES)))
    value = patient.store.values[path].value
    patient.put(path, value.replace(b'journalDir: "', b'journalDir: "/elsewhere'))
    patient.expect("cookie-differs", path)


def offload(patient: Patient, *, complete: bool, deleted: bool) -> tuple[str, int, str]:
    """Have a ledger of a topic offloaded; return the topic, the ledger and the offload's id."""
    topic = patient.choose(has_data)
    info, at = patient.info(topic), patient.rng.randrange(len(counted(topic)))
    uuid = UUID(int=patient.rng.getrandbits(126))
    context = OffloadContext(uidMsb=uuid.int >> 64, complete=complete, bookkeeperDeleted=deleted)
    least = uuid.int & (2**64 - 1)
    context.uidLsb = least - 2**64 if least >= 2**63 else least
    context.timestamp = 1_700_000_000_000
    info.ledgerInfo[at].offloadContext.CopyFrom(context)
    patient.put(topic.path, info.SerializeToString())
    ledger_id = info.ledgerInfo[at].ledgerId
    if deleted:
        patient.remove(ledger_path(ledger_id))
    return topic.name, ledger_id, str(uuid)


def offload_begun(patient: Patient) -> None:
    """An offload did not end."""
    topic, ledger_id, _ = offload(patient, complete=False, deleted=False)
    patient.expect("offload-unfinished", topic, ledger_id)


def object_gone(patient: Patient) -> None:
    """The object of an offloaded ledger is gone."""
    patient.need_entries()
    deleted = patient.rng.random() < 0.5
    topic, ledger_id, _ = offload(patient, complete=True, deleted=deleted)
    patient.expect("offload-object-missing", topic, ledger_id)


def object_unnamed(patient: Patient) -> None:
    """Tiered storage has an object that nobody names, of a ledger that is there or of one that is not."""
    patient.need_entries()
    patient.once("object")
    patient.damage.objects.add((NOWHERE, str(UUID(int=7))))
    patient.expect("offload-object-orphan", "", NOWHERE)


def generator_back(patient: Patient) -> None:
    """The generator of ids gives out ids again."""
    patient.once("generator")
    vars(patient.store)["following"] = 1
    patient.expect("ledger-id-ahead", "/ledgers/idgen")


WOUNDS = by_name(
    *(schema_ledger_gone, schema_gone, orphan, bookie_unknown, bookie_stopped, cookie_differs, offload_begun),
    *(object_gone, object_unnamed, generator_back),
)
