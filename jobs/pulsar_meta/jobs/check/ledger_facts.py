"""The facts in BookKeeper's metadata of a ledger that checks compare.

During a scan a ledger's owner (from its custom metadata) is known only by a hash of 8 bytes. A rule that
finds two equal hashes reads the names again before it reports anything.

Sources: apache/bookkeeper DataFormats.proto (LedgerMetadataFormat); apache/pulsar LedgerMetadataUtils.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.metadata.ledger_metadata import (
    custom_metadata,
    ledger_message,
    salvage_ledger_metadata,
)
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, created_in, ledger_in
from pulsar_meta.jobs.topics.owners import Owner, Role, owner_in_custom
from pulsar_meta.jobs.topics.topic import LEDGERS_AT_ONCE, Metadata
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import Store, Versioned

# The names of BookKeeper's states, by number.
STATES: Final = ("", "OPEN", "IN_RECOVERY", "CLOSED")
# The types of digests, by number.
DIGESTS: Final = ("", "CRC32", "HMAC", "CRC32C", "DUMMY")
# An index of all ledgers has the remainders of their lengths by this prime number, which fit into 15 bits.
LENGTHS: Final = 32_749


class Members(NamedTuple):
    """The bookies of a ledger's ensembles, one tuple per segment, and the number of copies of each entry.

    `ordered` is False if the segments don't begin at entry 0, or are not in order. `size` is the number of
    bookies that every ensemble must have, 0 if it is unknown.
    """

    write_quorum: int = 0
    ack_quorum: int = 0
    segments: tuple[tuple[str, ...], ...] = ()
    ordered: bool = True
    size: int = 0

    @property
    def all(self) -> frozenset[str]:
        """Every bookie in any ensemble."""
        return frozenset(bookie for segment in self.segments for bookie in segment)

    @property
    def fault(self) -> str | None:
        """The reason for which no client can use these ensembles, None for valid ones."""
        size = min(map(len, self.segments), default=0)
        if not self.ordered:
            return "its ensembles don't begin at entry 0, or are not in order"
        if not 0 < self.write_quorum <= size:
            return f"its write quorum is {self.write_quorum}, and an ensemble has {size} bookies"
        if self.ack_quorum > self.write_quorum:
            return f"its ack quorum of {self.ack_quorum} exceeds its write quorum of {self.write_quorum}"
        if self.size and any(len(segment) != self.size for segment in self.segments):
            return f"its ensemble size is {self.size}, and an ensemble has {size} bookies"
        twice = any(len(set(segment)) < len(segment) for segment in self.segments)
        return "a bookie is in an ensemble twice" if twice else None

    def without_copy(self, gone: Set[str]) -> bool:
        """Return True if some entries have all their copies on bookies in `gone`."""
        return any(
            all(segment[(first + copy) % len(segment)] in gone for copy in range(self.write_quorum))
            for segment in self.segments
            for first in range(len(segment))
        )


class LedgerFacts(NamedTuple):
    """The facts about a ledger that checks compare.

    `last_entry` is None until the ledger is closed. `length` is in bytes; an index of all ledgers only has
    its remainder by LENGTHS. `role` is the purpose in the custom metadata, "other" for
    another purpose of Pulsar, "" if nothing marks the ledger as Pulsar's. `owner_hash` is 0 without an owner.
    `bookies` are its ensembles, `digest` is the type of its entries' digests, and `has_password` tells if it
    has one that is not empty. `full` is the complete metadata
    if the ledger was read individually. `fault` says why metadata is broken, and what of it is readable.
    """

    metadata: Metadata = "unread"
    state: str = ""
    last_entry: int | None = None
    length: int = 0
    role: str = ""
    owner_hash: int = 0
    created: int | None = None
    bookies: Members = Members()
    digest: str = ""
    full: BookkeeperLedger | None = None
    fault: str = ""
    has_password: bool = False

    def may_have_length(self, size: int) -> bool:
        """Return False if the ledger certainly has another length in bytes."""
        return self.length == size if self.full is not None else self.length % LENGTHS == size % LENGTHS

    @property
    def owner(self) -> Owner | None:
        """The owner in the custom metadata, None if there is none or the ledger was not read individually."""
        return None if self.full is None else owner_in_custom(self.full.ledger_id, self.full.custom)

    @property
    def purpose(self) -> str:
        """The purpose and the owner in the custom metadata, for a text after "was created as"."""
        owner = self.owner
        return f"{self.role} of something else" if owner is None else f"{owner.role} of {owner.name}"

    @property
    def owner_evidence(self) -> dict[str, str]:
        """The owner as evidence of a finding; empty if it is unknown."""
        owner = self.owner
        return {} if owner is None else {"owner": owner.name, "role": owner.role}


UNREAD: Final = LedgerFacts()
ABSENT: Final = LedgerFacts("absent")
BROKEN: Final = LedgerFacts("broken")
FactsOf = Callable[[int], LedgerFacts]


class OwnedLedgers(NamedTuple):
    """The ledgers whose custom metadata names a topic, for its data and for its compacted data."""

    data: Sequence[int] = ()
    compacted: Sequence[int] = ()


NO_LEDGERS: Final = OwnedLedgers()


class Ledgers(Protocol):
    """Facts about the ledgers that records refer to."""

    def lookup(self, ledger_ids: Iterable[int]) -> FactsOf:
        """Return a function from a ledger's id to its facts, prepared for these ledgers."""
        ...

    def owned_by(self, name: TopicName, listed: bool) -> OwnedLedgers | None:
        """Return the ledgers of a topic, None if not all ledgers are known; `listed`: it has a list."""
        ...


def owner_hash(role: Role, name: str, cursor: str | None = None) -> int:
    """Return a signed hash of 8 bytes for an owner, never 0."""
    text = "\0".join((role, name, cursor or "")).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True) or 1


def facts_of(ledger_id: int, record: Versioned) -> LedgerFacts:
    """Return the facts in a metadata record, without `full`. Raises DecodeError, which names the record."""
    return _facts_in(ledger_id, _metadata(record), record)


def broken_metadata(record: Versioned, error: DecodeError) -> DecodeError:
    """Add to an error what of a ledger's broken metadata is still readable."""
    left = salvage_ledger_metadata(record.value)
    parts = [LedgerMetadataFormat.State.Name(left.state)] if left.HasField("state") else []
    if left.HasField("lastEntryId"):
        parts.append(f"last entry {left.lastEntryId}")
    bookies = {bookie for segment in left.segment for bookie in segment.ensembleMember}
    parts += [f"bookies {', '.join(sorted(bookies))}"] if bookies else []
    readable = f"readable: {', '.join(parts)}" if parts else "none of it is readable"
    return DecodeError(f"{error.message}; {readable}", offset=error.offset, source=error.source)


def read_facts(store: Store, ledger_ids: Iterable[int]) -> dict[int, LedgerFacts]:
    """Read the current metadata of these ledgers; negative ids are absent."""
    wanted = set(ledger_ids)
    ids = sorted(ledger_id for ledger_id in wanted if ledger_id >= 0)
    facts = dict.fromkeys(wanted - set(ids), ABSENT)
    for at in range(0, len(ids), LEDGERS_AT_ONCE):
        batch = ids[at : at + LEDGERS_AT_ONCE]
        for ledger_id, record in zip(batch, store.read_many([*map(ledger_path, batch)]), strict=True):
            facts[ledger_id] = _facts_or_fault(ledger_id, record)
    return facts


def _facts_or_fault(ledger_id: int, record: Versioned | None) -> LedgerFacts:
    if record is None:
        return ABSENT
    try:
        metadata = _metadata(record)
    except DecodeError as error:
        return BROKEN._replace(fault=broken_metadata(record, error).message)
    return _facts_in(ledger_id, metadata, record)._replace(full=ledger_in(ledger_id, metadata))


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
        0 if owner is None else owner_hash(owner.role, owner.name, owner.cursor),
        created_in(metadata) or record.created,
        _members(
            metadata.quorumSize,
            metadata.ackQuorumSize or metadata.quorumSize,
            metadata.ensembleSize,
            _are_ordered([part.firstEntryId for part in metadata.segment]),
            *[tuple(part.ensembleMember) for part in metadata.segment],
        ),
        DIGESTS[metadata.digestType] if metadata.HasField("digestType") else "",
        has_password=bool(metadata.password),
    )


def _are_ordered(firsts: list[int]) -> bool:
    return firsts[:1] == [0] and (len(firsts) == 1 or firsts == sorted(set(firsts)))


@lru_cache(maxsize=1024)
def _members(
    write_quorum: int, ack_quorum: int, size: int, ordered: bool, *segments: tuple[str, ...]
) -> Members:
    return Members(write_quorum, ack_quorum, segments, ordered, size)
