"""Read the schemas of topics, by version, from their records and ledgers.

Sources: apache/pulsar BookkeeperSchemaStorage.java (getSchemaEntry, findSchemaEntryByVersion),
TopicName.getSchemaName, PersistentTopic.getSchemaId (a shadow uses its source's).
"""

from __future__ import annotations

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError, decoding
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.schemas.values import (
    Schema,
    StoredSchema,
    ValueDecoder,
    decode_stored_schema,
    value_decoder,
)
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_reading import data_entry, whole_copy
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.topic import topic_of
from pulsar_meta.proto.SchemaStorageFormat_pb2 import IndexEntry, SchemaLocator
from pulsar_meta.stores.base import Store


class TopicSchemas:
    """The schemas of one topic, each read and parsed once."""

    def __init__(self, store: Store, source: EntrySource, topic: str) -> None:
        """Prepare to read. Nothing is read before the first value is decoded."""
        self._store, self._source, self._topic = store, source, TopicName.parse(topic)
        self._places: dict[int, IndexEntry] | None = None
        self._decoders: dict[int, ValueDecoder | str] = {}
        # The versions that the store or the bookies don't have.
        self.missing: set[int] = set()

    def value(self, version: int, payload: bytes | None, key: bytes | None) -> tuple[str | None, str | None]:
        """Decode the value of a message with a schema version: (JSON text, error). Null gives two Nones.

        `payload` is None for a null value. Raises UnreachableError.
        """
        decoder = self._decoders.get(version)
        if decoder is None:
            decoder = self._decoders[version] = self._decoder(version)
        if isinstance(decoder, str):
            return None, None if payload is None else decoder
        try:
            return decoder(payload, key), None
        except DecodeError as error:
            return None, f"value: {error}"

    def read(self, version: int) -> Schema:
        """Read a version of the schema.

        Raises NotFoundError if no record has it, DecodeError if it is corrupt.
        """
        if self._places is None:
            self._places = self._located()
        place = self._places.get(version) or self._earlier(version)
        if place is None:
            raise NotFoundError(f"the topic's schema has no version {version}")
        return self._stored(place).schema

    def _decoder(self, version: int) -> ValueDecoder | str:
        try:
            return value_decoder(self.read(version))
        except (NotFoundError, DecodeError) as error:
            if isinstance(error, NotFoundError):
                self.missing.add(version)
            return f"value: schema version {version}: {error}"

    def _located(self) -> dict[int, IndexEntry]:
        """Map each version to its position, from the record of the topic, or of a shadow's source."""
        try:
            record = self._store.read(self._topic.schema_path)
        except NotFoundError:
            record = self._store.read(self._shadowed().schema_path)
        with decoding(record.path):
            locator = parse_message(SchemaLocator, record.value)
        return {entry.version: entry for entry in (*locator.index, locator.info)}

    def _shadowed(self) -> TopicName:
        """The source of which the topic is a shadow. Raises NotFoundError."""
        try:
            own = topic_of(self._store.read(self._topic.path))
            source = ShadowSources(self._store).of(self._topic, own.properties)
        except PulsarMetaError:
            source = None
        if source is None:
            raise NotFoundError("the store has no schema of the topic")
        return TopicName.parse(source)

    def _earlier(self, version: int) -> IndexEntry | None:
        """Find the position of a version that the record no longer lists, in the oldest listed version."""
        places = self._places
        if not places:
            return None
        oldest = places[min(places)]
        earlier = self._stored(oldest).earlier
        return next((e for e in earlier if e.version == version and e.position.ledgerId >= 0), None)

    def _stored(self, place: IndexEntry) -> StoredSchema:
        where = f"{place.position.ledgerId}:{place.position.entryId}"
        form = EntryFormat()
        entry = data_entry(self._source.read(place.position.ledgerId, place.position.entryId), form)
        if entry.digest == "bad":
            entry = whole_copy(entry, self._source, form, lambda fault: None)
        if entry.digest == "bad":
            raise DecodeError(f"entry {where}: its digest does not fit")
        with decoding(what=f"entry {where}"):
            return decode_stored_schema(entry.data)
