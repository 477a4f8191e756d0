"""Damage outside any single topic: schemas, bookies, tiered storage, orphan ledgers and the id generator."""

from __future__ import annotations

import json
from uuid import UUID

from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.topics.owners import named_by
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import OffloadContext
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from tests.damage.patient import GARBAGE, NOWHERE, NotApplicableError, Patient, by_name, counted, has_data

COOKIES = "/ledgers/cookies/"
AVAILABLE = "/ledgers/available/"
# Every message of these topics has a schema version.
WITH_VERSIONS = ("public/default/strings",)


def schema_ledger_gone(patient: Patient) -> None:
    """Remove the ledger that stores a schema, or corrupt the schema's record."""
    paths = [path for path, record in patient.store.values.items() if record.value]
    path = patient.rng.choice([path for path in paths if path.startswith("/schemas/public/")])
    patient.claim(path)
    [owner] = named_by(patient.store.values[path], None, lambda path, why: None)
    if patient.rng.random() < 0.5:
        patient.remove(ledger_path(owner.ledger_id))
        patient.expect("schema-ledger-missing", f"persistent://{owner.name}", owner.ledger_id)
    else:
        patient.put(path, GARBAGE)
        patient.expect("record-undecodable", path)


def schema_gone(patient: Patient) -> None:
    """Remove the record of a schema that messages refer to."""
    patient.need_entries()
    name = TopicName.parse(patient.rng.choice(WITH_VERSIONS))
    path = name.schema_path
    patient.claim(path)
    patient.claim(str(name))
    others = [value for value in patient.store.values if value.startswith("/schemas/public/")]
    if path not in others or not any(patient.store.values[other].value for other in others if other != path):
        raise NotApplicableError
    owners = list(named_by(patient.store.values[path], None, lambda path, why: None))
    patient.remove(path)
    first = next(ledger.ledger_id for ledger in read_topic(patient.store, name).ledgers if ledger.counted)
    patient.expect("schema-version-missing", str(name), first)
    for owner in owners:
        where = ledger_path(owner.ledger_id)
        patient.expect("orphan-ledger", where, owner.ledger_id, Severity.NOTE)


def claimed_schema(patient: Patient) -> str:
    """Return the path of a schema that no other damage has."""
    path = patient.rng.choice(
        sorted(
            path
            for path, record in patient.store.values.items()
            if record.value and path.startswith("/schemas/public/") and "__" not in path
        )
    )
    patient.claim(path)
    return path


def schema_of_a_data_ledger(patient: Patient) -> None:
    """Let a schema's record refer to a topic's data ledger."""
    path = claimed_schema(patient)
    topic = patient.choose(has_data)
    ledger_id = counted(topic)[0]
    [owner] = named_by(patient.store.values[path], None, lambda path, why: None)
    locator = parse_message(SchemaLocator, patient.store.values[path].value)
    for entry in (locator.info, *locator.index):
        entry.position.ledgerId = ledger_id
    patient.put(path, locator.SerializeToString())
    patient.expect("schema-ledger-foreign", f"persistent://{owner.name}", ledger_id)
    old = ledger_path(owner.ledger_id)
    patient.expect("orphan-ledger", old, owner.ledger_id, Severity.NOTE)


def schema_list_differs(patient: Patient) -> None:
    """Let the newest version of a schema differ from the end of its list."""
    path = claimed_schema(patient)
    locator = parse_message(SchemaLocator, patient.store.values[path].value)
    match patient.rng.randrange(4):
        case 0:
            locator.index[-1].version += 1
        case 1:
            locator.info.version += 1
        case 2:
            locator.info.hash = bytes(32)
        case _:
            locator.index.append(locator.index[0])
    patient.put(path, locator.SerializeToString())
    patient.expect("schema-index-differs", path)


def bundle_boundary_gone(patient: Patient) -> None:
    """Remove a boundary of a namespace's bundles."""
    path = patient.rng.choice(sorted(_policies(patient, "/admin/local-policies/")))
    patient.claim(path)
    document = json.loads(patient.store.values[path].value)
    boundaries = document["bundles"]["boundaries"]
    boundaries.pop(patient.rng.randrange(len(boundaries)))
    patient.put(path, json.dumps(document).encode())
    patient.expect("namespace-bundles-invalid", path)


def cluster_unknown(patient: Patient) -> None:
    """Let a namespace replicate to a cluster without a record."""
    path = patient.rng.choice(sorted(_policies(patient, "/admin/policies/public/")))
    patient.claim(path)
    document = json.loads(patient.store.values[path].value)
    document["replication_clusters"].append("elsewhere")
    patient.put(path, json.dumps(document).encode())
    patient.expect("policy-reference-missing", path)


def policies_of_no_topic(patient: Patient) -> None:
    """Add policies of deleted topics, local and global, and those of two topics that exist."""
    for scope, severity in (("local", Severity.WARNING), ("global", Severity.NOTE)):
        path = f"/admin/topic-policies/{scope}/public/default/persistent/deleted-{scope}"
        patient.claim(path)
        patient.put(path, b'{"messageTTLInSeconds":30}')
        topic = f"persistent://public/default/deleted-{scope}"
        patient.expect("topic-policies-without-topic", topic, severity=severity)
    # Policies of topics that exist.
    for name in ("parted", "plain"):
        patient.put(f"/admin/topic-policies/local/public/default/persistent/{name}", b"{}")


def _policies(patient: Patient, below: str) -> list[str]:
    return [path for path, record in patient.store.values.items() if path.startswith(below) and record.value]


def orphan(patient: Patient) -> None:
    """Add a ledger that no record refers to."""
    patient.claim("orphan")
    topic = patient.choose(has_data)
    value = patient.store.values[ledger_path(topic.ledgers[-1].ledger_id)].value
    decoded = decode_ledger_metadata(value)
    match patient.rng.randrange(3):
        case 0:
            # A broker created it and was killed before it wrote the ledger's id to a record.
            decoded.metadata.state = LedgerMetadataFormat.OPEN
            decoded.metadata.ClearField("lastEntryId")
        case 1:
            del decoded.metadata.customMetadata[:]
        case _:
            decoded.metadata.customMetadata.add(key="pulsar/cursor", value=b"gone")
    patient.put(ledger_path(NOWHERE - 1), encode_ledger_metadata(decoded))
    patient.expect("orphan-ledger", ledger_path(NOWHERE - 1), NOWHERE - 1, Severity.NOTE)


def bookie_unknown(patient: Patient) -> None:
    """Put a ledger on a bookie that has no cookie."""
    patient.claim("bookie-unknown")
    topic = patient.choose(has_data)
    ledger_id = patient.rng.choice(counted(topic))
    copies = patient.bookkeeper(ledger_id).write_quorum

    def rename(metadata: LedgerMetadataFormat) -> None:
        metadata.segment[0].ensembleMember[0] = "nobody:3181"

    patient.change_metadata(ledger_id, rename)
    severity = Severity.ERROR if copies < 2 else Severity.WARNING
    patient.expect("bookie-unknown", topic, ledger_id, severity)


def bookie_stopped(patient: Patient) -> None:
    """Unregister a bookie that stores ledgers and register another one."""
    patient.claim("bookies")
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
    """Change a directory in the cookie that the store keeps for a bookie."""
    patient.need_entries()
    patient.claim("cookie")
    path = patient.rng.choice(sorted(path for path in patient.store.values if path.startswith(COOKIES)))
    value = patient.store.values[path].value
    patient.put(path, value.replace(b'journalDir: "', b'journalDir: "/elsewhere'))
    patient.expect("cookie-differs", path)


def offload(patient: Patient, *, complete: bool, deleted: bool) -> tuple[str, int, str]:
    """Mark a ledger of a topic as offloaded and return (topic name, ledger id, UUID of the offload)."""
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
    """Mark an offload as begun and not completed."""
    topic, ledger_id, _ = offload(patient, complete=False, deleted=False)
    patient.expect("offload-unfinished", topic, ledger_id)


def object_gone(patient: Patient) -> None:
    """Mark a ledger as offloaded although tiered storage has no object for it."""
    patient.need_entries()
    deleted = patient.rng.random() < 0.5
    topic, ledger_id, _ = offload(patient, complete=True, deleted=deleted)
    patient.expect("offload-object-missing", topic, ledger_id)


def object_unnamed(patient: Patient) -> None:
    """Add an object to tiered storage that no record refers to."""
    patient.need_entries()
    patient.claim("object")
    patient.damage.objects.add((NOWHERE, str(UUID(int=7))))
    patient.expect("offload-object-orphan", "", NOWHERE)


def generator_back(patient: Patient) -> None:
    """Move the ledger id generator back to ids that are already in use."""
    patient.claim("generator")
    vars(patient.store)["next_id"] = 1
    patient.expect("ledger-id-ahead", "/ledgers/idgen")


DAMAGE = by_name(
    policies_of_no_topic,
    *(schema_ledger_gone, schema_gone, orphan, bookie_unknown, bookie_stopped, cookie_differs, offload_begun),
    *(object_gone, object_unnamed, generator_back),
    *(schema_of_a_data_ledger, schema_list_differs, bundle_boundary_gone, cluster_unknown),
)
