"""Subscriptions of which no ledger is left, and that something names: a person, markers, dead letters.

Most cursors had their state in the store alone. Markers of replicated subscriptions say where these stood at
least; a message that was put off names the subscription that did it, and nothing says where that stood.

Sources: apache/pulsar ReplicatedSubscriptionsController.java, RetryMessageUtil.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypedDict

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.rebuild.clues import DataClues
from pulsar_meta.jobs.rebuild.cursors import (
    FoundCursor,
    cursor_facts,
    place_text,
    replicated_in,
    state_in_record,
)
from pulsar_meta.jobs.rebuild.evidence import Rebuilt
from pulsar_meta.jobs.rebuild.names import GivenCursor
from pulsar_meta.jobs.rebuild.old_store import OldStore
from pulsar_meta.jobs.rebuild.replication import REPLICATED
from pulsar_meta.jobs.rebuild.scan import Scanned
from pulsar_meta.jobs.rebuild.topics import FoundTopic
from pulsar_meta.jobs.topics.topic import Position


def beginning_cursors(
    topics: Iterable[FoundTopic], wanted: Iterable[GivenCursor], scanned: Scanned
) -> Iterator[Rebuilt]:
    """Yield the subscriptions of which no ledger is left, where the person wants them to begin."""
    ledgers = {topic.name: [one for one in topic.ledgers if one in scanned.kept] for topic in topics}
    for one in wanted:
        mine = ledgers.get(one.topic)
        path, facts = one.topic.cursor_path(one.cursor), cursor_facts(one.topic, one.cursor)
        if not mine:
            yield Rebuilt(path, "refused", ("its topic has no ledgers here",), None, facts)
            continue
        last = mine[-1], scanned.found[mine[-1]].last_entry
        position = Position(mine[0], -1) if one.start == "earliest" else Position(*last)
        why = f"nothing of it is left; it begins with the {one.start}, as was given"
        yield Rebuilt(
            path, "invented", (why,), state_in_record(position), facts | {"position": place_text(position)}
        )


def replicated_cursors(
    topics: Iterable[FoundTopic],
    cursors: Iterable[FoundCursor],
    scanned: Scanned,
    old: OldStore,
    cluster: str,
) -> Iterator[Rebuilt]:
    """Yield the replicated subscriptions of which no ledger is left, where the markers have them.

    What they acknowledged since comes again. Those that an older store would have known, and did not, are
    left out.
    """
    there = {(one.topic, one.name) for one in cursors}
    for topic in topics:
        kept = [one for one in topic.ledgers if one in scanned.kept]
        for one in replicated_in(topic, cluster):
            known = (topic.name, one.subscription) in there or _was_gone(topic.name, one.ledger_id, old)
            if known or not kept:
                continue
            path, facts = topic.name.cursor_path(one.subscription), cursor_facts(topic.name, one.subscription)
            place = one.position or Position(kept[0], -1)
            where = f"it was at {place_text(place)} or later" if one.position else "nothing says where it was"
            value = state_in_record(place, {REPLICATED: 1})
            yield Rebuilt(path, "likely", (one.why, where), value, facts | {"position": place_text(place)})


class GoneCursor(TypedDict):
    """A subscription of which only the name is left; `position` is to be filled in: earliest, latest."""

    topic: str
    cursor: str
    position: None
    evidence: list[str]


def gone_cursors(scanned: Scanned, made: Iterable[tuple[TopicName, str]], old: OldStore) -> Iterator[Rebuilt]:
    """Yield the subscriptions that put messages off, and of which nothing else is left."""
    there = {*made, *old.cursors}
    named: dict[tuple[TopicName, str], int] = {}
    for ledger_id, clues in scanned.said(DataClues).items():
        for subscriber in clues.announced.subscribers:
            if not _was_gone(subscriber.topic, ledger_id, old):
                named.setdefault((subscriber.topic, subscriber.cursor), ledger_id)
    for (topic, cursor), ledger_id in named.items():
        if (topic, cursor) not in there:
            why = f"messages that it put off, in ledger {ledger_id}, have its name"
            choice = "nothing says where it stood; a line of --names makes it, at earliest or latest"
            yield Rebuilt(topic.cursor_path(cursor), "gone", (why, choice), None, cursor_facts(topic, cursor))


def as_names(cursors: Iterable[Rebuilt]) -> Iterator[GoneCursor]:
    """Yield subscriptions of which only the name is left as lines of a file of names."""
    for one in cursors:
        topic, cursor = one.facts["topic"], one.facts["cursor"]
        if topic is not None and cursor is not None:
            yield {"topic": topic, "cursor": cursor, "position": None, "evidence": list(one.evidence)}


def _was_gone(topic: TopicName, ledger_id: int, old: OldStore) -> bool:
    """Return whether what an older ledger names of a topic is none of what the old store knew of it."""
    return topic in old.topics and ledger_id < old.next_id
