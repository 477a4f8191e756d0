"""Properties of a topic's ledgers (PIP-404): what there is, and changes that become one write a topic."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.envelope import Envelope, open_envelope, wrap_envelope
from pulsar_meta.codecs.metadata.ledger_properties import Edit, edit_properties, ledger_ids
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.rewrite.decision import UNDECODABLE, Decided, Decision, Rule, keep, skip, write
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.topics.partitions import named_topics
from pulsar_meta.jobs.topics.topic import read_record, read_topic
from pulsar_meta.stores.base import ABSENT, Store, Versioned

Edits = Mapping[int, Iterable[Edit]]

LAST_LEDGER = (
    "the last ledger of a topic: released brokers drop its properties when they close it"
    " (apache/pulsar#26227) or load the topic again (#26509)"
)


def list_properties(store: Store, topic: TopicName) -> Iterator[dict[str, Any]]:
    """Yield a document for each ledger of a topic; NotFoundError where the store has no such topic."""
    for ledger in read_topic(store, topic).ledgers:
        yield {"topic": str(topic), "ledger_id": ledger.ledger_id, "properties": dict(ledger.properties)}


def topic_of_ledgers(store: Store, name: TopicName, ledgers: Iterable[int]) -> TopicName:
    """Return the topic itself, or the partition that has all these ledgers; NotFoundError for none."""
    topics, wanted = named_topics(store, name), set(ledgers)
    if topics == [name]:
        return name
    for topic in topics:
        # A partition that was never used has no record.
        with suppress(NotFoundError):
            if wanted.issubset(ledger_ids(message_of(read_record(store, topic))[0])):
                return topic
    missing = ", ".join(map(str, sorted(wanted)))
    raise NotFoundError(f"no partition of {name} has ledger {missing}", source=store.url)


def parse_sets(pairs: Iterable[str]) -> list[Edit]:
    """Return the edits of `KEY=VALUE` arguments; UsageError for one without `=` or key."""
    edits = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{pair!r}: a property is KEY=VALUE")
        edits.append(Edit(key, value))
    return edits


def is_last(info: bytes, ledger: int) -> bool:
    """Return whether `ledger` is the last one of a serialized ManagedLedgerInfo."""
    return ledger == max(ledger_ids(info), default=None)


def message_of(seen: Versioned) -> tuple[bytes, Envelope | None]:
    """Return (the serialized ManagedLedgerInfo in a value, the envelope it lies in or None)."""
    envelope = open_envelope(seen.value)
    return (seen.value, None) if envelope is None else (envelope.payload, envelope)


def property_rule(edits: Edits) -> Rule:
    """Return the rule that makes `edits` in a topic's record, envelope and codec as found.

    It raises NotFoundError for a ledger that the topic does not have.
    """

    def decide(seen: Versioned) -> Decision:
        if seen.version == ABSENT:
            raise NotFoundError("the topic is gone", source=seen.path)
        try:
            payload, envelope = message_of(seen)
            edited = edit_properties(payload, edits)
            decode_managed_ledger(edited)
        except DecodeError as error:
            return skip(seen, UNDECODABLE, note=str(error))
        except NotFoundError as error:
            raise error.within(seen.path) from error
        codec = "none" if envelope is None else envelope.codec
        if edited == payload:
            return keep(seen, "already", codec)
        if envelope is not None:
            edited = wrap_envelope(edited, codec, unknown=envelope.unknown)
        return write(seen, edited, codec, codec)

    return decide


def set_properties(
    command: str, store: Store, topic: TopicName, edits: Edits, warn: Callable[[str], None]
) -> Rewrite:
    """Return what makes edits in a topic's record, in one write."""
    return Rewrite(
        command,
        lambda batches: topic_edits(store, topic, edits, warn),
        property_rule(edits),
        single=True,
        with_new=True,
    )


def topic_edits(
    store: Store, topic: TopicName, edits: Edits, warn: Callable[[str], None]
) -> Generator[Decided]:
    """Yield the one decision that edits in a topic come to; warns of properties that brokers will drop."""
    seen = read_record(store, topic)
    decision = property_rule(edits)(seen)
    if decision.action == "rewrite":
        payload, _ = message_of(seen)
        for ledger, changes in edits.items():
            if is_last(payload, ledger) and any(edit.value is not None for edit in changes):
                warn(f"{topic}: ledger {ledger} is {LAST_LEDGER}")
    yield seen, decision
