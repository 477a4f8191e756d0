"""Compacted data: which topic's it is, and up to where; the cursor that a broker finds it by.

The ledger of a compaction that did not end is a beginning of it: what it lacks comes after its last message.
So the position of the last message is where readers may go on in the topic itself.

Source: apache/pulsar TwoPhaseCompactor.java, CompactedTopicImpl.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.frames.raw_message import decode_raw_message
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each
from pulsar_meta.jobs.rebuild.system_topics import NOTHING, Announced, announced
from pulsar_meta.jobs.topics.topic import Position


@dataclass(frozen=True, slots=True)
class CompactedClues:
    """What a compacted ledger says: the data ledgers that it is made from, the last position of them."""

    ledger_id: int
    named: frozenset[int]
    last: Position | None
    announced: Announced = NOTHING


def compacted_clues(source: EntrySource, ledger_id: int, digest: DigestType | None) -> CompactedClues:
    """Return what a compacted ledger says; entries that cannot be read are passed over."""
    named, last = set[int](), None
    for _, outcome in read_each(source, ledger_id):
        if isinstance(outcome, RawEntry):
            try:
                found = decode_raw_message(decode_bookie_entry(outcome.data, digest).data).message_id
            except DecodeError:
                continue
            position = Position(found.ledgerId, found.entryId)
            named.add(position.ledger_id)
            last = position if last is None else max(last, position)
    return CompactedClues(ledger_id, frozenset(named), last, announced(source, ledger_id))
