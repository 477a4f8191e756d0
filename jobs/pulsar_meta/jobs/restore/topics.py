"""Select the values of topics: records, cursors, schemas, and BookKeeper metadata of their ledgers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.metadata.envelope import open_envelope, wrap_envelope
from pulsar_meta.codecs.names import TopicName, ledger_path, split_managed_ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.restore.values import Remains
from pulsar_meta.jobs.topics.owners import named_by
from pulsar_meta.jobs.topics.scope import POLICIES
from pulsar_meta.jobs.transactions.pending_acks import pending_logs
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned

LOCAL_POLICIES = "/admin/local-policies"


@dataclass(slots=True)
class TopicValues:
    """The values of `store` that belong to topics, each once. Ledgers precede the records that refer to them.

    `topics` are the records of topics. `entries` is used to read the state of cursors. With `remains`,
    ledgers of which nothing is left are left out, also from the topics' records. After `values` was consumed,
    `counts` has the numbers of topics, cursors, ledgers and schemas, and `missing` the number of ledgers
    without metadata.
    """

    store: Store
    topics: Iterable[Versioned]
    policies: bool = False
    entries: EntrySource | None = None
    remains: Remains | None = None
    counts: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    _given: set[str] = field(default_factory=set)

    def values(self) -> Iterator[Versioned]:
        """Yield the values; call it once. Raises NotFoundError if a topic is missing, and DecodeError."""
        for record in self.topics:
            if record.version == ABSENT:
                raise NotFoundError(f"nothing at {record.path}", source=self.store.url)
            topic = TopicName.from_path(record.path)
            if topic is not None and record.path not in self._given:
                yield from self._of_topic(topic)

    def _of_topic(self, topic: TopicName) -> Iterator[Versioned]:
        yield from self._once(self._above(topic))
        yield from self._with_ledgers([topic.schema_path], "schemas")
        cursors = self._cursors(topic)
        yield from self._with_ledgers([topic.path], "topics")
        yield from self._with_ledgers(cursors, "cursors")
        for cursor in cursors.values():
            # The messages that the subscription acknowledged in transactions.
            for log in pending_logs(topic, cursor):
                yield from self._with_ledgers([log.path], "topics")
                yield from self._with_ledgers(self._cursors(log), "cursors")

    def _cursors(self, topic: TopicName) -> dict[str, str]:
        """Map the paths of a topic's cursor records to subscription names."""
        paths = (f"{topic.path}/{name}" for name in self.store.children(topic.path))
        places = ((path, split_managed_ledger_path(path)) for path in paths)
        return {path: place[1] for path, place in places if place is not None and place[1] is not None}

    def _above(self, topic: TopicName) -> list[str]:
        """The paths of values that several topics share: policies, numbers of partitions, scalable topics."""
        of = topic.partitioned or topic
        paths = [of.partitioned_path]
        if topic.domain == "segment":
            paths.append(replace(topic, domain="topic", local=topic.local.rpartition("/")[0]).path)
        namespace = topic.namespace_name
        policies = [f"{POLICIES}/{topic.tenant}", f"{POLICIES}/{namespace}", f"{LOCAL_POLICIES}/{namespace}"]
        return [*policies, *paths] if self.policies else paths

    def _once(self, paths: Iterable[str]) -> Iterator[Versioned]:
        for path in paths:
            stored = None if path in self._given else self._read(path)
            self._given.add(path)
            if stored is not None:
                yield stored

    def _with_ledgers(self, paths: Iterable[str], kind: str) -> Iterator[Versioned]:
        for stored in self._once(paths):
            self.counts[kind] += 1
            yield from self._with_its_ledgers(stored)

    def _with_its_ledgers(self, stored: Versioned) -> Iterator[Versioned]:
        """Yield the BookKeeper metadata of the ledgers that a value refers to, then the value."""
        named = {owner.ledger_id for owner in named_by(stored, self.entries, lambda path, why: None)}
        records = {ledger_id: self._read(ledger_path(ledger_id)) for ledger_id in sorted(named)}
        self.counts["ledgers"] += len(records)
        left_out = set[int]() if self.remains is None else self.remains.left_out(records.items())
        for ledger_id, record in records.items():
            if record is None:
                self.missing += 1
            elif ledger_id not in left_out:
                yield record
        yield _without(stored, left_out) if left_out else stored

    def _read(self, path: str) -> Versioned | None:
        try:
            return self.store.read(path)
        except NotFoundError:
            return None


def _without(stored: Versioned, ledgers: set[int]) -> Versioned:
    """Remove ledgers from a topic's record, keeping its codec. Other values are not changed."""
    if TopicName.from_path(stored.path) is None:
        return stored
    envelope = open_envelope(stored.value)
    info = parse_message(ManagedLedgerInfo, stored.value if envelope is None else envelope.payload)
    kept = [ledger for ledger in info.ledgerInfo if ledger.ledgerId not in ledgers]
    del info.ledgerInfo[:]
    info.ledgerInfo.extend(kept)
    data = info.SerializeToString()
    if envelope is not None:
        data = wrap_envelope(data, envelope.codec, unknown=envelope.unknown)
    return stored._replace(value=data)
