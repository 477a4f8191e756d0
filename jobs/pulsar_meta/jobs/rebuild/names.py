"""Names of topics and subscriptions for the ledgers on disks, and what supports each name.

A name given by the operator wins over an old store, which wins over a broker's log, which wins over other
entries.
These lines of a broker's log name the topic or cursor of a ledger:

    … [public/default/persistent/orders] Created ledger 18 after closed 12          (4.1 on)
    … [public/default/persistent/orders] Created new ledger 22
    … [public/default/persistent/orders] Updated cursor work with ledger id 31 md-position=18:4 …
    … [public/default/persistent/orders] Cursor work meta-data recover from ledger 31
    … [public/default/persistent/orders] Opened ledger 31 for cursor work. rc=0

The log has names URL-encoded, as the store has them. Pulsar 5 writes other lines.

Source: apache/pulsar ManagedLedgerImpl.java (initializeBookKeeper, createComplete), ManagedCursorImpl.java
(recover,
recoverFromLedger, switchToNewLedger), as 4.2.4 ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, get_args

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName, decode_name
from pulsar_meta.jobs.rebuild.cursor_ledgers import CompactedClues
from pulsar_meta.jobs.rebuild.evidence import DataClues
from pulsar_meta.jobs.rebuild.scan import Scanned
from pulsar_meta.jobs.rebuild.transactions import (
    LogClues,
    log_topic,
    subscribers_by_transactions,
    topics_by_transactions,
)
from pulsar_meta.jobs.transactions.pending_acks import pending_logs

GIVEN: Final = "its name was given"
# Where a subscription begins of which no state is left.
Start = Literal["earliest", "latest"]


class Named(NamedTuple):
    """The topic of a ledger, what says so, and the subscription where the ledger is a cursor's.

    Not `sure`: what says so is only what clients wrote, or the only one that fits.
    """

    topic: TopicName
    why: str
    cursor: str | None = None
    sure: bool = True


class GivenCursor(NamedTuple):
    """A subscription without a ledger that a person wants, and where it is to begin."""

    topic: TopicName
    cursor: str
    start: Start


Names = Mapping[int, Named]


@dataclass(frozen=True, slots=True)
class GivenNames:
    """What a person says: the topics of ledgers, and subscriptions of which no ledger is left."""

    ledgers: Names = field(default_factory=dict)
    cursors: tuple[GivenCursor, ...] = ()


def read_names(lines: Iterable[str], source: str) -> GivenNames:
    """Return what a file says: a line `{"ledger_id", "topic", "cursor"?}` for each ledger that has a name.

    The topic is null where it is not known, the cursor is the subscription's name. Without a ledger:
    `{"topic", "cursor", "position": "earliest" | "latest"}`; null leaves it out. UsageError with the number
    of a line that is none of these.
    """
    names, cursors = dict[int, Named](), list[GivenCursor]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = _given(read_json_object(line))
        except (DecodeError, UsageError) as error:
            raise UsageError(error.message, source=f"{source}, line {number}") from error
        if isinstance(found, GivenCursor):
            cursors.append(found)
        elif found is not None:
            names[found[0]] = found[1]
    return GivenNames(names, tuple(cursors))


def _given(row: Mapping[str, Any]) -> GivenCursor | tuple[int, Named] | None:
    ledger_id, topic, cursor = (row.get(key) for key in ("ledger_id", "topic", "cursor"))
    start: Any = row.get("position")
    if not isinstance(topic, str | None) or not isinstance(cursor, str | None) or cursor == "":
        raise UsageError("a topic and a cursor are names, or null")
    if ledger_id is None and topic is not None and cursor is not None and start in get_args(Start):
        return GivenCursor(TopicName.parse(topic), cursor, start)
    if "position" in row and "ledger_id" not in row and start is None:
        return None
    if type(ledger_id) is not int:
        raise UsageError(
            'expected {"ledger_id": NUMBER, "topic": NAME or null}, or {"topic", "cursor", "position":'
            ' "earliest" or "latest"}'
        )
    return None if topic is None else (ledger_id, Named(TopicName.parse(topic), GIVEN, cursor))


def names_on_disks(scanned: Scanned) -> dict[int, Named]:
    """Return the topics of ledgers that entries on the disks name, each with what says so."""
    logs = scanned.said(LogClues)
    data, compacted = scanned.said(DataClues), scanned.said(CompactedClues)
    names = _by_transactions(data, logs) | dict(_by_messages([*data.values(), *compacted.values()]))
    for ledger_id, log in logs.items():
        if log.kind == "transaction-log" and log.coordinator is not None:
            why = f"its records are of coordinator {log.coordinator}"
            names[ledger_id] = Named(log_topic(log.coordinator), why)
    return {**_by_pending_acks(logs), **names}


def _by_pending_acks(logs: Mapping[int, LogClues]) -> dict[int, Named]:
    """Return the names of logs of pending acknowledgments, and of the data ledgers that they name."""
    names = dict[int, Named]()
    pending = {at: log.txns for at, log in logs.items() if log.kind == "pending-acks"}
    for ledger_id, (topic, cursor) in subscribers_by_transactions(logs.values(), pending).items():
        why = f"ledger {ledger_id} has its pending acknowledgments, by the coordinator's log"
        names |= {one: Named(topic, why) for one in logs[ledger_id].named}
        why = "the coordinator's log names the subscription of its transactions"
        names[ledger_id] = Named(pending_logs(topic, cursor)[0], why)
    return names


def _by_transactions(data: Mapping[int, DataClues], logs: Mapping[int, LogClues]) -> dict[int, Named]:
    txns = {at: clues.txns for at, clues in data.items() if clues.txns}
    why = "of the topics that the coordinator's log names it alone was in all its transactions"
    found = topics_by_transactions(logs.values(), txns)
    return {at: Named(topic, why, sure=False) for at, topic in found.items()}


def _by_messages(clues: Iterable[DataClues | CompactedClues]) -> Iterator[tuple[int, Named]]:
    for one in clues:
        if one.announced.own is not None:
            yield one.ledger_id, Named(one.announced.own, "what its messages are and their keys")
        for naming in one.announced.others:
            yield naming.ledger_id, Named(naming.topic, naming.why)


SAYS: Final = "a broker's log has its name"
_ledger: Final = r"(?P<ledger>\d{1,19})"
_cursor: Final = r"(?P<cursor>\S+)"
_line_re: Final = re.compile(
    r"\[(?P<name>[^\s\[\]]+/[^\s\[\]]+)\] (?P<said>(?:Created|Updated|Cursor|Opened) .*)"
)
_said: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Created (?:new )?ledger {_ledger}(?:$| after closed)",
        rf"Updated cursor {_cursor} with ledger id {_ledger} ",
        rf"Cursor {_cursor} meta-data recover from ledger {_ledger}$",
        rf"Opened ledger {_ledger} for cursor {_cursor}\. rc=0$",
    )
)


def names_in_log(lines: Iterable[str]) -> dict[int, Named]:
    """Return the topics and subscriptions of ledgers that the lines of a broker's log name."""
    names: dict[int, Named] = {}
    for line in lines:
        found = _line_re.search(line.rstrip())
        if found is None:
            continue
        for pattern in _said:
            said = pattern.match(found["said"])
            named = None if said is None else _named(found["name"], said.groupdict().get("cursor"))
            if said is not None and named is not None:
                names[int(said["ledger"])] = named
    return names


def _named(managed_ledger: str, cursor: str | None) -> Named | None:
    topic = TopicName.from_path(f"{MANAGED_LEDGERS}/{managed_ledger}")
    try:
        name = None if cursor is None else decode_name(cursor)
    except DecodeError:
        return None
    return None if topic is None else Named(topic, SAYS, name)
