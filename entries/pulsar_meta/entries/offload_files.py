"""Offloaded files over fsspec: listing, reading ranges, and ledgers of the file system offloader.

The file system offloader keeps one Hadoop MapFile per ledger in `<ledger>-<uuid>/`. Key -1 holds the ledger's
metadata,
key N the frame of entry N. `index` has about every 128th entry; without it, or after its last one, reading
starts
at the nearest earlier offset.
Source: apache/pulsar tiered-storage/file-system FileSystemManagedLedgerOffloader.java.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pulsar_meta.access.urls import redact, redact_about
from pulsar_meta.codecs.bookie_files.offload import (
    LARGEST,
    LONG_KEY,
    KeyedRecord,
    SequenceHeader,
    Truncated,
    bytes_of,
    decode_records,
    decode_sequence_header,
    long_of,
)
from pulsar_meta.codecs.errors import (
    DecodeError,
    NotFoundError,
    PulsarMetaError,
    UnreachableError,
    UsageError,
    decoding,
)
from pulsar_meta.codecs.metadata.ledger_metadata import custom_metadata
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import BaseSource, RawEntry
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat

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


METADATA_KEY: Final = -1
FIRST_PIECE: Final = 64 << 10
LARGEST_PIECE: Final = 8 << 20

_folder_re = re.compile(r"(?P<ledger>[0-9]{1,19})-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class _MapFile:
    """One ledger: its data file, and keys with the places where to begin for them, in order."""

    files: ObjectFiles
    size: int
    header: SequenceHeader
    keys: list[int]
    places: list[int]
    last_entry: int
    custom: Mapping[str, str]

    def between(self, first: int, last: int) -> Iterator[KeyedRecord]:
        """Yield the records of the entries within [first, last]; DecodeError where one is missing."""
        start = self.places[max(bisect_right(self.keys, first) - 1, 0)]
        records = _records(self.files, "data", self.size, self.header, start)
        for entry_id in range(first, min(last, self.last_entry) + 1):
            record = next((record for record in records if record.key >= entry_id), None)
            if record is None or record.key != entry_id:
                there = "the end" if record is None else f"entry {record.key}"
                raise DecodeError(f"expected entry {entry_id}, found {there}")
            yield record


def map_file_folders(files: ObjectFiles) -> dict[int, list[str]]:
    """Return the folders of each ledger's MapFiles by its ledger: that folder itself, or those in it.

    NotFoundError where it is not there.
    """
    folders = files.folders()
    own = files.folder.rstrip("/").rpartition("/")[2]
    names = {own: files.url} if _folder_re.fullmatch(own) else folders
    found: dict[int, list[str]] = {}
    for name, url in sorted(names.items()):
        match = _folder_re.fullmatch(name)
        if match:
            found.setdefault(int(match["ledger"]), []).append(url)
    return found


class MapFileEntries(OffloadedLedgers):
    """Entries in MapFiles."""

    def __init__(self, url: str, folders: dict[int, list[str]]) -> None:
        """`folders`: what fsspec opens, by ledger. Files are read when their ledger is wanted."""
        self.url = url
        self._folders = folders
        self._opened: dict[int, _MapFile] = {}

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers that are here, in order."""
        return sorted(self._folders)

    def objects(self, *, again: bool = False) -> Iterator[tuple[int, str]]:
        """Yield (ledger, UUID of the offload) of each folder, as of when they were listed."""
        for ledger_id, urls in self._folders.items():
            for url in urls:
                yield ledger_id, url.rstrip("/").rpartition("/")[2].partition("-")[2]

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last], in order; DecodeError where the file is broken."""
        found = self._open(ledger_id)
        if found is None:
            return
        with decoding(found.files.name):
            for record in found.between(max(first, 0), found.last_entry if last is None else last):
                yield RawEntry(ledger_id, record.key, bytes_of(record), bookie=False)

    def custom_metadata(self, ledger_id: int) -> Mapping[str, str]:
        """Return BookKeeper's custom metadata of a ledger, as it stands before its entries."""
        found = self._open(ledger_id)
        return {} if found is None else found.custom

    def _held(self, ledger_id: int) -> range | None:
        found = self._open(ledger_id)
        return None if found is None else range(found.last_entry + 1)

    def _open(self, ledger_id: int) -> _MapFile | None:
        if ledger_id not in self._opened and ledger_id in self._folders:
            self._opened[ledger_id] = _open_first(self._folders[ledger_id])
        return self._opened.get(ledger_id)


def _open_first(folders: list[str]) -> _MapFile:
    """Return the first of a ledger's MapFiles that can be read; an offload that failed leaves another."""
    broken: DecodeError | None = None
    for folder in folders:
        try:
            found = _opened(ObjectFiles(folder))
            if len(folders) > 1:
                # The metadata comes first, so its end has to be looked at.
                list(found.between(found.last_entry, found.last_entry))
        except DecodeError as error:
            broken = broken or error.within(folder)
        else:
            return found
    assert broken is not None
    raise broken


def _opened(files: ObjectFiles) -> _MapFile:
    sizes = files.sizes()
    header = _header(files, "data", sizes)
    first = next(_records(files, "data", sizes["data"], header, header.size), None)
    if first is None or first.key != METADATA_KEY:
        raise DecodeError("expected the ledger's metadata under key -1 first", offset=header.size)
    metadata = parse_message(LedgerMetadataFormat, bytes_of(first))
    if not metadata.HasField("lastEntryId"):
        raise DecodeError("its metadata does not name the last entry")
    if metadata.lastEntryId >= sizes["data"]:
        raise DecodeError(f"it claims to go to entry {metadata.lastEntryId} in {sizes['data']} bytes")
    keys, places = [METADATA_KEY], [header.size]
    if sizes.get("index"):
        index = _header(files, "index", sizes)
        for record in _records(files, "index", sizes["index"], index, index.size):
            place = long_of(record)
            if not header.size <= place < sizes["data"]:
                raise DecodeError(f"index: entry {record.key} at {place} of {sizes['data']} bytes")
            keys.append(record.key)
            places.append(place)
    return _MapFile(
        files, sizes["data"], header, keys, places, metadata.lastEntryId, custom_metadata(metadata)
    )


def _header(files: ObjectFiles, name: str, sizes: dict[str, int]) -> SequenceHeader:
    if name not in sizes:
        raise DecodeError(f"no file {name!r}")
    header = decode_sequence_header(files.fetch(name, 0, min(sizes[name], FIRST_PIECE)))
    if header.key_class != LONG_KEY:
        raise DecodeError(f"{name}: keys of {header.key_class}, expected {LONG_KEY}")
    return header


def _records(
    files: ObjectFiles, name: str, size: int, header: SequenceHeader, start: int
) -> Iterator[KeyedRecord]:
    """Yield the records of a file from `start` on, fetching it in ever larger pieces."""
    at, piece_size = start, FIRST_PIECE
    while at < size:
        piece = files.fetch(name, at, min(at + piece_size, size))
        done = 0
        try:
            for record in decode_records(piece, header):
                done = record.end
                yield record
        except Truncated as error:
            if at + len(piece) == size or (not done and piece_size > LARGEST):
                raise error.within(what=name, start=at) from None
        except DecodeError as error:
            raise error.within(what=name, start=at) from error
        if not done and at + len(piece) == size:
            # A sync mark, and nothing after it.
            return
        at += done
        piece_size = min(2 * piece_size, LARGEST_PIECE) if done else 2 * piece_size
