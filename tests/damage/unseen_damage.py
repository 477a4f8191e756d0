"""Damage of many kinds, each described by the one value that it changes, on copies of captured clusters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger, wrap_envelope
from pulsar_meta.codecs.names import LEDGERS, ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.topics.owners import BUCKET
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from tests.damage_pairs.scenario import NotPossibleError, Scenario, counted

_TOPICS: Final = "/managed-ledgers/public/default/persistent"
_COMPACTION: Final = f"{_TOPICS}/compacted/__compaction"
_BUCKETS: Final = f"{_TOPICS}/delayed-buckets/later"
_STRINGS: Final = "/schemas/public/default/strings"
_POLICIES: Final = "/admin/policies/public/default"
_BUNDLES: Final = "/admin/local-policies/public/default"
_OF_PLAIN: Final = "/admin/topic-policies/local/public/default/persistent/plain"
_ISOLATION: Final = "/admin/clusters/standalone/namespaceIsolationPolicies"
_BROKER: Final = "/loadbalance/brokers/127.0.0.1:18080"
_YEAR_2100: Final = 4_102_444_800_000
_CODECS: Final = ("lz4", "zlib", "zstd", "snappy")
Damage = Callable[[Scenario], None]


class Kind(NamedTuple):
    """What is damaged, the code that `check` must report (None: nothing), and whether only disks show it."""

    damage: Damage
    code: str | None
    by_disks: bool = False


def _list(change: Callable[[ManagedLedgerInfo, int], None]) -> Damage:
    """Change the record of a topic; `change` also gets a ledger in the middle of its list."""

    def damage(case: Scenario) -> None:
        target = case.aim()
        case.edit_list(target.topic, lambda info: change(info, target.ledger_id))

    return damage


def _at(info: ManagedLedgerInfo, ledger_id: int) -> ManagedLedgerInfo.LedgerInfo:
    return next(ledger for ledger in info.ledgerInfo if ledger.ledgerId == ledger_id)


def _set(**fields: int) -> Damage:
    """Set fields of a ledger in a list."""

    def change(info: ManagedLedgerInfo, ledger_id: int) -> None:
        for name, value in fields.items():
            setattr(_at(info, ledger_id), name, value)

    return _list(change)


def _again(entries: int) -> Damage:
    """List a ledger a second time, right after the first, with other entries."""

    def change(info: ManagedLedgerInfo, ledger_id: int) -> None:
        ledgers = list(info.ledgerInfo)
        second = ManagedLedgerInfo.LedgerInfo(ledgerId=ledger_id, entries=entries)
        ledgers.insert(ledgers.index(_at(info, ledger_id)) + 1, second)
        copies = [parse_message(ManagedLedgerInfo.LedgerInfo, one.SerializeToString()) for one in ledgers]
        del info.ledgerInfo[:]
        info.ledgerInfo.extend(copies)

    return _list(change)


def _offload(**fields: bool) -> Damage:
    def damage(case: Scenario) -> None:
        target = case.aim()

        def change(info: ManagedLedgerInfo) -> None:
            context = _at(info, target.ledger_id).offloadContext
            context.uidMsb, context.uidLsb, context.timestamp = 5, 6, 1
            for name, value in fields.items():
                setattr(context, name, value)

        case.edit_list(target.topic, change)
        case.remove(ledger_path(target.ledger_id))

    return damage


def _terminate(ledger_id: int, entry_id: int) -> Damage:
    def change(info: ManagedLedgerInfo, _: int) -> None:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = ledger_id, entry_id

    return _list(change)


def _index(value: str | None) -> Damage:
    """Set or remove the property with the last index of a topic whose entries have indexes."""

    def damage(case: Scenario) -> None:
        topic = case.choose(lambda one: int(dict(one.properties).get("index") or -1) > 0)

        def change(info: ManagedLedgerInfo) -> None:
            kept = [pair for pair in info.properties if pair.key != "index"]
            del info.properties[:]
            info.properties.extend(kept)
            if value is not None:
                info.properties.add(key="index", value=value)

        case.edit_list(topic, change)

    return damage


def _stored(codec: str, change: Callable[[bytes], bytes]) -> Damage:
    """Change the compressed record of a topic."""

    def damage(case: Scenario) -> None:
        topic = case.choose()
        plain = decode_managed_ledger(case.store.values[topic.path].value).SerializeToString()
        case.put(topic.path, change(wrap_envelope(plain, codec)))

    return damage


def _first_unlisted(case: Scenario) -> None:
    """The first ledger of a topic leaves its list, and a subscription has not read it."""
    record = decode_managed_ledger(case.store.values[f"{_TOPICS}/delayed-buckets"].value)
    del record.ledgerInfo[0]
    case.put(f"{_TOPICS}/delayed-buckets", record.SerializeToString())


def _other_name(case: Scenario) -> None:
    """A topic's record is also at another topic's name, whose own is lost."""
    topic, other = case.choose(), case.choose()
    case.put(other.path, case.store.values[topic.path].value)


def _metadata(change: Callable[[LedgerMetadataFormat], None], *, listed: bool = True) -> Damage:
    """Change BookKeeper's metadata of a ledger; without `listed`, the list has no entries of it either."""

    def damage(case: Scenario) -> None:
        target = case.aim()
        case.edit_metadata(target.ledger_id, change)
        if not listed:
            case.edit_list(target.topic, lambda info: _at(info, target.ledger_id).ClearField("entries"))

    return damage


def _field(**fields: int | bytes) -> Callable[[LedgerMetadataFormat], None]:
    def change(metadata: LedgerMetadataFormat) -> None:
        for name, value in fields.items():
            setattr(metadata, name, value)

    return change


def _wider(metadata: LedgerMetadataFormat) -> None:
    metadata.ensembleSize += 2


def _segments(*firsts: int) -> Callable[[LedgerMetadataFormat], None]:
    """Replace the ensembles by ensembles of the same bookies that begin at other entries."""

    def change(metadata: LedgerMetadataFormat) -> None:
        members = list(metadata.segment[0].ensembleMember)
        del metadata.segment[:]
        for first in firsts:
            metadata.segment.add(firstEntryId=first, ensembleMember=members)

    return change


def _cursor(change: Callable[[ManagedCursorInfo, list[int]], None]) -> Damage:
    """Change the record of a cursor that holds its state; `change` also gets the ledgers of its topic."""

    def damage(case: Scenario) -> None:
        topic = case.choose(lambda one: bool(_states(case, one.path)))
        path = case.rng.choice(_states(case, topic.path))
        _edit_cursor(case, path, lambda info: change(info, counted(topic)))

    return damage


def _states(case: Scenario, topic: str) -> list[str]:
    """Return the paths of a topic's cursors whose records hold their state."""
    paths = sorted(path for path in case.store.values if path.startswith(f"{topic}/") and "/__" not in path)
    return [path for path in paths if decode_cursor(case.store.values[path].value).cursorsLedgerId == -1]


def _edit_cursor(case: Scenario, path: str, change: Callable[[ManagedCursorInfo], None]) -> None:
    if path not in case.store.values:
        raise NotPossibleError
    info = decode_cursor(case.store.values[path].value)
    change(info)
    case.put(path, info.SerializeToString())


def _acknowledged(*ends: tuple[int, int]) -> Damage:
    """Acknowledge ranges of the first ledger, of which only the first entry was marked as deleted."""

    def change(info: ManagedCursorInfo, ledgers: list[int]) -> None:
        info.ClearField("individualDeletedMessages")
        info.ClearField("batchedEntryDeletionIndexInfo")
        info.markDeleteLedgerId, info.markDeleteEntryId = ledgers[0], 0
        for first, last in ends:
            added = info.individualDeletedMessages.add()
            added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = ledgers[0]
            added.lowerEndpoint.entryId, added.upperEndpoint.entryId = first, last

    return _cursor(change)


def _no_position(info: ManagedCursorInfo, ledgers: list[int]) -> None:
    info.ClearField("markDeleteLedgerId")
    info.ClearField("markDeleteEntryId")


def _compaction(**fields: int) -> Damage:
    """Change the compaction cursor: its position, or the ledger that its property names."""

    def change(info: ManagedCursorInfo) -> None:
        info.properties[0].value = fields.get("ledger", info.properties[0].value)
        info.markDeleteLedgerId += fields.get("ahead", 0)

    return lambda case: _edit_cursor(case, _COMPACTION, change)


def _bucket(case: Scenario) -> None:
    """A bucket of delayed messages is in another topic's data ledger."""
    target = case.aim()

    def change(info: ManagedCursorInfo) -> None:
        if not info.cursorProperties:
            raise NotPossibleError
        info.cursorProperties[0].value = str(target.ledger_id)

    _edit_cursor(case, _BUCKETS, change)


def _bucket_property(name: str | None, value: str | None) -> Damage:
    """Change the first property for an index of delayed messages; `name` follows its prefix."""

    def change(info: ManagedCursorInfo) -> None:
        for item in info.cursorProperties:
            if item.name.startswith(BUCKET):
                item.name = item.name if name is None else f"{BUCKET}{name}"
                item.value = item.value if value is None else value
                return
        raise NotPossibleError

    return lambda case: _edit_cursor(case, _BUCKETS, change)


def _value(path: str, value: bytes | None) -> Damage:
    """Replace or remove a value."""
    return lambda case: case.remove(path) if value is None else case.put(path, value)


def _cookie(value: bytes | None) -> Damage:
    def damage(case: Scenario) -> None:
        cookies = sorted(path for path in case.store.values if path.startswith(f"{LEDGERS}/cookies/"))
        _value(case.rng.choice(cookies), value)(case)

    return damage


def _schema(change: Callable[[SchemaLocator], None]) -> Damage:
    def damage(case: Scenario) -> None:
        locator = parse_message(SchemaLocator, case.store.values[_STRINGS].value)
        change(locator)
        case.put(_STRINGS, locator.SerializeToString())

    return damage


def _entry_77(locator: SchemaLocator) -> None:
    for version in (locator.info, *locator.index):
        version.position.entryId = 77


def _known_nodes(case: Scenario) -> None:
    """Nodes that BookKeeper uses, with and without parents."""
    for name in (
        *("underreplication", "underreplication/ledgers/0000/0000/0000/0001/urL0000000001", "idgen-long"),
        *("idgen-long/HOB-0000000001", "available", "available/readonly", "cookies", "00", "00/0000", "000"),
        *("000/0000/0000/0000", "ID-0000000001"),
    ):
        case.put(f"{LEDGERS}/{name}", b"")


def _newer(locator: SchemaLocator) -> None:
    locator.info.version += 1


def _listed_newer(locator: SchemaLocator) -> None:
    locator.index[-1].version += 1


def _no_list(locator: SchemaLocator) -> None:
    del locator.index[:]


def _listed_twice(locator: SchemaLocator) -> None:
    locator.index.append(locator.index[0])


def _other_hash(locator: SchemaLocator) -> None:
    locator.info.hash = bytes(32)


def _other_entry(locator: SchemaLocator) -> None:
    locator.index[-1].position.entryId += 1


def _schema_of_another(case: Scenario) -> None:
    case.put(_STRINGS, case.store.values["/schemas/public/default/__change_events"].value)


def _bundles(change: Callable[[list[str]], list[str]], count: int = 4) -> Damage:
    def damage(case: Scenario) -> None:
        document = json.loads(case.store.values[_BUNDLES].value)
        boundaries = change(document["bundles"]["boundaries"])
        document["bundles"] = {"boundaries": boundaries, "numBundles": count}
        case.put(_BUNDLES, json.dumps(document).encode())

    return damage


def _policies(**fields: object) -> Damage:
    """Set fields of a namespace's policies."""

    def damage(case: Scenario) -> None:
        document = json.loads(case.store.values[_POLICIES].value)
        case.put(_POLICIES, json.dumps(document | fields).encode())

    return damage


def _partitions(text: str) -> Damage:
    return _value("/admin/partitioned-topics/public/default/persistent/parted", text.encode())


_OF_LISTS: Final = {
    "entries negative": Kind(_set(entries=-5), "ledger-counts-zero"),
    "entries beyond every ledger": Kind(_set(entries=2**62), "ledger-end-low"),
    "closed in the future": Kind(_set(timestamp=_YEAR_2100), None),
    "closed at no time": Kind(_set(timestamp=0), None),
    "twice, then without entries": Kind(_again(0), "ledger-counts-zero"),
    "twice, then with fewer entries": Kind(_again(3), "ledger-end-high"),
    "first ledger gone, unread": Kind(_first_unlisted, "ledger-not-listed"),
    "of another topic": Kind(_other_name, "record-copied"),
    "terminated far beyond": Kind(_terminate(999_999, 3), "terminated-after-end"),
    "terminated at -1:-1": Kind(_terminate(-1, -1), "terminated-before-end"),
    "index is no number": Kind(_index("x12"), "topic-index-behind"),
    "index gone": Kind(_index(None), "topic-index-behind", by_disks=True),
    "index ahead": Kind(_index("99999"), None),
    "offload incomplete, bookies' copy gone": Kind(
        _offload(bookkeeperDeleted=True), "ledger-without-metadata"
    ),
    "offload complete, bookies' copy gone": Kind(_offload(complete=True, bookkeeperDeleted=True), None),
    "name with a broken escape": Kind(_value(f"{_TOPICS}/pl%zzain", b"x"), "record-undecodable"),
    "name that is not encoded": Kind(_value(f"{_TOPICS}/a plain topic", b"x"), "record-undecodable"),
    "envelope of an unknown codec": Kind(
        _stored("zstd", lambda value: value[:7] + b"\x09" + value[8:]), "record-undecodable"
    ),
} | {
    f"{what} as {codec}": Kind(_stored(codec, change), "record-undecodable")
    for codec in _CODECS
    for what, change in (
        ("header cut", lambda value: value[:5]),
        ("body cut", lambda value: value[:-2]),
        ("nothing but the header", lambda value: value[:10]),
    )
}
_OF_METADATA: Final = {
    "password of another": Kind(_metadata(_field(password=b"x")), "ledger-password-differs", by_disks=True),
    "no password": Kind(_metadata(lambda metadata: metadata.ClearField("password")), None),
    "digest HMAC": Kind(
        _metadata(_field(digestType=LedgerMetadataFormat.HMAC)), "ledger-digest-differs", True
    ),
    "closed without entries": Kind(_metadata(_field(lastEntryId=-1)), "ledger-end-low"),
    "closed without entries, and so in the list": Kind(
        _metadata(_field(lastEntryId=-1), listed=False), "ledger-end-short", by_disks=True
    ),
    "closed at -9": Kind(_metadata(_field(lastEntryId=-9)), "ledger-end-low"),
    "created in the future": Kind(_metadata(_field(ctime=_YEAR_2100)), None),
    "no write quorum": Kind(_metadata(_field(quorumSize=0, ackQuorumSize=0)), "ledger-metadata-invalid"),
    "larger ensemble than its bookies": Kind(_metadata(_wider), "ledger-metadata-invalid"),
    "no ensembles": Kind(_metadata(_segments()), "ledger-metadata-invalid"),
    "ensembles not in order": Kind(_metadata(_segments(0, 20, 10)), "ledger-metadata-invalid"),
    "in recovery with an end": Kind(
        _metadata(_field(state=LedgerMetadataFormat.IN_RECOVERY)), "ledger-open-behind"
    ),
}
_OF_CURSORS: Final = {
    "ranges overlap": Kind(_acknowledged((2, 8), (5, 10)), "cursor-ranges"),
    "ranges not in order": Kind(_acknowledged((9, 12), (2, 5)), None),
    "empty range": Kind(_acknowledged((5, 5)), None),
    "range beyond every entry": Kind(_acknowledged((5, 2**62)), "cursor-ranges"),
    "reversed range": Kind(_acknowledged((9, 3)), "cursor-ranges-inverted"),
    "no position": Kind(_cursor(_no_position), "record-undecodable"),
    "position in ledger -1": Kind(
        _cursor(lambda info, _: setattr(info, "markDeleteLedgerId", -1)), "cursor-in-vanished-ledger"
    ),
    "position at entry -5": Kind(
        _cursor(lambda info, _: setattr(info, "markDeleteEntryId", -5)), "cursor-in-vanished-ledger"
    ),
    "state in ledger -2": Kind(
        _cursor(lambda info, _: setattr(info, "cursorsLedgerId", -2)), "cursor-ledger-missing"
    ),
    "state in a data ledger": Kind(
        _cursor(lambda info, ledgers: setattr(info, "cursorsLedgerId", ledgers[0])), "cursor-ledger-foreign"
    ),
    "active in the future": Kind(_cursor(lambda info, _: setattr(info, "lastActive", _YEAR_2100)), None),
    "name with a broken escape": Kind(_value(f"{_TOPICS}/marks/%zz", b"x"), "record-undecodable"),
    "compacted ledger nowhere": Kind(_compaction(ledger=7_654_321), "compaction-ledger-missing"),
    "compacted up to beyond the end": Kind(_compaction(ahead=1000), "cursor-beyond-end"),
    "bucket in a data ledger": Kind(_bucket, "bucket-ledger-foreign"),
    "bucket in no ledger": Kind(_bucket_property(None, "x"), "bucket-property-invalid"),
    "bucket in a ledger beyond Java's": Kind(_bucket_property(None, str(2**63)), "bucket-property-invalid"),
    "bucket of one ledger": Kind(_bucket_property("7", None), "bucket-property-invalid"),
    "bucket of ledgers in reverse": Kind(_bucket_property("9_7", None), "bucket-property-invalid"),
    "bucket with a suffix": Kind(_bucket_property("7_9_x", None), "bucket-property-invalid"),
    "bucket in ledger -7": Kind(_bucket_property(None, "-7"), "bucket-ledger-missing"),
}
_OF_CLUSTERS: Final = {
    "cookie gone": Kind(_cookie(None), "cookie-differs", by_disks=True),
    "cookie garbage": Kind(_cookie(b"\xff"), "record-undecodable"),
    "instance id gone": Kind(_value(f"{LEDGERS}/INSTANCEID", None), "cookie-differs", by_disks=True),
    "instance id of another": Kind(_value(f"{LEDGERS}/INSTANCEID", b"x"), "cookie-differs", by_disks=True),
    "layout garbage": Kind(_value(f"{LEDGERS}/LAYOUT", b"\xff"), "record-undecodable"),
    "layout of version 9": Kind(
        _value(f"{LEDGERS}/LAYOUT", b"9\norg.apache.FlatLedgerManagerFactory:1"), "record-undecodable"
    ),
    "layout flat": Kind(_value(f"{LEDGERS}/LAYOUT", b"2\norg.apache.FlatLedgerManagerFactory:1"), None),
    "unknown node of ledgers": Kind(_value(f"{LEDGERS}/backup", b"x"), "record-undecodable"),
    "unknown node with a flat ledger": Kind(_value(f"{LEDGERS}/L0000000025", b"x"), "record-undecodable"),
    "unknown node with a wrong number": Kind(_value(f"{LEDGERS}/00/0000/L00x5", b"x"), "record-undecodable"),
    "unknown node without its letter": Kind(_value(f"{LEDGERS}/00/0000/0025", b"x"), "record-undecodable"),
    "unknown node after a ledger": Kind(_value(f"{LEDGERS}/00/0000/L0025/x", b"x"), "record-undecodable"),
    "resource group garbage": Kind(_value("/admin/resourcegroups/one", b"{"), "record-undecodable"),
    "policies of a topic garbage": Kind(_value(_OF_PLAIN, b"{"), "record-undecodable"),
    "policies of a topic are a list": Kind(_value(_OF_PLAIN, b"[]"), "record-undecodable"),
    "policies of a topic empty": Kind(_value(_OF_PLAIN, b"{}"), None),
    "isolation with a list": Kind(_value(_ISOLATION, b'{"one":[]}'), "record-undecodable"),
    "isolation by the name of a field": Kind(_value(_ISOLATION, b'{"boundaries":{},"brokers":{}}'), None),
    "failure domain with text for a list": Kind(
        _value("/admin/clusters/standalone/failureDomain/one", b'{"brokers":"x"}'), "record-undecodable"
    ),
    "known nodes of ledgers": Kind(_known_nodes, None),
    "cluster garbage": Kind(_value("/admin/clusters/standalone", b"{"), "record-undecodable"),
    "policies are a list": Kind(_value(_POLICIES, b"[]"), "record-undecodable"),
    "policies empty": Kind(_value(_POLICIES, b""), "record-empty"),
    "policies with text for a list": Kind(_policies(replication_clusters="a"), "record-undecodable"),
    "policies with text for a number": Kind(
        _policies(retention_policies={"retentionTimeInMinutes": "x"}), "record-undecodable"
    ),
    "policies with a list for an object": Kind(_policies(persistence=[1]), "record-undecodable"),
    "policies with numbers as text": Kind(_policies(max_producers_per_topic="7", unknown=[1]), None),
    "local policies garbage": Kind(_value(_BUNDLES, b"\xff{"), "record-undecodable"),
    "tenant gone": Kind(_value("/admin/policies/public", None), "policy-reference-missing"),
    "boundary twice": Kind(_bundles(lambda all: all[:2] + all[1:]), "namespace-bundles-invalid"),
    "boundaries not in order": Kind(_bundles(lambda all: all[::-1]), "namespace-bundles-invalid"),
    "other number of bundles": Kind(_bundles(list, 9), "namespace-bundles-invalid"),
    "fewer partitions": Kind(_partitions('{"partitions":1}'), "partition-beyond-count"),
    "partitions of a plain topic": Kind(
        _value("/admin/partitioned-topics/public/default/persistent/plain", b'{"partitions":2}'),
        "topic-beside-partitioned",
    ),
    "no partitions of a plain topic": Kind(
        _value("/admin/partitioned-topics/public/default/persistent/plain", b'{"partitions":0}'), None
    ),
    "partitions of a subscription's name": Kind(
        _value("/admin/partitioned-topics/public/default/persistent/marks%2Fwith-props", b'{"partitions":2}'),
        None,
    ),
    "more partitions": Kind(_partitions('{"partitions":5}'), None),
    "no partitions": Kind(_partitions('{"partitions":0}'), "partition-without-parent"),
    "partitions are text": Kind(_partitions('{"partitions":"three"}'), "record-undecodable"),
    "schema after its ledger's end": Kind(_schema(_entry_77), "schema-ledger-foreign"),
    "schema whose newest is not listed": Kind(_schema(_newer), "schema-index-differs"),
    "schema whose list is ahead": Kind(_schema(_listed_newer), "schema-index-differs"),
    "schema without a list": Kind(_schema(_no_list), "schema-index-differs"),
    "schema listed twice": Kind(_schema(_listed_twice), "schema-index-differs"),
    "schema with another hash": Kind(_schema(_other_hash), "schema-index-differs"),
    "schema in another entry": Kind(_schema(_other_entry), "schema-index-differs"),
    "schema of another": Kind(_schema_of_another, "record-copied"),
    "settings garbage": Kind(_value("/admin/configuration", b"{"), "record-undecodable"),
    "settings are a list": Kind(_value("/admin/configuration", b"[]"), "record-undecodable"),
    "settings empty": Kind(_value("/admin/configuration", b""), "record-empty"),
    "settings with a list": Kind(_value("/admin/configuration", b'{"a":[1]}'), "record-undecodable"),
    "settings with a number": Kind(_value("/admin/configuration", b'{"a":1,"b":true,"c":null}'), None),
    "registration garbage": Kind(_value(_BROKER, b"\xff"), "record-undecodable"),
    "registration empty": Kind(_value(_BROKER, b""), "record-empty"),
    "registration without a URL": Kind(_value(_BROKER, b"{}"), "record-undecodable"),
    "registration with text for a list": Kind(
        _value(_BROKER, b'{"pulsarServiceUrl":"pulsar://a:1","bundles":"x"}'), "record-undecodable"
    ),
    "registration with text for an object": Kind(
        _value(_BROKER, b'{"pulsarServiceUrl":"pulsar://a:1","protocols":"x"}'), "record-undecodable"
    ),
    "registration without a release": Kind(_value(_BROKER, b'{"pulsarServiceUrl":"pulsar://a:1"}'), None),
    "leader garbage": Kind(_value("/loadbalance/leader", b"{"), "record-undecodable"),
    "load of a bundle garbage": Kind(
        _value("/loadbalance/bundle-data/public/default/0x00000000_0x40000000", b"{"), "record-undecodable"
    ),
    "owner of a bundle garbage": Kind(
        _value("/namespace/public/default/0x00000000_0x40000000", b"{"), "record-undecodable"
    ),
    "schema empty": Kind(_value(_STRINGS, b""), "record-empty"),
}
KINDS: Final[dict[str, Kind]] = {
    f"{where}: {name}": kind
    for where, kinds in (
        ("list", _OF_LISTS), ("metadata", _OF_METADATA), ("cursor", _OF_CURSORS), ("cluster", _OF_CLUSTERS)
    )
    for name, kind in kinds.items()
}  # fmt: skip
