"""BookKeeper's metadata of ledgers, made again from the disks that hold their entries. Needs NumPy.

What the disks say: the last entry, the bytes up to it (in its header), the digest type (by trial), the
ensemble and the write quorum (by which bookie has which entry), the master key. What they do not: the ack
quorum, the custom metadata, and whether a ledger was closed. Each is closed at its last entry, as recovery
would.

Sources: apache/bookkeeper LedgerMetadataBuilder.java, proto/checksum/DigestManager.java.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.metadata.ledger_metadata import (
    CURRENT_VERSION,
    LedgerMetadata,
    encode_ledger_metadata,
)
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_client import Segment
from pulsar_meta.jobs.disk.held import by_bookie
from pulsar_meta.jobs.rebuild.striping import Quorum, Striping, chosen, stripings, usual_quorums
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat

# Entries whose digests are tried, from the last one back.
TRIED: Final = 8

Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FoundLedger:
    """A ledger as its entries show it.

    `missing` are runs (first, last) of entries that no disk has. `digest_type` is None where no digest that
    was tried is right. `key_checked` says that the master key on the disk is that of the password. `refused`
    is why no metadata can be written, `unsure` what in it the disks leave open.
    """

    ledger_id: int
    entries: int
    last_entry: int
    length: int | None
    digest_type: DigestType | None
    striping: Striping
    missing: Runs = ()
    fenced: bool = False
    key_checked: bool = False
    refused: str | None = None
    unsure: tuple[str, ...] = ()

    def value(self, password: bytes, ack_quorum: int | None = None) -> bytes:
        """Return the value that BookKeeper keeps of it, closed; only where it is not refused."""
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
class Examined:
    """What the entries of one ledger show, before the other ledgers have their say about quorums.

    `choices` are the ways in which it can be striped, `members` the bookies that have entries of it, `key` is
    the master key on the disk; the rest is as in FoundLedger.
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


Disks = Sequence[tuple[str, EntrySource]]


def judged(every: Sequence[Examined], password: bytes) -> Iterator[FoundLedger]:
    """Yield each of the ledgers with the striping that fits it, the most usual one where several do."""
    usual = usual_quorums(one.choices for one in every)
    for one in every:
        yield _with_striping(one, chosen(one.choices, usual), password)


def _with_striping(one: Examined, found: Striping | None, password: bytes) -> FoundLedger:
    striping = found or _everywhere(one.members)
    return FoundLedger(
        ledger_id=one.ledger_id,
        entries=one.entries,
        last_entry=one.last_entry,
        length=one.length,
        digest_type=one.digest_type,
        striping=striping,
        missing=one.missing,
        fenced=one.fenced,
        key_checked=one.key is not None,
        refused=_refusal(one.key, password, one.length, one.digest_type),
        unsure=tuple(_unsure(striping, one.key)),
    )


def disks_of(source: EntrySource) -> Disks:
    """Return the disks of each bookie with its id."""
    return [(bookie or "", disk) for bookie, disk in by_bookie(source)]


def examine(
    source: EntrySource,
    disks: Disks,
    ledger_id: int,
    report: Report,
    *,
    password: bytes = b"",
    lost: Sequence[str] = (),
) -> Examined:
    """Return what the entries of one ledger show; damage goes to `report`, UnreachableError from the source.

    `password` is the one that brokers gave to ledgers, `lost` are the ids of bookies whose disks are
    not here.
    """
    held = {bookie: _entry_ids(disk, ledger_id) for bookie, disk in disks}
    every = np.unique(np.concatenate(list(held.values())))
    length, digest_type = _tried(source, ledger_id, every, password, report)
    key, fenced = _noted(source, ledger_id, report)
    return Examined(
        ledger_id=ledger_id,
        entries=len(every),
        last_entry=int(every[-1]),
        length=length,
        digest_type=digest_type,
        choices=tuple(stripings(held, lost)),
        members=tuple(bookie for bookie, mine in held.items() if len(mine)),
        missing=_gaps(every),
        key=key,
        fenced=fenced,
    )


def found_ledger(
    source: EntrySource,
    ledger_id: int,
    report: Report,
    *,
    password: bytes = b"",
    usual: Sequence[Quorum] = (),
) -> FoundLedger | None:
    """Return one ledger as its entries on the disks show it, None where they have no entry of it.

    `usual` are the quorums that others have, the most usual first; of those that fit they are preferred.
    Damage goes to `report`; UnreachableError from the source.
    """
    if source.last_entry(ledger_id) is None:
        return None
    one = examine(source, disks_of(source), ledger_id, report, password=password)
    order = dict.fromkeys([*usual, *usual_quorums([one.choices])])
    return _with_striping(one, chosen(one.choices, list(order)), password)


def master_key(password: bytes) -> bytes:
    """Return what bookies keep of a ledger's password."""
    # SHA-1 is part of the format.
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def _entry_ids(disk: EntrySource, ledger_id: int) -> NDArray[np.int64]:
    """Return the entries that one bookie has of a ledger, in order."""
    located = disk.located(ledger_id)
    if located is None:
        return np.fromiter(disk.entry_ids(ledger_id), np.int64)
    parts = [np.frombuffer(table.entry_ids, np.int64) for _, table in located]
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def _everywhere(members: tuple[str, ...]) -> Striping:
    """Return an ensemble of all bookies that have entries: any entry is found by asking each of them."""
    return Striping(Quorum(len(members), len(members)), (Segment(0, members),), misfits=1)


def _tried(
    source: EntrySource, ledger_id: int, every: NDArray[np.int64], password: bytes, report: Report
) -> tuple[int | None, DigestType | None]:
    """Return (bytes up to the last entry, the digest type that fits), None where that cannot be read."""
    length: int | None = None
    for entry_id in every[: -TRIED - 1 : -1].tolist():
        try:
            raw = source.read(ledger_id, entry_id)
            entry = decode_bookie_entry(raw.data, password=password)
        except (DecodeError, NotFoundError) as error:
            if isinstance(error, DecodeError):
                report(error)
            continue
        if entry_id == every[-1]:
            length = entry.length
        if entry.digest == "ok":
            return length, entry.digest_type
    return length, None


def _noted(source: EntrySource, ledger_id: int, report: Report) -> tuple[bytes | None, bool]:
    try:
        note = source.ledger_note(ledger_id)
    except DecodeError as error:
        report(error)
        note = None
    return (None, False) if note is None else (note.master_key, note.fenced)


def _gaps(every: NDArray[np.int64]) -> Runs:
    """Return the runs of entries from 0 on that are not there."""
    before = np.concatenate([[-1], every[:-1]])
    at = np.flatnonzero(every - before > 1)
    return tuple((int(before[row]) + 1, int(every[row]) - 1) for row in at)


def _refusal(
    key: bytes | None, password: bytes, length: int | None, digest_type: DigestType | None
) -> str | None:
    """Return why the metadata would be wrong, so that none is better."""
    if key is not None and key != master_key(password):
        given = "the password given" if password else "the empty password"
        return f"its master key is not that of {given}"
    if length is None:
        return "its last entry cannot be read"
    if digest_type is None:
        return "no digest fits its entries"
    return None


def _unsure(striping: Striping, key: bytes | None) -> Iterator[str]:
    if key is None:
        yield "no disk has its master key: the password was not checked"
    if striping.ambiguous:
        yield "other orders of its bookies fit as well"
    if striping.misfits:
        yield "some entries are not where its ensemble puts them"
    if len(striping.segments) > 1:
        yield f"{len(striping.segments)} ensembles, by where its entries lie"
