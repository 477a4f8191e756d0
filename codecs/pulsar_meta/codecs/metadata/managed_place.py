"""Whose record lies at a path below /managed-ledgers: a topic's or a cursor's.

In a V1 namespace that is called `persistent` the path alone does not say it, but the record does: a cursor's
begins with the ledger that has its state, a topic's has no such number. Where both are there the brokers
themselves mix them up: they cannot load the V2 topic `persistent`, below which the V1 topics lie, since they
take these for its cursors (seen on 4.0.7).
"""

from __future__ import annotations

import re

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import TopicName, decode_name, managed_ledger_places

# Where there is nothing in it, it is the parent of V1 topics that a store made, and no topic `persistent`.
_v1_parent_re = re.compile(r"/managed-ledgers/[^/]+/[^/]+/persistent/persistent")


def managed_place(path: str, value: bytes) -> tuple[TopicName, str | None] | None:
    """Return (topic, cursor or None) for the record `value` at a path, None where none can be there."""
    places = managed_ledger_places(path)
    if len(places) < 2:
        is_parent = not value and _v1_parent_re.fullmatch(path)
        return places[0] if places and not is_parent else None
    return next((place for place in places if (place[1] is not None) == _is_cursor(value)), places[0])


class ManagedPlaces:
    """`managed_place` for values that come in the order of a scan, in which cursors follow their topic."""

    def __init__(self) -> None:
        self._below, self._topic = "", TopicName("", "", "")

    def of(self, path: str, value: bytes) -> tuple[TopicName, str | None] | None:
        """Return what `managed_place` does; cursors that follow each other have the same object as topic."""
        cursor = path.removeprefix(self._below)
        if cursor and "/" not in cursor:
            try:
                return self._topic, decode_name(cursor)
            except DecodeError:
                return None
        place = managed_place(path, value)
        if place is not None:
            topic_path = path if place[1] is None else path.rpartition("/")[0]
            # Below a topic of the name `persistent` topics of V1 names may lie.
            plain = len(managed_ledger_places(topic_path)) == 1 and not topic_path.endswith("/persistent")
            self._below, self._topic = f"{topic_path}/" if plain else "", place[0]
        return place


def _is_cursor(value: bytes) -> bool:
    # Protobuf is loaded where a path leaves it open, which is next to never.
    from pulsar_meta.codecs.metadata.envelope import decode_cursor

    try:
        decode_cursor(value)
    except DecodeError:
        return False
    return True
