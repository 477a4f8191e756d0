"""Find the topic and subscription of each ledger on the disks, and the evidence for it.

A name given by the operator wins over an old store, which wins over a broker's log, which wins over other
entries. These lines of a broker's log name the topic or cursor of a ledger:

    … [public/default/persistent/orders] Created ledger 18 after closed 12          (4.1 on)
    … [public/default/persistent/orders] Created new ledger 22
    … [public/default/persistent/orders] Updated cursor work with ledger id 31 md-position=18:4 …
    … [public/default/persistent/orders] Cursor work meta-data recover from ledger 31
    … [public/default/persistent/orders] Opened ledger 31 for cursor work. rc=0

Names are URL-encoded in the log, as in the store. Pulsar 5 writes other lines.

Source: apache/pulsar ManagedLedgerImpl.java (initializeBookKeeper, createComplete), ManagedCursorImpl.java
(recover, recoverFromLedger, switchToNewLedger); logs of Pulsar 4.2.4.
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
from pulsar_meta.jobs.rebuild.scan import ScanResult
from pulsar_meta.jobs.rebuild.transactions import (
    LogClues,
    log_topic,
    subscribers_by_transactions,
    topics_by_transactions,
)
from pulsar_meta.jobs.transactions.pending_acks import pending_logs

GIVEN: Final = "its name was given"
# The first position of a subscription that is created again because none of its state is left.
Start = Literal["earliest", "latest"]


class Named(NamedTuple):
    """The topic of a ledger, the evidence for it, and the subscription if it is a cursor ledger.

    `sure` is False if the evidence is client data, or if the topic is only the last one that remains
    possible.
    """

    topic: TopicName
    why: str
    cursor: str | None = None
    sure: bool = True


class GivenCursor(NamedTuple):
    """A subscription without a ledger that the operator wants, and its first position."""

    topic: TopicName
    cursor: str
    start: Start


Names = Mapping[int, Named]


@dataclass(frozen=True, slots=True)
class GivenNames:
    """Names given by the operator: of ledgers, and of subscriptions without a ledger."""

    ledgers: Names = field(default_factory=dict)
    cursors: tuple[GivenCursor, ...] = ()


def read_names(lines: Iterable[str], source: str) -> GivenNames:
    """Read a file of names: one line `{"ledger_id", "topic", "cursor"?}` per ledger.

    `cursor` is the name of the subscription. A subscription without a ledger has a line `{"topic", "cursor",
    "position": "earliest" | "latest"}`. Lines whose topic or position is null are skipped. Raises UsageError
    with the line number if a line has another form.
    """
    names, cursors = dict[int, Named](), list[GivenCursor]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            given = _given(read_json_object(line))
        except (DecodeError, UsageError) as error:
            raise UsageError(error.message, source=f"{source}, line {number}") from error
        if isinstance(given, GivenCursor):
            cursors.append(given)
        elif given is not None:
            names[given[0]] = given[1]
    return GivenNames(names, tuple(cursors))


def _given(row: Mapping[str, Any]) -> GivenCursor | tuple[int, Named] | None:
    ledger_id, topic, cursor = (row.get(key) for key in ("ledger_id", "topic", "cursor"))
    start: Any = row.get("position")
    if not isinstance(topic, str | None) or not isinstance(cursor, str | None) or cursor == "":
        raise UsageError("topic and cursor must be names or null")
    if ledger_id is None and topic is not None and cursor is not None and start in get_args(Start):
        return GivenCursor(_valid_topic(topic), _valid_cursor(cursor), start)
    if "position" in row and "ledger_id" not in row and start is None:
        return None
    if type(ledger_id) is not int:
        raise UsageError(
            'expected {"ledger_id": NUMBER, "topic": NAME or null}, or {"topic", "cursor", "position":'
            ' "earliest" or "latest"}'
        )
    if topic is None:
        return None
    return ledger_id, Named(_valid_topic(topic), GIVEN, None if cursor is None else _valid_cursor(cursor))


# Source: apache/pulsar NamedEntity.
_entity_re: Final = re.compile(r"[-=:.A-Za-z0-9_]+")
# ZooKeeper refuses a path with one of these parts.
_RELATIVE: Final = frozenset((".", ".."))


def _valid_topic(text: str) -> TopicName:
    """Parse the name of a topic. Raises UsageError if Pulsar would not create a topic of that name."""
    topic = TopicName.parse(text)
    entities = [topic.tenant, topic.namespace, *filter(None, [topic.cluster])]
    if not all(map(_entity_re.fullmatch, entities)):
        raise UsageError(
            f"invalid topic {text!r}: Pulsar allows only letters, digits and -=:._ in a tenant or namespace"
        )
    if not topic.local.strip() or not _RELATIVE.isdisjoint([*entities, *topic.local.split("/")]):
        raise UsageError(f"invalid topic {text!r}: no part of a name can be empty, '.' or '..'")
    return topic


def _valid_cursor(name: str) -> str:
    """Return the name of a subscription. Raises UsageError if Pulsar would not create it."""
    if not name.strip() or name in _RELATIVE:
        raise UsageError(f"invalid subscription {name!r}: a name can't be empty, '.' or '..'")
    return name


def names_on_disks(scanned: ScanResult) -> dict[int, Named]:
    """Find the topics of ledgers from names in entries on the disks."""
    logs = scanned.clues_of(LogClues)
    data, compacted = scanned.clues_of(DataClues), scanned.clues_of(CompactedClues)
    names = _by_transactions(data, logs) | dict(_by_messages([*data.values(), *compacted.values()]))
    for ledger_id, log in logs.items():
        if log.kind == "transaction-log" and log.coordinator is not None:
            why = f"coordinator {log.coordinator} wrote its records"
            names[ledger_id] = Named(log_topic(log.coordinator), why)
    return {**_by_pending_acks(logs), **names}


def _by_pending_acks(logs: Mapping[int, LogClues]) -> dict[int, Named]:
    """Find the names of logs of pending acknowledgments, and of the data ledgers that they refer to."""
    names = dict[int, Named]()
    pending = {at: log.txns for at, log in logs.items() if log.kind == "pending-acks"}
    for ledger_id, (topic, cursor) in subscribers_by_transactions(logs.values(), pending).items():
        why = f"according to the coordinator's log, ledger {ledger_id} has its pending acknowledgments"
        names |= {data_ledger: Named(topic, why) for data_ledger in logs[ledger_id].named}
        why = "the coordinator's log names the subscription of its transactions"
        names[ledger_id] = Named(pending_logs(topic, cursor)[0], why)
    return names


def _by_transactions(data: Mapping[int, DataClues], logs: Mapping[int, LogClues]) -> dict[int, Named]:
    txns = {at: clues.txns for at, clues in data.items() if clues.txns}
    why = "in the coordinator's log, only this topic was part of all its transactions"
    topics = topics_by_transactions(logs.values(), txns)
    return {ledger_id: Named(topic, why, sure=False) for ledger_id, topic in topics.items()}


def _by_messages(clues: Iterable[DataClues | CompactedClues]) -> Iterator[tuple[int, Named]]:
    for ledger in clues:
        if ledger.topic_mentions.own is not None:
            yield ledger.ledger_id, Named(ledger.topic_mentions.own, "the type and the keys of its messages")
        for other in ledger.topic_mentions.others:
            yield other.ledger_id, Named(other.topic, other.why)


IN_LOG: Final = "a broker's log names it"
_ledger: Final = r"(?P<ledger>\d{1,19})"
_cursor: Final = r"(?P<cursor>\S+)"
# The name has at least one slash, which `_named` checks, because two repetitions around it would take time by
# the square of its length.
_line_re: Final = re.compile(r"\[(?P<name>[^\s\[\]]+)\] (?P<event>(?:Created|Updated|Cursor|Opened) .*)")
_event_res: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Created (?:new )?ledger {_ledger}(?:$| after closed)",
        rf"Updated cursor {_cursor} with ledger id {_ledger} ",
        rf"Cursor {_cursor} meta-data recover from ledger {_ledger}$",
        rf"Opened ledger {_ledger} for cursor {_cursor}\. rc=0$",
    )
)


def names_in_log(lines: Iterable[str]) -> dict[int, Named]:
    """Find the topics and subscriptions of ledgers in the lines of a broker's log."""
    names: dict[int, Named] = {}
    for line in lines:
        if (event := _line_re.search(line.rstrip())) is None:
            continue
        for match in filter(None, (pattern.match(event["event"]) for pattern in _event_res)):
            named = _named(event["name"], match.groupdict().get("cursor"))
            if named is not None:
                names[int(match["ledger"])] = named
    return names


def _named(managed_ledger: str, cursor: str | None) -> Named | None:
    topic = TopicName.from_path(f"{MANAGED_LEDGERS}/{managed_ledger}")
    try:
        name = None if cursor is None else decode_name(cursor)
    except DecodeError:
        return None
    return None if topic is None else Named(topic, IN_LOG, name)
