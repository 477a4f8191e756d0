"""Rebuild BookKeeper's metadata of ledgers from the disks that hold their entries. Needs NumPy.

The disks show the last entry, the number of bytes (in its header), the digest type (by trial), the ensemble
and the write quorum (by which bookie has which entries), and the master key. They do not show the ack quorum,
the custom metadata, and whether the ledger was closed. Each ledger is closed at its last entry, as recovery
would close it.

Sources: apache/bookkeeper LedgerMetadataBuilder.java, proto/checksum/DigestManager.java.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry, master_key
from pulsar_meta.codecs.metadata.ledger_metadata import (
    CURRENT_VERSION,
    LedgerMetadata,
    encode_ledger_metadata,
)
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_client import Segment
from pulsar_meta.jobs.disk.contents import by_bookie
from pulsar_meta.jobs.rebuild.striping import (
    Quorum,
    Striping,
    choose_striping,
    possible_stripings,
    usual_quorums,
)
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat

# How many entries are tried for the digest type, from the last one back.
TRIED: Final = 8

Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FoundLedger:
    """A ledger as its entries show it.

    `missing` are runs (first, last) of entries that no disk has. `unreadable` are runs of entries that a disk
    should have and that can't be read, which may be after the last entry. `digest_type` is None if no digest
    matches. `refused` is the reason why no metadata can be written, `unsure` what remains uncertain in it.
    """

    ledger_id: int
    entries: int
    last_entry: int
    length: int | None
    digest_type: DigestType | None
    striping: Striping
    missing: Runs = ()
    fenced: bool = False
    refused: str | None = None
    unsure: tuple[str, ...] = ()
    unreadable: Runs = ()

    def value(self, password: bytes, ack_quorum: int | None = None) -> bytes:
        """Encode BookKeeper's metadata of the ledger, as closed. Call it only if `refused` is None."""
        metadata = LedgerMetadataFormat(
            quorumSize=self.striping.quorum.write,
            ensembleSize=self.striping.quorum.ensemble,
            length=self.length or 0,
            lastEntryId=self.last_entry,
            state=LedgerMetadataFormat.CLOSED,
            digestType=self.digest_type,
            password=password,
            ackQuorumSize=min(ack_quorum or self.striping.quorum.write, self.striping.quorum.write),
        )
        for segment in self.striping.segments:
            metadata.segment.add(firstEntryId=segment.first_entry, ensembleMember=segment.members)
        return encode_ledger_metadata(LedgerMetadata(CURRENT_VERSION, metadata))


@dataclass(frozen=True, slots=True)
class ExaminedLedger:
    """What the entries of one ledger show, before the quorum is chosen by comparison with other ledgers.

    `choices` are the possible stripings, `members` the bookies that have entries, `key` is the master key
    on the disk. The other fields are those of FoundLedger.
    """

    ledger_id: int
    entries: int
    last_entry: int
    length: int | None
    digest_type: DigestType | None
    choices: tuple[Striping, ...]
    members: tuple[str, ...]
    missing: Runs = ()
    key: bytes | None = None
    fenced: bool = False
    unreadable: Runs = ()


Disks = Sequence[tuple[str, EntrySource]]


def choose_stripings(examined: Sequence[ExaminedLedger], password: bytes) -> Iterator[FoundLedger]:
    """Choose a striping for each ledger: one that fits, and the most usual one if several do."""
    usual = usual_quorums(ledger.choices for ledger in examined)
    for ledger in examined:
        yield _with_striping(ledger, choose_striping(ledger.choices, usual), password)


def _with_striping(ledger: ExaminedLedger, choose_striping: Striping | None, password: bytes) -> FoundLedger:
    striping = choose_striping or _everywhere(ledger.members)
    return FoundLedger(
        ledger_id=ledger.ledger_id,
        entries=ledger.entries,
        last_entry=ledger.last_entry,
        length=ledger.length,
        digest_type=ledger.digest_type,
        striping=striping,
        missing=ledger.missing,
        fenced=ledger.fenced,
        refused=_refusal(ledger.key, password, ledger.length, ledger.digest_type),
        unsure=tuple(_unsure(striping, ledger.key)),
        unreadable=ledger.unreadable,
    )


def disks_of(source: EntrySource) -> Disks:
    """Pair each bookie's id with its disks."""
    return [(bookie or "", disk) for bookie, disk in by_bookie(source)]


def examine(
    source: EntrySource,
    disks: Disks,
    ledger_id: int,
    report: Report,
    *,
    password: bytes = b"",
    lost: Sequence[str] = (),
    readable: EntrySource | None = None,
) -> ExaminedLedger:
    """Examine the entries of one ledger; damage goes to `report`. Raises UnreachableError.

    `password` is the one that brokers use for ledgers, `lost` are the ids of bookies whose disks are not
    available. `readable` is the source without the entries that can't be read. Those show only which bookies
    stored them.
    """
    readable = readable or source
    entry_ids = _entry_ids(readable, ledger_id)
    stored = {bookie: _entry_ids(disk, ledger_id) for bookie, disk in disks}
    ids_by_bookie = {bookie: own_ids[own_ids <= entry_ids[-1]] for bookie, own_ids in stored.items()}
    length, digest_type = _length_and_digest(readable, ledger_id, entry_ids, password, report)
    key, fenced = _key_and_fence(source, ledger_id, report)
    return ExaminedLedger(
        ledger_id=ledger_id,
        entries=len(entry_ids),
        last_entry=int(entry_ids[-1]),
        length=length,
        digest_type=digest_type,
        choices=tuple(possible_stripings(ids_by_bookie, lost)),
        members=tuple(bookie for bookie, own_ids in ids_by_bookie.items() if len(own_ids)),
        missing=_gaps(entry_ids),
        key=key,
        fenced=fenced,
    )


def ledger_on_disks(
    source: EntrySource,
    ledger_id: int,
    report: Report,
    *,
    password: bytes = b"",
    usual: Sequence[Quorum] = (),
) -> FoundLedger | None:
    """Derive the metadata of one ledger from its entries; None if the disks have no entry of it.

    `usual` are the quorums of other ledgers, the most usual first, which are preferred if they fit. Damage
    goes to `report`. Raises UnreachableError.
    """
    if source.last_entry(ledger_id) is None:
        return None
    ledger = examine(source, disks_of(source), ledger_id, report, password=password)
    order = dict.fromkeys([*usual, *usual_quorums([ledger.choices])])
    return _with_striping(ledger, choose_striping(ledger.choices, list(order)), password)


def _entry_ids(disk: EntrySource, ledger_id: int) -> NDArray[np.int64]:
    """The sorted ids of the entries that one bookie has of a ledger."""
    located = disk.located(ledger_id)
    if located is None:
        return np.fromiter(disk.entry_ids(ledger_id), np.int64)
    parts = [np.frombuffer(table.entry_ids, np.int64) for _, table in located]
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def _everywhere(members: tuple[str, ...]) -> Striping:
    """An ensemble of all bookies with entries: readers find any entry by asking each of them."""
    return Striping(Quorum(len(members), len(members)), (Segment(0, members),), misfits=1)


def _length_and_digest(
    source: EntrySource, ledger_id: int, entry_ids: NDArray[np.int64], password: bytes, report: Report
) -> tuple[int | None, DigestType | None]:
    """Find (bytes up to the last entry, digest type); None for each that can't be determined."""
    length: int | None = None
    for entry_id in entry_ids[: -TRIED - 1 : -1].tolist():
        try:
            raw = source.read(ledger_id, entry_id)
            entry = decode_bookie_entry(raw.data, password=password)
        except (DecodeError, NotFoundError) as error:
            if isinstance(error, DecodeError):
                report(error)
            continue
        if entry_id == entry_ids[-1]:
            length = entry.length
        if entry.digest == "ok":
            return length, entry.digest_type
    return length, None


def _key_and_fence(source: EntrySource, ledger_id: int, report: Report) -> tuple[bytes | None, bool]:
    try:
        state = source.ledger_state(ledger_id)
    except DecodeError as error:
        report(error)
        state = None
    return (None, False) if state is None else (state.master_key, state.fenced)


def _gaps(entry_ids: NDArray[np.int64]) -> Runs:
    """The runs of missing entries before the last one."""
    before = np.concatenate([[-1], entry_ids[:-1]])
    at = np.flatnonzero(entry_ids - before > 1)
    return tuple((int(before[row]) + 1, int(entry_ids[row]) - 1) for row in at)


def as_runs(entry_ids: Sequence[int]) -> Runs:
    """Join sorted entry ids to runs (first, last)."""
    runs = list[tuple[int, int]]()
    for entry_id in entry_ids:
        if runs and runs[-1][1] == entry_id - 1:
            runs[-1] = runs[-1][0], entry_id
        else:
            runs.append((entry_id, entry_id))
    return tuple(runs)


def _refusal(
    key: bytes | None, password: bytes, length: int | None, digest_type: DigestType | None
) -> str | None:
    """Explain why the metadata would be wrong; None if it can be written."""
    if key is not None and key != master_key(password):
        given = "the password given" if password else "the empty password"
        return f"its master key does not match {given}"
    if length is None:
        return "its last entry can't be read"
    if digest_type is None:
        return "no digest type matches its entries"
    return None


def _unsure(striping: Striping, key: bytes | None) -> Iterator[str]:
    if key is None:
        yield "no disk has its master key, so the password was not checked"
    if striping.ambiguous:
        yield "other orders of its bookies are possible"
    if striping.misfits:
        yield "some entries are not on the bookies that its ensemble assigns"
    if len(striping.segments) > 1:
        yield f"it has {len(striping.segments)} ensembles, judging by the bookies that hold its entries"
