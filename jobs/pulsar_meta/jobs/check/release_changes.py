"""What a release removed or changed that a cluster's store shows, and the texts of an upgrade's verdict.

Each rule yields reasons. Their sources are proposals (PIP) and pull requests of Pulsar, and what we ran: the
defaults are those of the class `ServiceConfiguration` in the jars of 4.0.7, 4.2.4 and 5.0.0-M1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.envelope import is_enveloped
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, POLICIES_ROOTS, SCALABLE_TOPICS, TopicName
from pulsar_meta.jobs.rewrite.readable import Form, Version, holds_properties, is_release, parse_version
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Store, Versioned

Decision = Literal["not-safe", "unknown", "note"]
LAYOUT: Final = f"{LEDGERS}/LAYOUT"
SETTINGS: Final = "/admin/configuration"
POLICIES: Final = "/admin/policies"
# The log of the functions workers, in their default namespace.
FUNCTIONS: Final = f"{MANAGED_LEDGERS}/public/functions/persistent/metadata"
CHANGE_EVENTS: Final = "__change_events"

PULSAR_5: Final = parse_version("5.0.0-0")
_ETCD_SINCE: Final = parse_version("2.10.0-0")
_OXIA_SINCE: Final = parse_version("3.3.0-0")
_COPIES: Final = ("snapshot:", "dir:")
# Records of cursors above this size are compressed if compression is on (PIP-270).
COMPRESSION_THRESHOLD: Final = 16384
# The layouts that BookKeeper's classes of 4.14 to 4.18 and Pulsar's driver of 2.10 to 5.0.0-M1 read.
_LAYOUTS: Final = (
    "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
    "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory",
    "org.apache.pulsar.metadata.bookkeeper.PulsarLedgerManagerFactory",
)
_DEFAULTS_5: Final = (
    "managedLedgerInfoCompressionType and managedCursorInfoCompressionType are LZ4 above 16384 bytes"
    " (NONE before),"
    " managedLedgerMaxUnackedRangesToPersist is 200000 (10000),"
    " managedLedgerMaxUnackedRangesToPersistInMetadataStore is 200000 (1000),"
    " managedLedgerMaxBatchDeletedIndexToPersist is 200000 (10000)"
)


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason for or against a release; `source` is where it can be read, `cure` what to do before."""

    name: str
    decision: Decision
    message: str
    source: str
    place: str = ""
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of release: the store, the new release, and the releases of the registered brokers."""

    store: Store
    version: str
    running: tuple[str, ...] = ()

    @property
    def number(self) -> Version:
        """The numbers of the new release."""
        return parse_version(self.version)

    @property
    def reaches_5(self) -> bool:
        """Whether the new release is Pulsar 5, and a running broker is not, or none is registered."""
        known = [parse_version(running) for running in filter(is_release, self.running)]
        return self.number >= PULSAR_5 and not (known and min(known) >= PULSAR_5)

    def addresses(self) -> list[str]:
        """Return the URLs of the store and of BookKeeper's, or of those that a copy was taken from."""
        copied = self.store.origin.get("store")
        url = copied.get("url") if isinstance(copied, dict) else None
        return str(url or self.store.url).split("#ledgers=")

    def value(self, path: str) -> bytes:
        """Return a value, empty if there is none."""
        with suppress(NotFoundError):
            return self.store.read(path).value
        return b""

    def values(self, path: str) -> Iterator[Versioned]:
        """Yield the values below a path that are not empty."""
        return (record for record in self.store.scan(path) if record.value)


def cluster_reasons(change: Change) -> Iterator[Reason]:
    """Yield the reasons of all rules."""
    for rule in _RULES:
        yield from rule(change)


def cursor_reason(change: Change, path: str, value: bytes, cursor: ManagedCursorInfo) -> Reason | None:
    """Return the reason against Pulsar 5's compression of a large cursor with properties, if it is one."""
    large = len(value) > COMPRESSION_THRESHOLD and not is_enveloped(value)
    if not (change.reaches_5 and large and holds_properties(cursor)):
        return None
    return Reason(
        "cursors-compressed-by-default",
        "unknown",
        "cursors with properties above 16384 bytes: 5.0.0-M1 compresses them by default and cannot load them",
        "apache/pulsar#25336, defaults of 5.0.0-M1",
        path,
        "set managedCursorInfoCompressionType=NONE in broker.conf",
    )


def topic_reason(change: Change, topic: TopicName) -> Reason | None:
    """Return a note about a topic with the policies of its namespace's topics, which Pulsar 5 keeps there."""
    if not (change.reaches_5 and topic.local == CHANGE_EVENTS):
        return None
    text = "namespaces whose topic policies are in __change_events keep them there, whatever broker.conf says"
    return Reason("topic-policies-stay", "note", text, "PIP-469, apache/pulsar#25707", str(topic))


def _kind_of_store(change: Change) -> Iterator[Reason]:
    cure = "move the metadata to ZooKeeper or Oxia before (snapshot, restore)"
    limited = change.number >= PULSAR_5 or change.number < _OXIA_SINCE
    for url, whose in zip(change.addresses(), ("", " for the bookies"), strict=False):
        if url.startswith("etcd") and not _ETCD_SINCE <= change.number < PULSAR_5:
            text = f"Pulsar {change.version} can't use etcd as its metadata store{whose} (PIP-135, PIP-462)"
            source = "PIP-135, PIP-462, apache/pulsar#25380"
            yield Reason("store-unsupported", "not-safe", text, source, url, cure)
        elif url.startswith("oxia") and change.number < _OXIA_SINCE:
            text = f"Pulsar {change.version} can't use Oxia as its metadata store{whose}: it came with 3.3.0"
            yield Reason(
                "store-unsupported",
                "not-safe",
                f"{text} (PIP-335) (read, not run)",
                "PIP-335, apache/pulsar#22007",
                url,
            )
        elif url.startswith(_COPIES) and limited:
            text = f"this copy does not tell its kind of store, which {change.version} may not support"
            source = "PIP-335, PIP-462, apache/pulsar#25380"
            yield Reason(
                "store-kind-unseen", "note", text, source, cure="check the metadataStoreUrl of the brokers"
            )


def _bookies_driver(change: Change) -> Iterator[Reason]:
    layout = change.value(LAYOUT).decode(errors="replace").splitlines()
    name = layout[1].rpartition(":")[0] if len(layout) > 1 else ""
    if not layout or name in _LAYOUTS:
        return
    text = f"the metadata of ledgers has the layout {name or 'of an unknown kind'}, which we did not test"
    yield Reason("bookies-layout", "unknown", text, "BookKeeper's AbstractZkLedgerManagerFactory", LAYOUT)


def _names_of_version_1(change: Change) -> Iterator[Reason]:
    for record in change.values(POLICIES) if change.number >= PULSAR_5 else ():
        if record.path.count("/") == POLICIES.count("/") + 3:
            text = (
                "namespaces with V1 names (tenant/cluster/namespace), which 5.0 no longer supports (PIP-457)"
            )
            cure = "copy their topics to namespaces with V2 names"
            yield Reason("v1-namespace", "not-safe", text, "PIP-457, apache/pulsar#25275", record.path, cure)


def _policies_of_topics(change: Change) -> Iterator[Reason]:
    """Yield policies of topics in the store, which brokers before 5.0 do not read."""
    for root in POLICIES_ROOTS:
        for record in change.values(root):
            if change.number < PULSAR_5:
                text = f"policies of topics in the store (PIP-469), which {change.version} does not read"
                cure = "set them again (pulsar-admin topicPolicies) after the change of release"
                yield Reason(
                    "topic-policies-in-store",
                    "not-safe",
                    text,
                    "PIP-469, apache/pulsar#25707",
                    record.path,
                    cure,
                )


def _functions(change: Change) -> Iterator[Reason]:
    if change.reaches_5 and change.value(FUNCTIONS):
        text = (
            "a worker for functions has run here: 5.0 ships no connectors, its Java API is jakarta, not javax"
        )
        cure = "install the connectors of the same release, and build functions that use javax again"
        yield Reason(
            "functions-in-use", "note", text, "PIP-465, PIP-472, apache/pulsar#25912", FUNCTIONS, cure
        )


def _settings(change: Change) -> Iterator[Reason]:
    """Yield changed defaults, and the names of settings that the store holds."""
    if change.reaches_5:
        text = f"5.0.0-M1 has other defaults than 4.2.4: {_DEFAULTS_5}"
        yield Reason("defaults-changed", "note", text, "apache/pulsar#25992, defaults of 4.2.4 and 5.0.0-M1")
    with suppress(DecodeError):
        for name in read_json_object(change.value(SETTINGS) or b"{}"):
            text = f"dynamic settings in the store, which {change.version} applies if it still has them"
            source = "pulsar-admin brokers list-dynamic-config"
            yield Reason("dynamic-settings", "note", text, source, name)


def _migrated_topics(change: Change) -> Iterator[Reason]:
    for record in change.values(SCALABLE_TOPICS) if change.number >= PULSAR_5 else ():
        if (
            record.path.count("/") == SCALABLE_TOPICS.count("/") + 3
            and b'"legacyTopicName":"' in record.value
        ):
            text = (
                "topics that became scalable (PIP-475): there is no way back, and only V5 clients reach them"
            )
            yield Reason("topics-migrated", "note", text, "PIP-475, apache/pulsar#25875", record.path)


_RULES: Final[tuple[Callable[[Change], Iterator[Reason]], ...]] = (
    _kind_of_store,
    _bookies_driver,
    _names_of_version_1,
    _policies_of_topics,
    _functions,
    _settings,
    _migrated_topics,
)


_source_re = re.compile(r"PIP-\d+|apache/(?:pulsar|bookkeeper)#\d+")
_TRIED: Final = "our tests with real brokers"
# The sources of reasons whose message names none.
SOURCES: Final = {
    str(Form.LEDGER): "apache/pulsar#11490",
    str(Form.CURSOR): "PIP-146",
    str(Form.CURSOR_WITH_PROPERTIES): f"apache/pulsar#25336, {_TRIED}",
    str(Form.LEDGER_PROPERTIES): "PIP-404",
    str(Form.TRANSACTION_RECORDS): "PIP-473",
    "cursor-states-unseen": "apache/pulsar#9292",
    "ledgers-in-recovery": "BookKeeper's protocol",
    "partition-without-parent": "PIP-414",
    "release-step": "Pulsar's release policy",
    "replication-unfinished": "BookKeeper's auto-recovery",
    "store-migration": "PIP-454",
}

# A description of each format, and the command or action before the change of release.
FORMS: Final[dict[Form, tuple[str, str]]] = {
    Form.LEDGER: ("compressed records of topics", "compress-ledgers --compression none"),
    Form.CURSOR: ("compressed cursors", "compress-cursors --compression none"),
    Form.CURSOR_WITH_PROPERTIES: (
        "compressed cursors with properties",
        "compress-cursors --compression none --only-with-properties, and"
        " managedCursorInfoCompressionType=NONE",
    ),
    Form.BIT_SETS: (
        "single acknowledgements as bit sets in cursors' ledgers",
        "convert-cursor --to ranges, once the brokers are stopped",
    ),
    Form.LEDGER_PROPERTIES: (
        "properties of ledgers (PIP-404), which may be dropped at the next write of the record",
        "save them (properties --all); build-index creates an index again",
    ),
    Form.SEGMENTED_SNAPSHOTS: (
        "segmented snapshots of transaction buffers: aborted transactions would count as committed",
        "set transactionBufferSegmentedSnapshotEnabled=false, and wait for new snapshots",
    ),
    Form.BATCHED_LOG: (
        "logs of transactions, which may have batched records",
        "long before, set transactionLogBatchedWriteEnabled=false and"
        " transactionPendingAckBatchedWriteEnabled=false",
    ),
    Form.BUCKETS: (
        "indexes of delayed messages in ledgers: the messages are delivered, but the ledgers stay",
        "",
    ),
    Form.SHADOW: (
        "shadow topics, which would own their sources' ledgers and trim them",
        "delete the shadows",
    ),
    Form.SCALABLE: ("scalable topics and their segments, which no client could reach", "no fix is known"),
    Form.TRANSACTION_RECORDS: (
        "records of open transactions",
        "end them",
    ),
    Form.V1_NAME: (
        "topics with V1 names (tenant/cluster/namespace)",
        "copy them to topics with V2 names",
    ),
    Form.BOOKKEEPER_3: ("metadata of ledgers in BookKeeper's third format", "no fix is known"),
    Form.ROCKSDB_6: (
        "RocksDB tables in a format that the release's RocksDB can't open",
        "take a snapshot, and restore it into a database that the release created",
    ),
}


def source_of(name: str, message: str) -> str:
    """Return the sources that a message names, or the one of its reason."""
    named = dict.fromkeys(_source_re.findall(message))
    return SOURCES.get(name) or ", ".join(named) or _TRIED
