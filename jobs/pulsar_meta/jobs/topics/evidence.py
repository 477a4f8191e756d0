"""Gather the evidence about a ledger, and weigh it for or against a claim.

A claim such as "ledger 7 belongs to the topic orders" is never decided by one record. Each piece of evidence
has a witness: the topic's list, BookKeeper's metadata, the entries on disks, the cursors, other clusters. Two
pieces from one record count once, because the same damage may have changed both.

Sources: apache/pulsar ManagedLedgerImpl (a topic closes a ledger before it creates the next one),
LedgerMetadataUtils.java (custom metadata).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, bookkeeper_ledger_of
from pulsar_meta.jobs.topics.completeness import COMPLETE, Completeness, Gap, MissingLog, missing_logs
from pulsar_meta.jobs.topics.disk_ledger import DiskLedger, fits_between, read_disk_ledger
from pulsar_meta.jobs.topics.other_clusters import OtherClusters, OtherOwner
from pulsar_meta.jobs.topics.owners import Owner, owner_in_custom
from pulsar_meta.jobs.topics.topic import Ledger, Metadata
from pulsar_meta.stores.base import Store

# The maximum difference between the clocks of brokers and servers.
SLACK_MS: Final = 60_000
# A broker records that it closed a ledger at about the time at which it creates the next one.
MOMENT_MS: Final = 50
# The number of ledgers in the cache.
_CACHED: Final = 4096


class Witness(StrEnum):
    """Where a piece of evidence comes from. Pieces from one witness are not independent."""

    LIST = "list"
    METADATA = "metadata"
    DISKS = "disks"
    CURSORS = "cursors"
    OTHER_CLUSTER = "other-cluster"
    STORE = "store"
    TIERED = "tiered-storage"


class PieceDocument(TypedDict):
    """A piece of evidence as JSON: its source, and a sentence."""

    source: str
    says: str


@dataclass(frozen=True, slots=True)
class Piece:
    """One sentence of evidence from one witness."""

    witness: Witness
    says: str

    def document(self) -> PieceDocument:
        """Convert the piece to JSON."""
        return {"source": str(self.witness), "says": self.says}


@dataclass(frozen=True, slots=True)
class Case:
    """A claim, with the evidence for and against it.

    `other_reading` is the alternative to the claim. `next_step` tells the operator what to check if the
    evidence does not decide. `only_witness` is True if a second independent piece can't exist.
    """

    claim: str
    supports: tuple[Piece, ...] = ()
    contradicts: tuple[Piece, ...] = ()
    other_reading: str = ""
    next_step: str = ""
    only_witness: bool = False

    @property
    def witnesses(self) -> frozenset[Witness]:
        """The independent witnesses that support the claim."""
        return frozenset(piece.witness for piece in self.supports)

    @property
    def allows_repair(self) -> bool:
        """True if no piece contradicts the claim, and two witnesses support it (or the only possible one)."""
        enough = len(self.witnesses) >= 2 or (self.only_witness and bool(self.supports))
        return enough and not self.contradicts

    @property
    def is_likely(self) -> bool:
        """True if more independent witnesses support the claim than contradict it."""
        return len(self.witnesses) > len({piece.witness for piece in self.contradicts})

    @property
    def is_unlikely(self) -> bool:
        """True if more independent witnesses contradict the claim than support it."""
        return len({piece.witness for piece in self.contradicts}) > len(self.witnesses)

    def doubt(self) -> str:
        """Explain the likelier reading, the other one, and the next step; "" if the claim allows a repair."""
        if self.allows_repair:
            return ""
        readings = [
            (self.claim, self.supports),
            (self.other_reading or f"it is not true that {self.claim}", self.contradicts),
        ]
        if not self.contradicts:
            text = f"not certain: only one witness says that {self.claim}"
        elif self.is_likely or self.is_unlikely:
            (likely, reasons), (other, _) = readings if self.is_likely else reversed(readings)
            text = f"more likely: {_because(likely, reasons)}. Less likely: {other}"
        else:
            text = "undecided: either " + ", or ".join(_because(*reading) for reading in readings)
        return f"{text}. {self.next_step}".rstrip(". ")


def _because(reading: str, reasons: Sequence[Piece]) -> str:
    why = "; ".join(piece.says for piece in reasons)
    return f"{reading} ({why})" if why else reading


@dataclass(frozen=True, slots=True)
class LedgerEvidence:
    """The evidence about one ledger.

    `metadata` tells whether BookKeeper has metadata, `bookkeeper` is its content. `created` is the creation
    time in ms, from the metadata or else from the store. `twin` is another ledger whose metadata is
    identical, byte for byte. `disk` is None if no given disk has an entry. `gaps` are the parts of its
    bookies that were not given or can't be read, `missing_logs` are entry logs without entries of it that an
    index places there, and `other_clusters` are records of other clusters that refer to it.
    """

    ledger_id: int
    metadata: Metadata = "unread"
    bookkeeper: BookkeeperLedger | None = None
    created: int | None = None
    twin: int | None = None
    disk: DiskLedger | None = None
    disks_given: bool = False
    gaps: tuple[Gap, ...] = ()
    missing_logs: tuple[MissingLog, ...] = ()
    tiered: bool = False
    other_clusters: tuple[OtherOwner, ...] = ()

    @property
    def owner(self) -> Owner | None:
        """The owner in its custom metadata; None if there is none or the metadata is a copy."""
        if self.bookkeeper is None or self.twin is not None:
            return None
        return owner_in_custom(self.ledger_id, self.bookkeeper.custom)

    @property
    def is_nowhere(self) -> bool:
        """True if certainly no bookie has an entry, because all its bookies were given completely."""
        return self.disks_given and self.disk is None and not self.gaps and not self.missing_logs


@dataclass(slots=True)
class EvidenceReader:
    """Reads the evidence about suspected ledgers, each once. Every method raises UnreachableError.

    `complete` tells how complete the disks of `source` are, `tiered` has the ledgers in tiered storage.
    """

    store: Store
    source: EntrySource | None = None
    complete: Completeness = COMPLETE
    others: OtherClusters | None = None
    tiered: frozenset[int] = frozenset()
    _read: dict[int, LedgerEvidence] = field(default_factory=dict)
    _disks: dict[int, DiskLedger | None] = field(default_factory=dict)

    def ledger(
        self, ledger_id: int, relatives: Iterable[int] = (), listed: Ledger | None = None
    ) -> LedgerEvidence:
        """Read the evidence about a ledger.

        `relatives` are ledgers that may have the same metadata by mistake. `listed` is the ledger in a
        topic's list.
        """
        known = self._read.get(ledger_id)
        if known is None:
            if len(self._read) >= _CACHED:
                self._read.clear()
            known = self._read[ledger_id] = self._gather(ledger_id)
        if known.bookkeeper is None or not _may_be_copy(known, listed):
            return known
        return replace(known, twin=self.twin(ledger_id, relatives))

    def disk(self, ledger_id: int) -> DiskLedger | None:
        """Read the ends of a ledger on the disks; None without disks or entries."""
        if self.source is None:
            return None
        if ledger_id not in self._disks:
            if len(self._disks) >= _CACHED:
                self._disks.clear()
            self._disks[ledger_id] = read_disk_ledger(self.source, ledger_id)
        return self._disks[ledger_id]

    def twin(self, ledger_id: int, relatives: Iterable[int]) -> int | None:
        """Find a relative with identical metadata, byte for byte; None if there is none."""
        others = [other for other in dict.fromkeys(relatives) if other != ledger_id and other >= 0]
        own, *records = self.store.read_many([ledger_path(at) for at in (ledger_id, *others)])
        for other, record in zip(others, records, strict=True):
            if own is not None and record is not None and record.value == own.value:
                return other
        return None

    def _gather(self, ledger_id: int) -> LedgerEvidence:
        metadata: Metadata = "absent"
        bookkeeper: BookkeeperLedger | None = None
        created: int | None = None
        record = self.store.find(ledger_path(ledger_id)) if ledger_id >= 0 else None
        if record is not None:
            try:
                metadata, bookkeeper = "known", bookkeeper_ledger_of(ledger_id, record)
                created = bookkeeper.created or record.created
            except DecodeError:
                metadata = "broken"
        segments = () if bookkeeper is None else bookkeeper.segments
        members = [member for segment in segments for member in segment.members]
        gaps = self.complete.of(members) if members else self.complete.every_gap
        logs = () if self.source is None else tuple(missing_logs(self.source, ledger_id))
        others = {} if self.others is None else self.others.owners([ledger_id])
        return LedgerEvidence(
            ledger_id,
            metadata,
            bookkeeper,
            created,
            disk=self.disk(ledger_id),
            disks_given=self.source is not None,
            gaps=tuple(gaps),
            missing_logs=logs,
            tiered=ledger_id in self.tiered,
            other_clusters=tuple(others.get(ledger_id, ())),
        )


@dataclass(frozen=True, slots=True)
class TopicLedgers:
    """The ledgers of a topic according to its record and cursors.

    `ledgers` is its list in order. `created` returns the creation time of a ledger. `cursors` has the ledgers
    with acknowledged entries per subscription.
    """

    name: str
    ledgers: Sequence[Ledger]
    created: Callable[[int], int | None] = lambda ledger_id: None
    cursors: Mapping[str, Collection[int]] = field(default_factory=dict)

    @property
    def ids(self) -> list[int]:
        """The ids in its list, in order."""
        return [ledger.ledger_id for ledger in self.ledgers]

    def listed(self, ledger_id: int) -> Ledger | None:
        """The ledger with an id in its list."""
        return next((ledger for ledger in self.ledgers if ledger.ledger_id == ledger_id), None)

    def neighbours(self, ledger_id: int) -> tuple[Ledger | None, Ledger | None]:
        """The nearest ledgers with entries before and after an id, without the ledger itself."""
        filled = [ledger for ledger in self.ledgers if ledger.entries != 0]
        before = [ledger for ledger in filled if ledger.ledger_id < ledger_id]
        after = [ledger for ledger in filled if ledger.ledger_id > ledger_id]
        return before[-1] if before else None, after[0] if after else None


def membership(
    reader: EvidenceReader,
    topic: TopicLedgers,
    ledger_id: int,
    *,
    listed_by: Collection[str] = (),
    relatives: Iterable[int] = (),
) -> Case:
    """Make the case for "a ledger belongs to a topic".

    `listed_by` are other topics that list the ledger. `relatives` are ledgers of other topics whose metadata
    may have overwritten its own.
    """
    ledger = reader.ledger(ledger_id, (*topic.ids, *relatives), topic.listed(ledger_id))
    pieces = [
        *_by_lists(topic, ledger_id, listed_by),
        *_by_metadata(topic, ledger),
        *_by_time(topic, ledger),
        *_by_disks(reader, topic, ledger),
        *_by_cursors(topic, ledger_id),
        *((False, Piece(Witness.OTHER_CLUSTER, f"{owner} refers to it")) for owner in ledger.other_clusters),
    ]
    others = " or ".join(dict.fromkeys(_other_owners(topic, ledger, listed_by)))
    return Case(
        f"ledger {ledger_id} belongs to {topic.name}",
        tuple(piece for supports, piece in pieces if supports),
        tuple(piece for supports, piece in pieces if not supports),
        other_reading=f"ledger {ledger_id} belongs to {others or 'another topic'}",
        next_step=_next_step(reader, ledger),
    )


def foreignness(case: Case) -> Case:
    """Make the case for "a listed ledger does not belong to the topic" from the opposite case.

    The list itself is no evidence, because it is in question.
    """
    against = tuple(piece for piece in case.supports if piece.says != LISTED)
    return Case(
        f"it is not true that {case.claim}",
        case.contradicts,
        against,
        other_reading=case.claim,
        next_step=case.next_step,
    )


LISTED: Final = "its list contains the ledger"
_Pieces = Iterator[tuple[bool, Piece]]


def _by_lists(topic: TopicLedgers, ledger_id: int, listed_by: Collection[str]) -> _Pieces:
    if ledger_id in topic.ids:
        yield True, Piece(Witness.LIST, LISTED)
    for name in sorted(listed_by):
        yield False, Piece(Witness.LIST, f"the list of {name} contains it")


def _by_metadata(topic: TopicLedgers, ledger: LedgerEvidence) -> _Pieces:
    if ledger.twin is not None:
        says = f"its metadata is identical to that of ledger {ledger.twin}, so one of them is a copy"
        yield False, Piece(Witness.METADATA, says)
        return
    owner = ledger.owner
    if owner is None:
        return
    own = owner.role == "data" and owner.name == topic.name
    purpose = "for the topic" if own else f"as {owner.role} of {owner.name}"
    yield own, Piece(Witness.METADATA, f"according to its custom metadata, it was created {purpose}")


def _by_time(topic: TopicLedgers, ledger: LedgerEvidence) -> _Pieces:
    if ledger.twin is not None:
        return
    before, after = topic.neighbours(ledger.ledger_id)
    if before is None or after is None or not (_has_own_time(topic, before) and _has_own_time(topic, after)):
        return
    verdict = fits_by_time(ledger.created, before.closed_at, topic.created(after.ledger_id))
    if verdict is not None:
        yield verdict[0], Piece(Witness.LIST, verdict[1])


def _has_own_time(topic: TopicLedgers, ledger: Ledger) -> bool:
    """True if a ledger was created before it was closed. After a restore, the store's time is later."""
    created = topic.created(ledger.ledger_id)
    return created is not None and (ledger.closed_at is None or created <= ledger.closed_at + SLACK_MS)


def fits_by_time(
    created: int | None, closed_before: int | None, created_after: int | None
) -> tuple[bool, str] | None:
    """Check whether a ledger was created while a topic had no other ledger open: (True if so, explanation).

    `closed_before` is when the topic's previous ledger was closed, `created_after` when the next one was
    created. None if the times are unknown or don't decide.
    """
    if created is None or closed_before is None or created_after is None:
        return None
    if created < closed_before - SLACK_MS or created > created_after + SLACK_MS:
        return False, "it was created when the topic had another ledger open"
    if closed_before - MOMENT_MS <= created <= created_after + MOMENT_MS:
        return True, "it was created after the previous ledger was closed and before the next one was created"
    # The difference may be due to different clocks.
    return None


def _by_disks(reader: EvidenceReader, topic: TopicLedgers, ledger: LedgerEvidence) -> _Pieces:
    if ledger.disk is None:
        known = ledger.bookkeeper
        if ledger.is_nowhere and known is not None and (known.last_entry or 0) >= 0:
            yield False, Piece(Witness.DISKS, "no bookie has an entry of it")
        return
    before, after = (
        None if neighbour is None else reader.disk(neighbour.ledger_id)
        for neighbour in topic.neighbours(ledger.ledger_id)
    )
    for supports, says in fits_between(ledger.disk, before, after):
        yield supports, Piece(Witness.DISKS, says)


def _by_cursors(topic: TopicLedgers, ledger_id: int) -> _Pieces:
    for name, ledgers in topic.cursors.items():
        if ledger_id in ledgers:
            yield True, Piece(Witness.CURSORS, f"the subscription {name} acknowledged entries of it")
            return


def _other_owners(topic: TopicLedgers, ledger: LedgerEvidence, listed_by: Collection[str]) -> Iterator[str]:
    yield from sorted(listed_by)
    yield from map(str, ledger.other_clusters)
    if ledger.owner is not None and ledger.owner.name != topic.name:
        yield ledger.owner.name


def _next_step(reader: EvidenceReader, ledger: LedgerEvidence) -> str:
    if reader.source is None:
        return "Add the bookies' disks (--entries bookie-disk:PATH), because message indexes can decide"
    if ledger.gaps:
        return f"Add the missing part: {ledger.gaps[0]}"
    return f"Compare the messages of this ledger (dump-entries {ledger.ledger_id}) and of its neighbours"


def _may_be_copy(ledger: LedgerEvidence, listed: Ledger | None) -> bool:
    """True if metadata that equals another ledger's must be a copy of it.

    Two ledgers of one owner are never created in the same millisecond. Metadata without a creation time may
    be equal by chance, unless disks or the topic's list contradict it.
    """
    known = ledger.bookkeeper
    if known is None or known.created is not None:
        return known is not None
    if known.last_entry is None:
        return False
    agree = listed is not None and _agree(listed, known)
    disk = ledger.disk
    if disk is not None and not ledger.gaps and not ledger.missing_logs:
        # If the list and the metadata agree, disks that differ have lost entries.
        return not agree and (disk.last_entry != known.last_entry or disk.length not in (None, known.length))
    if listed is not None and listed.counted:
        return not agree
    # If a list contains the ledger, its metadata can be genuine even though no bookie has an entry.
    return listed is None and ledger.is_nowhere and known.last_entry >= 0


def _agree(listed: Ledger, known: BookkeeperLedger) -> bool:
    """True if a topic's list and BookKeeper's metadata have the same end and size of a ledger."""
    return listed.counted - 1 == known.last_entry and listed.size in (None, known.length)
