"""Shadow topics (PIP-180, Pulsar 2.11 on): which topic another is the shadow of.

A shadow has no entries of its own. Its broker reads the ledgers in the record of the source; the shadow's own
record has the list as it was when a broker last loaded the shadow. It goes one step: where the source is a
shadow itself, the list in that one's own record counts. The cursors of a shadow are its own.

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

# Among the properties of a topic's record, or for all partitions in those of the partitioned topic.
SOURCE: Final = "PULSAR.SHADOW_SOURCE"


@dataclass(frozen=True, slots=True)
class Shadow:
    """That a topic is the shadow of `source`, None where its name cannot be read.

    `snapshot` says why the topic has only the ledgers of its own record; None where it has the source's.
    """

    source: str | None
    snapshot: str | None = None


class ShadowSources:
    """Which topics of a store are shadows, and of what."""

    def __init__(self, store: Store, *, many: bool = False, known: Mapping[str, bytes] | None = None) -> None:
        """`many`: it will be asked about many topics; partitioned topics are read a namespace at a time.

        `known` are the metadata of all partitioned topics that name a source, by path, where somebody looked.
        """
        self._store, self._many, self._known = store, many, known
        self._namespaces: dict[str, dict[str, bytes]] = {}
        # Partitions of one topic come one after the other.
        self._last: tuple[str, bytes] = "", b""

    def of(self, topic: TopicName, properties: Iterable[tuple[str, str]]) -> str | None:
        """Return the name of a topic's source as it was written down, None where the topic is no shadow.

        `properties` are those of its record. DecodeError where the partitioned topic's make no sense.
        """
        base = topic.partitioned
        if base is not None:
            path = base.partitioned_path
            source = _source_in(path, self._partitioned(path))
            if source is not None:
                return f"{source}-partition-{topic.partition}"
        return dict(properties).get(SOURCE)

    def has(self, source: str) -> bool:
        """Return whether the store has a record of a source by this name; false for what names no topic."""
        try:
            self._store.read(TopicName.parse(source).path)
        except (NotFoundError, UsageError):
            return False
        return True

    def _partitioned(self, path: str) -> bytes:
        """Return the metadata of a partitioned topic, nothing where there is none or it names no source."""
        if self._known is not None:
            return self._known.get(path, b"")
        if not self._many:
            if self._last[0] != path:
                self._last = path, self._read(path)
            return self._last[1]
        namespace = path.rpartition("/")[0]
        if namespace not in self._namespaces:
            scanned = self._store.scan(namespace)
            self._namespaces[namespace] = {one.path: one.value for one in scanned if names_source(one.value)}
        return self._namespaces[namespace].get(path, b"")

    def _read(self, path: str) -> bytes:
        try:
            return self._store.read(path).value
        except NotFoundError:
            return b""


def names_source(metadata: bytes) -> bool:
    """Return whether the metadata of a partitioned topic may say that it is a shadow."""
    return SOURCE.encode() in metadata


def _source_in(path: str, metadata: bytes) -> str | None:
    """Return the source in the metadata of a partitioned topic (PartitionedTopicMetadata, JSON)."""
    if not names_source(metadata):
        return None
    properties = read_json_object(metadata, source=path).get("properties")
    source = properties.get(SOURCE) if isinstance(properties, dict) else None
    return source if isinstance(source, str) else None
