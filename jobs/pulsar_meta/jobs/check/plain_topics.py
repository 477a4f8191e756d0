"""Topics without partitions that have the name of a partitioned topic.

Clients ask for the number of partitions first. If it is not zero, they use the partitions, so they never
reach a topic that only has the name.

Sources: apache/pulsar BrokerService (fetchPartitionedTopicMetadataAsync, validateTopicConsistency), PIP-414.
The effect was read there and not tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName
from pulsar_meta.jobs.check.codes import PARTITIONED, Finding, Severity, finding
from pulsar_meta.jobs.check.context import Context
from pulsar_meta.jobs.check.ledger_facts import read_facts
from pulsar_meta.jobs.check.namespaces import BATCH, partitions_of
from pulsar_meta.jobs.rewrite.readable import parse_version
from pulsar_meta.jobs.topics.topic import Topic, read_topic
from pulsar_meta.stores.base import Store, Versioned

# The first release in which a broker refuses such a topic (PIP-414, apache/pulsar#24213).
PIP_414: Final = "4.1.0"


@dataclass(slots=True)
class PlainTopics:
    """Finds the topics that have the names of partitioned topics, whose records are added one by one."""

    store: Store
    context: Context
    _waiting: list[str] = field(default_factory=list)

    def add_record(self, record: Versioned) -> Iterator[Finding]:
        """Add the record of a partitioned topic, ignore others, and yield the findings of a full batch."""
        if record.path.startswith(PARTITIONED) and _partitions(record):
            name = _name_of(record.path)
            if name is not None and name.domain == "persistent":
                self._waiting.append(record.path)
        if len(self._waiting) >= BATCH:
            yield from self.finish()

    def finish(self) -> Iterator[Finding]:
        """Yield the findings about the records that were added since the last batch."""
        names = [name for name in map(_name_of, self._waiting) if name is not None]
        self._waiting.clear()
        records = self.store.read_many([name.path for name in names])
        for name, plain in zip(names, records, strict=True):
            # An empty value is the parent of cursors, or that of a topic that was never loaded.
            if plain is not None and plain.value:
                yield from self._finding(name)

    def _finding(self, name: TopicName) -> Iterator[Finding]:
        """Yield a finding if both records are still there."""
        with suppress(NotFoundError, DecodeError):
            topic = read_topic(self.store, name)
            count = _partitions(self.store.read(name.partitioned_path))
            if not count:
                return
            entries, is_known = self._entries(topic)
            text = f"{name} is also a topic with {count} partitions, which clients use instead of this one"
            holds = f"so the {entries} entries here can't be read" if entries else "which has no entries"
            holds = holds if is_known or entries else "whose open ledger may have entries"
            yield finding(
                "topic-beside-partitioned",
                f"{text}, {holds}",
                severity=_severity(self.context.releases, entries, is_known=is_known),
                topic=str(name),
                path=name.path,
                evidence={
                    "partitions": count,
                    "entries": entries,
                    "ledgers": len(topic.ledgers),
                    "releases": list(self.context.releases),
                },
            )

    def _entries(self, topic: Topic) -> tuple[int, bool]:
        """Return the number of a topic's entries that is known, and whether it is that of all ledgers."""
        uncounted = [ledger.ledger_id for ledger in topic.ledgers if ledger.entries is None]
        facts = read_facts(self.store, uncounted).values()
        counted = sum(ledger.entries or 0 for ledger in topic.ledgers)
        ends = [each.last_entry for each in facts if each.metadata == "known"]
        return counted + sum(0 if end is None else end + 1 for end in ends), None not in ends


def _name_of(path: str) -> TopicName | None:
    """Return the topic whose number of partitions is stored at a path; both trees have the same layout."""
    return TopicName.from_path(f"{MANAGED_LEDGERS}/{path.removeprefix(PARTITIONED)}")


def _partitions(record: Versioned) -> int | None:
    with suppress(DecodeError):
        return partitions_of(read_json_object(record.value))
    return None


def _severity(releases: Iterable[str], entries: int, *, is_known: bool) -> Severity:
    """Return an error if a release refuses a topic with entries, a note if the topic has none."""
    if not entries:
        return Severity.NOTE if is_known else Severity.WARNING
    refusing = any(parse_version(release) >= parse_version(PIP_414) for release in releases)
    return Severity.ERROR if refusing else Severity.WARNING
