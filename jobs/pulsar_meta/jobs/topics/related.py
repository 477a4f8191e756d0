"""Find the topics that have the data of another topic: segments of scalable topics, and sources of shadows.

A segment of a scalable topic (PIP-460) is an ordinary topic, with ledgers and cursors. If a topic was
migrated, its first segments are the old `persistent://` topic or its partitions.

A shadow (PIP-180, Pulsar 2.11 and later) has no entries. Its broker reads the ledgers in the record of the
source. The shadow's own record has the source's list from the time when a broker last loaded the shadow. Only
one step is followed: if the source is a shadow itself, the list in its own record counts. A shadow has its
own cursors.

Sources: apache/pulsar ShadowManagedLedgerImpl, BrokerService.fetchTopicPropertiesAsync, TopicsImpl
(createShadowTopicAsync).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final, TypedDict

from pulsar_meta.codecs.errors import DecodeError, UsageError, decoding
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic, decode_scalable_topic
from pulsar_meta.codecs.names import SCALABLE_TOPICS, TopicName, split_scalable_path
from pulsar_meta.stores.base import Store, Versioned

Report = Callable[[DecodeError], None]
GLOB = frozenset("*?[")
# A property of the record of a shadow; for partitions, a property of the partitioned topic.
SOURCE: Final = "PULSAR.SHADOW_SOURCE"


def read_scalable(store: Store, name: TopicName) -> ScalableTopic | None:
    """Read the record of the scalable topic with this name; None if there is none. Raises DecodeError."""
    if name.cluster is not None or name.domain == "segment":
        return None
    record = store.find(name.as_scalable.path)
    return None if record is None else _decoded(name.as_scalable, record)


def scalable_topics(
    store: Store, report: Report | None = None, pattern: str | None = None
) -> Iterator[ScalableTopic]:
    """Yield the scalable topics of a store whose full names match `pattern`, by default all.

    Corrupt records go to `report` and are skipped. Without `report`, their DecodeError is raised.
    """
    for record in store.scan(SCALABLE_TOPICS):
        name = split_scalable_path(record.path)
        # The children of a topic's record are consumers and loads of segments. Parents have no value.
        if name is None or not record.value or (pattern and not fnmatchcase(str(name), pattern)):
            continue
        try:
            yield _decoded(name, record)
        except DecodeError as error:
            if report is None:
                raise
            report(error)


def migrated_parts(store: Store) -> dict[str, str]:
    """Map each `persistent://` topic that is now a segment to its scalable topic, by name.

    Corrupt records are skipped, because checks read and report them separately.
    """
    return {
        str(segment.topic): str(scalable.name)
        for scalable in scalable_topics(store, lambda error: None)
        for segment in scalable.segments
        if segment.is_migrated
    }


def migrated_to(store: Store, topic: TopicName) -> ScalableTopic | None:
    """Find the scalable topic of which a persistent topic or its partitions are the sealed old part.

    None if there is none. Raises DecodeError if the record of the scalable topic is corrupt.
    """
    base = topic.partitioned or topic
    for name in dict.fromkeys((topic, base)):
        scalable = read_scalable(store, name) if name.domain == "persistent" else None
        if scalable is not None and _has_part(scalable, topic):
            return scalable
    return None


class ScalableTopics:
    """Finds the scalable topics of segments, by name, or for migrated topics by record.

    In a store without scalable topics, this costs one listing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Cached, because cursors follow their topic.
        self._last: dict[TopicName, str | None] = {}

    def of(self, topics: Iterable[TopicName]) -> dict[TopicName, str | None]:
        """Map each topic to the name of its scalable topic; None if it is no segment.

        The migrated part of a corrupt record is unknown, so it counts as none.
        """
        wanted = set(topics)
        known = {topic: self._last[topic] for topic in wanted & self._last.keys()}
        unknown = [topic for topic in wanted - known.keys() if topic.scalable_topic is None]
        records = self._records(unknown) if unknown and self._any else {}
        new = {topic: topic.scalable_topic or _owner(topic, records) for topic in wanted - known.keys()}
        self._last = known | new
        return self._last

    @cached_property
    def _any(self) -> bool:
        return bool(self._store.children(SCALABLE_TOPICS))

    def _records(self, topics: Iterable[TopicName]) -> dict[TopicName, ScalableTopic]:
        """Read the scalable topics whose old part these topics may be, by name."""
        names = list(dict.fromkeys(name for topic in topics for name in _may_be_part_of(topic)))
        scalable: dict[TopicName, ScalableTopic] = {}
        for name, record in zip(names, self._store.read_many([name.path for name in names]), strict=True):
            with suppress(DecodeError):
                scalable |= {} if record is None else {name: _decoded(name, record)}
        return scalable


def _may_be_part_of(topic: TopicName) -> list[TopicName]:
    if topic.domain != "persistent" or topic.cluster is not None:
        return []
    return [name.as_scalable for name in (topic, topic.partitioned) if name is not None]


def _owner(topic: TopicName, records: Mapping[TopicName, ScalableTopic]) -> str | None:
    candidates = (records[name] for name in _may_be_part_of(topic) if name in records)
    return next((str(scalable.name) for scalable in candidates if _has_part(scalable, topic)), None)


class PlaceNames(TypedDict, total=False):
    """The topic and cursor of a value, by the names that commands accept; empty for other values."""

    topic: str
    scalable_topic: str
    cursor: str


def named_at(place: tuple[TopicName, str | None], scalable_topic: str | None) -> PlaceNames:
    """Convert a place to the names that commands accept."""
    names: PlaceNames = {"topic": str(place[0])}
    if scalable_topic is not None:
        names["scalable_topic"] = scalable_topic
    if place[1] is not None:
        names["cursor"] = place[1]
    return names


def old_part(store: Store, name: str) -> str | None:
    """Warn about the full name of the sealed old part of a scalable topic; None for other names."""
    if not name.startswith("persistent://") or not GLOB.isdisjoint(name):
        return None
    try:
        scalable = migrated_to(store, TopicName.parse(name))
    except DecodeError as error:
        return f"cannot find out whether {name} was migrated to a scalable topic: {error}"
    if scalable is None:
        return None
    others = sum(not segment.is_migrated for segment in scalable.segments)
    return f"{name} is only the sealed old part of {scalable.name}, which has {others} more segments"


def _has_part(scalable: ScalableTopic, topic: TopicName) -> bool:
    olds = (segment.topic for segment in scalable.segments if segment.is_migrated)
    return any(topic in (old, old.partitioned) for old in olds)


def _decoded(name: TopicName, record: Versioned) -> ScalableTopic:
    with decoding(record.path):
        return decode_scalable_topic(name, record.value)


@dataclass(frozen=True, slots=True)
class Shadow:
    """The topic is a shadow of `source`, which is None if the name can't be read.

    `snapshot` is the reason why the topic has only the ledgers of its own record; None if it has the
    source's.
    """

    source: str | None
    snapshot: str | None = None


class ShadowSources:
    """Finds the sources of the shadow topics in a store."""

    def __init__(self, store: Store, *, many: bool = False, known: Mapping[str, bytes] | None = None) -> None:
        """Prepare to read from `store`.

        With `many`, partitioned topics are read one namespace at a time. `known` has the metadata, by path,
        of all partitioned topics that contain a source, if it was read before.
        """
        self._store, self._many, self._known = store, many, known
        self._namespaces: dict[str, dict[str, bytes]] = {}
        # Cached, because the partitions of one topic usually follow each other.
        self._last: tuple[str, bytes] = "", b""

    def of(self, topic: TopicName, properties: Iterable[tuple[str, str]]) -> str | None:
        """The name of a topic's source as it is stored; None if the topic is not a shadow.

        `properties` are those of its record. Raises DecodeError if the partitioned topic's metadata is
        corrupt.
        """
        base = topic.partitioned
        if base is not None:
            path = base.partitioned_path
            source = _source_in(path, self._partitioned(path))
            if source is not None:
                return f"{source}-partition-{topic.partition}"
        return dict(properties).get(SOURCE)

    def has(self, source: str) -> bool:
        """True if the store has a record of the topic `source`; False if that is not a topic name."""
        try:
            return self._store.find(TopicName.parse(source).path) is not None
        except UsageError:
            return False

    def _partitioned(self, path: str) -> bytes:
        """The metadata of a partitioned topic; empty if there is none or it contains no source."""
        if self._known is not None:
            return self._known.get(path, b"")
        if not self._many:
            if self._last[0] != path:
                self._last = path, self._read(path)
            return self._last[1]
        namespace = path.rpartition("/")[0]
        if namespace not in self._namespaces:
            scanned = self._store.scan(namespace)
            self._namespaces[namespace] = {
                stored.path: stored.value for stored in scanned if names_source(stored.value)
            }
        return self._namespaces[namespace].get(path, b"")

    def _read(self, path: str) -> bytes:
        record = self._store.find(path)
        return b"" if record is None else record.value


def names_source(metadata: bytes) -> bool:
    """True if the metadata of a partitioned topic may contain a source."""
    return SOURCE.encode() in metadata


def _source_in(path: str, metadata: bytes) -> str | None:
    """Read the source from the metadata of a partitioned topic (PartitionedTopicMetadata, JSON)."""
    if not names_source(metadata):
        return None
    properties = read_json_object(metadata, source=path).get("properties")
    source = properties.get(SOURCE) if isinstance(properties, dict) else None
    return source if isinstance(source, str) else None
