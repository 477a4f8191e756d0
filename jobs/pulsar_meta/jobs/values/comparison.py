"""Compare two stores field by field, and show the history of one value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, NotRequired, TypedDict

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.envelope import managed_place
from pulsar_meta.codecs.snapshot_lines import Sums, SumsDocument
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.spill import DiskMap
from pulsar_meta.jobs.values.meanings import Difference, HistoryStep, Meanings, Report
from pulsar_meta.jobs.values.places import why_left_out
from pulsar_meta.stores.base import Change, Store, Versioned, is_immutable
from pulsar_meta.stores.snapshot import check_sums

# At most this many different fields are listed; the others are counted.
NAMED: Final = 12
_ABSENT: Final = object()


def history(
    store: Store, path: str, options: DecodeOptions, source: EntrySource | None, report: Report
) -> Iterator[HistoryStep]:
    """Yield each change of the value at `path`, the oldest first.

    `change` is `known` (the value existed before the history begins), `created`, `changed` or `removed`.
    `differences` has the field, its old and its new value, and `means` is explained in `Meanings`. With a
    `source`, the entries of a cursor's ledger follow the change that made it the state ledger, as `step` with
    `ledger_id` and `entry_id`.

    Raises NotFoundError if the history has no value at `path`, UsageError if the store keeps no history.
    """
    before: Document | None = None
    existed = False
    meanings = Meanings(store, path)
    for change in store.history(path):
        existed = True
        after = None if change.value is None else _decoded_value(change.value, options)
        means = meanings.of(None if change.value is None else change.value.value)
        described = _described(path, change, before, after)
        if means is not None:
            described["means"] = means
        yield described
        if source is not None:
            yield from meanings.steps(source, report)
        before = after
    if not existed:
        raise NotFoundError(f"there was no value at {path} in the recorded history", source=store.url)


def _decoded_value(value: Versioned, options: DecodeOptions) -> Document:
    return decode_document(value.value, source=value.path, path=value.path, options=options).document


def _described(path: str, change: Change, before: Document | None, after: Document | None) -> HistoryStep:
    document: HistoryStep = {
        "path": path,
        "transaction": change.transaction,
        "change": _kind(change, before),
        "differences": differences(before, after) if before and after else [],
    }
    if change.time is not None:
        document["time"] = iso_time(change.time)
    if change.writer is not None:
        document["writer"] = change.writer
    if change.value is not None:
        document |= {"version": change.value.version, "size": len(change.value.value)}
    return document


def _kind(change: Change, before: Document | None) -> Literal["known", "removed", "created", "changed"]:
    if change.first:
        return "known"
    if change.value is None:
        return "removed"
    return "created" if before is None else "changed"


def differences(before: Document, after: Document) -> list[Difference]:
    """List the fields in which two decoded values differ, with their old and new contents.

    The decoded values and their envelopes are compared, but not fields that are computed from them.
    """
    fields: list[Difference] = []
    for part in ("kind", "envelope", "value"):
        fields += _differing(part, before.get(part, _ABSENT), after.get(part, _ABSENT))
    return fields


def _differing(field: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before | after:
            yield from _differing(f"{field}.{name}", before.get(name, _ABSENT), after.get(name, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _differing_items(field, before, after)
    elif before != after:
        yield {"field": field, "before": _shown(before), "after": _shown(after)}


def _differing_items(field: str, before: list[Any], after: list[Any]) -> Iterator[Difference]:
    for at in range(max(len(before), len(after))):
        old = before[at] if at < len(before) else _ABSENT
        new = after[at] if at < len(after) else _ABSENT
        yield from _differing(f"{field}[{at}]", old, new)


def _shown(value: Any) -> Any:
    return None if value is _ABSENT else value


class Terms(NamedTuple):
    """What counts as a difference, and how values are shown.

    `bytes`: different bytes with the same meaning count. `versions`: different versions count. `ephemeral`:
    values that belong to a session are compared. `parents`: empty values are compared, which some stores
    create as parents. `brokers`: values that brokers, bookies and sessions create themselves are compared.
    """

    bytes: bool = False
    versions: bool = False
    ephemeral: bool = True
    parents: bool = True
    brokers: bool = True
    options: DecodeOptions = DecodeOptions()

    def compares(self, value: Versioned) -> bool:
        """True if a value is compared."""
        wanted = (self.ephemeral or not value.ephemeral) and (self.parents or bool(value.value))
        return wanted and (self.brokers or why_left_out(value) is None)


class Side(TypedDict):
    """The value of one of the stores at a path. `size` is in bytes."""

    version: int
    size: int


class StoreDifference(TypedDict):
    """A path at which two stores differ."""

    path: str
    topic: NotRequired[str]
    cursor: NotRequired[str]
    change: Literal["only-left", "only-right", "different"]
    left: NotRequired[Side]
    right: NotRequired[Side]
    differences: list[Difference]


class BothSums(TypedDict):
    """The sums of both stores over all their values."""

    left: SumsDocument
    right: SumsDocument


@dataclass(slots=True)
class Compared:
    """The number of paths per result, and the sums of both stores over all their values."""

    equal: int = 0
    same_meaning: int = 0
    different: int = 0
    only_left: int = 0
    only_right: int = 0
    left_out: int = 0
    sums: tuple[Sums, Sums] = field(default_factory=lambda: (Sums(), Sums()))

    def both_sums(self) -> BothSums:
        """Convert the sums of both sides to JSON."""
        left, right = self.sums
        return {"left": left.document(), "right": right.document()}

    @property
    def differ(self) -> bool:
        """True if there is any difference."""
        return bool(self.different or self.only_left or self.only_right)


def compare(left: Store, right: Store, terms: Terms, compared: Compared) -> Iterator[StoreDifference]:
    """Yield the paths where two stores differ, and count all paths in `compared`.

    Before a difference is reported, live stores are read again. The left store's values are kept on disk
    (TMPDIR) meanwhile. Raises DecodeError if the values of a snapshot don't match the sums in its footer.
    """
    with DiskMap() as left_values:
        left_values.add(_scanned(left, terms, compared, 0))
        for value in _scanned(right, terms, compared, 1):
            yield from _compared(left, right, left_values.pop(value.path), value, terms, compared)
        for value in left_values:
            yield from _compared(left, right, value, None, terms, compared)


def _scanned(store: Store, terms: Terms, compared: Compared, side: int) -> Iterator[Versioned]:
    sums = compared.sums[side]
    for value in store.scan():
        sums.add(value.path, value.value, ephemeral=value.ephemeral)
        if terms.compares(value):
            yield value
        else:
            compared.left_out += 1
    check_sums(store, sums)


def _compared(
    left: Store,
    right: Store,
    old: Versioned | None,
    new: Versioned | None,
    terms: Terms,
    compared: Compared,
) -> Iterator[StoreDifference]:
    """Count a path, and yield its difference if it persists when live stores are read again."""
    difference = _difference(old, new, terms, compared)
    if difference is not None:
        path = difference["path"]
        old, new = _now(left, path, old, terms), _now(right, path, new, terms)
        difference = _difference(old, new, terms, compared)
    if difference is not None:
        count = {"only-left": "only_left", "only-right": "only_right"}.get(difference["change"], "different")
        setattr(compared, count, getattr(compared, count) + 1)
        yield difference


def _now(store: Store, path: str, before: Versioned | None, terms: Terms) -> Versioned | None:
    """Read a value of a live store again. A copy does not change."""
    if is_immutable(store):
        return before
    value = store.find(path)
    return value if value is not None and terms.compares(value) else None


def _difference(
    left: Versioned | None, right: Versioned | None, terms: Terms, compared: Compared
) -> StoreDifference | None:
    """Compare the values at a path; equal values are counted and give None."""
    if left is None or right is None:
        return _document(left, right, []) if left or right else None
    versions = terms.versions and left.version != right.version
    if left.value == right.value and not versions:
        compared.equal += 1
        return None
    fields = list[Difference]()
    if left.value != right.value:
        fields = differences(*(_decoded_value(value, terms.options) for value in (left, right)))
    if versions:
        fields.append({"field": "version", "before": left.version, "after": right.version})
    if not fields and not terms.bytes:
        compared.same_meaning += 1
        return None
    return _document(left, right, fields)


def _document(left: Versioned | None, right: Versioned | None, fields: list[Difference]) -> StoreDifference:
    value = left or right
    assert value is not None
    document: StoreDifference = {
        "path": value.path,
        "change": "different" if left and right else "only-left" if left else "only-right",
        "differences": fields,
    }
    place = managed_place(value.path, value.value)
    if place is not None:
        document["topic"] = str(place[0])
        if place[1] is not None:
            document["cursor"] = place[1]
    if left is not None:
        document["left"] = {"version": left.version, "size": len(left.value)}
    if right is not None:
        document["right"] = {"version": right.version, "size": len(right.value)}
    return document
