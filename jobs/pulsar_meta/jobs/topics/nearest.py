"""Suggest the nearest name in the store for a name that does not exist."""

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

# At most this many names are compared, because more would take longer than the command itself.
COMPARED: Final = 5000


def missing(store: Store, path: str) -> NotFoundError:
    """Make the error for a path that is not in the store. It names the topic or cursor, or else the path."""
    place = _named(path)
    # Suggesting another partition does not help, and there may be thousands of them.
    suggestion = "" if place is not None and place[0].partition is not None else did_you_mean(store, path)
    return NotFoundError(f"{_what(path)}{suggestion}", source=store.url)


def _named(path: str) -> tuple[TopicName, str | None] | None:
    """The topic and cursor whose record is at a path; None for other paths."""
    scalable = split_scalable_path(path)
    return split_managed_ledger_path(path) if scalable is None else (scalable, None)


def _what(path: str) -> str:
    place = _named(path)
    if place is None:
        return f"nothing at {path}"
    topic, cursor = place
    return f"no topic {topic}" if cursor is None else f"{topic} has no cursor {cursor}"


def did_you_mean(store: Store, path: str) -> str:
    """Suggest a similar name as `; did you mean …?`; "" if there is none.

    Topics and cursors are suggested by name. If no similar persistent topic exists, scalable topics are
    searched.
    """
    nearest = nearest_path(store, path) or _nearest_scalable(store, path)
    if nearest is None:
        return ""
    place = _named(nearest)
    if place is None:
        return f"; did you mean {nearest.removeprefix(f'{MANAGED_LEDGERS}/')}?"
    return f"; did you mean {place[0] if place[1] is None else place[1]}?"


def _nearest_scalable(store: Store, path: str) -> str | None:
    topic = TopicName.from_path(path)
    if topic is None or topic.domain != "persistent" or topic.cluster is not None:
        return None
    near = nearest_path(store, topic.as_scalable.path)
    # A suggestion must be a topic, not just another namespace.
    return near if near is not None and split_scalable_path(near) is not None else None


def nearest_path(store: Store, path: str) -> str | None:
    """Find the path that is most similar in the first part that the store does not have."""
    parts = [part for part in path.split("/") if part]
    existing = ""
    for at, part in enumerate(parts):
        names = store.children(existing or "/")
        if part not in names:
            near = get_close_matches(part, names[:COMPARED], 1)
            return None if not near else _longest(store, [f"{existing}/{near[0]}", *parts[at + 1 :]])
        existing = f"{existing}/{part}"
    return None


def _longest(store: Store, parts: list[str]) -> str:
    """The longest beginning of a path that exists. The first part is known to exist."""
    existing = parts[0]
    for part in parts[1:]:
        if part not in store.children(existing):
            break
        existing = f"{existing}/{part}"
    return existing


def nearest_name(name: str, names: Iterable[str]) -> str:
    """Suggest the most similar of `names` as `; did you mean …?`; "" if there is none."""
    near = get_close_matches(name, list(islice(names, COMPARED)), 1)
    return f"; did you mean {near[0]}?" if near else ""
