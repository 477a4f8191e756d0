"""Objects by fsspec: listing them, fetching ranges of their bytes, and what all ledgers in them share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

from pulsar_meta.access.urls import redact, redact_about
from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError, UnreachableError, UsageError
from pulsar_meta.entries.base import BaseSource, RawEntry

# Ranges of this size are fetched side by side where the file system can.
_RANGE: Final = 1 << 20


class ObjectFiles:
    """The objects in one folder or bucket; `name` is its URL without credentials, for messages."""

    def __init__(self, url: str) -> None:
        """`url` is what fsspec opens, a plain path included; UsageError without fsspec or the scheme."""
        self.url, self.name = url, redact(url)
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise UsageError(
                "offload: needs fsspec, which is not installed (pip install 'pulsar-meta[offload]')"
            ) from error
        try:
            self._system, self.folder = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"fsspec cannot open it: {redact_about(self.url, str(error))}", source=self.name
            ) from error

    def sizes(self) -> dict[str, int]:
        """Return the size of each object in the folder by its name."""
        return {name: row["size"] or 0 for name, row in self._listing.items() if row["type"] == "file"}

    def folders(self) -> dict[str, str]:
        """Return what fsspec opens as each folder in the folder, by its name."""
        below = (name for name, row in self._listing.items() if row["type"] == "directory")
        return {name: f"{self.url.rstrip('/')}/{name}" for name in below}

    @cached_property
    def _listing(self) -> dict[str, dict[str, Any]]:
        with self._translated():
            # A listing that the file system kept from before would hide new objects.
            rows = self._system.ls(self.folder, detail=True, refresh=True)
        return {row["name"].rstrip("/").rpartition("/")[2]: row for row in rows}

    def fetch(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an object."""
        if start >= end:
            return b""
        path = f"{self.folder.rstrip('/')}/{name}"
        starts = list(range(start, end, _RANGE))
        ends = [*starts[1:], end]
        with self._translated():
            pieces: list[Any] = self._system.cat_ranges([path] * len(starts), starts, ends, on_error="raise")
        data = b"".join(pieces)
        if len(data) != end - start:
            raise UnreachableError(
                f"{name}: expected {end - start} bytes from {start} on, got {len(data)}", source=self.name
            )
        return data

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except PulsarMetaError:
            raise
        except FileNotFoundError as error:
            raise NotFoundError(
                f"no such file or folder: {redact_about(self.url, str(error))}", source=self.name
            ) from error
        except Exception as error:
            # Each file system has errors of its own, with no class in common.
            text = f"{type(error).__name__}: {redact_about(self.url, str(error))}"
            raise UnreachableError(text, source=self.name) from error


class OffloadedLedgers(BaseSource):
    """Ledgers that were offloaded, as frames: they are whole, and have no bookie header and no digest."""

    def last_entry(self, ledger_id: int) -> int | None:
        """Return a ledger's last entry, None where the ledger is not here."""
        held = self._held(ledger_id)
        return None if held is None else held.stop - 1

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of a ledger's entries within [first, last]."""
        held = self._held(ledger_id)
        if held is not None:
            yield from range(max(first, held.start), held.stop if last is None else min(last + 1, held.stop))

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry; NotFoundError where it is not here, DecodeError where its object is broken."""
        for entry in self.read_many(ledger_id, entry_id, entry_id):
            return entry
        raise NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url)

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last], in order; DecodeError where its object is broken."""
        raise NotImplementedError

    def custom_metadata(self, ledger_id: int) -> Mapping[str, str]:
        """Return BookKeeper's custom metadata of a ledger that is here, as it was when it was offloaded.

        DecodeError where its object is broken.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: no object stays open."""

    def _held(self, ledger_id: int) -> range | None:
        """Return the ids of a ledger's entries, None where the ledger is not here."""
        raise NotImplementedError
