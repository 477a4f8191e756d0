"""What each codec would make of the values of a scope, without writing any."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NotRequired, TypedDict

from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.jobs.rewrite.rules import Recompression
from pulsar_meta.stores.base import Versioned

By = Literal["tenant", "namespace"]


@dataclass(slots=True)
class _Row:
    values: int = 0
    rewritten: int = 0
    undecodable: int = 0
    under_threshold: int = 0
    unreadable: int = 0
    before: int = 0
    after: int = 0
    seconds: float = 0.0


class Estimate(TypedDict):
    """What packing by a codec would bring; `seconds` is the time that it took here."""

    tenant: NotRequired[str]
    namespace: NotRequired[str]
    codec: str
    values: int
    rewritten: int
    undecodable: int
    under_threshold: int
    unreadable: int
    bytes_before: int
    bytes_after: int
    ratio: float | None
    seconds: float


def estimate(values: Iterable[Versioned], rule: Recompression, by: By | None = None) -> Iterator[Estimate]:
    """Yield a document for each codec (and tenant or namespace), after one pass over the values.

    `rewritten` values would change; of those left alone `under_threshold` are no larger than the rule's
    threshold, and `unreadable` ones may not be loaded by brokers with that codec. Bytes are of all values as
    stored before and after; `seconds` is the time that packing took here.
    """
    rules = {codec: replace(rule, codec=codec) for codec in CODECS}
    rows: dict[tuple[str, str], _Row] = {}
    for value in values:
        group = _group(value, by)
        for codec, each in rules.items():
            _add(rows.setdefault((group, codec), _Row()), value, each)
    for (group, codec), row in sorted(rows.items(), key=lambda item: (item[0][0], CODECS.index(item[0][1]))):
        yield _document(group, codec, row, by)


def _group(value: Versioned, by: By | None) -> str:
    place = managed_place(value.path, value.value)
    if by is None or place is None:
        return ""
    return place[0].tenant if by == "tenant" else place[0].namespace_name


def _add(row: _Row, value: Versioned, rule: Recompression) -> None:
    begun = time.perf_counter()
    decision = rule(value)
    row.seconds += time.perf_counter() - begun
    row.values += 1
    row.rewritten += decision.action == "rewrite"
    row.undecodable += decision.action == "skip"
    row.under_threshold += decision.reason == "threshold"
    row.unreadable += decision.reason in ("properties", "unreadable")
    row.before += decision.size_before
    row.after += decision.size_after


def _document(group: str, codec: str, row: _Row, by: By | None) -> Estimate:
    document: Estimate = {
        "codec": codec,
        "values": row.values,
        "rewritten": row.rewritten,
        "undecodable": row.undecodable,
        "under_threshold": row.under_threshold,
        "unreadable": row.unreadable,
        "bytes_before": row.before,
        "bytes_after": row.after,
        "ratio": round(row.before / row.after, 2) if row.after else None,
        "seconds": round(row.seconds, 3),
    }
    if by is not None:
        document[by] = group
    return document
