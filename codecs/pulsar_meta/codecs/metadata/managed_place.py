"""Tell topic records from cursor records by path, and by content if the path is ambiguous.

Paths are ambiguous in a V1 namespace named `persistent`. There, a record that decodes as a cursor is a
cursor's. If a cluster has both such V1 topics and a V2 topic `persistent`, brokers can't load the V2 topic,
because they read the records of the V1 topics below it as its cursors (tested on 4.0.7).
"""

from __future__ import annotations

import re

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import TopicName, decode_name, managed_ledger_places

# An empty value at this path is not a topic, but the parent node of V1 topics.
_v1_parent_re = re.compile(r"/managed-ledgers/[^/]+/[^/]+/persistent/persistent")


def managed_place(path: str, value: bytes) -> tuple[TopicName, str | None] | None:
    """Return (topic, cursor or None) for the record `value` at a path, or None if it is another path."""
    places = managed_ledger_places(path)
    if len(places) < 2:
        is_parent = not value and _v1_parent_re.fullmatch(path)
        return places[0] if places and not is_parent else None
    return next((place for place in places if (place[1] is not None) == _is_cursor(value)), places[0])


class ManagedPlaces:
    """A faster `managed_place` for values in the order of a scan, in which cursors follow their topic."""

    def __init__(self) -> None:
        self._below, self._topic = "", TopicName("", "", "")

    def of(self, path: str, value: bytes) -> tuple[TopicName, str | None] | None:
        """Return the same as `managed_place`. Consecutive cursors of a topic share one TopicName object."""
        cursor = path.removeprefix(self._below)
        if cursor and "/" not in cursor:
            try:
                return self._topic, decode_name(cursor)
            except DecodeError:
                return None
        place = managed_place(path, value)
        if place is not None:
            topic_path = path if place[1] is None else path.rpartition("/")[0]
            # Below a topic named `persistent` there may be V1 topics.
            plain = len(managed_ledger_places(topic_path)) == 1 and not topic_path.endswith("/persistent")
            self._below, self._topic = f"{topic_path}/" if plain else "", place[0]
        return place


def _is_cursor(value: bytes) -> bool:
    # Imported late, because almost no path is ambiguous, and protobuf is slow to import.
    from pulsar_meta.codecs.metadata.envelope import decode_cursor

    try:
        decode_cursor(value)
    except DecodeError:
        return False
    return True
