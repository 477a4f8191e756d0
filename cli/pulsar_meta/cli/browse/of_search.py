"""Where something lies: at a path, by the names that commands take, or wherever a path has a text in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pulsar_meta.cli.browse.lanes import Job
from pulsar_meta.cli.browse.opened import Opened
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import decode_name
from pulsar_meta.jobs.values.places import WORDS, places_below

# Paths that a search shows; then it ends.
SHOWN: Final = 500
POSITION: Final = re.compile(r"[0-9]+:[0-9]+")


def named(opened: Opened, text: str) -> list[str] | None:
    """Return the paths that a text names: `topic NAME`, a full name; None where it names nothing.

    UsageError for what begins like a name and is none; DecodeError, UnreachableError of the store.
    """
    words = text.split()
    if "://" in text and len(words) == 1:
        words = ["topic", text]
    return places_below(opened.store, words) if len(words) > 1 and words[0] in WORDS else None


def search(opened: Opened, text: str, job: Job, found: Callable[[str], object]) -> str:
    """Give `found` each path with the text in it, as stored or decoded; return what was looked at."""
    sought, count = text.lower(), 0
    for held in opened.store.scan("/"):
        job.advance(1)
        if sought in held.path.lower() or ("%" in held.path and sought in _decoded(held.path).lower()):
            found(held.path)
            count += 1
            if count == SHOWN:
                return f"the first {count} in {job.count} values; a longer name finds fewer"
    return f"{count} found in {job.count} values"


def _decoded(path: str) -> str:
    with suppress(DecodeError):
        return decode_name(path)
    return path
