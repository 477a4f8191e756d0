"""Find the source of shadow topics (PIP-180, Pulsar 2.11 and later).

A shadow has no entries. Its broker reads the ledgers in the record of the source. The shadow's own record has
the source's list from the time when a broker last loaded the shadow. Only one step is followed: if the source
is a shadow itself, the list in its own record counts. A shadow has its own cursors.

Sources: apache/pulsar ShadowManagedLedgerImpl, BrokerService.fetchTopicPropertiesAsync, TopicsImpl
(createShadowTopicAsync).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.stores.base import Store

# A property of the topic's record; for partitions, a property of the partitioned topic.
SOURCE: Final = "PULSAR.SHADOW_SOURCE"


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
            self._store.read(TopicName.parse(source).path)
        except (NotFoundError, UsageError):
            return False
        return True

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
        try:
            return self._store.read(path).value
        except NotFoundError:
            return b""


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
