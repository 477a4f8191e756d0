"""Which topics ledgers are of, by what still says so: a person, an old store, transaction buffers.

A snapshot of a transaction buffer has its topic's name as its key, and names the ledger up to which the topic
was read. Source: apache/pulsar broker/transaction/buffer/metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.batch import Message, open_entry
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.transactions.snapshots import SnapshotKind, decode_snapshot
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each
from pulsar_meta.jobs.topics.topic import Report, every_topic
from pulsar_meta.stores.base import Store

_KINDS: Final[tuple[SnapshotKind, ...]] = ("snapshot", "indexes", "segment")


class Named(NamedTuple):
    """The topic of a ledger, and what says so."""

    topic: TopicName
    why: str


Names = Mapping[int, Named]


def read_names(lines: Iterable[str], source: str) -> dict[int, Named]:
    """Return the topics of ledgers in a file: `{"ledger_id", "topic"}` a line, null for one not known.

    UsageError with the number of a line that is neither.
    """
    names: dict[int, Named] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = read_json_object(line)
            ledger_id, topic = row.get("ledger_id"), row.get("topic")
            if type(ledger_id) is not int or not isinstance(topic, str | None):
                raise UsageError('expected {"ledger_id": NUMBER, "topic": NAME or null}')
            if topic is not None:
                names[ledger_id] = Named(TopicName.parse(topic), "its name was given")
        except (DecodeError, UsageError) as error:
            raise UsageError(error.message, source=f"{source}, line {number}") from error
    return names


def names_in_store(store: Store, report: Report) -> dict[int, Named]:
    """Return the topics of the ledgers that an old store names; of two for one the first in the store.

    Broken records go to `report`; UnreachableError.
    """
    names: dict[int, Named] = {}
    for topic in every_topic(store, report):
        named = Named(TopicName.parse(topic.name), "the old store has its name")
        for ledger in topic.ledgers:
            names.setdefault(ledger.ledger_id, named)
    return names


def names_on_disks(source: EntrySource, data: Iterable[int]) -> dict[int, Named]:
    """Return the topics of ledgers that snapshots of transaction buffers name, in data ledgers `data`."""
    names: dict[int, Named] = {}
    for ledger_id in data:
        if next(_snapshots(source, ledger_id, last=0), None) is None:
            continue
        for topic, named in _snapshots(source, ledger_id):
            why = f"a snapshot of its transaction buffer, in ledger {ledger_id}, has its name"
            names[named] = Named(topic, why)
    return names


def _snapshots(
    source: EntrySource, ledger_id: int, last: int | None = None
) -> Iterator[tuple[TopicName, int]]:
    """Yield (topic, ledger up to which it was read) of each snapshot of a transaction buffer."""
    for _, outcome in read_each(source, ledger_id, 0, last):
        for message in _messages(outcome) if isinstance(outcome, RawEntry) else ():
            for kind in _KINDS:
                try:
                    snapshot = decode_snapshot(kind, message.payload)
                    topic = TopicName.parse(snapshot["topicName"] or "")
                except (DecodeError, UsageError):
                    continue
                newest = snapshot.get("snapshot") or {}
                position = snapshot.get("maxReadPositionLedgerId", newest.get("maxReadPositionLedgerId"))
                named = snapshot.get("persistentPositionLedgerId", position)
                # The key of a segment has the topic's name behind its number.
                if named is not None and str(message.metadata.partition_key).endswith(str(topic)):
                    yield topic, named


def _messages(entry: RawEntry) -> Iterable[Message]:
    try:
        data = decode_bookie_entry(entry.data).data if entry.bookie else entry.data
        return open_entry(decode_frame(data, verify=False)).messages
    except DecodeError:
        return ()
