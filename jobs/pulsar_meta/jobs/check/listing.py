"""What BookKeeper's own metadata says, of all ledgers at once: a few numbers for each, no object.

Sources: apache/bookkeeper ZKRegistrationManager (cookies, available).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_of_path
from pulsar_meta.jobs.check.facts import (
    ABSENT,
    BROKEN,
    STATES,
    UNREAD,
    Created,
    FactsOf,
    LedgerFacts,
    Members,
    facts_of,
    mark_of,
)
from pulsar_meta.jobs.check.rooms import IN_MEMORY, room_for
from pulsar_meta.jobs.topics.owners import COMPACTION
from pulsar_meta.stores.base import Versioned

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COOKIES: Final = f"{LEDGERS}/cookies/"
AVAILABLE: Final = f"{LEDGERS}/available/"
KEPT: Final = (COOKIES, AVAILABLE, f"{LEDGERS}/INSTANCEID", f"{LEDGERS}/LAYOUT")
# What a ledger was created for, by number.
ROLES: Final = ("", "other", "data", "cursor", "compacted", "delayed-index-bucket", "schema")
_ROLES: Final = {name: number for number, name in enumerate(ROLES)}
_STATES: Final = {name: number for number, name in enumerate(STATES)}
_NO_END: Final = -2
# Columns: what a ledger is; then the marks in their order, and whose they are.
_ID, _LAST, _CREATED, _MARK, _PLACE, _MARKS, _BY_MARK = range(7)
_OWN: Final = 5


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What `/ledgers` has beside ledgers; `newest` is the newest time that the store noted there, in ms."""

    other: dict[str, Versioned] = field(default_factory=dict)
    newest: int | None = None

    @property
    def cookies(self) -> frozenset[str]:
        """The ids of the bookies that ever registered."""
        return frozenset(path.removeprefix(COOKIES) for path in self.other if path.startswith(COOKIES))

    @property
    def registered(self) -> frozenset[str]:
        """The ids of the bookies that are registered: they were alive."""
        paths = (path.removeprefix(AVAILABLE) for path in self.other if path.startswith(AVAILABLE))
        return frozenset(one.removeprefix("readonly/") for one in paths) - {"readonly"}


@dataclass(frozen=True, slots=True)
class Listing:
    """All ledgers, bookies and what else `/ledgers` has, as it was while it was listed.

    `columns` are 56 bytes a ledger, in the order of the ids; of many they lie in a file. `broken` has the
    metadata that cannot be read, by ledger; `bookies` the sets of bookies that ledgers lie on, by number.
    """

    columns: NDArray[np.int64]
    bookies: list[Members]
    broken: dict[int, DecodeError]
    around: Surroundings

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids of the ledgers whose metadata can be read, in order."""
        return self._column(_ID)

    @property
    def states(self) -> NDArray[np.int64]:
        """Their states, as numbers in STATES."""
        return self._column(_PLACE) >> 8 & 0xFF

    @property
    def empty(self) -> bool:
        """Whether the store has no ledger's metadata: BookKeeper may keep it elsewhere."""
        return not len(self) and not self.broken

    def facts(self, ledger_id: int) -> LedgerFacts:
        """Return what the listing has of a ledger; all that it has not got is absent."""
        ids = self.columns[_ID]
        at = int(ids.searchsorted(ledger_id))
        if at < len(ids) and ids[at] == ledger_id:
            return self._facts_at(at)
        if ledger_id in self.broken:
            return BROKEN
        return ABSENT if not self.empty else UNREAD

    def several(self, ledger_ids: Iterable[int]) -> FactsOf:
        """Return what knows all ledgers."""
        return self.facts

    def created(self, name: TopicName, listed: bool = False) -> Created:
        """Return what was created for a topic."""
        text = str(name)
        wanted = mark_of("data", text), mark_of("compacted", text, COMPACTION)
        first = self.columns[_MARKS].searchsorted(wanted).tolist()
        return Created(*map(self._owned_from, first, wanted))

    def owned(self, mark: int) -> list[int]:
        """Return the ids of the ledgers that were created for the owner with this mark, in order."""
        return self._owned_from(int(self.columns[_MARKS].searchsorted(mark)), mark)

    def _owned_from(self, first: int, mark: int) -> list[int]:
        marks, last = self.columns[_MARKS], first
        while last < len(marks) and marks[last] == mark:
            last += 1
        return sorted(self.columns[_ID][self.columns[_BY_MARK][first:last]].tolist()) if last > first else []

    def data_owners(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the marks of all for whom ledgers with data were created, and a ledger of each."""
        import numpy as np

        marks, by_mark = self.columns[_MARKS], self.columns[_BY_MARK]
        first = np.flatnonzero(np.diff(marks, prepend=marks[:1] - 1))
        first = first[self.columns[_PLACE][by_mark[first]] & 0xFF == ROLES.index("data")]
        return marks[first], self.columns[_ID][by_mark[first]]

    def ensembles(self) -> Iterator[tuple[Members, NDArray[np.int64]]]:
        """Yield each set of bookies that ledgers lie on, and the ids of these ledgers."""
        numbers = self.columns[_PLACE] >> 16
        for number, members in enumerate(self.bookies):
            yield members, self.columns[_ID][numbers == number]

    def _column(self, number: int) -> NDArray[np.int64]:
        column: NDArray[np.int64] = self.columns[number]
        return column

    def _facts_at(self, at: int) -> LedgerFacts:
        _, last, created, mark, place = self.columns[:_OWN, at].tolist()
        return LedgerFacts(
            "known",
            STATES[place >> 8 & 0xFF],
            None if last == _NO_END else last,
            0,
            ROLES[place & 0xFF],
            mark,
            created if created > 0 else None,
            self.bookies[place >> 16],
        )


class _Rows:
    """Ledgers as they are listed, in whatever order; many of them wait in files."""

    def __init__(self) -> None:
        self._columns = [array("q") for _ in range(_OWN)]
        self._parts: list[list[NDArray[np.int64]]] = [[] for _ in range(_OWN)]
        self._numbers: dict[Members, int] = {}

    def add(self, ledger_id: int, facts: LedgerFacts) -> None:
        number = self._numbers.setdefault(facts.bookies, len(self._numbers))
        ids, lasts, created, marks, places = self._columns
        ids.append(ledger_id)
        lasts.append(_NO_END if facts.last_entry is None else facts.last_entry)
        created.append(facts.created or 0)
        marks.append(facts.mark)
        places.append(number << 16 | _STATES[facts.state] << 8 | _ROLES[facts.role])
        if _OWN * len(ids) > IN_MEMORY:
            self._put_away()

    def taken(self, broken: dict[int, DecodeError], around: Surroundings) -> Listing:
        self._put_away()
        return Listing(_ordered(self._parts), list(self._numbers), broken, around)

    def _put_away(self) -> None:
        room = room_for(_OWN, len(self._columns[_ID]))
        for number, column in enumerate(self._columns):
            room[number] = column
            self._parts[number].append(room[number])
        self._columns = [array("q") for _ in range(_OWN)]


def list_ledgers(
    records: Iterable[Versioned], advance: Callable[[int], None] = lambda count: None
) -> Listing:
    """Return what `records` say, which are those below `/ledgers` or a part of them."""
    rows, broken, other = _Rows(), dict[int, DecodeError](), dict[str, Versioned]()
    newest = 0
    for record in records:
        advance(1)
        path, _, _, created, modified, _ = record
        newest = max(newest, modified or 0, created or 0)
        ledger_id = ledger_of_path(path)
        if ledger_id is None:
            if path.startswith(KEPT):
                other[path] = record
            continue
        try:
            facts = facts_of(ledger_id, record)
        except DecodeError as error:
            broken[ledger_id] = error
            continue
        newest = max(newest, facts.created or 0)
        rows.add(ledger_id, facts)
    return rows.taken(broken, Surroundings(other, newest or None))


def joined(parts: Iterable[Listing]) -> Listing:
    """Return one listing of several that have different ledgers."""
    import numpy as np

    numbers: dict[Members, int] = {}
    broken, other, newest = dict[int, DecodeError](), dict[str, Versioned](), 0
    columns: list[list[NDArray[np.int64]]] = [[] for _ in range(_OWN)]
    for part in parts:
        own = part.columns[:_OWN]
        renumbered = np.array([numbers.setdefault(one, len(numbers)) for one in part.bookies], np.int64)
        if len(part):
            own[_PLACE] = renumbered[own[_PLACE] >> 16] << 16 | own[_PLACE] & 0xFFFF
        for found, column in zip(columns, own, strict=True):
            found.append(column)
        broken |= part.broken
        other |= part.around.other
        newest = max(newest, part.around.newest or 0)
    return Listing(_ordered(columns), list(numbers), broken, Surroundings(other, newest or None))


def _ordered(columns: list[list[NDArray[np.int64]]]) -> NDArray[np.int64]:
    """Return the columns of a listing from parts of its own ones, which are let go of one by one."""
    import numpy as np

    count = sum(map(len, columns[_ID]))
    made = room_for(_BY_MARK + 1, count)
    for number in range(_OWN):
        at = 0
        for part in columns[number]:
            made[number, at : at + len(part)] = part
            at += len(part)
        columns[number] = []
    if (made[_ID, 1:] < made[_ID, :-1]).any():
        order = np.argsort(made[_ID], kind="stable")
        for number in range(_OWN):
            made[number] = made[number][order]
    made[_BY_MARK] = np.argsort(made[_MARK], kind="stable")
    made[_MARKS] = made[_MARK][made[_BY_MARK]]
    return made
