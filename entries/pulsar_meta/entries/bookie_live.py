"""`bookie:`: entries read from running bookies, without a broker and without side effects.

No ledger is opened, recovered or fenced. Each entry is requested by its id from its replicas, in their order,
and must have a valid digest. The end of an open ledger comes from all bookies of its last ensembles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry, read_header
from pulsar_meta.codecs.wire.bookie_protocol import IO_ERROR, NO_ENTRY, NO_LEDGER, OK, ReadAnswer
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.entries.bookie_client import SECONDS, BookieCluster, BookieConnections, Ensembles

# The number of entries in a batch read, whose answer has at most 5 MiB.
ENTRIES_AT_ONCE: Final = 100

# If a ledger claims more entries, some in its middle must exist.
BELIEVED: Final = 1_000_000
# The largest number of unconfirmed entries; a writer waits for confirmation before it sends more.
UNCONFIRMED: Final = 1_000_000

Outcome = RawEntry | NotFoundError | DecodeError | UnreachableError


class LiveBookies(EntrySource):
    """Entries on running bookies. `cluster` knows the ledgers and their bookies.

    Every method may raise UnreachableError if no bookie that could have the entry answers.
    """

    entries_per_read = ENTRIES_AT_ONCE
    sees_open_ledgers = True

    def __init__(self, cluster: BookieCluster, *, url: str = "bookie:", seconds: float = SECONDS) -> None:
        """Connect to bookies on demand. Each wait for a bookie may take `seconds`."""
        self.url = url
        self._notes: list[str] = []
        self._cluster = cluster
        self._believed: set[int] = set()
        self._unreachable: dict[str, UnreachableError] = {}
        self._bookies = BookieConnections(cluster.address, seconds, self._notes)

    @property
    def notes(self) -> list[str]:
        """Bookies that are not asked again, and bookies that may have more entries of an open ledger."""
        return self._notes

    def ledgers(self) -> list[int]:
        """List the ids of all ledgers in the cluster, sorted. Some may have no entry."""
        return self._cluster.ledgers()

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the last entry of a ledger. If the ledger is open, it is the last one on enough bookies.

        Raises UnreachableError if too few bookies answer to rule out more entries, and DecodeError if the
        metadata claims entries that no bookie has.
        """
        try:
            ensembles = self._cluster.ensembles(ledger_id)
        except NotFoundError:
            return None
        last = ensembles.last_entry
        if last is None:
            last = self._last_of_open(ensembles)
        self._check_claim(ensembles, last)
        return None if last < 0 else last

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of a ledger's entries within [first, last], because BookKeeper leaves no gaps."""
        end = self.last_entry(ledger_id)
        if end is not None:
            yield from range(max(0, first), min(end, end if last is None else last) + 1)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry. Raises NotFoundError if no replica has it, DecodeError if all are damaged."""
        outcome = self._read_replicas(self._cluster.ensembles(ledger_id), [entry_id])[entry_id]
        if isinstance(outcome, RawEntry):
            return outcome
        raise outcome

    def replicas(self, ledger_id: int) -> dict[str, EntrySource]:
        """Return, by bookie, sources of the copies that each bookie should have of a ledger."""
        try:
            ensembles, last = self._cluster.ensembles(ledger_id), self.last_entry(ledger_id)
        except (NotFoundError, DecodeError, UnreachableError):
            return {}
        members = {member: None for segment in ensembles.segments for member in segment.members}
        return {
            bookie: BookieCopies(self, ensembles, bookie, -1 if last is None else last) for bookie in members
        }

    def requires_all_copies(self, ledger_id: int) -> bool:
        """Whether a ledger exists and is closed. The copies of an open one may still be on their way."""
        try:
            return self._cluster.ensembles(ledger_id, again=True).last_entry is not None
        except (NotFoundError, DecodeError):
            return False

    def answers(self, bookie: str, ledger_id: int, entry_ids: list[int]) -> dict[int, ReadAnswer]:
        """Return a bookie's answer for each entry. A bookie that failed once is not asked again.

        Raises UnreachableError.
        """
        if bookie in self._unreachable:
            raise self._unreachable[bookie]
        try:
            return self._bookies.read(bookie, ledger_id, entry_ids)
        except UnreachableError as error:
            self._unreachable[bookie] = error
            raise

    def lacking(self, ledger_id: int, entry_id: int) -> frozenset[str]:
        """Return the bookies that should have an entry and answer that they don't.

        There are none if the ledger was deleted meanwhile.
        """
        try:
            ensembles = self._cluster.ensembles(ledger_id)
        except NotFoundError:
            return frozenset()
        return frozenset(
            bookie
            for bookie in ensembles.replicas(entry_id)
            if isinstance(self._ask(ensembles, bookie, [entry_id])[entry_id], NotFoundError)
        )

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last], sorted, without missing ones.

        Ends early if the ledger is deleted meanwhile.
        """
        wanted = iter(self.entry_ids(ledger_id, first, last))
        while entry_ids := list(islice(wanted, ENTRIES_AT_ONCE)):
            try:
                ensembles = self._cluster.ensembles(ledger_id)
            except NotFoundError:
                return
            batch = self._read_run(ensembles, entry_ids)
            rest = self._read_replicas(ensembles, [id_ for id_ in entry_ids if id_ not in batch])
            for entry_id in entry_ids:
                outcome = batch.get(entry_id) or rest[entry_id]
                if isinstance(outcome, RawEntry):
                    yield outcome
                elif not isinstance(outcome, NotFoundError):
                    raise outcome

    def close(self) -> None:
        """Close all connections. Can be called twice."""
        self._bookies.close()

    def _read_run(self, ensembles: Ensembles, entry_ids: list[int]) -> dict[int, RawEntry]:
        """Return the entries from one batch read, or nothing if the ledger is striped over bookies."""
        if ensembles.striped:
            return {}
        first = entry_ids[0]
        bookie = self._bookies.working_first(ensembles.replicas(first))[0]
        run = self._bookies.read_run(bookie, ensembles.ledger_id, first, len(entry_ids))
        entries = (_checked(ensembles, first + at, data) for at, data in enumerate(run))
        return {entry.entry_id: entry for entry in entries if isinstance(entry, RawEntry)}

    def _read_replicas(self, ensembles: Ensembles, entry_ids: list[int]) -> dict[int, Outcome]:
        """Return each entry, or why it can't be read, after trying its replicas one after the other."""
        outcomes: dict[int, Outcome] = {}
        # The order is determined first, because a bookie that fails meanwhile must not change it.
        replicas = {
            entry_id: self._bookies.working_first(ensembles.replicas(entry_id)) for entry_id in entry_ids
        }
        for copy in range(ensembles.write_quorum):
            requests: dict[str, list[int]] = {}
            for entry_id in entry_ids:
                if not isinstance(outcomes.get(entry_id), RawEntry):
                    requests.setdefault(replicas[entry_id][copy], []).append(entry_id)
            for bookie, group in requests.items():
                for entry_id, outcome in self._ask(ensembles, bookie, group).items():
                    outcomes[entry_id] = _better(outcomes.get(entry_id), outcome)
        return outcomes

    def _ask(self, ensembles: Ensembles, bookie: str, entry_ids: list[int]) -> dict[int, Outcome]:
        try:
            answers = self._bookies.read(bookie, ensembles.ledger_id, entry_ids)
        except UnreachableError as error:
            return dict.fromkeys(entry_ids, error)
        return {entry_id: _outcome(ensembles, entry_id, bookie, answers[entry_id]) for entry_id in entry_ids}

    def _check_claim(self, ensembles: Ensembles, last: int) -> None:
        """Raise DecodeError if a ledger claims to be huge and no bookie has entries from its middle."""
        if last < BELIEVED or ensembles.ledger_id in self._believed:
            return
        probes = [last // 4, last // 2, last // 4 * 3]
        outcomes = self._read_replicas(ensembles, probes).values()
        if all(isinstance(outcome, NotFoundError) for outcome in outcomes):
            claim = f"the metadata claims that ledger {ensembles.ledger_id} ends with entry {last}"
            raise DecodeError(f"{claim}, but no bookie has the entries {', '.join(map(str, probes))}")
        self._believed.add(ensembles.ledger_id)

    def _last_of_open(self, ensembles: Ensembles) -> int:
        """Return the last entry that an acknowledgement quorum has, or -1 if there is none.

        Each bookie only knows its own stripe. Entries that the writer had confirmed when it wrote the last
        one are certain. After those, entries count as long as enough bookies have them without a gap. A
        bookie that doesn't answer is assumed to have its copies, so that a dead bookie doesn't hide entries.
        """
        members = sorted({member for segment in ensembles.segments[-2:] for member in segment.members})
        lasts = {bookie: self._last_of(ensembles, bookie) for bookie in members}
        failed = {bookie: last for bookie, last in lasts.items() if isinstance(last, UnreachableError)}
        known = [last for last in lasts.values() if isinstance(last, tuple)]
        highest = max((entry_id for entry_id, _ in known), default=-1)
        confirmed = max((last_confirmed for _, last_confirmed in known), default=-1)
        if _may_hide(ensembles, failed):
            if not known:
                raise next(iter(failed.values()))
            note = f"ledger {ensembles.ledger_id} may have more entries: {', '.join(failed)} did not answer"
            if note not in self._notes:
                self._notes.append(note)
        while confirmed < highest and self._copies(ensembles, confirmed + 1, failed) >= ensembles.ack_quorum:
            confirmed += 1
        return confirmed

    def _last_of(self, ensembles: Ensembles, bookie: str) -> tuple[int, int] | UnreachableError | None:
        """Return a bookie's last entry and the last confirmed one in its header, or None without entries."""
        ledger, source = f"ledger {ensembles.ledger_id}", f"bookie {bookie}"
        try:
            answer = self._bookies.read_last(bookie, ensembles.ledger_id)
        except UnreachableError as error:
            return error
        if answer.code in (NO_ENTRY, NO_LEDGER):
            return None
        if answer.code != OK:
            return UnreachableError(f"{ledger}: {answer.reason}", source=source)
        try:
            _, entry_id, confirmed, _ = read_header(answer.entries[0])
            outcome = _checked(ensembles, entry_id, answer.entries[0])
        except DecodeError as error:
            outcome = error
        if isinstance(outcome, DecodeError):
            return UnreachableError(f"{ledger}: its last entry is damaged: {outcome.message}", source=source)
        if not 0 < entry_id - confirmed <= UNCONFIRMED:
            claim = f"impossible last confirmed entry {confirmed} in the last entry {entry_id}"
            return UnreachableError(f"{ledger}: {claim}", source=source)
        return entry_id, confirmed

    def _copies(self, ensembles: Ensembles, entry_id: int, failed: Collection[str]) -> int:
        """Return the number of bookies that have or may have an entry, or 0 if none certainly has it."""
        replicas = ensembles.replicas(entry_id)
        asked = [bookie for bookie in replicas if bookie not in failed]
        outcomes = [self._ask(ensembles, bookie, [entry_id])[entry_id] for bookie in asked]
        copies = sum(isinstance(outcome, RawEntry) for outcome in outcomes)
        unknown = sum(isinstance(outcome, UnreachableError) for outcome in outcomes)
        return copies and copies + unknown + len(replicas) - len(asked)


class BookieCopies(EntrySource):
    """The copies of one ledger that a bookie should have, read from that bookie only."""

    entries_per_read = ENTRIES_AT_ONCE

    def __init__(self, live: LiveBookies, ensembles: Ensembles, bookie: str, last: int) -> None:
        """`last` is the last entry of the ledger, -1 if it is empty."""
        self.url = live.url
        self._live, self._ensembles, self._bookie, self._last = live, ensembles, bookie, last

    def ledgers(self) -> list[int]:
        """Return the ledger's id."""
        return [self._ensembles.ledger_id]

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of the entries within [first, last] that were written to the bookie."""
        end = self._last if last is None else min(last, self._last)
        return self._ensembles.entries_on(self._bookie, max(0, first), end)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return the bookie's copy of an entry.

        Raises NotFoundError if the bookie has none, DecodeError if it is damaged, UnreachableError.
        """
        outcome = self._outcome(entry_id, self._live.answers(self._bookie, ledger_id, [entry_id])[entry_id])
        if isinstance(outcome, RawEntry):
            return outcome
        raise outcome

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield the bookie's copies of the entries within [first, last]. Raises as `read` does."""
        wanted = self.entry_ids(ledger_id, first, last)
        while entry_ids := list(islice(wanted, ENTRIES_AT_ONCE)):
            answers = self._live.answers(self._bookie, ledger_id, entry_ids)
            for entry_id in entry_ids:
                outcome = self._outcome(entry_id, answers[entry_id])
                if isinstance(outcome, RawEntry):
                    yield outcome
                elif not isinstance(outcome, NotFoundError):
                    raise outcome

    def _outcome(self, entry_id: int, answer: ReadAnswer) -> Outcome:
        if answer.code == IO_ERROR:
            # The bookie works, but it can't read this entry from its disk.
            return DecodeError("the bookie answers with an input/output error")
        return _outcome(self._ensembles, entry_id, self._bookie, answer)


def _may_hide(ensembles: Ensembles, failed: Collection[str]) -> bool:
    """Whether an acknowledged entry may only be on bookies that did not answer."""
    if not failed:
        return False
    for segment in ensembles.segments[-2:]:
        size = len(segment.members)
        for first in range(size):
            replicas = [segment.members[(first + copy) % size] for copy in range(ensembles.write_quorum)]
            if sum(bookie in failed for bookie in replicas) >= ensembles.ack_quorum:
                return True
    return False


def _outcome(ensembles: Ensembles, entry_id: int, bookie: str, answer: ReadAnswer) -> Outcome:
    name = f"{ensembles.ledger_id}:{entry_id}"
    if answer.code in (NO_ENTRY, NO_LEDGER):
        return NotFoundError(f"no entry {name}", source=f"bookie {bookie}")
    if answer.code != OK:
        return UnreachableError(f"{name}: {answer.reason}", source=f"bookie {bookie}")
    return _checked(ensembles, entry_id, answer.entries[0])


def _checked(ensembles: Ensembles, entry_id: int, data: memoryview) -> RawEntry | DecodeError:
    """Return the entry if it is the requested one and has a valid digest."""
    name = f"{ensembles.ledger_id}:{entry_id}"
    try:
        entry = decode_bookie_entry(data, ensembles.digest_type, password=ensembles.password)
    except DecodeError as error:
        return error
    if (entry.ledger_id, entry.entry_id) != (ensembles.ledger_id, entry_id):
        return DecodeError(f"expected entry {name}, found {entry.ledger_id}:{entry.entry_id}", offset=0)
    if entry.digest == "bad":
        return DecodeError(f"entry {name} has a wrong {ensembles.digest_type} digest", offset=32)
    return RawEntry(ensembles.ledger_id, entry_id, data)


def _better(known: Outcome | None, new: Outcome) -> Outcome:
    """Return the better outcome. The order is entry, bookie that may have it, damaged entry, no entry."""
    ranks = (RawEntry, UnreachableError, DecodeError, NotFoundError)
    return new if known is None else min(known, new, key=lambda outcome: ranks.index(type(outcome)))
