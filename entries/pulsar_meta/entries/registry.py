"""Open entry sources by the scheme of their URL. A scheme's module is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Final

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.joined import JoinedEntries

SCHEMES: Final[dict[str, str]] = {
    "bookie-disk": "pulsar_meta.entries.bookie_disk:open_bookie_disk",
    "offload": "pulsar_meta.entries.offload:open_offload",
    "frames": "pulsar_meta.entries.frames_file:open_frames_file",
}
# Opened by the caller, because it finds its bookies through a store.
LIVE: Final = "bookie"


def open_entries(urls: Sequence[str], open_live: Callable[[str], EntrySource] | None = None) -> EntrySource:
    """Open the source of each URL, and join several. `open_live` opens `bookie:`.

    Raises UsageError for an unknown scheme or no URL, and the errors of the source.
    """
    if not urls:
        raise UsageError("no entry source; add --entries URL")
    with ExitStack() as stack:
        sources = [stack.enter_context(_open(url, open_live)) for url in urls]
        stack.pop_all()
    return sources[0] if len(sources) == 1 else JoinedEntries(sources)


def _open(url: str, open_live: Callable[[str], EntrySource] | None) -> EntrySource:
    scheme, separator, _ = url.partition(":")
    if scheme == LIVE and open_live is not None:
        return open_live(url)
    if not separator or scheme not in SCHEMES:
        known = ", ".join(f"{name}:" for name in sorted({*SCHEMES, LIVE}))
        raise UsageError(f"unknown entry source {redact(url)!r}; choose one of {known}")
    module, _, function = SCHEMES[scheme].partition(":")
    source: EntrySource = getattr(import_module(module), function)(url)
    return source
