"""What BookKeeper's own metadata says of a ledger, as far as checks compare it.

A ledger's owner (by its custom metadata) is known in a pass by a mark of 8 bytes; whoever finds two equal
marks reads the names again before saying so.

Sources: apache/bookkeeper DataFormats.proto (LedgerMetadataFormat); apache/pulsar LedgerMetadataUtils.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.metadata.ledger_metadata import custom_metadata, ledger_message
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, created_in, ledger_in
from pulsar_meta.jobs.topics.owners import Owner, Role, owner_in_custom
from pulsar_meta.jobs.topics.topic import LEDGERS_AT_ONCE, Metadata
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import Store, Versioned

# By their numbers.
STATES: Final = ("", "OPEN", "IN_RECOVERY", "CLOSED")


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

    `last_entry` is None until it is closed; `role` is what it was created for by its custom metadata, "other"
    something else of Pulsar, "" where nothing says that it is Pulsar's; `mark` is that of its owner, 0 for
    none; `bookies` says where it lies. `known` is the whole of it where the ledger was read by itself.
    """

    metadata: Metadata = "unread"
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


class Created(NamedTuple):
    """The ledgers that were created for a topic, by their custom metadata: its data, its compacted data."""

    data: Sequence[int] = ()
    compacted: Sequence[int] = ()


NOTHING: Final = Created()


class Ledgers(Protocol):
    """Where a pass over the store finds what BookKeeper says of the ledgers that records name."""

    def several(self, ledger_ids: Iterable[int]) -> FactsOf:
        """Return what knows these ledgers, and any other."""
        ...

    def created(self, name: TopicName, listed: bool) -> Created | None:
        """Return what was created for a topic, None where nobody looked; `listed`: it has a list itself."""
        ...


def mark_of(role: Role, name: str, cursor: str | None = None) -> int:
    """Return the mark of an owner: 8 bytes, signed, that two owners share about never, and never 0."""
    text = "\0".join((role, name, cursor or "")).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True) or 1


def facts_of(ledger_id: int, record: Versioned) -> LedgerFacts:
    """Return what the metadata of a ledger says but for the whole of it; DecodeError, naming the record."""
    return _facts_in(ledger_id, _metadata(record), record)


def read_facts(store: Store, ledger_ids: Iterable[int]) -> dict[int, LedgerFacts]:
    """Return what BookKeeper says of these ledgers just now; numbers that no ledger can have are absent."""
    wanted = set(ledger_ids)
    ids = sorted(one for one in wanted if one >= 0)
    found = dict.fromkeys(wanted - set(ids), ABSENT)
    for at in range(0, len(ids), LEDGERS_AT_ONCE):
        some = ids[at : at + LEDGERS_AT_ONCE]
        for ledger_id, record in zip(some, store.read_many([*map(ledger_path, some)]), strict=True):
            found[ledger_id] = _read_one(ledger_id, record)
    return found


def _read_one(ledger_id: int, record: Versioned | None) -> LedgerFacts:
    if record is None:
        return ABSENT
    try:
        metadata = _metadata(record)
    except DecodeError:
        return BROKEN
    return _facts_in(ledger_id, metadata, record)._replace(known=ledger_in(ledger_id, metadata))


def _metadata(record: Versioned) -> LedgerMetadataFormat:
    with decoding(record.path):
        return ledger_message(record.value)


def _facts_in(ledger_id: int, metadata: LedgerMetadataFormat, record: Versioned) -> LedgerFacts:
    custom = custom_metadata(metadata)
    owner = owner_in_custom(ledger_id, custom)
    role = "other" if custom.get("application") == "pulsar" else ""
    closed = metadata.state == LedgerMetadataFormat.CLOSED
    return LedgerFacts(
        "known",
        STATES[metadata.state],
        metadata.lastEntryId if closed else None,
        metadata.length if closed else 0,
        role if owner is None else owner.role,
        0 if owner is None else mark_of(owner.role, owner.name, owner.cursor),
        created_in(metadata) or record.created,
        _members(
            metadata.quorumSize,
            metadata.ackQuorumSize or metadata.quorumSize,
            *[tuple(part.ensembleMember) for part in metadata.segment],
        ),
    )


@lru_cache(maxsize=1024)
def _members(write_quorum: int, ack_quorum: int, *segments: tuple[str, ...]) -> Members:
    return Members(write_quorum, ack_quorum, segments)
