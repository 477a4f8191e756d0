"""BookKeeper's metadata of all ledgers as columns of numbers, or of single ledgers as they are needed.

Sources: apache/bookkeeper ZKRegistrationManager (cookies, available), AbstractZkLedgerManager
(isSpecialZnode, isLedgerParentNode, ledgerListToSet).
"""

from __future__ import annotations

import os
import re
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_of_path
from pulsar_meta.jobs.check.ledger_facts import (
    ABSENT,
    BROKEN,
    DIGESTS,
    LENGTHS,
    STATES,
    UNREAD,
    FactsOf,
    LedgerFacts,
    Members,
    OwnedLedgers,
    broken_metadata,
    facts_of,
    owner_hash,
    read_facts,
)
from pulsar_meta.jobs.topics.bookkeeper import newest_ledger
from pulsar_meta.jobs.topics.owners import COMPACTION
from pulsar_meta.stores.base import Store, Versioned, child_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COOKIES: Final = f"{LEDGERS}/cookies/"
AVAILABLE: Final = f"{LEDGERS}/available/"
OTHER_PATHS: Final = (COOKIES, AVAILABLE, f"{LEDGERS}/INSTANCEID", f"{LEDGERS}/LAYOUT")
# The paths below /ledgers that BookKeeper and Pulsar use, besides those of ledgers.
_KNOWN: Final = re.compile(
    f"{LEDGERS}/(LAYOUT|INSTANCEID"
    "|(available|cookies|underreplication|auditors|idgen|idgen-long|ID-[^/]*)(/.*)?)",
    re.DOTALL,
)
# The parents of ledgers, which are empty.
_PARENT: Final = re.compile(f"{LEDGERS}(/[0-9]{{2,3}}(/[0-9]{{4}}){{0,3}})?")
# The most unknown paths that are kept; the others are counted.
KEPT_UNKNOWN: Final = 10
# The roles of ledgers, by number.
ROLES: Final = ("", "other", "data", "cursor", "compacted", "delayed-index-bucket", "schema")
_ROLES: Final = {name: number for number, name in enumerate(ROLES)}
_DIGESTS: Final = {name: number for number, name in enumerate(DIGESTS)}
_STATES: Final = {name: number for number, name in enumerate(STATES)}
_NO_END: Final = -2
# Columns: five that describe a ledger, then the owners' hashes in order, and the row of each.
_ID, _LAST, _CREATED, _OWNER, _PLACE, _HASHES, _BY_HASH = range(7)
_OWN: Final = 5
# The bits in the column _PLACE: the role, the digest, the password, the state, the ensembles, the length.
_STATE_AT, _BOOKIES_AT, _LENGTH_AT = 8, 16, 48
_BOOKIES: Final = (1 << _LENGTH_AT) - (1 << _BOOKIES_AT)
# Arrays up to this length (8 bytes per number) stay in memory.
IN_MEMORY: Final = 1 << 20
# The number of ledgers that LazyLedgers keeps, those that it read last.
_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class BookieRecords:
    """The records below `/ledgers` that are not ledgers; `newest` is the newest time there, in ms.

    `unknown` are the first paths that neither BookKeeper nor Pulsar uses, `unknown_count` is their number.
    """

    other: dict[str, Versioned] = field(default_factory=dict)
    newest: int | None = None
    unknown: tuple[str, ...] = ()
    unknown_count: int = 0

    @property
    def cookies(self) -> frozenset[str]:
        """The ids of all bookies that ever registered."""
        return frozenset(path.removeprefix(COOKIES) for path in self.other if path.startswith(COOKIES))

    @property
    def registered(self) -> frozenset[str]:
        """The ids of the bookies that are registered as running."""
        paths = (path.removeprefix(AVAILABLE) for path in self.other if path.startswith(AVAILABLE))
        return frozenset(path.removeprefix("readonly/") for path in paths) - {"readonly"}


@dataclass(frozen=True, slots=True)
class LedgerIndex:
    """All ledgers of a store, and the other records below `/ledgers`, as they were during one scan.

    `columns` use 56 bytes per ledger, in the order of ids; if there are many, they are in a file. `broken`
    has the decoding error of each ledger whose metadata can't be read, `bookies` every distinct set of
    ensembles.
    """

    columns: NDArray[np.int64]
    bookies: list[Members]
    broken: dict[int, DecodeError]
    around: BookieRecords

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids of the ledgers whose metadata can be read, in order."""
        return self._column(_ID)

    @property
    def states(self) -> NDArray[np.int64]:
        """The states of these ledgers, as numbers in STATES."""
        return self._column(_PLACE) >> _STATE_AT & 0xFF

    @property
    def empty(self) -> bool:
        """True if the store has no metadata of ledgers at all; BookKeeper may keep it elsewhere."""
        return not len(self) and not self.broken

    def facts(self, ledger_id: int) -> LedgerFacts:
        """Return the facts about a ledger; a ledger that the index doesn't have is absent."""
        ids = self.columns[_ID]
        at = int(ids.searchsorted(ledger_id))
        if at < len(ids) and ids[at] == ledger_id:
            return self._facts_at(at)
        if ledger_id in self.broken:
            return BROKEN._replace(fault=self.broken[ledger_id].message)
        return ABSENT if not self.empty else UNREAD

    def lookup(self, ledger_ids: Iterable[int]) -> FactsOf:
        """Return `facts`, which knows every ledger."""
        return self.facts

    def owned_by(self, name: TopicName, listed: bool = False) -> OwnedLedgers:
        """Return the ledgers whose custom metadata names a topic."""
        text = str(name)
        wanted = owner_hash("data", text), owner_hash("compacted", text, COMPACTION)
        first = self.columns[_HASHES].searchsorted(wanted).tolist()
        return OwnedLedgers(*map(self._owned_from, first, wanted))

    def with_owner(self, hashed: int) -> list[int]:
        """Return the ids of the ledgers whose owner has this hash, in order."""
        return self._owned_from(int(self.columns[_HASHES].searchsorted(hashed)), hashed)

    def _owned_from(self, first: int, hashed: int) -> list[int]:
        hashes, last = self.columns[_HASHES], first
        while last < len(hashes) and hashes[last] == hashed:
            last += 1
        return sorted(self.columns[_ID][self.columns[_BY_HASH][first:last]].tolist()) if last > first else []

    def data_owners(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the hashes of all topics that own ledgers with data, and one ledger of each."""
        import numpy as np

        hashes, by_hash = self.columns[_HASHES], self.columns[_BY_HASH]
        first = np.flatnonzero(np.diff(hashes, prepend=hashes[:1] - 1))
        first = first[self.columns[_PLACE][by_hash[first]] & 0xF == ROLES.index("data")]
        return hashes[first], self.columns[_ID][by_hash[first]]

    def ensembles(self) -> Iterator[tuple[Members, NDArray[np.int64]]]:
        """Yield each distinct set of ensembles with the ids of its ledgers."""
        numbers = (self.columns[_PLACE] & _BOOKIES) >> _BOOKIES_AT
        for number, members in enumerate(self.bookies):
            yield members, self.columns[_ID][numbers == number]

    def _column(self, number: int) -> NDArray[np.int64]:
        column: NDArray[np.int64] = self.columns[number]
        return column

    def _facts_at(self, at: int) -> LedgerFacts:
        _, last, created, hashed, place = self.columns[:_OWN, at].tolist()
        return LedgerFacts(
            "known",
            STATES[place >> _STATE_AT & 0xFF],
            None if last == _NO_END else last,
            place >> _LENGTH_AT,
            ROLES[place & 0xF],
            hashed,
            created if created > 0 else None,
            self.bookies[(place & _BOOKIES) >> _BOOKIES_AT],
            DIGESTS[place >> 4 & 0x7],
            has_password=bool(place & 0x80),
        )


class LazyLedgers:
    """Reads the metadata of ledgers as it is needed, and counts the ledgers that it read.

    Only a topic without a list of ledgers needs all of them, to find its own: they are then indexed once.
    """

    def __init__(self, store: Store, advance: Callable[[int], None] = lambda count: None) -> None:
        self._store, self._advance = store, advance
        self._read: dict[int, LedgerFacts] = {}
        self._index: LedgerIndex | None = None
        self.count = 0

    def lookup(self, ledger_ids: Iterable[int]) -> FactsOf:
        """Read these ledgers, and return a function that also reads any other."""
        self._add({ledger_id for ledger_id in ledger_ids if ledger_id not in self._read})
        return self._facts

    def owned_by(self, name: TopicName, listed: bool) -> OwnedLedgers | None:
        """Return the ledgers of a topic that has no list; None for a topic that has one."""
        if listed:
            return None
        if self._index is None:
            self._index = index_ledgers(self._store.scan(LEDGERS), self._advance)
        return self._index.owned_by(name)

    def _facts(self, ledger_id: int) -> LedgerFacts:
        if ledger_id not in self._read:
            self._add({ledger_id})
        return self._read[ledger_id]

    def _add(self, ledger_ids: set[int]) -> None:
        if len(self._read) > _REMEMBERED:
            self._read.clear()
        facts = read_facts(self._store, ledger_ids)
        self.count += sum(each.metadata != "absent" for each in facts.values())
        self._read.update(facts)


def read_bookie_records(store: Store) -> BookieRecords:
    """Read the records below `/ledgers` that are not ledgers; `newest` is then the newest ledger's time."""
    parents = [COOKIES.rstrip("/"), AVAILABLE.rstrip("/"), f"{AVAILABLE}readonly"]
    below = zip(parents, store.children_many(parents), strict=True)
    paths = [child_path(parent, name) for parent, names in below for name in names]
    newest = newest_ledger(store)
    records = store.read_many([*OTHER_PATHS[2:], *paths, *([] if newest is None else [newest])])
    by_path = {record.path: record for record in records if record is not None}
    last = by_path.pop(newest, None) if newest is not None else None
    times = (0, 0) if last is None else (last.modified or 0, last.created or 0)
    return BookieRecords(by_path, max(times) or None)


class _Rows:
    """The rows of an index while it is made, in any order; if there are many, they are moved to files."""

    def __init__(self) -> None:
        self._columns = [array("q") for _ in range(_OWN)]
        self._parts: list[list[NDArray[np.int64]]] = [[] for _ in range(_OWN)]
        self._numbers: dict[Members, int] = {}

    def add(self, ledger_id: int, facts: LedgerFacts) -> None:
        number = self._numbers.setdefault(facts.bookies, len(self._numbers))
        ids, lasts, created, hashes, places = self._columns
        ids.append(ledger_id)
        lasts.append(_NO_END if facts.last_entry is None else facts.last_entry)
        created.append(facts.created or 0)
        hashes.append(facts.owner_hash)
        kind = facts.has_password << 7 | _DIGESTS[facts.digest] << 4 | _ROLES[facts.role]
        length = facts.length % LENGTHS << _LENGTH_AT
        places.append(length | number << _BOOKIES_AT | _STATES[facts.state] << _STATE_AT | kind)
        if _OWN * len(ids) > IN_MEMORY:
            self._move_to_array()

    def finish(self, broken: dict[int, DecodeError], around: BookieRecords) -> LedgerIndex:
        self._move_to_array()
        return LedgerIndex(_ordered(self._parts), list(self._numbers), broken, around)

    def _move_to_array(self) -> None:
        block = big_array(_OWN, len(self._columns[_ID]))
        for number, column in enumerate(self._columns):
            block[number] = column
            self._parts[number].append(block[number])
        self._columns = [array("q") for _ in range(_OWN)]


def index_ledgers(
    records: Iterable[Versioned], advance: Callable[[int], None] = lambda count: None
) -> LedgerIndex:
    """Index records below `/ledgers`: all of them, or a part."""
    rows, broken, other = _Rows(), dict[int, DecodeError](), dict[str, Versioned]()
    unknown, unknown_count = list[str](), 0
    newest, present = 0, int(time() * 1000)
    for record in records:
        advance(1)
        path, _, _, created, modified, _ = record
        newest = max(newest, modified or 0, created or 0)
        ledger_id = ledger_of_path(path)
        if ledger_id is None:
            if path.startswith(OTHER_PATHS):
                other[path] = record
            elif not _KNOWN.fullmatch(path) and (record.value or not _PARENT.fullmatch(path)):
                unknown_count += 1
                unknown += [path] if len(unknown) < KEPT_UNKNOWN else []
            continue
        try:
            facts = facts_of(ledger_id, record)
        except DecodeError as error:
            broken[ledger_id] = broken_metadata(record, error)
            continue
        # A time that is still to come is wrong, and says nothing about the age of a copy.
        if newest < (facts.created or 0) <= present:
            newest = facts.created or 0
        rows.add(ledger_id, facts)
    return rows.finish(broken, BookieRecords(other, newest or None, tuple(unknown), unknown_count))


def join_indexes(parts: Iterable[LedgerIndex]) -> LedgerIndex:
    """Join indexes of different ledgers into one."""
    import numpy as np

    numbers: dict[Members, int] = {}
    broken, other, newest = dict[int, DecodeError](), dict[str, Versioned](), 0
    unknown, unknown_count = list[str](), 0
    columns: list[list[NDArray[np.int64]]] = [[] for _ in range(_OWN)]
    for part in parts:
        own = part.columns[:_OWN]
        renumbered = np.array(
            [numbers.setdefault(members, len(numbers)) for members in part.bookies], np.int64
        )
        if len(part):
            places = own[_PLACE]
            numbered = renumbered[(places & _BOOKIES) >> _BOOKIES_AT] << _BOOKIES_AT
            own[_PLACE] = numbered | places & ~_BOOKIES
        for column_parts, column in zip(columns, own, strict=True):
            column_parts.append(column)
        broken |= part.broken
        other |= part.around.other
        newest = max(newest, part.around.newest or 0)
        unknown += part.around.unknown
        unknown_count += part.around.unknown_count
    around = BookieRecords(other, newest or None, tuple(sorted(unknown)[:KEPT_UNKNOWN]), unknown_count)
    return LedgerIndex(_ordered(columns), list(numbers), broken, around)


def _ordered(columns: list[list[NDArray[np.int64]]]) -> NDArray[np.int64]:
    """Join the parts of the first columns, freeing each as it is copied, and compute the other columns."""
    import numpy as np

    count = sum(map(len, columns[_ID]))
    made = big_array(_BY_HASH + 1, count)
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
    made[_BY_HASH] = np.argsort(made[_OWNER], kind="stable")
    made[_HASHES] = made[_OWNER][made[_BY_HASH]]
    return made


def big_array(columns: int, rows: int) -> NDArray[np.int64]:
    """Return an uninitialised array, in a temporary file if it is large; the file goes with the array.

    Raises UnreachableError if the directory for temporary files (TMPDIR) is full.
    """
    import numpy as np

    if columns * rows <= IN_MEMORY:
        return np.empty((columns, rows), np.int64)
    with tempfile.TemporaryFile() as file:
        try:
            # Writing to a hole in the file would kill the process if the disk were full.
            os.posix_fallocate(file.fileno(), 0, 8 * columns * rows)
        except OSError as error:
            problem = f"cannot keep {8 * columns * rows} bytes in temporary files: {error.strerror}"
            raise UnreachableError(problem, source=tempfile.gettempdir()) from error
        return np.asarray(np.memmap(file, np.int64, "r+", shape=(columns, rows)))


def are_among(numbers: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the numbers that are in `ordered`, using little memory besides the mask."""
    import numpy as np

    mask = np.zeros(len(numbers), bool)
    for at in range(0, len(numbers) if len(ordered) else 0, IN_MEMORY):
        block = numbers[at : at + IN_MEMORY]
        places = ordered.searchsorted(block)
        np.minimum(places, len(ordered) - 1, out=places)
        mask[at : at + IN_MEMORY] = ordered[places] == block
    return mask


def in_order(numbers: array[int]) -> NDArray[np.int64]:
    """Sort numbers in place and return them as an array that shares their memory."""
    import numpy as np

    ordered = np.asarray(numbers, np.int64)
    ordered.sort()
    return ordered
