"""Answers to questions about one topic, from its plan and its entries."""

from __future__ import annotations

from typing import Any, Final

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.seek.entry_readings import answer
from pulsar_meta.jobs.seek.outline import Outline
from pulsar_meta.jobs.seek.questions import INDEX, Question, SeekOptions
from pulsar_meta.jobs.seek.readings import CLOCKS, Knowledge, Measure, Reading, by_index
from pulsar_meta.jobs.seek.search import FOUND, Outcome, Topic, search
from pulsar_meta.jobs.seek.topic_plan import TopicPlan, outline_of

BEGINNING: Final = -(2**63)

Document = dict[str, Any]


class Seeker:
    """Answers questions about one topic; what one question read helps the next."""

    def __init__(self, plan: TopicPlan, source: EntrySource, options: SeekOptions) -> None:
        self.plan = plan
        self.source = source
        self.options = options
        self.outline = outline_of(plan, source) if plan.status is None else Outline([])
        self.topics: dict[Measure, Topic] = {}

    def ask(self, question: Question) -> Document:
        """Return the answer as a document (`seek` in commands.md); UnreachableError from the source."""
        head: Document = {"topic": self.plan.topic, question.kind: question.target}
        if self.plan.status is not None:
            reason = {"reason": self.plan.reason} if self.plan.reason else {}
            return {**head, "status": self.plan.status, **reason, "entries_read": 0}
        if question.time_to_live is not None:
            return self._expired(head, question)
        outcome = self._search(by_index if question.kind == INDEX else self._clock, question.target)
        found = self._found(outcome.reading, question) if outcome.reading else {}
        return {**head, "status": outcome.status, **found, "entries_read": outcome.entries_read}

    @property
    def _clock(self) -> Measure:
        return CLOCKS[self.options.clock]

    def _search(self, measure: Measure, target: int) -> Outcome:
        topic = self.topics.get(measure)
        if topic is None:
            reach = getattr(self.source, "entries_per_read", 1)
            topic = Topic(self.outline, Knowledge(measure), reach, self.options.exhaustive)
            self.topics[measure] = topic
        asking = search(topic, target, skew=self.options.skew)
        try:
            request = next(asking)
            while True:
                request = asking.send(answer(self.source, request))
        except StopIteration as done:
            outcome: Outcome = done.value
            return outcome

    def _found(self, reading: Reading, question: Question) -> Document:
        place = 0
        if question.kind == INDEX and reading.first_index is not None:
            place = question.target - reading.first_index
        found: Document = {
            "ledger_id": reading.ledger_id,
            "entry_id": reading.entry_id,
            "batch_index": place if reading.batched else -1,
        }
        for name in ("first_index", "last_index", "broker_timestamp"):
            if getattr(reading, name) is not None:
                found[name] = getattr(reading, name)
        if question.kind != INDEX:
            by_broker = self.options.clock != "publish" and reading.broker_timestamp is not None
            found["clock"] = "broker" if by_broker else "publish"
            if not by_broker:
                found["publish_time"] = reading.publish_time
        return found

    def _expired(self, head: Document, question: Question) -> Document:
        """Return the newest expired entry and whether the oldest is overdue, as brokers decide both.

        Sources: PersistentMessageExpiryMonitor (expired: older than the time to live),
        PersistentTopic.isOldestMessageExpired (half as long again, MESSAGE_EXPIRY_THRESHOLD).
        """
        ttl = question.time_to_live or 0
        oldest = self._search(self._clock, BEGINNING)
        newest = self._search(self._clock, question.target)
        limit = question.target + ttl * 1000 - int(ttl * 1.5) * 1000
        value = self._clock(oldest.reading) if oldest.reading else None
        status, found = newest.status, {}
        if status in (FOUND, "after-last"):
            status = FOUND if newest.before else "after-last" if newest.reading is None else "before-first"
            found = self._found(newest.before, question) if newest.before else {}
        return {
            **head,
            "status": status,
            **found,
            "oldest_expired": value is not None and value[0] < limit,
            "entries_read": oldest.entries_read + newest.entries_read,
        }
