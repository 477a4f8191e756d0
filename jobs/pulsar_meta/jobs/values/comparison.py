"""Compare two stores field by field, and show the history of one value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, NotRequired, TypedDict

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.snapshot_lines import Sums, SumsDocument
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.values.meanings import Difference, HistoryStep, Meanings, Report
from pulsar_meta.jobs.values.places import why_left_out
from pulsar_meta.jobs.values.remembered import Remembered
from pulsar_meta.stores.base import Change, Store, Versioned, is_immutable
from pulsar_meta.stores.snapshot import check_sums

# So many fields that differ are named, the rest is counted.
NAMED: Final = 12
_ABSENT: Final = object()


def history(
    store: Store, path: str, options: DecodeOptions, source: EntrySource | None, report: Report
) -> Iterator[HistoryStep]:
    """Yield a document for each change of the value at `path`, the oldest first.

    `change` is `known` (there before the history begins), `created`, `changed` or `removed`; `differences`
    has field, before and after; `means` as `Meanings`. With a `source` what a cursor's ledger says comes
    behind the change that put it in charge, as `step` with `ledger_id` and `entry_id`.

    Raises NotFoundError where the store knows of no value there, UsageError where it keeps no history.
    """
    before: Document | None = None
    found = False
    meanings = Meanings(store, path)
    for change in store.history(path):
        found = True
        after = _decoded(change, options)
        means = meanings.of(None if change.value is None else change.value.value)
        described = _described(path, change, before, after)
        if means is not None:
            described["means"] = means
        yield described
        if source is not None:
            yield from meanings.steps(source, report)
        before = after
    if not found:
        raise NotFoundError(f"nothing was ever at {path}, as far back as this goes", source=store.url)


def _decoded(change: Change, options: DecodeOptions) -> Document | None:
    held = change.value
    if held is None:
        return None
    return decode_document(held.value, source=held.path, path=held.path, options=options).document


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
    """Return the fields in which two decoded values differ, with what they were and are.

    Compared is what the values say (`value`) and their envelopes, not what is computed from them.
    """
    found: list[Difference] = []
    for part in ("kind", "envelope", "value"):
        found += _differing(part, before.get(part, _ABSENT), after.get(part, _ABSENT))
    return found


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
        one = before[at] if at < len(before) else _ABSENT
        two = after[at] if at < len(after) else _ABSENT
        yield from _differing(f"{field}[{at}]", one, two)


def _shown(value: Any) -> Any:
    return None if value is _ABSENT else value


class Terms(NamedTuple):
    """What counts as a difference, and how values are shown.

    `bytes`: other bytes with the same meaning do. `versions`: other versions do. `ephemeral`: values that
    live as long as a session are compared. `parents`: so are empty values, as some stores make above others.
    `brokers`: and what is no part of a copy, since sessions, brokers and bookies make it by themselves.
    """

    bytes: bool = False
    versions: bool = False
    ephemeral: bool = True
    parents: bool = True
    brokers: bool = True
    options: DecodeOptions = DecodeOptions()

    def compares(self, held: Versioned) -> bool:
        """Return whether a value is looked at at all."""
        wanted = (self.ephemeral or not held.ephemeral) and (self.parents or bool(held.value))
        return wanted and (self.brokers or why_left_out(held) is None)


class Side(TypedDict):
    """What one of two stores has at a path; `size` is in bytes."""

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
    """The sums of both stores over everything that they have."""

    left: SumsDocument
    right: SumsDocument


@dataclass(slots=True)
class Compared:
    """Counts of paths by what came out, and the sums of both stores over everything that they have."""

    equal: int = 0
    same_meaning: int = 0
    different: int = 0
    only_left: int = 0
    only_right: int = 0
    left_out: int = 0
    sums: tuple[Sums, Sums] = field(default_factory=lambda: (Sums(), Sums()))

    def both_sums(self) -> BothSums:
        """Return the sums of both sides as they are printed."""
        left, right = self.sums
        return {"left": left.document(), "right": right.document()}

    @property
    def differ(self) -> bool:
        """Whether anything that was compared is not alike."""
        return bool(self.different or self.only_left or self.only_right)


def compare(left: Store, right: Store, terms: Terms, compared: Compared) -> Iterator[StoreDifference]:
    """Yield a document for each path where the stores differ, counting all in `compared`.

    A live store is asked again before a difference is reported. What the left one has is kept on disk
    meanwhile (TMPDIR). DecodeError where a snapshot's values are not those that its foot sums up.
    """
    with Remembered() as held:
        held.add(_scanned(left, terms, compared, 0))
        for value in _scanned(right, terms, compared, 1):
            other = held.take(value.path)
            yield from _judged(left, right, other, value, terms, compared)
        for value in held:
            yield from _judged(left, right, value, None, terms, compared)


def _scanned(store: Store, terms: Terms, compared: Compared, side: int) -> Iterator[Versioned]:
    sums = compared.sums[side]
    for value in store.scan():
        sums.add(value.path, value.value, ephemeral=value.ephemeral)
        if terms.compares(value):
            yield value
        else:
            compared.left_out += 1
    check_sums(store, sums)


def _judged(
    left: Store,
    right: Store,
    one: Versioned | None,
    two: Versioned | None,
    terms: Terms,
    compared: Compared,
) -> Iterator[StoreDifference]:
    """Count a path, and yield its document where the sides differ, also when they are read once more."""
    found = _difference(one, two, terms, compared)
    if found is not None:
        path = found["path"]
        found = _difference(_now(left, path, one, terms), _now(right, path, two, terms), terms, compared)
    if found is not None:
        count = {"only-left": "only_left", "only-right": "only_right"}.get(found["change"], "different")
        setattr(compared, count, getattr(compared, count) + 1)
        yield found


def _now(store: Store, path: str, held: Versioned | None, terms: Terms) -> Versioned | None:
    """Return what a live store has there now; of a copy, what it had."""
    if is_immutable(store):
        return held
    try:
        found = store.read(path)
    except NotFoundError:
        return None
    return found if terms.compares(found) else None


def _difference(
    one: Versioned | None, two: Versioned | None, terms: Terms, compared: Compared
) -> StoreDifference | None:
    """Return the document of a path; None, counted, where both sides are alike."""
    if one is None or two is None:
        return _document(one, two, []) if one or two else None
    versions = terms.versions and one.version != two.version
    if one.value == two.value and not versions:
        compared.equal += 1
        return None
    found = (
        []
        if one.value == two.value
        else differences(*(_decoded_difference(each, terms) for each in (one, two)))
    )
    if versions:
        found.append({"field": "version", "before": one.version, "after": two.version})
    if not found and not terms.bytes:
        compared.same_meaning += 1
        return None
    return _document(one, two, found)


def _decoded_difference(held: Versioned, terms: Terms) -> Document:
    return decode_document(held.value, source=held.path, path=held.path, options=terms.options).document


def _document(one: Versioned | None, two: Versioned | None, found: list[Difference]) -> StoreDifference:
    path = (one or two or _NOTHING).path
    document: StoreDifference = {
        "path": path,
        "change": "different" if one and two else "only-left" if one else "only-right",
        "differences": found,
    }
    place = managed_place(path, (one or two or _NOTHING).value)
    if place is not None:
        document["topic"] = str(place[0])
        if place[1] is not None:
            document["cursor"] = place[1]
    if one is not None:
        document["left"] = {"version": one.version, "size": len(one.value)}
    if two is not None:
        document["right"] = {"version": two.version, "size": len(two.value)}
    return document


_NOTHING: Final = Versioned("", b"", 0)
