"""What BookKeeper's own metadata says, of all ledgers at once: a row of an array for each, no object.

A ledger's owner (by its custom metadata) is kept as a mark of 8 bytes; whoever finds two equal marks reads
the names again before saying so.

Sources: apache/bookkeeper DataFormats.proto (LedgerMetadataFormat), ZKRegistrationManager (cookies,
available); apache/pulsar LedgerMetadataUtils.java.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import LEDGERS, ledger_of_path, ledger_path
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, bookkeeper_ledger_of
from pulsar_meta.jobs.topics.owners import Owner, Role, owner_in_custom
from pulsar_meta.jobs.topics.topic import LEDGERS_AT_ONCE
from pulsar_meta.stores.base import Store, Versioned

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COOKIES: Final = f"{LEDGERS}/cookies/"
AVAILABLE: Final = f"{LEDGERS}/available/"
_KEPT: Final = (COOKIES, AVAILABLE, f"{LEDGERS}/INSTANCEID", f"{LEDGERS}/LAYOUT")
STATES: Final = ("OPEN", "IN_RECOVERY", "CLOSED")
# What a ledger was created for, by its custom metadata; "other" is Pulsar's, "" says nothing of Pulsar.
ROLES: Final = ("", "other", "data", "cursor", "compacted", "delayed-index-bucket", "schema")
_ROW: Final = struct.Struct("<qqqqQiBB")
_COLUMNS: Final = {
    "names": ("id", "last", "length", "created", "mark", "bookies", "state", "role"),
    "formats": ("<i8", "<i8", "<i8", "<i8", "<u8", "<i4", "u1", "u1"),
    "offsets": (0, 8, 16, 24, 32, 40, 44, 45),
    "itemsize": _ROW.size,
}
_NO_END: Final = -2


class Members(NamedTuple):
    """On how many bookies each entry of a ledger is written, and on which: the members of each segment."""

    write_quorum: int = 0
    ack_quorum: int = 0
    segments: tuple[tuple[str, ...], ...] = ()

    @property
    def all(self) -> frozenset[str]:
        """Every bookie that has some of the ledger."""
        return frozenset(one for segment in self.segments for one in segment)

    def without_copy(self, gone: Set[str]) -> bool:
        """Return whether some entries lie on bookies of `gone` alone."""
        return any(
            all(segment[(first + copy) % len(segment)] in gone for copy in range(self.write_quorum))
            for segment in self.segments
            for first in range(len(segment))
        )


class LedgerFacts(NamedTuple):
    """What BookKeeper says of a ledger, as far as checks compare it.

    `last_entry` is None until it is closed; `mark` is that of its owner, 0 for none; `bookies` says
    where it lies. `known` is the whole of it where the ledger was read by itself.
    """

    metadata: Literal["unread", "known", "absent", "broken"] = "unread"
    state: str = ""
    last_entry: int | None = None
    length: int = 0
    role: str = ""
    mark: int = 0
    created: int | None = None
    bookies: Members = Members()
    known: BookkeeperLedger | None = None

    @property
    def owner(self) -> Owner | None:
        """For whom it was created; None where the ledger was not read by itself, or does not say."""
        return None if self.known is None else owner_in_custom(self.known.ledger_id, self.known.custom)


UNREAD: Final = LedgerFacts()
ABSENT: Final = LedgerFacts("absent")
BROKEN: Final = LedgerFacts("broken")
FactsOf = Callable[[int], LedgerFacts]


def mark_of(role: Role, name: str, cursor: str | None = None) -> int:
    """Return the mark of an owner: 8 bytes that two owners share about never, and never 0."""
    text = "\0".join((role, name, cursor or "")).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1


def facts_of(ledger: BookkeeperLedger) -> LedgerFacts:
    """Return what a ledger's metadata says."""
    owner = owner_in_custom(ledger.ledger_id, ledger.custom)
    role = "other" if ledger.custom.get("application") == "pulsar" else ""
    return LedgerFacts(
        "known",
        ledger.state,
        ledger.last_entry,
        ledger.length or 0,
        role if owner is None else owner.role,
        0 if owner is None else mark_of(owner.role, owner.name, owner.cursor),
        ledger.created,
        Members(
            ledger.write_quorum,
            ledger.ack_quorum or ledger.write_quorum,
            tuple(segment.members for segment in ledger.segments),
        ),
        ledger,
    )


def read_facts(store: Store, ledger_ids: Iterable[int]) -> dict[int, LedgerFacts]:
    """Return what BookKeeper says of these ledgers just now."""
    ids = sorted(set(ledger_ids))
    found: dict[int, LedgerFacts] = {}
    for at in range(0, len(ids), LEDGERS_AT_ONCE):
        some = ids[at : at + LEDGERS_AT_ONCE]
        for ledger_id, record in zip(some, store.read_many([*map(ledger_path, some)]), strict=True):
            found[ledger_id] = _read_one(ledger_id, record)
    return found


def _read_one(ledger_id: int, record: Versioned | None) -> LedgerFacts:
    if record is None:
        return ABSENT
    try:
        facts = facts_of(bookkeeper_ledger_of(ledger_id, record))
        return facts._replace(created=facts.created or record.created)
    except DecodeError:
        return BROKEN


@dataclass(slots=True)
class Listing:
    """All ledgers, bookies and what else `/ledgers` has, as it was while it was listed.

    `broken` has the metadata that cannot be read, by ledger; `newest` is the newest time that the store wrote
    down there, in milliseconds; `other` are values that are no ledger's.
    """

    broken: dict[int, DecodeError] = field(default_factory=dict)
    other: dict[str, Versioned] = field(default_factory=dict)
    newest: int | None = None
    _bytes: bytearray = field(default_factory=bytearray)
    _rows: Any = None
    _ids: Any = None
    _marks: Any = None
    _by_mark: Any = None
    _bookies: list[Members] = field(default_factory=list)

    @property
    def rows(self) -> NDArray[np.void]:
        """A row a ledger, in the order of their ids."""
        rows: NDArray[np.void] = self._rows
        return rows

    @property
    def empty(self) -> bool:
        """Whether the store has no ledger's metadata: BookKeeper may keep it elsewhere."""
        return not len(self._rows) and not self.broken

    @property
    def cookies(self) -> frozenset[str]:
        """The ids of the bookies that ever registered."""
        return frozenset(path.removeprefix(COOKIES) for path in self.other if path.startswith(COOKIES))

    @property
    def registered(self) -> frozenset[str]:
        """The ids of the bookies that are registered: they were alive."""
        paths = (path.removeprefix(AVAILABLE) for path in self.other if path.startswith(AVAILABLE))
        return frozenset(one.removeprefix("readonly/") for one in paths) - {"readonly"}

    def facts(self, ledger_id: int) -> LedgerFacts:
        """Return what the listing has of a ledger; all that it has not got is absent."""
        if ledger_id in self.broken:
            return BROKEN
        at = int(self._ids.searchsorted(ledger_id))
        if at == len(self._ids) or self._ids[at] != ledger_id:
            return ABSENT if not self.empty else UNREAD
        return self._facts_at(at)

    def owned(self, mark: int) -> list[int]:
        """Return the ids of the ledgers that were created for the owner with this mark, in order."""
        import numpy as np

        wanted = np.uint64(mark)
        first, last = self._marks.searchsorted(wanted, "left"), self._marks.searchsorted(wanted, "right")
        return sorted(self._ids[self._by_mark[first:last]].tolist())

    def ensembles(self) -> Iterator[tuple[Members, NDArray[np.int64]]]:
        """Yield each set of bookies that ledgers lie on, and the ids of these ledgers."""
        for number, members in enumerate(self._bookies):
            yield members, self._ids[self._rows["bookies"] == number]

    def _facts_at(self, at: int) -> LedgerFacts:
        _, last, length, created, mark, bookies, state, role = self._rows[at].item()
        return LedgerFacts(
            "known",
            STATES[state],
            None if last == _NO_END else last,
            length,
            ROLES[role],
            mark,
            created if created > 0 else None,
            self._bookies[bookies],
        )

    def add(self, facts: LedgerFacts, ledger_id: int, numbers: dict[Members, int]) -> None:
        """Take one ledger; `numbers` are those of the sets of bookies that came before."""
        number = numbers.setdefault(facts.bookies, len(numbers))
        if number == len(self._bookies):
            self._bookies.append(facts.bookies)
        last = _NO_END if facts.last_entry is None else facts.last_entry
        state, role = STATES.index(facts.state), ROLES.index(facts.role)
        created = facts.created or 0
        self._bytes += _ROW.pack(ledger_id, last, facts.length, created, facts.mark, number, state, role)

    def end(self) -> None:
        """Put the rows in order: no more will come."""
        import numpy as np

        rows: Any = np.frombuffer(bytes(self._bytes), np.dtype(_COLUMNS))  # type: ignore[call-overload]
        self._bytes = bytearray()
        self._rows = rows[np.argsort(rows["id"], kind="stable")]
        # Columns that are searched lie together: a search in rows would copy them first.
        self._ids = np.ascontiguousarray(self._rows["id"])
        self._by_mark = np.argsort(self._rows["mark"], kind="stable")
        self._marks = self._rows["mark"][self._by_mark]


def list_ledgers(store: Store, advance: Callable[[int], None] = lambda count: None) -> Listing:
    """Return all that `/ledgers` has, in one scan; UnreachableError."""
    listing, numbers = Listing(), dict[Members, int]()
    for record in store.scan(LEDGERS):
        advance(1)
        _note_time(listing, record)
        ledger_id = ledger_of_path(record.path)
        if ledger_id is None:
            if record.path.startswith(_KEPT):
                listing.other[record.path] = record
            continue
        try:
            facts = facts_of(bookkeeper_ledger_of(ledger_id, record))
            listing.newest = max(facts.created or 0, listing.newest or 0) or None
            listing.add(facts._replace(created=facts.created or record.created), ledger_id, numbers)
        except DecodeError as error:
            listing.broken[ledger_id] = error
    listing.end()
    return listing


def _note_time(listing: Listing, record: Versioned) -> None:
    newest = max(record.modified or 0, record.created or 0, listing.newest or 0)
    listing.newest = newest or None
