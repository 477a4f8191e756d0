"""`repair topic-record`: rebuild the list of a topic's ledgers from the ledgers' metadata.

A broker writes the topic into the custom metadata of each ledger (`pulsar/managed-ledger`). The readable
part of the present record is kept, with ledgers that a broker has created since then. A ledger that only a
damaged record names is kept if BookKeeper's metadata agrees.

A broker drops a ledger in the middle of the list that has no count. So the count of a ledger that
BookKeeper has not closed comes from the entries, or the list is not written.

Sources: apache/pulsar ManagedLedgerImpl (initialize, ledgerClosed), LedgerMetadataUtils.java.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.documents.message_values import fits, fits_newer
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger, open_envelope
from pulsar_meta.codecs.names import LEDGERS, MAX_LEDGER_ID, TopicName, ledger_of_path, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.repair.repair import ANY, Repair, becoming, length_to, packed, undecided
from pulsar_meta.jobs.repair.salvage import salvage
from pulsar_meta.jobs.rewrite.decision import Decided, keep
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, bookkeeper_ledger_of
from pulsar_meta.jobs.topics.completeness import completeness_of
from pulsar_meta.jobs.topics.evidence import EvidenceReader, TopicLedgers, membership
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.owners import owner_in_custom, owners_of
from pulsar_meta.jobs.topics.placement import with_end
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.scope import held_partitions
from pulsar_meta.jobs.topics.topic import Ledger, Report, ledgers_of, topic_of
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned, current

KIND: Final = "ManagedLedgerInfo"
LedgerInfo = ManagedLedgerInfo.LedgerInfo


@dataclass(frozen=True, slots=True)
class Owned:
    """A ledger that was created for a topic's data; `changed` is when its metadata was last written (ms)."""

    ledger: BookkeeperLedger
    changed: int | None


def repair_topic_record(
    store: Store,
    source: EntrySource | None,
    name: TopicName,
    report: Report,
    readers: Readers = ANY,
    *,
    older: bool = False,
    others: Sequence[Store] = (),
) -> Repair:
    """Make the ledger list of a topic, or of each of its partitions, again.

    `older` adds ledgers below the first one of a list that can be read: either a broker started the topic
    empty and left them out, or trimming removed them. `source` has the entries of ledgers that BookKeeper has
    not closed. `others` are stores of other clusters in the same BookKeeper: ledgers that they name stay out,
    as do those in the list of another topic. Raises NotFoundError if no ledger names the topic and its record
    names none. Metadata that can't be read goes to `report`.
    """
    topics = held_partitions(store, name)[0]
    owned = _owned(store, {str(topic) for topic in topics}, report)
    clusters = OtherClusters(store, others, report)
    owned, left_out = _without_foreign(store, owned, clusters, report)
    evidence = EvidenceReader(store, source, completeness_of(source), clusters)
    lists = [
        _List(store, source, topic, owned.get(str(topic), []), evidence, older=older) for topic in topics
    ]
    found = [each for each in lists if each.owned or each.kept]
    if not found:
        raise NotFoundError(f"no ledger has {name} as its owner", source=store.url)
    losses = [text for each in found for text in each.losses()]
    if clusters.broken and any(each.added for each in found):
        losses.append(
            f"{clusters.broken} records of other clusters in this BookKeeper can't be read: if one of them"
            " refers to these ledgers, two clusters will own them, and trimming in one"
            " deletes the other's data"
        )
    return Repair(
        "topic-record",
        tuple(each.decided(readers) for each in found),
        checked={"topics": len(found), "ledgers": sum(map(len, owned.values()))},
        not_checked={} if source is not None else {"entries": "no --entries"},
        said=(*left_out, *(text for each in found for text in each.said())),
        losses=tuple(losses),
        confirm=str(name) if losses else None,
    )


def _owned(store: Store, topics: set[str], report: Report) -> dict[str, list[Owned]]:
    """Return by topic the ledgers that were created for its data, in their order; in one pass."""
    found: dict[str, list[Owned]] = {}
    for record in store.scan(LEDGERS):
        ledger_id = ledger_of_path(record.path)
        if ledger_id is None:
            continue
        try:
            ledger = bookkeeper_ledger_of(ledger_id, record)
        except DecodeError as error:
            report(error)
            continue
        owner = owner_in_custom(ledger_id, ledger.custom)
        if owner is not None and owner.role == "data" and owner.name in topics:
            found.setdefault(owner.name, []).append(Owned(ledger, record.modified))
    return {name: sorted(some, key=lambda one: one.ledger.ledger_id) for name, some in found.items()}


def _without_foreign(
    store: Store, owned: dict[str, list[Owned]], clusters: OtherClusters, report: Report
) -> tuple[dict[str, list[Owned]], list[str]]:
    """Leave out ledgers that another cluster or topic names; return the rest, and why these stay out."""
    topics = {each.ledger.ledger_id: name for name, some in owned.items() for each in some}
    reasons = {
        ledger_id: f"it is in the list of {name}" for ledger_id, name in _other_lists(store, topics, report)
    }
    reasons |= {ledger_id: f"{found[0]} refers to it" for ledger_id, found in clusters.owners(topics).items()}
    mine = {
        name: [each for each in some if each.ledger.ledger_id not in reasons] for name, some in owned.items()
    }
    return mine, [f"ledger {ledger_id} is not added: {why}" for ledger_id, why in sorted(reasons.items())]


def _other_lists(store: Store, topics: Mapping[int, str], report: Report) -> Iterator[tuple[int, str]]:
    """Yield the ledgers that only the list of another topic names, and that topic. `topics` is by ledger.

    A shadow topic lists the ledgers of its source, and owns none.
    """
    shadows = ShadowSources(store)
    for ledger_id, owners in owners_of(topics, store, None, report).items():
        lists = [owner for owner in owners if owner.role == "data" and owner.path is not None]
        if any(owner.name == topics[ledger_id] for owner in lists):
            continue
        for owner in lists:
            with suppress(NotFoundError, DecodeError):
                properties = topic_of(store.read(owner.path or "")).properties
                if shadows.of(TopicName.parse(owner.name), properties) is None:
                    yield ledger_id, owner.name


class _List:
    """The list of one topic: as its record has it, and as it should be."""

    def __init__(
        self,
        store: Store,
        source: EntrySource | None,
        topic: TopicName,
        owned: Sequence[Owned],
        evidence: EvidenceReader,
        *,
        older: bool,
    ) -> None:
        self.store, self.source, self.topic, self.evidence = store, source, topic, evidence
        self.owned = {one.ledger.ledger_id: one for one in owned}
        self.seen = current(store, topic.path)
        self.before, self.broken, self.unreadable = _read(self.seen)
        self.kept = {one.ledgerId: one for one in self.before.ledgerInfo if self._counts(one)}
        self.dropped = [one for one in self.before.ledgerInfo if one.ledgerId not in self.kept]
        found = [one for one in self.owned if one not in self.kept and not self._is_empty(one)]
        first = -1 if older or self.broken else min(self.kept, default=-1)
        self.added = [one for one in found if one > first]
        self.left = len(found) - len(self.added)
        self.unknown = list[int]()
        self.info = self._whole()

    def decided(self, readers: Readers) -> Decided:
        """Decide about the record."""
        if self.unknown:
            ids = ", ".join(map(str, self.unknown))
            return undecided(
                self.seen,
                f"BookKeeper has not closed ledger {ids}, which is not the topic's last, so only bookies know"
                " how many entries it has: add --entries",
            )
        if not self.added and not self.unreadable and self.info == self.before:
            return self.seen, keep(self.seen, "already")
        return becoming(self.seen, packed(self.seen, self.info.SerializeToString(), readers))

    def said(self) -> Iterator[str]:
        """Yield messages for the operator."""
        if self.left:
            yield (
                f"{self.topic}: {self.left} ledgers before the first of the list are not added: they were"
                " trimmed, or a broker that started the topic empty left them behind (--older adds them)"
            )
        if not self.added and not self.unreadable:
            return
        entries = sum(one.entries for one in self.info.ledgerInfo if one.ledgerId in self.added)
        yield (
            f"{self.topic}: {len(self.added)} ledgers with {entries} entries are added to the"
            f" {len(self.kept)} in the list"
        )
        if self.unreadable and not self.broken:
            yield f"{self.topic}: only its envelope is damaged, so all of its content is kept"
        elif self.broken or self.seen.version == ABSENT or not self.before.ledgerInfo:
            yield (
                f"{self.topic}: properties, offloads and a termination that were only in the lost part of its"
                " record don't come back"
            )
        yield from self._skipping()

    def losses(self) -> Iterator[str]:
        """Yield which ledgers leave the list, and which come into it although evidence contradicts that."""
        for ledger in self.dropped:
            yield (
                f"{self.topic}: ledger {ledger.ledgerId} with {ledger.entries} entries is removed from the"
                " list, because only the damaged record refers to it"
            )
        ids = {*self.kept, *self.added}
        ledgers = [each for each in ledgers_of(self.info, str(self.topic)) if each.ledger_id in ids]
        topic = TopicLedgers(str(self.topic), ledgers, self._created)
        for ledger_id in self.added:
            case = membership(self.evidence, topic, ledger_id)
            against = [piece.says for piece in case.contradicts]
            if against:
                yield (
                    f"{self.topic}: ledger {ledger_id} is added to the list, but {'; '.join(against)}. If it"
                    " belongs to another topic, its entries will be read twice, and trimming deletes them"
                )

    def _skipping(self) -> Iterator[str]:
        """Yield the subscriptions that a broker has moved past the ledgers that come back."""
        if not self.added:
            return
        last = max(self.added)
        for child in self.store.children(self.topic.path):
            with suppress(DecodeError, NotFoundError):
                info = decode_cursor(self.store.read(f"{self.topic.path}/{child}").value)
                if info.markDeleteLedgerId > last:
                    yield (
                        f"{self.topic}: the subscription {child} is at {info.markDeleteLedgerId}:"
                        f"{info.markDeleteEntryId}, after the restored ledgers (repair cursor can move it)"
                    )

    def _counts(self, ledger: LedgerInfo) -> bool:
        """Return True if a listed ledger is kept. In a damaged record, BookKeeper must have it too."""
        deleted = ledger.offloadContext.complete and ledger.offloadContext.bookkeeperDeleted
        return (
            not self.broken or ledger.ledgerId in self.owned or deleted or self._is_unowned(ledger.ledgerId)
        )

    def _is_unowned(self, ledger_id: int) -> bool:
        """Return True if BookKeeper knows a ledger, and its metadata doesn't say whose it is."""
        if not 0 <= ledger_id <= MAX_LEDGER_ID:
            return False
        record = self.store.find(ledger_path(ledger_id))
        with suppress(DecodeError):
            if record is not None:
                return owner_in_custom(ledger_id, bookkeeper_ledger_of(ledger_id, record).custom) is None
        return False

    def _is_empty(self, ledger_id: int) -> bool:
        """Return True if a ledger was closed without an entry, so that it is not needed."""
        return self.owned[ledger_id].ledger.last_entry == -1

    def _whole(self) -> ManagedLedgerInfo:
        info = ManagedLedgerInfo()
        info.CopyFrom(self.before)
        del info.ledgerInfo[:]
        ids = sorted({*self.kept, *self.added})
        for at, ledger_id in enumerate(ids):
            ledger = self.kept.get(ledger_id) or LedgerInfo(ledgerId=ledger_id, timestamp=0)
            after = ids[at + 1] if at + 1 < len(ids) else None
            # The last one of a whole record has no count while it is open.
            asks = self.broken or ledger_id in self.added or (not ledger.entries and after is not None)
            if ledger_id in self.owned and asks:
                ledger = self._counted(ledger, self.owned[ledger_id], after)
            info.ledgerInfo.append(ledger)
        return info

    def _counted(self, held: LedgerInfo, owned: Owned, after: int | None) -> LedgerInfo:
        """Fill in a ledger's count, size and closing time if they are known."""
        ledger = LedgerInfo()
        ledger.CopyFrom(held)
        entries, size = self._end(owned.ledger)
        if entries is None and after is not None:
            self.unknown.append(owned.ledger.ledger_id)
        if not entries:
            return ledger
        ledger.entries, ledger.size = entries, size
        known = owned.changed or self._created(after) or owned.ledger.created
        ledger.timestamp = held.timestamp or known or 0
        return ledger

    def _end(self, ledger: BookkeeperLedger) -> tuple[int | None, int]:
        """Return the number of entries and bytes of a ledger; None and 0 if they are unknown."""
        if ledger.last_entry is not None:
            return ledger.last_entry + 1, ledger.length or 0
        if self.source is None:
            return None, 0
        open_one = Ledger(ledger.ledger_id, state="open", bookkeeper=ledger, metadata="known")
        found = with_end(open_one, self.source).entries
        return (found, length_to(self.source, ledger.ledger_id, found - 1) or 0) if found else (None, 0)

    def _created(self, ledger_id: int | None) -> int | None:
        owned = None if ledger_id is None else self.owned.get(ledger_id)
        return None if owned is None else owned.ledger.created


def _read(seen: Versioned) -> tuple[ManagedLedgerInfo, bool, bool]:
    """Decode a record; also return whether parts of it are lost, and whether brokers can't read it."""
    with suppress(DecodeError):
        envelope = open_envelope(seen.value)
        payload = seen.value if envelope is None else envelope.payload
        if not payload or fits(KIND, payload) or fits_newer(KIND, payload):
            return decode_managed_ledger(seen.value), False, False
    left = salvage(ManagedLedgerInfo, seen.value)
    if left.complete:
        return left.message, False, True
    # Another kind of record may have the numbers of fields of this one.
    info, intact = left.message, ManagedLedgerInfo()
    intact.ledgerInfo.extend(one for one in info.ledgerInfo if one.IsInitialized() and one.entries > 0)
    if intact.ledgerInfo:
        intact.properties.extend(item for item in info.properties if item.IsInitialized())
        end, ids = info.terminatedPosition, {one.ledgerId for one in intact.ledgerInfo}
        if info.HasField("terminatedPosition") and end.IsInitialized() and end.ledgerId in ids:
            intact.terminatedPosition.CopyFrom(end)
    return intact, True, True
