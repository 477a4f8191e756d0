"""The pass over values that are no topic's: below /admin, and schemas."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.check.facts import Ledgers, mark_of
from pulsar_meta.jobs.check.records import PARTITIONED, value_findings
from pulsar_meta.jobs.check.schemas import schema_ledgers
from pulsar_meta.jobs.check.seen import Seen
from pulsar_meta.jobs.check.sight import Cluster
from pulsar_meta.jobs.topics.owners import SCHEMAS, named_by
from pulsar_meta.jobs.topics.shadow import names_source
from pulsar_meta.stores.base import Store, Versioned

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ADMIN: Final = "/admin"


class Partitions:
    """How many partitions topics have, 16 bytes each.

    `shadows` are the metadata of those that may be shadows, by path.
    """

    def __init__(
        self, counts: NDArray[np.int64] | None = None, shadows: dict[str, bytes] | None = None
    ) -> None:
        self._marks, self._numbers = array("q"), array("q")
        self._counts = counts
        self.shadows = {} if shadows is None else shadows

    def note(self, record: Versioned) -> None:
        """Take a value below /admin; a broken one has 0 partitions."""
        if not record.value or not record.path.startswith(PARTITIONED):
            return
        if names_source(record.value):
            self.shadows[record.path] = record.value
        count = None
        with suppress(DecodeError):
            count = read_json_object(record.value).get("partitions")
        if count != 0:
            self._marks.append(_mark(record.path))
            self._numbers.append(count if type(count) is int else 0)

    def merge(self, other: Partitions) -> None:
        """Take what another part has; not once it was asked."""
        self._marks += other._marks
        self._numbers += other._numbers
        self.shadows |= other.shadows

    def of(self, name: TopicName) -> int | None:
        """Return how many partitions the topic has that `name` is one of; None where there is no record."""
        base = name.partitioned
        if base is None:
            return None
        marks, numbers = self.ordered()
        mark = _mark(base.partitioned_path)
        at = int(marks.searchsorted(mark))
        return int(numbers[at]) if at < len(marks) and marks[at] == mark else None

    def ordered(self) -> NDArray[np.int64]:
        """Return the marks of their paths, in order, and a row of their numbers: all have come."""
        import numpy as np

        if self._counts is None:
            rows = np.array([self._marks, self._numbers], np.int64)
            self._counts = rows[:, np.argsort(rows[0], kind="stable")]
            self._marks, self._numbers = array("q"), array("q")
        return self._counts


def _mark(path: str) -> int:
    return mark_of("data", path)


@dataclass(slots=True)
class ValuePass:
    """A pass over some values; `ledgers` is None where schemas are not among them."""

    store: Store
    cluster: Cluster
    seen: Seen
    ledgers: Ledgers | None = None
    partitions: Partitions = field(default_factory=Partitions)
    advance: Callable[[int], None] = lambda count: None

    def findings(self, records: Iterable[Versioned]) -> Iterator[Finding]:
        """Yield what is wrong with some values."""
        for record in records:
            self.advance(1)
            self.seen.namespaces.note(record.path, record.value)
            self.partitions.note(record)
            found = list(value_findings(record, self.cluster))
            if found and self._still(record):
                yield from found
            if record.path.startswith(f"{SCHEMAS}/") and self.ledgers is not None:
                yield from self._schema(record, self.ledgers)

    def _schema(self, record: Versioned, ledgers: Ledgers) -> Iterator[Finding]:
        self.seen.checked["schemas"] += 1
        owners = []
        with suppress(DecodeError):
            owners = list(named_by(record, None, lambda path, why: None))
        self.seen.named.extend(owner.ledger_id for owner in owners)
        if self.cluster.bookkeeper:
            facts = ledgers.several([owner.ledger_id for owner in owners])
            yield from schema_ledgers(record.path, owners, self.store, facts)

    def _still(self, record: Versioned) -> bool:
        """Return whether a record is as it was, and no parent that only looks like a record."""
        with suppress(NotFoundError):
            again = self.store.read(record.path)
            return again.value == record.value and (
                again.value != b"" or not self.store.children(record.path)
            )
        return False
