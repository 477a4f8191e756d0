"""`bookie:`: entries read from running bookies, without a broker and without anybody noticing.

No ledger is opened, recovered or fenced: each entry is asked for by its id, from its replicas in their
order, and believed only with a right digest. What an open ledger holds is found by asking all bookies
of its last ensemble.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry, read_header
from pulsar_meta.codecs.wire.bookie_protocol import NO_ENTRY, NO_LEDGER, OK, ReadAnswer
from pulsar_meta.entries.base import BaseSource, RawEntry
from pulsar_meta.entries.bookie_client import SECONDS, BookieCluster, BookieConnections, Ensembles

# Entries that are asked for together: a bookie answers at most 5 MiB to a batch read.
ENTRIES_AT_ONCE: Final = 100

# A ledger with more entries is only believed when some in its middle are there.
BELIEVED: Final = 1_000_000
# No writer has more entries under way than that: it waits for the first of them to be confirmed.
UNCONFIRMED: Final = 1_000_000

Outcome = RawEntry | NotFoundError | DecodeError | UnreachableError


class LiveBookies(BaseSource):
    """Entries of running bookies; `cluster` says which ledgers there are and who holds them.

    Every method may raise UnreachableError: no bookie that could have the entry answered.
    """

    # So many neighbouring entries cost a search no more than one.
    entries_per_read = ENTRIES_AT_ONCE
    sees_open_ledgers = True

    def __init__(self, cluster: BookieCluster, *, url: str = "bookie:", seconds: float = SECONDS) -> None:
        """Nothing is connected before it is needed; `seconds` bound each wait for a bookie."""
        self.url = url
        self.notes: list[str] = []
        self._cluster = cluster
        self._believed: set[int] = set()
        self._bookies = BookieConnections(cluster.address, seconds)

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers that the cluster knows, in order; some may have no entry."""
        return self._cluster.ledgers()

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the last entry of a ledger; of an open one the last that enough bookies hold.

        UnreachableError where too few bookies answer to say that there is none, DecodeError where a ledger
        is said to have entries that nobody has.
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
        """Yield the ids of a ledger's entries within [first, last]: BookKeeper leaves no gaps."""
        end = self.last_entry(ledger_id)
        if end is not None:
            yield from range(max(0, first), min(end, end if last is None else last) + 1)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry; NotFoundError where no replica has it, DecodeError where all are broken."""
        found = self._read_replicas(self._cluster.ensembles(ledger_id), [entry_id])[entry_id]
        if isinstance(found, RawEntry):
            return found
        raise found

    def lacking(self, ledger_id: int, entry_id: int) -> frozenset[str]:
        """Return the bookies that should have an entry, were asked, and say that they have not got it."""
        ensembles = self._cluster.ensembles(ledger_id)
        answers = {
            one: self._ask(ensembles, one, [entry_id])[entry_id] for one in ensembles.replicas(entry_id)
        }
        return frozenset(one for one, answer in answers.items() if isinstance(answer, NotFoundError))

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last], in order; missing ones are passed over."""
        wanted = iter(self.entry_ids(ledger_id, first, last))
        while entry_ids := list(islice(wanted, ENTRIES_AT_ONCE)):
            ensembles = self._cluster.ensembles(ledger_id)
            found = self._read_run(ensembles, entry_ids)
            rest = self._read_replicas(ensembles, [one for one in entry_ids if one not in found])
            for entry_id in entry_ids:
                entry = found.get(entry_id) or rest[entry_id]
                if isinstance(entry, RawEntry):
                    yield entry
                elif not isinstance(entry, NotFoundError):
                    raise entry

    def close(self) -> None:
        """Let go of all connections. Safe to call twice."""
        self._bookies.close()

    def _read_run(self, ensembles: Ensembles, entry_ids: list[int]) -> dict[int, RawEntry]:
        """Return what one bookie sends at once where it holds all entries of the ledger; maybe nothing."""
        if ensembles.striped:
            return {}
        first = entry_ids[0]
        bookie = self._bookies.working_first(ensembles.replicas(first))[0]
        run = self._bookies.read_run(bookie, ensembles.ledger_id, first, len(entry_ids))
        entries = (_checked(ensembles, first + at, data) for at, data in enumerate(run))
        return {entry.entry_id: entry for entry in entries if isinstance(entry, RawEntry)}

    def _read_replicas(self, ensembles: Ensembles, entry_ids: list[int]) -> dict[int, Outcome]:
        """Return each entry, or why it cannot be had, after asking one replica of each after the other."""
        outcomes: dict[int, Outcome] = {}
        # The order is settled first: a bookie that fails on the way must not change whose turn is next.
        replicas = {
            entry_id: self._bookies.working_first(ensembles.replicas(entry_id)) for entry_id in entry_ids
        }
        for copy in range(ensembles.write_quorum):
            asked: dict[str, list[int]] = {}
            for entry_id in entry_ids:
                if not isinstance(outcomes.get(entry_id), RawEntry):
                    asked.setdefault(replicas[entry_id][copy], []).append(entry_id)
            for bookie, group in asked.items():
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
        """Raise DecodeError where a ledger is said to be huge and entries in its middle are nowhere."""
        if last < BELIEVED or ensembles.ledger_id in self._believed:
            return
        probes = [last // 4, last // 2, last // 4 * 3]
        if all(isinstance(one, NotFoundError) for one in self._read_replicas(ensembles, probes).values()):
            claim = f"ledger {ensembles.ledger_id} is said to go to entry {last}"
            raise DecodeError(f"{claim}, but no bookie has the entries {', '.join(map(str, probes))}")
        self._believed.add(ensembles.ledger_id)

    def _last_of_open(self, ensembles: Ensembles) -> int:
        """Return the last entry that an acknowledgement quorum holds, -1 for none.

        Every bookie knows its own stripe only. What the writer had confirmed when it wrote the last one
        is safe; of what comes after, all that enough bookies hold without a gap. A bookie that does not
        answer is taken to hold its copies, so that a dead one does not hide entries.
        """
        members = sorted({member for segment in ensembles.segments[-2:] for member in segment.members})
        lasts = {bookie: self._last_of(ensembles, bookie) for bookie in members}
        failed = {bookie: one for bookie, one in lasts.items() if isinstance(one, UnreachableError)}
        held = [one for one in lasts.values() if isinstance(one, tuple)]
        highest = max((entry_id for entry_id, _ in held), default=-1)
        confirmed = max((last_confirmed for _, last_confirmed in held), default=-1)
        if _may_hide(ensembles, failed):
            if not held:
                raise next(iter(failed.values()))
            self._note(f"ledger {ensembles.ledger_id}: {', '.join(failed)} did not answer, it may go on")
        while confirmed < highest and self._copies(ensembles, confirmed + 1, failed) >= ensembles.ack_quorum:
            confirmed += 1
        return confirmed

    def _last_of(self, ensembles: Ensembles, bookie: str) -> tuple[int, int] | UnreachableError | None:
        """Return the last entry that a bookie holds and what that says is confirmed, None for none."""
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
            found = _checked(ensembles, entry_id, answer.entries[0])
        except DecodeError as error:
            found = error
        if isinstance(found, DecodeError):
            return UnreachableError(f"{ledger}: its last entry is broken: {found.message}", source=source)
        if not 0 < entry_id - confirmed <= UNCONFIRMED:
            claim = f"its last entry is {entry_id}, the last confirmed {confirmed}"
            return UnreachableError(f"{ledger}: {claim}: that cannot be", source=source)
        return entry_id, confirmed

    def _copies(self, ensembles: Ensembles, entry_id: int, failed: Collection[str]) -> int:
        """Return how many bookies hold an entry or may hold it, 0 where none is seen to."""
        replicas = ensembles.replicas(entry_id)
        asked = [bookie for bookie in replicas if bookie not in failed]
        outcomes = [self._ask(ensembles, bookie, [entry_id])[entry_id] for bookie in asked]
        held = sum(isinstance(outcome, RawEntry) for outcome in outcomes)
        unknown = sum(isinstance(outcome, UnreachableError) for outcome in outcomes)
        return held and held + unknown + len(replicas) - len(asked)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _may_hide(ensembles: Ensembles, failed: Collection[str]) -> bool:
    """Return whether an acknowledged entry may be on bookies that did not answer, and on no other."""
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
    """Return the entry if it is the one that was asked for and its digest is right."""
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
    """Return the outcome that says more: an entry, then a bookie that may have it, then broken bytes."""
    ranks = (RawEntry, UnreachableError, DecodeError, NotFoundError)
    return new if known is None else min(known, new, key=lambda one: ranks.index(type(one)))
