"""Entry sources by the scheme of their URL. A scheme's module is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final, cast

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.joined import JoinedEntries

SCHEMES: Final[dict[str, str]] = {
    "bookie-disk": "pulsar_meta.entries.bookie_disk:open_bookie_disk",
    "offload": "pulsar_meta.entries.offload:open_offload",
    "frames": "pulsar_meta.entries.frames_file:open_frames_file",
}


def open_entries(urls: Sequence[str]) -> EntrySource:
    """Open one source, or several joined; UsageError for an unknown scheme or none at all."""
    if not urls:
        raise UsageError("no entries: give --entries URL")
    sources: list[EntrySource] = []
    try:
        for url in urls:
            sources.append(_opener(url)(url))
    except BaseException:
        for source in sources:
            source.close()
        raise
    if len(sources) == 1:
        return sources[0]
    return JoinedEntries(sources)


def _opener(url: str) -> Callable[[str], EntrySource]:
    scheme, separator, _ = url.partition(":")
    if not separator or scheme not in SCHEMES:
        # bookie: is opened by jobs, since it finds its bookies through a store.
        known = ", ".join(f"{name}:" for name in sorted({*SCHEMES, "bookie"}))
        raise UsageError(f"no entry source {redact(url)!r}: known are {known}")
    module, _, function = SCHEMES[scheme].partition(":")
    return cast("Callable[[str], EntrySource]", getattr(import_module(module), function))
