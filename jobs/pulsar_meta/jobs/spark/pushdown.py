"""Which topics, ledgers and entries a query's filters leave.

The filters stay with Spark, which looks at every row; here they only spare reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Numbers within [low, high]; of `chosen` only, where that is not None."""

    low: int = 0
    high: int = HIGHEST
    chosen: frozenset[int] | None = None

    def holds(self, number: int) -> bool:
        """Return whether a number is within them."""
        return self.low <= number <= self.high and (self.chosen is None or number in self.chosen)

    def narrowed(self, kind: str, value: Any) -> Bounds:
        """Return the bounds after one filter, by the name of its class in pyspark.sql.datasource."""
        match kind:
            case "EqualTo" | "EqualNullSafe" if value is not None:
                return self._only({int(value)})
            case "In":
                return self._only({int(one) for one in value if one is not None})
            case "GreaterThan":
                return replace(self, low=max(self.low, int(value) + 1))
            case "GreaterThanOrEqual":
                return replace(self, low=max(self.low, int(value)))
            case "LessThan":
                return replace(self, high=min(self.high, int(value) - 1))
            case "LessThanOrEqual":
                return replace(self, high=min(self.high, int(value)))
        return self

    def _only(self, values: set[int]) -> Bounds:
        chosen = frozenset(values if self.chosen is None else self.chosen & values)
        low, high = min(chosen, default=1), max(chosen, default=0)
        return Bounds(max(self.low, low), min(self.high, high), chosen)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a query can need; `topics` and `keys` None for all."""

    ledgers: Bounds = Bounds()
    entries: Bounds = Bounds()
    topics: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    index: Bounds = Bounds()


def wanted_by(filters: Iterable[Any]) -> Wanted:
    """Return what all `filters` (pyspark.sql.datasource.Filter) together leave."""
    wanted = Wanted()
    for one in filters:
        name, kind, value = getattr(one, "attribute", ()), type(one).__name__, getattr(one, "value", None)
        if name == ("ledger_id",):
            wanted = replace(wanted, ledgers=wanted.ledgers.narrowed(kind, value))
        elif name == ("entry_id",):
            wanted = replace(wanted, entries=wanted.entries.narrowed(kind, value))
        elif name == ("index",):
            wanted = replace(wanted, index=wanted.index.narrowed(kind, value))
        elif kind in ("EqualTo", "EqualNullSafe", "In") and value is not None:
            named = frozenset(value if kind == "In" else {value})
            if name == ("topic",):
                wanted = replace(wanted, topics=named if wanted.topics is None else wanted.topics & named)
            elif name == ("key",):
                wanted = replace(wanted, keys=named if wanted.keys is None else wanted.keys & named)
    return wanted
