"""Offloaded files over fsspec: listing, reading ranges, and the ledgers of the file system offloader.

The file system offloader writes one Hadoop MapFile per ledger into `<ledger>-<uuid>/`. Key -1 has the
ledger's metadata, key N the frame of entry N. `index` has about every 128th entry; reading starts at the
nearest earlier offset, or at the beginning if there is no index.

Source: apache/pulsar tiered-storage/file-system FileSystemManagedLedgerOffloader.java.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pulsar_meta.access.sockets import no_answer
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
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat

# Ranges of this size are fetched in parallel if the file system supports it.
_RANGE: Final = 1 << 20
# Each group of ranges has a time limit of its own, so that large objects need no higher one.
_RANGES_AT_ONCE: Final = 16
# The environment variable that sets the time limit of a request, and the default in seconds.
TIMEOUT: Final = "PULSAR_META_OFFLOAD_TIMEOUT"
DEFAULT_TIMEOUT: Final = 60.0


class ObjectFiles:
    """The objects in a folder or bucket. `name` is its URL without credentials, for messages."""

    def __init__(self, url: str) -> None:
        """Open a URL or path with fsspec. Raises UsageError if fsspec or the scheme is not supported."""
        self.url, self.name, self._seconds = url, redact(url), _time_limit()
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise UsageError(
                "offload: needs fsspec, which is not installed; run pip install 'pulsar-meta[offload]'"
            ) from error
        try:
            self._system, self.folder = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"fsspec cannot open the URL: {redact_about(self.url, str(error))}", source=self.name
            ) from error

    def sizes(self) -> dict[str, int]:
        """Return {name: size} of the objects in the folder."""
        return {name: row["size"] or 0 for name, row in self._listing.items() if row["type"] == "file"}

    def folders(self) -> dict[str, str]:
        """Return {name: URL} of the subfolders."""
        below = (name for name, row in self._listing.items() if row["type"] == "directory")
        return {name: f"{self.url.rstrip('/')}/{name}" for name in below}

    @cached_property
    def _listing(self) -> dict[str, dict[str, Any]]:
        with self._translated():
            # A cached listing would hide new objects.
            rows = self._system.ls(self.folder, detail=True, refresh=True, **self._limit)
        return {row["name"].rstrip("/").rpartition("/")[2]: row for row in rows}

    def fetch(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an object."""
        if start >= end:
            return b""
        path = f"{self.folder.rstrip('/')}/{name}"
        starts = list(range(start, end, _RANGE))
        ends = [*starts[1:], end]
        pieces: list[Any] = []
        with self._translated():
            for at in range(0, len(starts), _RANGES_AT_ONCE):
                firsts, lasts = (numbers[at : at + _RANGES_AT_ONCE] for numbers in (starts, ends))
                paths = [path] * len(firsts)
                pieces += self._system.cat_ranges(paths, firsts, lasts, on_error="raise", **self._limit)
        data = b"".join(pieces)
        if len(data) != end - start:
            raise UnreachableError(
                f"{name}: expected {end - start} bytes from {start} on, found {len(data)}", source=self.name
            )
        return data

    @property
    def _limit(self) -> dict[str, float]:
        """The time limit of a request. Only file systems over a network accept one."""
        return {"timeout": self._seconds} if self._system.async_impl else {}

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
        except TimeoutError as error:
            raise UnreachableError(no_answer(self._seconds, TIMEOUT), source=self.name) from error
        except Exception as error:
            # The exceptions of file systems have no common base class.
            text = f"{type(error).__name__}: {redact_about(self.url, str(error))}"
            raise UnreachableError(text, source=self.name) from error


def _time_limit() -> float:
    text = os.environ.get(TIMEOUT, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 9 and int(text)):
        raise UsageError(f"{TIMEOUT}: expected a number of seconds, found {text[:40]!r}")
    return float(text or DEFAULT_TIMEOUT)


class OffloadedLedgers(EntrySource):
    """Offloaded ledgers. They are complete, and their entries are frames without bookie header and digest."""

    def last_entry(self, ledger_id: int) -> int | None:
        """Return a ledger's last entry, or None if the ledger is missing."""
        entry_ids = self._range(ledger_id)
        return None if entry_ids is None else entry_ids.stop - 1

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of a ledger's entries within [first, last], sorted."""
        entry_ids = self._range(ledger_id)
        if entry_ids is not None:
            end = entry_ids.stop if last is None else min(last + 1, entry_ids.stop)
            yield from range(max(first, entry_ids.start), end)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry. Raises NotFoundError if it is missing, DecodeError if its object is damaged."""
        for entry in self.read_many(ledger_id, entry_id, entry_id):
            return entry
        raise NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url)

    @abstractmethod
    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last]. Raises DecodeError if its object is damaged."""

    @abstractmethod
    def custom_metadata(self, ledger_id: int) -> Mapping[str, str]:
        """Return BookKeeper's custom metadata of a ledger as of its offload, or {} if it is missing.

        Raises DecodeError if its object is damaged.
        """

    @abstractmethod
    def _range(self, ledger_id: int) -> range | None:
        """Return the ids of a ledger's entries, or None if the ledger is missing."""


METADATA_KEY: Final = -1
FIRST_PIECE: Final = 64 << 10
LARGEST_PIECE: Final = 8 << 20

_folder_re = re.compile(r"(?P<ledger>[0-9]{1,19})-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class _MapFile:
    """One ledger: its data file, and sorted keys with the offsets at which to start reading for them."""

    files: ObjectFiles
    size: int
    header: SequenceHeader
    keys: list[int]
    places: list[int]
    last_entry: int
    custom: Mapping[str, str]

    def between(self, first: int, last: int) -> Iterator[KeyedRecord]:
        """Yield the records of the entries within [first, last]. Raises DecodeError if one is missing."""
        start = self.places[max(bisect_right(self.keys, first) - 1, 0)]
        records = _records(self.files, "data", self.size, self.header, start)
        for entry_id in range(first, min(last, self.last_entry) + 1):
            record = next((record for record in records if record.key >= entry_id), None)
            if record is None or record.key != entry_id:
                other = "the end" if record is None else f"entry {record.key}"
                raise DecodeError(f"expected entry {entry_id}, found {other}")
            yield record


def map_file_folders(files: ObjectFiles) -> dict[int, list[str]]:
    """Return {ledger id: URLs of its MapFile folders}, for the folder itself or its subfolders.

    Raises NotFoundError if the folder doesn't exist.
    """
    folders = files.folders()
    own = files.folder.rstrip("/").rpartition("/")[2]
    names = {own: files.url} if _folder_re.fullmatch(own) else folders
    ledgers: dict[int, list[str]] = {}
    for name, url in sorted(names.items()):
        match = _folder_re.fullmatch(name)
        if match:
            ledgers.setdefault(int(match["ledger"]), []).append(url)
    return ledgers


class MapFileEntries(OffloadedLedgers):
    """Entries in MapFiles."""

    def __init__(self, url: str, folders: dict[int, list[str]]) -> None:
        """Read the folders {ledger id: URLs}. Files are read on demand."""
        self.url = url
        self._folders = folders
        self._opened: dict[int, _MapFile] = {}

    def ledgers(self) -> list[int]:
        """List the ids of all ledgers, sorted."""
        return sorted(self._folders)

    def objects(self, *, again: bool = False) -> Iterator[tuple[int, str]]:
        """Yield (ledger id, UUID of the offload) of each folder in the first listing."""
        for ledger_id, urls in self._folders.items():
            for url in urls:
                yield ledger_id, url.rstrip("/").rpartition("/")[2].partition("-")[2]

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last]. Raises DecodeError if the file is damaged."""
        file = self._open(ledger_id)
        if file is None:
            return
        with decoding(file.files.name):
            for record in file.between(max(first, 0), file.last_entry if last is None else last):
                yield RawEntry(ledger_id, record.key, bytes_of(record), bookie=False)

    def custom_metadata(self, ledger_id: int) -> Mapping[str, str]:
        """Return BookKeeper's custom metadata of a ledger, from the metadata before its entries."""
        file = self._open(ledger_id)
        return {} if file is None else file.custom

    def _range(self, ledger_id: int) -> range | None:
        file = self._open(ledger_id)
        return None if file is None else range(file.last_entry + 1)

    def _open(self, ledger_id: int) -> _MapFile | None:
        if ledger_id not in self._opened and ledger_id in self._folders:
            self._opened[ledger_id] = _open_first(self._folders[ledger_id])
        return self._opened.get(ledger_id)


def _open_first(folders: list[str]) -> _MapFile:
    """Open the first readable MapFile of a ledger. A failed offload leaves an additional one."""
    damage: DecodeError | None = None
    for folder in folders:
        try:
            file = _open_map_file(ObjectFiles(folder))
            if len(folders) > 1:
                # An incomplete file has intact metadata at its beginning, so read its last entry.
                list(file.between(file.last_entry, file.last_entry))
        except DecodeError as error:
            damage = damage or error.within(folder)
        else:
            return file
    assert damage is not None
    raise damage


def _open_map_file(files: ObjectFiles) -> _MapFile:
    sizes = files.sizes()
    header = _header(files, "data", sizes)
    first = next(_records(files, "data", sizes["data"], header, header.size), None)
    if first is None or first.key != METADATA_KEY:
        raise DecodeError("expected the ledger's metadata with key -1 at the beginning", offset=header.size)
    metadata = parse_message(LedgerMetadataFormat, bytes_of(first))
    if not metadata.HasField("lastEntryId"):
        raise DecodeError("the metadata has no last entry")
    if metadata.lastEntryId >= sizes["data"]:
        raise DecodeError(f"the metadata claims {metadata.lastEntryId + 1} entries in {sizes['data']} bytes")
    keys, places = [METADATA_KEY], [header.size]
    if sizes.get("index"):
        index = _header(files, "index", sizes)
        for record in _records(files, "index", sizes["index"], index, index.size):
            place = long_of(record)
            if not header.size <= place < sizes["data"]:
                raise DecodeError(f"index: entry {record.key} at {place}, outside {sizes['data']} bytes")
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
        raise DecodeError(f"{name}: expected keys of {LONG_KEY}, found {header.key_class}")
    return header


def _records(
    files: ObjectFiles, name: str, size: int, header: SequenceHeader, start: int
) -> Iterator[KeyedRecord]:
    """Yield the records of a file from `start` on, fetching it in growing pieces."""
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
            # The file ends with a sync marker.
            return
        at += done
        piece_size = min(2 * piece_size, LARGEST_PIECE) if done else 2 * piece_size
