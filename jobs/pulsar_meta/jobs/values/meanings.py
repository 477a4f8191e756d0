"""Explain what a change of a topic's or cursor's record means for the topic's consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.codecs.metadata.acks import Acks, acks_of
from pulsar_meta.codecs.metadata.envelope import (
    STATE_IN_RECORD,
    decode_cursor,
    decode_managed_ledger,
    ledgers_by_id,
)
from pulsar_meta.codecs.names import TopicName, split_managed_ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.backlog import backlog
from pulsar_meta.jobs.topics.cursors import states_of
from pulsar_meta.jobs.topics.topic import Ledger, Position, read_topic
from pulsar_meta.stores.base import Store

Report = Callable[[DecodeError], None]


class Move(TypedDict):
    """Two positions of a cursor."""

    before: str
    after: str


class Means(TypedDict):
    """The meaning of a change: how far a cursor moved, or which ledgers a topic gained and lost."""

    text: str
    mark_delete: NotRequired[Move]
    again: NotRequired[int]
    acknowledged: NotRequired[int]
    exact: NotRequired[bool]
    state_ledger: NotRequired[int]
    new_ledgers: NotRequired[list[int]]
    gone_ledgers: NotRequired[list[int]]


class Difference(TypedDict):
    """A field in which two values differ; null if it does not exist."""

    field: str
    before: Any
    after: Any


class HistoryStep(TypedDict):
    """A change of a value, or (`step`) a later entry of the cursor's ledger."""

    path: str
    transaction: NotRequired[int | str]
    time: NotRequired[str | None]
    writer: NotRequired[str]
    change: Literal["known", "created", "changed", "removed", "step"]
    ledger_id: NotRequired[int]
    entry_id: NotRequired[int]
    version: NotRequired[int]
    size: NotRequired[int]
    differences: list[Difference]
    means: NotRequired[Means]


class Meanings:
    """Explains the successive values of the record at one path, the oldest first.

    For a cursor: `{"text", "mark_delete"?: {"before", "after"}, "again"? or "acknowledged"?, "exact"?,
    "state_ledger"?}`. The number of entries between the two positions is `acknowledged`, or `again` if they
    are redelivered. `exact` is False if there may be more entries, because the topic does not list every
    ledger between them with its end. The topic's current ledgers are used. For a topic: `{"text",
    "new_ledgers", "gone_ledgers"}`.
    """

    def __init__(self, store: Store, path: str) -> None:
        """`path` may be any path. Only values of topics and cursors are explained."""
        place = split_managed_ledger_path(path)
        self._path = path
        self._topic: TopicName | None = None if place is None else place[0]
        self._cursor = None if place is None else place[1]
        self._store = store
        self._listed: Sequence[Ledger] | None = None
        self._position: Position | None = None
        self._acks = Acks()
        self._ledger_ids: list[int] | None = None
        self._state_ledger: int | None = None

    def of(self, value: bytes | None) -> Means | None:
        """Explain the next value of the record; None if there is nothing to explain."""
        if value is None or self._topic is None:
            return None
        try:
            return self._of_ledgers(value) if self._cursor is None else self._of_cursor(value)
        except DecodeError:
            # The value itself was already shown, with the error.
            return None

    def steps(self, source: EntrySource, report: Report) -> Iterator[HistoryStep]:
        """Yield the entries of the cursor's current state ledger. Corrupt entries go to `report`."""
        if self._state_ledger is None:
            return
        for entry_id, state in states_of(source, self._state_ledger):
            if isinstance(state, DecodeError):
                report(state.within(what=f"entry {self._state_ledger}:{entry_id}"))
                continue
            means = self._moved(Position(state.ledgerId, state.entryId), acks_of(state))
            yield {
                "path": self._path,
                "change": "step",
                "ledger_id": self._state_ledger,
                "entry_id": entry_id,
                "differences": [],
                "means": means,
            }

    def _of_ledgers(self, value: bytes) -> Means | None:
        before = self._ledger_ids
        now = self._ledger_ids = [info.ledgerId for info in ledgers_by_id(decode_managed_ledger(value))]
        if before is None or before == now:
            return None
        new, gone = sorted(set(now) - set(before)), sorted(set(before) - set(now))
        parts = [
            f"{'ledgers' if len(ids) > 1 else 'ledger'} {', '.join(map(str, ids))} {change}"
            for ids, change in ((new, "new"), (gone, "gone"))
            if ids
        ]
        return {"text": ", ".join(parts), "new_ledgers": new, "gone_ledgers": gone}

    def _of_cursor(self, value: bytes) -> Means | None:
        info = decode_cursor(value)
        self._state_ledger = None if info.cursorsLedgerId == STATE_IN_RECORD else info.cursorsLedgerId
        means: Means | None = None
        if info.HasField("markDeleteLedgerId"):
            means = self._moved(Position(info.markDeleteLedgerId, info.markDeleteEntryId), acks_of(info))
        if self._state_ledger is not None:
            means, text = means or {"text": ""}, f"later states are in ledger {self._state_ledger}"
            means["text"] = "; ".join(filter(None, (means["text"], text)))
            means["state_ledger"] = self._state_ledger
        return means

    def _moved(self, now: Position, acks: Acks) -> Means:
        """Explain a move of the cursor to `now`, with the individual acknowledgments `acks` after it."""
        before, acked = self._position, self._acks
        self._position, self._acks = now, acks
        if before is None:
            return {"text": f"mark-delete {_text(now)}"}
        if before == now:
            counts = acked.entry_count, acks.entry_count
            text = f"{counts[0]} -> {counts[1]} entries acknowledged after mark-delete {_text(now)}"
            return {"text": text if counts[0] != counts[1] else ""}
        again = now < before
        low, high, single = (now, before, acks) if again else (before, now, acked)
        count, exact = entries_between(self._ledgers(), low, high, single)
        word = "redelivered" if again else "acknowledged"
        least = "" if exact else "at least "
        means: Means = {
            "text": f"mark-delete {_text(before)} -> {_text(now)}: {least}{count} entries {word}",
            "mark_delete": {"before": _text(before), "after": _text(now)},
        }
        if again:
            means["again"] = count
        else:
            means["acknowledged"] = count
        means["exact"] = exact
        return means

    def _ledgers(self) -> Sequence[Ledger]:
        if self._listed is None:
            assert self._topic is not None
            try:
                self._listed = read_topic(self._store, self._topic).ledgers
            except PulsarMetaError:
                # Without the topic's ledgers, entries can't be counted.
                self._listed = ()
        return self._listed


def entries_between(ledgers: Sequence[Ledger], low: Position, high: Position, acks: Acks) -> tuple[int, bool]:
    """Count the entries after `low`, up to and including `high`, without those in `acks`: (count, exact).

    The count is exact if every ledger between the positions is listed and has a known end.
    """
    between = [
        replace(ledger, entries=high.entry_id + 1) if ledger.ledger_id == high.ledger_id else ledger
        for ledger in ledgers
        if low.ledger_id <= ledger.ledger_id <= high.ledger_id
    ]
    left = backlog(between, low, acks)
    listed = {ledger.ledger_id for ledger in between}
    return left.entries, left.open_ledger is None and {low.ledger_id, high.ledger_id} <= listed


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
