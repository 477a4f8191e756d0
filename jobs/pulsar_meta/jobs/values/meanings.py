"""What a change of a topic's or a cursor's record comes to for who consumes the topic."""

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
    """What a change means: of a cursor how far it moved, of a topic which ledgers came and went."""

    text: str
    mark_delete: NotRequired[Move]
    again: NotRequired[int]
    acknowledged: NotRequired[int]
    exact: NotRequired[bool]
    state_ledger: NotRequired[int]
    new_ledgers: NotRequired[list[int]]
    gone_ledgers: NotRequired[list[int]]


class Difference(TypedDict):
    """A field in which two values differ; null where it is not there."""

    field: str
    before: Any
    after: Any


class HistoryStep(TypedDict):
    """What a value became, or (`step`) what the ledger of a cursor says from then on."""

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
    """The record at one path, value by value, the oldest first.

    Of a cursor `{"text", "mark_delete"?: {"before", "after"}, "again"? or "acknowledged"?, "exact"?,
    "state_ledger"?}`: so many entries come again, or were acknowledged, between the two positions; `exact` is
    false where the topic does not list every ledger between them with its end, so that there may be more. The
    ledgers are those that the topic has now. Of a topic `{"text", "new_ledgers", "gone_ledgers"}`.
    """

    def __init__(self, store: Store, path: str) -> None:
        """`path` may be any: of other values nothing is known."""
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
        """Return what the next value of the record means, None where there is nothing to be said of it."""
        if value is None or self._topic is None:
            return None
        try:
            return self._of_ledgers(value) if self._cursor is None else self._of_cursor(value)
        except DecodeError:
            # What it is was shown with the value itself.
            return None

    def steps(self, source: EntrySource, report: Report) -> Iterator[HistoryStep]:
        """Yield what the ledger says that has the cursor's state from now on; what is broken is reported."""
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
        before, now = (
            self._ledger_ids,
            [one.ledgerId for one in ledgers_by_id(decode_managed_ledger(value))],
        )
        self._ledger_ids = now
        if before is None or before == now:
            return None
        new, gone = sorted(set(now) - set(before)), sorted(set(before) - set(now))
        parts = [
            f"{'ledgers' if len(ids) > 1 else 'ledger'} {_listed(ids)} {what}"
            for ids, what in ((new, "new"), (gone, "gone"))
            if ids
        ]
        return {"text": ", ".join(parts), "new_ledgers": new, "gone_ledgers": gone}

    def _of_cursor(self, value: bytes) -> Means | None:
        info = decode_cursor(value)
        self._state_ledger = None if info.cursorsLedgerId == STATE_IN_RECORD else info.cursorsLedgerId
        found: Means | None = None
        if info.HasField("markDeleteLedgerId"):
            found = self._moved(Position(info.markDeleteLedgerId, info.markDeleteEntryId), acks_of(info))
        if self._state_ledger is not None:
            found, text = found or {"text": ""}, f"the state goes on in ledger {self._state_ledger}"
            found["text"] = "; ".join(filter(None, (found["text"], text)))
            found["state_ledger"] = self._state_ledger
        return found

    def _moved(self, now: Position, acks: Acks) -> Means:
        """Return what it means that the cursor is at `now`, with what is acknowledged behind that."""
        before, acked = self._position, self._acks
        self._position, self._acks = now, acks
        if before is None:
            return {"text": f"mark-delete {_text(now)}"}
        if before == now:
            counts = acked.entry_count, acks.entry_count
            text = f"{counts[0]} -> {counts[1]} entries acknowledged behind mark-delete {_text(now)}"
            return {"text": text if counts[0] != counts[1] else ""}
        again = now < before
        low, high, held = (now, before, acks) if again else (before, now, acked)
        count, exact = entries_between(self._ledgers(), low, high, held)
        word = "come again" if again else "acknowledged"
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
                # Of a topic that is gone, or broken, nothing can be counted.
                self._listed = ()
        return self._listed


def entries_between(ledgers: Sequence[Ledger], low: Position, high: Position, acks: Acks) -> tuple[int, bool]:
    """Return how many entries are after `low`, up to and with `high`, without those in `acks`.

    Also whether that is all: every ledger between them is listed, and has a known end.
    """
    some = [
        replace(one, entries=high.entry_id + 1) if one.ledger_id == high.ledger_id else one
        for one in ledgers
        if low.ledger_id <= one.ledger_id <= high.ledger_id
    ]
    found = backlog(some, low, acks)
    ends = {one.ledger_id for one in some}
    exact = found.open_ledger is None and {low.ledger_id, high.ledger_id} <= ends
    return found.entries, exact


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
