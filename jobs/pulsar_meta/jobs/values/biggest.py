"""Which values of a store are big, what they hold, and how sizes are spread."""

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
from pulsar_meta.codecs.metadata.envelope import is_enveloped, read_header
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.stores.base import Versioned

# Upper bounds in bytes; a request over the last but one is over ZooKeeper's default limit (jute.maxbuffer).
CLASSES: Final = (0, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
# What of a value's meaning explains why it is big.
_EXPLAINS: Final = {
    "ManagedLedgerInfo": ("ledger_count", "entries"),
    "ManagedCursorInfo": ("acked_ranges", "acked_entries"),
}


class SumDocument(TypedDict):
    """How many values, their stored bytes, and the bytes they unpack to."""

    count: int
    size: int
    raw_size: int


class SizeClass(SumDocument):
    """Values of at most so many bytes; null: of more than the largest class."""

    at_most: int | None


class NamespaceSum(SumDocument):
    """The values of a namespace; of what belongs to none the first part of their paths."""

    namespace: str


class BigValue(TypedDict):
    """One of the biggest values, with counts of what it holds."""

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
    """The answer of `top`."""

    total: SumDocument
    biggest: list[BigValue]
    histogram: list[SizeClass]
    namespaces: list[NamespaceSum]


@dataclass(slots=True)
class Sum:
    """How many values, their stored bytes, and the bytes they unpack to."""

    count: int = 0
    size: int = 0
    raw_size: int = 0

    def add(self, size: int, raw_size: int) -> None:
        """Count one value."""
        self.count += 1
        self.size += size
        self.raw_size += raw_size

    def document(self) -> SumDocument:
        """Return the sums by name."""
        return {"count": self.count, "size": self.size, "raw_size": self.raw_size}


@dataclass(slots=True)
class Sizes:
    """The biggest values seen and the sums of all, by class of size and by namespace."""

    limit: int
    by_raw: bool = False
    total: Sum = field(default_factory=Sum)
    classes: dict[int | None, Sum] = field(default_factory=dict)
    namespaces: dict[str, Sum] = field(default_factory=dict)
    _heap: list[tuple[int, str, Versioned]] = field(default_factory=list)

    def add(self, held: Versioned) -> None:
        """Count one value; memory grows with `limit` only."""
        size, raw_size = len(held.value), raw_size_of(held)
        bound = bisect_left(CLASSES, size)
        bucket = CLASSES[bound] if bound < len(CLASSES) else None
        for sums in (
            self.total,
            self.classes.setdefault(bucket, Sum()),
            self.namespaces.setdefault(namespace_of(held), Sum()),
        ):
            sums.add(size, raw_size)
        entry = (raw_size if self.by_raw else size, held.path, held)
        if len(self._heap) < self.limit:
            heapq.heappush(self._heap, entry)
        elif self.limit and entry[:2] > self._heap[0][:2]:
            heapq.heapreplace(self._heap, entry)

    def biggest(self) -> list[Versioned]:
        """Return the biggest values, the biggest first."""
        return [held for _, _, held in sorted(self._heap, key=lambda entry: (-entry[0], entry[1]))]

    def document(self, source: str) -> TopDocument:
        """Return everything as `top` answers it."""
        ordered = sorted(self.classes.items(), key=lambda item: (item[0] is None, item[0] or 0))
        fullest = sorted(self.namespaces.items(), key=lambda item: (-item[1].size, item[0]))
        return {
            "total": self.total.document(),
            "biggest": [describe(held, source) for held in self.biggest()],
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
    """Return the sizes of `values`, of which the `limit` biggest are kept; `advance` is called for each."""
    sizes = Sizes(limit, by_raw)
    for held in values:
        advance(1)
        sizes.add(held)
    return sizes


def raw_size_of(held: Versioned) -> int:
    """Return the bytes that a value unpacks to according to its envelope, else its own."""
    if is_enveloped(held.value) and kind_of_path(held.path) in ENVELOPED:
        try:
            return read_header(held.value).raw_size
        except DecodeError:
            pass
    return len(held.value)


def namespace_of(held: Versioned) -> str:
    """Return `tenant/namespace` for what belongs to a topic, else the first part of the path."""
    location = managed_place(held.path, held.value)
    return location[0].namespace_name if location else "/" + held.path.split("/")[1]


def describe(held: Versioned, source: str) -> BigValue:
    """Return what is shown of one of the biggest values."""
    decoded = decode_document(held.value, source=source, path=held.path)
    document = decoded.document
    envelope = document.get("envelope")
    found: BigValue = {
        "path": held.path,
        "version": held.version,
        "kind": document["kind"],
        "codec": envelope["codec"] if envelope else None,
        "size": len(held.value),
        "raw_size": raw_size_of(held),
        "holds": dict(_holds(document)),
    }
    location = managed_place(held.path, held.value)
    if location:
        found["name"] = " ".join(str(part) for part in location if part is not None)
    if decoded.error is not None:
        found["error"] = decoded.error.message
    return found


def _holds(document: Document) -> Iterator[tuple[str, int]]:
    meaning, value = document.get("meaning") or {}, document.get("value")
    for name in _EXPLAINS.get(document["kind"] or "", ()):
        if name in meaning:
            yield name, meaning[name]
    if isinstance(value, dict) and document["kind"] != "Json":
        for name, member in value.items():
            if isinstance(member, list) and member:
                yield name, len(member)
