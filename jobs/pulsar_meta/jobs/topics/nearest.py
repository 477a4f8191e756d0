"""What may have been meant by a name that nothing in the store has."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.names import (
    MANAGED_LEDGERS,
    TopicName,
    split_managed_ledger_path,
    split_scalable_path,
)
from pulsar_meta.stores.base import Store

# So many names are compared: beyond, the comparison would take longer than the command.
COMPARED: Final = 5000


def missing(store: Store, path: str) -> NotFoundError:
    """Return the error for what is not in the store: a topic and a cursor by their names, else the path."""
    place = _named(path)
    # A partition was named by its number, and there may be thousands of them.
    meant = "" if place is not None and place[0].partition is not None else did_you_mean(store, path)
    return NotFoundError(f"{_what(path)}{meant}", source=store.url)


def _named(path: str) -> tuple[TopicName, str | None] | None:
    """Return the topic, and the cursor, whose record lies at a path; None where none can."""
    scalable = split_scalable_path(path)
    return split_managed_ledger_path(path) if scalable is None else (scalable, None)


def _what(path: str) -> str:
    place = _named(path)
    if place is None:
        return f"nothing at {path}"
    topic, cursor = place
    return f"no topic {topic}" if cursor is None else f"no cursor {cursor} of {topic}"


def did_you_mean(store: Store, path: str) -> str:
    """Return `; did you mean …?` for a path that is not in the store, "" where nothing comes near it.

    A topic and a cursor are called by their names. Where no topic comes near, a scalable one may.
    """
    found = nearest_path(store, path) or _nearest_scalable(store, path)
    if found is None:
        return ""
    place = _named(found)
    if place is None:
        return f"; did you mean {found.removeprefix(f'{MANAGED_LEDGERS}/')}?"
    return f"; did you mean {place[0] if place[1] is None else place[1]}?"


def _nearest_scalable(store: Store, path: str) -> str | None:
    topic = TopicName.from_path(path)
    if topic is None or topic.domain != "persistent" or topic.cluster is not None:
        return None
    near = nearest_path(store, topic.as_scalable.path)
    # Not another namespace: the topic itself.
    return near if near is not None and split_scalable_path(near) is not None else None


def nearest_path(store: Store, path: str) -> str | None:
    """Return the path in the store that differs least in the first part that the store has not."""
    parts = [part for part in path.split("/") if part]
    there = ""
    for at, part in enumerate(parts):
        names = store.children(there or "/")
        if part not in names:
            near = get_close_matches(part, names[:COMPARED], 1)
            return None if not near else _longest(store, [f"{there}/{near[0]}", *parts[at + 1 :]])
        there = f"{there}/{part}"
    return None


def _longest(store: Store, parts: list[str]) -> str:
    """Return as much of a path as is there; its first part is."""
    there = parts[0]
    for part in parts[1:]:
        if part not in store.children(there):
            break
        there = f"{there}/{part}"
    return there


def nearest_name(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?` for the one of `names` that differs least, "" where none comes near."""
    near = get_close_matches(name, list(islice(names, COMPARED)), 1)
    return f"; did you mean {near[0]}?" if near else ""
