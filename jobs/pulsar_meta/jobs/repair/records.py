"""Records of topics that repairs read and write again."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.rewrite.readable import Readers, packed_again
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.jobs.topics.topic import read_record, topic_of
from pulsar_meta.stores.base import Store, Versioned

# Brokers of which nothing is known.
ANY: Final = Readers()


def own_record(store: Store, name: TopicName) -> Versioned:
    """Return the record of a topic that has ledgers of its own.

    NotFoundError, DecodeError where it is broken, UsageError for a shadow: its ledgers are its source's.
    """
    record = read_record(store, name)
    source = ShadowSources(store).of(name, topic_of(record).properties)
    if source is not None:
        raise UsageError(f"{name} is the shadow of {source}, whose ledgers it reads: repair that one")
    return record


def packed(seen: Versioned, payload: bytes, readers: Readers) -> bytes:
    """Return a record in the codec that it had, plain where a release that will read it cannot load it so."""
    return packed_again(seen.path, payload, _codec_of(seen), readers)[0]


def _codec_of(seen: Versioned) -> str:
    """Return the codec of a record, "none" where it has none or is broken."""
    with suppress(DecodeError):
        envelope = open_envelope(seen.value)
        return "none" if envelope is None else envelope.codec
    return "none"
