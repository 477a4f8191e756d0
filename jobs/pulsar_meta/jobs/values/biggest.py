"""Find the biggest values of a store, and the distribution of sizes."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NotRequired, TypedDict

from pulsar_meta.codecs.documents.document import decode_document
from pulsar_meta.codecs.documents.kinds import ENVELOPED, kind_of_path
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.envelope import is_enveloped, managed_place, read_header
from pulsar_meta.stores.base import Versioned

# Upper bounds in bytes. 1 MiB is ZooKeeper's default limit for requests (jute.maxbuffer).
CLASSES: Final = (0, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
# The parts of a value's meaning that explain its size.
_EXPLAINS: Final = {
    "ManagedLedgerInfo": ("ledger_count", "entries"),
    "ManagedCursorInfo": ("acked_ranges", "acked_entries"),
}


class SumDocument(TypedDict):
    """The number of values, their stored bytes, and their bytes after decompression."""

    count: int
    size: int
    raw_size: int


class SizeClass(SumDocument):
    """Values of at most this many bytes; null stands for more than the largest class."""

    at_most: int | None


class NamespaceSum(SumDocument):
    """The values of a namespace. Other values are summed by the first part of their paths."""

    namespace: str


class BigValue(TypedDict):
    """One of the biggest values, and counts of its contents."""

    path: str
    name: NotRequired[str]
    version: int
    kind: str | None
    codec: str | None
    size: int
    raw_size: int
    holds: dict[str, int]
    error: NotRequired[str]


class TopDocument(TypedDict):
    """The result of `top`."""

    total: SumDocument
    biggest: list[BigValue]
    histogram: list[SizeClass]
    namespaces: list[NamespaceSum]


@dataclass(slots=True)
class Sum:
    """The number of values, their stored bytes, and their bytes after decompression."""

    count: int = 0
    size: int = 0
    raw_size: int = 0

    def add(self, size: int, raw_size: int) -> None:
        """Count one value."""
        self.count += 1
        self.size += size
        self.raw_size += raw_size

    def document(self) -> SumDocument:
        """Convert the sums to JSON."""
        return {"count": self.count, "size": self.size, "raw_size": self.raw_size}


@dataclass(slots=True)
class Sizes:
    """The biggest values so far, and the sums of all values by size and by namespace.

    `unknown` counts the values whose size after decompression is unknown; the sums have their stored size.
    """

    limit: int
    by_raw: bool = False
    unknown: int = 0
    total: Sum = field(default_factory=Sum)
    classes: dict[int | None, Sum] = field(default_factory=dict)
    namespaces: dict[str, Sum] = field(default_factory=dict)
    _heap: list[tuple[int, str, Versioned]] = field(default_factory=list)

    def add(self, value: Versioned) -> None:
        """Count one value. Only `limit` values are kept in memory."""
        size, raw_size = len(value.value), raw_size_of(value)
        if raw_size is None:
            self.unknown += 1
            raw_size = size
        bound = bisect_left(CLASSES, size)
        bucket = CLASSES[bound] if bound < len(CLASSES) else None
        for sums in (
            self.total,
            self.classes.setdefault(bucket, Sum()),
            self.namespaces.setdefault(namespace_of(value), Sum()),
        ):
            sums.add(size, raw_size)
        entry = (raw_size if self.by_raw else size, value.path, value)
        if len(self._heap) < self.limit:
            heapq.heappush(self._heap, entry)
        elif self.limit and entry[:2] > self._heap[0][:2]:
            heapq.heapreplace(self._heap, entry)

    def biggest(self) -> list[Versioned]:
        """List the biggest values, the biggest first."""
        return [value for _, _, value in sorted(self._heap, key=lambda entry: (-entry[0], entry[1]))]

    def document(self, source: str) -> TopDocument:
        """Convert everything to the JSON of `top`."""
        ordered = sorted(self.classes.items(), key=lambda item: (item[0] is None, item[0] or 0))
        fullest = sorted(self.namespaces.items(), key=lambda item: (-item[1].size, item[0]))
        return {
            "total": self.total.document(),
            "biggest": [describe(value, source) for value in self.biggest()],
            "histogram": [{"at_most": bound, **sums.document()} for bound, sums in ordered],
            "namespaces": [{"namespace": name, **sums.document()} for name, sums in fullest],
        }


def measure(
    values: Iterable[Versioned],
    limit: int,
    *,
    by_raw: bool = False,
    advance: Callable[[int], None] = lambda count: None,
) -> Sizes:
    """Measure `values` and keep the `limit` biggest ones. `advance` is called for each value."""
    sizes = Sizes(limit, by_raw)
    for value in values:
        advance(1)
        sizes.add(value)
    return sizes


def raw_size_of(value: Versioned) -> int | None:
    """The size of a value after decompression: from its envelope, or its own. None if that is corrupt."""
    if not is_enveloped(value.value) or kind_of_path(value.path) not in ENVELOPED:
        return len(value.value)
    try:
        return read_header(value.value).raw_size
    except DecodeError:
        return None


def namespace_of(value: Versioned) -> str:
    """The namespace of a value that belongs to a topic, otherwise the first part of the path."""
    location = managed_place(value.path, value.value)
    return location[0].namespace_name if location else "/" + value.path.split("/")[1]


def describe(value: Versioned, source: str) -> BigValue:
    """Describe one of the biggest values."""
    decoded = decode_document(value.value, source=source, path=value.path)
    document = decoded.document
    envelope, size = document.get("envelope"), len(value.value)
    raw_size = raw_size_of(value)
    described: BigValue = {
        "path": value.path,
        "version": value.version,
        "kind": document["kind"],
        "codec": envelope["codec"] if envelope else None,
        "size": size,
        "raw_size": size if raw_size is None else raw_size,
        "holds": dict(_holds(document)),
    }
    location = managed_place(value.path, value.value)
    if location:
        described["name"] = " ".join(str(part) for part in location if part is not None)
    if decoded.error is not None:
        described["error"] = decoded.error.message
    return described


def _holds(document: Document) -> Iterator[tuple[str, int]]:
    meaning, value = document.get("meaning") or {}, document.get("value")
    for name in _EXPLAINS.get(document["kind"] or "", ()):
        if name in meaning:
            yield name, meaning[name]
    if isinstance(value, dict) and document["kind"] != "Json":
        for name, member in value.items():
            if isinstance(member, list) and member:
                yield name, len(member)
