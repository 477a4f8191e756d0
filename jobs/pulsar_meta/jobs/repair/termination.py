"""`repair termination`: a topic that was terminated before its last entry.

The position goes, and the topic takes messages again; who wants it closed terminates it anew
(`pulsar-admin topics terminate`), which nobody can take back. Or it moves to the last entry.

Sources: apache/pulsar ManagedLedgerImpl (initialize, asyncTerminate); tried on 4.0.7, 4.2.4 and 5.0.0-M1.
"""

from __future__ import annotations

from dataclasses import replace

from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.repair.records import ANY, own_record, packed
from pulsar_meta.jobs.repair.repair import Repair, becoming, undecided
from pulsar_meta.jobs.rewrite.decision import Decided, keep
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.partitions import held_partitions
from pulsar_meta.jobs.topics.placement import with_end
from pulsar_meta.jobs.topics.topic import Ledger, Position, topic_of, with_bookkeeper
from pulsar_meta.stores.base import Store, Versioned


def repair_termination(
    store: Store,
    source: EntrySource | None,
    name: TopicName,
    *,
    at_end: bool = False,
    readers: Readers = ANY,
) -> Repair:
    """Return what lets a topic, or each of its partitions, be read to its end; where it ends so stays.

    NotFoundError where it is not there, DecodeError where its record is broken, UsageError for a shadow.
    """
    topics = held_partitions(store, name)[0]
    decided, said = list[Decided](), list[str]()
    for topic in topics:
        decision, text = _decided(store, source, topic, readers, at_end=at_end)
        decided.append(decision)
        said.append(f"{topic}: {text}")
    return Repair(
        "termination",
        tuple(decided),
        checked={"topics": len(topics)},
        not_checked={} if source is not None else {"entries": "no --entries"},
        said=tuple(said),
    )


def _decided(
    store: Store, source: EntrySource | None, name: TopicName, readers: Readers, *, at_end: bool
) -> tuple[Decided, str]:
    """Return the decision about one topic, and what is to be said of it."""
    seen = own_record(store, name)
    topic = topic_of(seen)
    if topic.terminated is None:
        return (seen, keep(seen, "already")), "it is not terminated"
    ledgers = with_bookkeeper(store, topic.ledgers, lambda error: None)
    counts = {ledger.ledger_id: _entries(ledger, source) for ledger in ledgers}
    last = max((Position(one, count - 1) for one, count in counts.items() if count), default=None)
    at = f"{topic.terminated.ledger_id}:{topic.terminated.entry_id}"
    if last is None or last <= topic.terminated:
        return (seen, keep(seen, "already")), f"terminated at {at}, where it ends"
    if not at_end:
        return _moved(seen, None, readers), f"terminated at {at}, and it goes on: it takes messages again"
    if None in counts.values():
        why = "where its open ledger ends is not known: give --entries"
        return undecided(seen, f"{name}: {why}"), why
    return _moved(seen, last, readers), f"terminated at {at}, and it goes on to {last[0]}:{last[1]}"


def _entries(ledger: Ledger, source: EntrySource | None) -> int | None:
    """Return how many entries a ledger has, wherever the topic was terminated; None where it is open."""
    known = ledger.bookkeeper
    if known is not None and known.last_entry is not None:
        return known.last_entry + 1
    if ledger.counted or ledger.metadata == "absent":
        return ledger.counted
    return None if source is None else with_end(replace(ledger, entries=None), source).entries


def _moved(seen: Versioned, to: Position | None, readers: Readers) -> Decided:
    """Return that a topic is terminated elsewhere, or not any more."""
    info = decode_managed_ledger(seen.value)
    if to is None:
        info.ClearField("terminatedPosition")
    else:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = to
    return becoming(seen, packed(seen, info.SerializeToString(), readers))
