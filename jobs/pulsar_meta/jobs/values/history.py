"""What became of a value: its changes one after the other, each with what it means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.values.meanings import Difference, HistoryStep, Meanings, Report
from pulsar_meta.stores.base import Change, Store

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
