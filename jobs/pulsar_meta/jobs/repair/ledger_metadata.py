"""`repair ledger-metadata`: write BookKeeper's metadata of referenced ledgers that is lost or corrupt.

The topic's list has the end of each ledger but the last. The last one, and the ledgers of cursors, schemas
and compaction, become OPEN without an end, so that the next reader recovers them from the bookies. Quorums,
bookies, digest type and password come from the disks if these are given, or else from another ledger of the
same kind. What is readable of a damaged record comes first: its ensembles if they are complete and no disk
contradicts them, and its digest, password, end, creation time and custom metadata. Without ensembles and
disks the bookies of the ledger are unknown: unless every bookie has every entry, all
bookies become its ensemble, and a reader tries one after the other.

Sources: apache/bookkeeper PendingReadOp, LedgerRecoveryOp (an entry counts as missing if write quorum minus
ack quorum plus one bookies report that, which is all of them with an ack quorum of 1); apache/pulsar
LedgerMetadataUtils.java, ManagedLedgerImpl.initialize. Tested with 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.metadata.ledger_metadata import (
    CURRENT_VERSION,
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    salvage_ledger_metadata,
)
from pulsar_meta.codecs.names import (
    LEDGERS,
    TopicName,
    ledger_of_path,
    ledger_path,
)
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rebuild.ledgers import FoundLedger, ledger_on_disks
from pulsar_meta.jobs.rebuild.striping import Quorum
from pulsar_meta.jobs.repair.losses import NOTHING, Losses, change_losses
from pulsar_meta.jobs.repair.repair import Repair, becoming, undecided
from pulsar_meta.jobs.rewrite.decision import Decided, keep
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of
from pulsar_meta.jobs.topics.owners import Owner, custom_metadata, named_by, owner_in_custom, owners_of
from pulsar_meta.jobs.topics.scope import held_partitions
from pulsar_meta.jobs.topics.topic import Ledger, Report, Topic, parse_ledger_id, read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import ABSENT, Store, Versioned, current

COOKIES: Final = f"{LEDGERS}/cookies"
DEADLINE: Final = (
    "bookies delete the entries of ledgers without metadata at their next garbage collection; this repair"
    " can't bring deleted entries back"
)
NO_DISKS: Final = "bookies only answer for ledgers that have metadata: give their disks (bookie-disk:)"


class Named(NamedTuple):
    """A referenced ledger. `listed` is its place in the list, `last` is True for the last in the list."""

    owner: Owner
    listed: Ledger | None = None
    last: bool = False

    @property
    def who(self) -> str:
        """The owner, as text."""
        of = f" of {self.owner.cursor}" if self.owner.cursor else ""
        return f"{self.owner.role}{of} of {self.owner.name}"


def repair_ledger_metadata(
    store: Store, source: EntrySource | None, names: Sequence[str], report: Report, *, again: bool = False
) -> Repair:
    """Return what gives ledgers their metadata: those named by number, and those that the topics named name.

    Metadata that can be decoded stays, unless `again` is True. `source` has the bookies' disks. Other damage
    goes to `report`. Raises NotFoundError if there is no such topic, or if no record refers to a ledger.
    """
    named = {one.owner.ledger_id: one for one in _named(store, source, names, report)}
    disks = source if source is not None and all(part.bookies is not None for part in source.parts) else None
    maker = MetadataMaker(store, disks, report)
    decided, said, lost = list[Decided](), list[str](), list[Losses]()
    for ledger_id, one in sorted(named.items()):
        seen = current(store, ledger_path(ledger_id))
        decision, text = maker.decided(seen, one, again=again)
        decided.append(decision)
        if decision[1].new is not None and not _has_all_entries(disks, ledger_id, decision[1].new):
            lost.append(NOTHING if _decoded(seen) is None else change_losses(store, seen, decision[1].new))
        said += [f"ledger {ledger_id}, {one.who}: {text}"] if text else []
    if any(seen.version == ABSENT for seen, _ in decided):
        said.append(DEADLINE)
    why = "no --entries" if source is None else NO_DISKS
    return Repair(
        "ledger-metadata",
        tuple(decided),
        checked={"ledgers": len(decided)},
        not_checked={} if disks is not None else {"disks": why},
        said=tuple(said),
        losses=tuple(text for losses in lost for text in losses.texts),
        confirm=next((losses.confirm for losses in lost if losses.confirm is not None), None),
    )


def _has_all_entries(disks: EntrySource | None, ledger_id: int, value: bytes) -> bool:
    """Return True if new metadata ends a ledger at its last entry on the disks, or later."""
    last = None if disks is None else disks.last_entry(ledger_id)
    metadata = decode_ledger_metadata(value).metadata
    return last is not None and (not metadata.HasField("lastEntryId") or metadata.lastEntryId >= last)


def _named(store: Store, source: EntrySource | None, names: Sequence[str], report: Report) -> Iterator[Named]:
    ids = [parse_ledger_id(name) for name in names if name.isdecimal()]
    for ledger_id, found in owners_of(ids, store, source, report).items():
        # Ledgers that only the outdated list of a shadow topic has were deleted with the source's.
        named = [one for owner in found if (one := _with_list(store, owner)) is not None]
        if not named:
            raise NotFoundError(
                f"no topic, cursor or schema refers to ledger {ledger_id}, so nothing reads it",
                source=store.url,
            )
        yield named[0]
    for name in names:
        if not name.isdecimal():
            for topic in held_partitions(store, TopicName.parse(name))[0]:
                yield from _of_topic(store, source, topic)


def _with_list(store: Store, owner: Owner) -> Named | None:
    """Look up a ledger in the list of its topic; None if only the outdated list of a shadow has it."""
    if owner.role != "data":
        return Named(owner)
    topic = read_topic(store, TopicName.parse(owner.name))
    return next((one for one in _listed(topic) if one.owner.ledger_id == owner.ledger_id), None)


def _listed(topic: Topic) -> Iterator[Named]:
    """Yield the ledgers of a topic's list; a shadow's belong to its source."""
    name = topic.shadow.source if topic.shadow is not None and topic.shadow.source else topic.name
    for at, ledger in enumerate(topic.ledgers):
        owner = Owner(ledger.ledger_id, "data", name, None, topic.path)
        yield Named(owner, ledger, at == len(topic.ledgers) - 1)


def _of_topic(store: Store, source: EntrySource | None, name: TopicName) -> Iterator[Named]:
    yield from _listed(read_topic(store, name))
    for child in store.children(name.path):
        held = current(store, f"{name.path}/{child}")
        # A cursor that cannot be read names nothing.
        with suppress(DecodeError):
            yield from map(Named, named_by(held, source, lambda path, why: None))


@dataclass(slots=True)
class MetadataMaker:
    """Makes metadata, from `disks` if these are given."""

    store: Store
    disks: EntrySource | None
    report: Report
    # Metadata of another ledger, by role and topic.
    _patterns: dict[tuple[str, str], LedgerMetadataFormat | None] | None = None
    _bookies: tuple[str, ...] | None = None

    def decided(self, seen: Versioned, named: Named, *, again: bool) -> tuple[Decided, str]:
        """Decide about a ledger's metadata; also return a sentence about it, "" if it stays."""
        held = _decoded(seen)
        if held is not None and not again:
            return (seen, keep(seen, "already")), ""
        if named.listed is not None and named.listed.offload and named.listed.offload.is_only_copy:
            return (seen, keep(seen, "offloaded")), ""
        left = salvage_ledger_metadata(seen.value) if held is None and seen.version != ABSENT else None
        pattern = self._pattern(named)
        found = self._on_disks(named, pattern)
        is_placed = left is not None and self._is_placed(left, found)
        closed_at = None if left is None else _closed_at(left)
        why = _why_not(named, found, self.disks, pattern, closed_at, is_placed=is_placed)
        if why is not None:
            return undecided(seen, why), ""
        if left is not None and is_placed:
            metadata, whence = _placed_as(left, pattern), "bookies as in the readable part of the record"
        else:
            metadata = self._drawn(pattern, found)
            whence = self._whence(metadata, found)
        _keep_digest(metadata, left)
        end = _end(metadata, named, found, left if closed_at is not None else None)
        _keep_custom(metadata, held or left, custom_metadata(named.owner) if held is None else ())
        value = encode_ledger_metadata(LedgerMetadata(CURRENT_VERSION, metadata))
        return becoming(seen, value), f"{end}; {whence}"

    def _is_placed(self, left: LedgerMetadataFormat, found: FoundLedger | None) -> bool:
        """Return True if the readable part of a record has all ensembles, and nothing contradicts them.

        The field after the ensembles is readable, so they are complete. Their bookies have cookies, and
        include those whose disks have entries of the ledger.
        """
        members = {bookie for segment in left.segment for bookie in segment.ensembleMember}
        seen = {bookie for part in found.striping.segments for bookie in part.members} if found else set()
        known = self._known()
        complete = bool(left.segment) and left.HasField("digestType")
        sizes = 0 < left.quorumSize <= left.ensembleSize
        return complete and sizes and seen <= members and (not known or members <= set(known))

    def _on_disks(self, named: Named, pattern: LedgerMetadataFormat | None) -> FoundLedger | None:
        if self.disks is None:
            return None
        usual = [] if pattern is None else [Quorum(pattern.ensembleSize, pattern.quorumSize)]
        password = b"" if pattern is None else pattern.password
        return ledger_on_disks(self.disks, named.owner.ledger_id, self.report, password=password, usual=usual)

    def _drawn(self, pattern: LedgerMetadataFormat | None, found: FoundLedger | None) -> LedgerMetadataFormat:
        """Return quorums, bookies, digest and password."""
        drawn = LedgerMetadataFormat(state=LedgerMetadataFormat.OPEN, length=0)
        if pattern is not None:
            drawn.digestType, drawn.password = pattern.digestType, pattern.password
        if found is None:
            assert pattern is not None
            self._draw_ensemble(drawn, pattern)
            return drawn
        quorum = found.striping.quorum
        drawn.ensembleSize, drawn.quorumSize = quorum.ensemble, quorum.write
        acks = quorum.write if pattern is None else pattern.ackQuorumSize
        drawn.ackQuorumSize = 1 if found.striping.misfits else min(acks, quorum.write)
        drawn.password = b"" if pattern is None else pattern.password
        if found.digest_type is not None:
            drawn.MergeFrom(_digest(found.digest_type))
        for segment in found.striping.segments:
            drawn.segment.add(firstEntryId=segment.first_entry, ensembleMember=segment.members)
        return drawn

    def _draw_ensemble(self, drawn: LedgerMetadataFormat, pattern: LedgerMetadataFormat) -> None:
        members = sorted({one for part in pattern.segment for one in part.ensembleMember})
        everywhere = pattern.quorumSize == pattern.ensembleSize == len(members)
        known = self._known() or tuple(members)
        if everywhere and set(known) <= set(members):
            drawn.ensembleSize, drawn.quorumSize = pattern.ensembleSize, pattern.quorumSize
            drawn.ackQuorumSize = pattern.ackQuorumSize
        else:
            drawn.ensembleSize = drawn.quorumSize = len(known)
            drawn.ackQuorumSize = 1
            members = list(known)
        drawn.segment.add(firstEntryId=0, ensembleMember=members)

    def _known(self) -> tuple[str, ...]:
        """Return the bookies that have a cookie."""
        if self._bookies is None:
            self._bookies = tuple(sorted(self.store.children(COOKIES)))
        return self._bookies

    def _whence(self, metadata: LedgerMetadataFormat, found: FoundLedger | None) -> str:
        members = metadata.segment[0].ensembleMember
        if found is not None:
            unsure = f" ({', '.join(found.unsure)})" if found.unsure else ""
            return f"bookies and digest type from the disks{unsure}"
        if metadata.ackQuorumSize == 1 and len(members) > 1:
            return (
                f"it is unknown which of {len(members)} bookies had it, so brokers ask each of them, and all"
                " must be up; with their disks in --entries, this is known"
            )
        return "bookies and digest type copied from a similar ledger"

    def _pattern(self, named: Named) -> LedgerMetadataFormat | None:
        """Return the metadata of a ledger of the same kind, preferably of the same topic."""
        if self._patterns is None:
            self._patterns = {}
        role = "compacted" if named.owner.role == "compacted" else "data"
        key = role, named.owner.name
        if key not in self._patterns:
            self._patterns[key] = self._near(named) if role == "data" else None
            if self._patterns[key] is None:
                self._patterns[key] = self._anywhere(role, named.owner.ledger_id)
        return self._patterns[key]

    def _near(self, named: Named) -> LedgerMetadataFormat | None:
        if named.owner.path is None or named.owner.role != "data":
            return None
        with suppress(NotFoundError, DecodeError):
            topic = read_topic(self.store, TopicName.parse(named.owner.name))
            ids = sorted(
                # With --again, its own metadata is wrong.
                (one.ledger_id for one in topic.ledgers if one.ledger_id != named.owner.ledger_id),
                key=lambda one: abs(one - named.owner.ledger_id),
            )
            found = (_decoded(current(self.store, ledger_path(one))) for one in ids)
            return next((one for one in found if one is not None and one.segment), None)
        return None

    def _anywhere(self, role: str, but: int) -> LedgerMetadataFormat | None:
        for record in self.store.scan(LEDGERS):
            ledger_id, held = ledger_of_path(record.path), _decoded(record)
            if ledger_id in (None, but) or held is None or not held.segment:
                continue
            assert ledger_id is not None
            owner = owner_in_custom(ledger_id, bookkeeper_ledger_of(ledger_id, record).custom)
            if owner is not None and (owner.role == "compacted") == (role == "compacted"):
                return held
        return None


def _digest(name: DigestType) -> LedgerMetadataFormat:
    # Fields that are required are merged as little as others.
    return LedgerMetadataFormat(digestType=name)


def _decoded(seen: Versioned) -> LedgerMetadataFormat | None:
    """Decode a ledger's metadata, None if it is missing or damaged."""
    try:
        return None if seen.version == ABSENT else decode_ledger_metadata(seen.value).metadata
    except DecodeError:
        return None


def _placed_as(left: LedgerMetadataFormat, pattern: LedgerMetadataFormat | None) -> LedgerMetadataFormat:
    """Return quorums and bookies of a damaged record whose ensembles are readable."""
    placed = LedgerMetadataFormat(state=LedgerMetadataFormat.OPEN, length=0)
    placed.password = b"" if pattern is None else pattern.password
    placed.ensembleSize, placed.quorumSize = left.ensembleSize, left.quorumSize
    acks = left.ackQuorumSize if left.HasField("ackQuorumSize") else left.quorumSize
    placed.ackQuorumSize = acks if 0 < acks <= left.quorumSize else left.quorumSize
    placed.segment.extend(left.segment)
    return placed


def _keep_digest(metadata: LedgerMetadataFormat, left: LedgerMetadataFormat | None) -> None:
    """Keep the readable digest type and password of a damaged record."""
    if left is not None and left.HasField("digestType"):
        metadata.digestType = left.digestType
    if left is not None and left.HasField("password"):
        metadata.password = left.password


def _keep_custom(
    metadata: LedgerMetadataFormat,
    before: LedgerMetadataFormat | None,
    usual: Iterable[tuple[str, bytes]],
) -> None:
    """Keep the creation time and the custom metadata of a record, and add the usual pairs that it lacks."""
    pairs = {} if before is None else {pair.key: pair.value for pair in before.customMetadata}
    for key, value in (dict(usual) | pairs).items():
        metadata.customMetadata.add(key=key, value=value)
    if before is not None and before.HasField("ctime"):
        metadata.ctime = before.ctime


def _closed_at(left: LedgerMetadataFormat) -> int | None:
    """Return the last entry in the readable part of a record; None unless the ledger is closed there."""
    closed = left.HasField("state") and left.state == LedgerMetadataFormat.CLOSED
    return left.lastEntryId if closed and left.HasField("lastEntryId") and left.lastEntryId >= -1 else None


def _why_not(
    named: Named,
    found: FoundLedger | None,
    disks: EntrySource | None,
    pattern: LedgerMetadataFormat | None,
    closed_at: int | None,
    *,
    is_placed: bool,
) -> str | None:
    """Return the reason why no metadata can be made, None if it can.

    `closed_at` is the last entry in the readable part of the record; `is_placed` is True if it has the
    ensembles.
    """
    middle = named.listed is not None and not named.last
    counted = named.listed.counted if named.listed is not None and middle else 0
    if counted and closed_at is not None and counted != closed_at + 1 and found is None:
        return (
            f"the list counts {counted} entries, and the readable part of the record ends at {closed_at}:"
            " give the bookies' disks with --entries"
        )
    if middle and found is None and disks is not None and disks.whole_ledgers:
        return "the disks have no entry of it: if you gave all disks, it is lost (repair missing-ledger)"
    if found is not None and found.refused is not None:
        return found.refused
    if found is None and pattern is None and not is_placed:
        return "no other ledger can serve as a model: give the bookies' disks with --entries"
    if middle and not counted and found is None and closed_at is None:
        return "the list has no entry count for it, and only the disks know how many it has: give --entries"
    return None


def _end(
    metadata: LedgerMetadataFormat,
    named: Named,
    found: FoundLedger | None,
    left: LedgerMetadataFormat | None,
) -> str:
    """Close the ledger if its end is known; return a sentence about it.

    `left` is the readable part of a record that says where the ledger ends.
    """
    listed = named.listed
    on_disks = 0 if found is None else found.last_entry + 1
    counted = 0 if listed is None or named.last else listed.counted
    if left is not None and counted in (0, left.lastEntryId + 1) and on_disks <= left.lastEntryId + 1:
        metadata.state, metadata.lastEntryId = LedgerMetadataFormat.CLOSED, left.lastEntryId
        metadata.length = left.length
        return (
            f"CLOSED at entry {left.lastEntryId}, {left.length} bytes, as in the readable part of the record"
        )
    if listed is None or named.last:
        return "OPEN, so that the broker recovers it on opening"
    counted = listed.counted or on_disks
    metadata.state, metadata.lastEntryId = LedgerMetadataFormat.CLOSED, counted - 1
    whole = found is not None and found.last_entry == counted - 1 and found.length is not None
    metadata.length = (found.length or 0) if found is not None and whole else listed.size or 0
    fewer = ""
    if found is not None and found.last_entry < counted - 1:
        fewer = f" (the disks given end at {found.last_entry})"
    return f"CLOSED at entry {counted - 1}, {metadata.length} bytes{fewer}"
