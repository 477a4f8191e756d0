"""Whether bookies have the entries that ledgers should have, and enough copies of them.

`verify-entries` checks the content of entries. A writer is told that an entry is safe once the ack quorum has
it, so up to write quorum minus ack quorum copies of an entry may be missing without any fault. A bookie that
has nothing of a ledger that it should have a part of has lost its disks, or was replaced.

Sources: apache/bookkeeper LedgerHandle, RoundRobinDistributionSchedule, BookieAutoRecovery (Auditor);
apache/pulsar OpReadEntry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry, master_key
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.entries.bookie_client import Ensembles, Segment
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.check.topic_view import Rule, TopicView, has_entry
from pulsar_meta.jobs.topics.placement import Placement, placement, placement_on
from pulsar_meta.jobs.topics.topic import Ledger

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The copies of entries in larger ledgers are not counted.
_MOST_ENTRIES: Final = 1 << 28
# The property of a topic that has the index of its last message (PIP-70).
_INDEX: Final = "index"


def missing_entries(view: TopicView) -> Iterator[Finding]:
    """Check that the entries of each ledger are on bookies that should have them."""
    for source, ledger, last in _with_last(view):
        yield from _missing_in(view, source, ledger, last)


def _with_last(view: TopicView) -> Iterator[tuple[EntrySource, Ledger, int]]:
    """Yield the bookies and each ledger with its last entry; nothing without bookies, or for a shadow topic.

    Ledgers whose last entry is unknown are left out.
    """
    source = view.context.on_bookies
    if source is None or view.is_shadow:
        return
    for ledger in view.ledgers:
        last = last_expected(view, ledger)
        if last is not None:
            yield source, ledger, last


def last_expected(view: TopicView, ledger: Ledger) -> int | None:
    """Return the last entry that BookKeeper and the list agree on, None if there is no entry to look for."""
    facts = view.facts(ledger.ledger_id)
    gone = ledger.offload is not None and ledger.offload.is_only_copy
    if facts.metadata != "known" or gone:
        return None
    last = ledger.counted - 1 if facts.last_entry is None else facts.last_entry
    disagree = ledger.counted and last + 1 != ledger.counted
    return None if last < 0 or disagree else last


def _missing_in(view: TopicView, source: EntrySource, ledger: Ledger, last: int) -> Iterator[Finding]:
    place = placement(ledger, source)
    expected = place.count(0, last)
    asked = view.context.asks_bookies
    present = (_count_asked if asked else _count_on_disks)(source, ledger.ledger_id, last, place)
    if present >= expected or (present == 0 and source.bookies is None and not asked):
        return
    where = view.place(ledger.ledger_id)
    evidence = {"expected": expected, "found": present, "last_entry": last}
    severity = Severity.NOTE if view.consumed(ledger) else Severity.ERROR
    consumed = "; every subscription is past it" if severity is Severity.NOTE else ""
    if present == 0:
        text = f"none of its {expected} entries is on a bookie that should have it{consumed}"
        yield finding("ledger-without-entries", text, severity=severity, evidence=evidence, **where)
        return
    first = _first_missing(_present_ids(source, ledger.ledger_id, last, asked=asked), last, place)
    evidence |= {"first_missing": first}
    count = expected - present
    if place.count(first, last) == count:
        text = f"the last {count} of its entries, {first} to {last}, are on no bookie{consumed}"
        yield finding("ledger-end-differs", text, severity=severity, evidence=evidence, **where)
    else:
        text = (
            f"{count} of its entries are on no bookie that should have them; the first is {first}{consumed}"
        )
        yield finding("entry-missing", text, severity=severity, evidence=evidence, **where)


def entries_on_disks(source: EntrySource, ledger_id: int, last: int) -> NDArray[np.int64]:
    """Return the ids up to `last` of entries that bookies' indexes have and that are within their files."""
    import numpy as np

    from pulsar_meta.entries.locations import within_files

    ids = [np.empty(0, np.int64)]
    for part in source.parts:
        tables = part.located(ledger_id, 0, last)
        if tables is None:
            ids.append(np.fromiter(part.entry_ids(ledger_id, 0, last), np.int64))
        else:
            ids += map(within_files, tables)
    return np.unique(np.concatenate(ids))


def _count_on_disks(source: EntrySource, ledger_id: int, last: int, place: Placement) -> int:
    return place.count_of(entries_on_disks(source, ledger_id, last))


def _count_asked(source: EntrySource, ledger_id: int, last: int, place: Placement) -> int:
    """Estimate the number of entries by asking running bookies for two, because counting reads them all."""
    asked = {0, last}
    missing = [entry_id for entry_id in asked if not has_entry(source, ledger_id, entry_id)]
    return 0 if len(missing) == len(asked) else last + 1 - len(missing)


def _present_ids(source: EntrySource, ledger_id: int, last: int, *, asked: bool) -> Iterable[int]:
    if asked:
        return source.entry_ids(ledger_id, 0, last)
    return map(int, entries_on_disks(source, ledger_id, last))


def _first_missing(present: Iterable[int], last: int, place: Placement) -> int:
    """Return the first expected entry that is not among those present, in order; there must be one."""
    expected = place.first(0, last)
    for entry_id in present:
        if expected is None or entry_id > expected:
            break
        if entry_id == expected:
            expected = place.first(entry_id + 1, last)
    return last if expected is None else expected


@dataclass(slots=True)
class _Copies:
    """Entries of a ledger with too few copies, and bookies without any of it.

    `below` counts the entries with fewer copies than the ack quorum, `first` is the first of them, `least`
    the lowest number of copies.
    """

    below: int = 0
    first: int = -1
    least: int = 0
    without: tuple[str, ...] = ()


def missing_copies(view: TopicView) -> Iterator[Finding]:
    """Check that the entries of each ledger have enough copies."""
    for source, ledger, last in _with_last(view):
        if view.facts(ledger.ledger_id).bookies.write_quorum < 2 or last >= _MOST_ENTRIES:
            continue
        ensembles = _ensembles(view, ledger)
        if ensembles is None:
            if not view.whole:
                # A scan doesn't know where segments begin. The complete view does.
                yield finding("ledger-under-replicated", "suspected", **view.place(ledger.ledger_id))
            continue
        count = _ask_for_copies if view.context.asks_bookies else _count_copies
        yield from _copy_findings(view, ledger, count(source, ensembles, last), ensembles)


def _on_given_disks(view: TopicView) -> Iterator[tuple[EntrySource, Ledger, int]]:
    """Yield the same as `_with_last` from disks; running bookies are not asked."""
    return iter(()) if view.context.asks_bookies else _with_last(view)


def surplus_entries(view: TopicView) -> Iterator[Finding]:
    """Check that bookies have no confirmed entries after the end that BookKeeper and the list agree on."""
    for source, ledger, last in (*_on_given_disks(view), *_without_entries(view)):
        facts = view.facts(ledger.ledger_id)
        on_bookies = source.last_entry(ledger.ledger_id)
        if facts.last_entry is None or on_bookies is None or on_bookies <= last:
            continue
        copies = sum(map(_has_no_wrong_digest, source.copies(ledger.ledger_id, last + 1)))
        effect = "skip" if last >= 0 else "delete the ledger with its"
        # An entry with fewer copies was never confirmed to its producer.
        if copies >= max(1, facts.bookies.ack_quorum):
            yield finding(
                "ledger-end-short",
                f"BookKeeper and the list end it at entry {last}, but bookies have entries up to"
                f" {on_bookies}, so brokers {effect} {on_bookies - last} entries",
                evidence={"last_entry": last, "last_on_bookies": on_bookies, "copies": copies},
                **view.place(ledger.ledger_id),
            )


def _has_no_wrong_digest(entry: RawEntry) -> bool:
    """Return False for an entry with damaged bytes. An HMAC is not checked, because that needs a password."""
    with suppress(DecodeError):
        return decode_bookie_entry(entry.data).digest != "bad" if entry.bookie else True
    return False


def _without_entries(view: TopicView) -> Iterator[tuple[EntrySource, Ledger, int]]:
    """Yield the disks and each ledger that is empty by the list and by BookKeeper, with -1."""
    source = view.context.on_bookies
    if source is None or view.context.asks_bookies or view.is_shadow:
        return
    for ledger in view.ledgers:
        if not ledger.counted and view.facts(ledger.ledger_id).last_entry == -1:
            yield source, ledger, -1


def digests(view: TopicView) -> Iterator[Finding]:
    """Check that the digest type in BookKeeper's metadata is that of each ledger's first entry."""
    for source, ledger, _ in _on_given_disks(view):
        facts = view.facts(ledger.ledger_id)
        if not facts.digest:
            continue
        actual = _digest_of_first(source, ledger.ledger_id)
        if actual not in (None, facts.digest):
            yield finding(
                "ledger-digest-differs",
                f"BookKeeper's metadata has the digest type {facts.digest}, but its entries have {actual}, so"
                " no client can read them",
                severity=Severity.NOTE if view.consumed(ledger) else Severity.ERROR,
                evidence={"metadata": facts.digest, "entries": actual},
                **view.place(ledger.ledger_id),
            )


def passwords(view: TopicView) -> Iterator[Finding]:
    """Check that the password in BookKeeper's metadata is the one that bookies know."""
    for source, ledger, _ in _on_given_disks(view):
        facts, key = view.facts(ledger.ledger_id), _key_on_bookies(source, ledger.ledger_id)
        known = b"" if facts.full is None else facts.full.password or b""
        unread = facts.has_password and facts.full is None
        # A scan knows only whether there is a password.
        differs = key == master_key(b"") if unread else key != master_key(known)
        if key is not None and differs:
            yield finding(
                "ledger-password-differs",
                "BookKeeper's metadata has another password than bookies have, so no client can read it",
                severity=Severity.NOTE if view.consumed(ledger) else Severity.ERROR,
                **view.place(ledger.ledger_id),
            )


def _key_on_bookies(source: EntrySource, ledger_id: int) -> bytes | None:
    """Return the hash of a ledger's password that bookies have, None if it is unknown."""
    try:
        state = source.ledger_state(ledger_id)
    except DecodeError:
        # The damaged index is reported on its own.
        return None
    return None if state is None else state.master_key


def _digest_of_first(source: EntrySource, ledger_id: int) -> str | None:
    """Return the type of the first entry's digest, None if it can't be read or no digest fits."""
    try:
        raw = source.read(ledger_id, 0)
        entry = decode_bookie_entry(raw.data) if raw.bookie else None
    except (NotFoundError, DecodeError):
        return None
    return entry.digest_type if entry is not None and entry.digest == "ok" else None


def index_property(view: TopicView) -> Iterator[Finding]:
    """Check that message indexes can continue from the topic's property `index`.

    A broker reads the last index from the last ledger's last entry. If that ledger is empty, it uses the
    property.
    """
    source, topic = view.context.on_bookies, view.topic
    text = dict(() if topic is None else topic.properties).get(_INDEX)
    if text is not None and not text.lstrip("+-").isdecimal():
        why = f"its property {_INDEX} is {text!r}, which is no number: brokers that set indexes don't load it"
        yield finding("topic-index-behind", why, **view.place())
        return
    if source is None or topic is None or topic.terminated is not None or view.is_shadow:
        return
    with_entries = [ledger for ledger in view.ledgers if last_expected(view, ledger) is not None]
    if not with_entries:
        return
    ledger, last = with_entries[-1], view.ledgers[-1].ledger_id
    if view.facts(last).metadata == "absent" or source.last_entry(last) is not None:
        return
    if view.facts(ledger.ledger_id).owner_hash not in (0, view.own_hash):
        return
    index = _last_index(source, ledger.ledger_id, last_expected(view, ledger) or 0)
    if index is not None and int(text or -1) < index:
        state = f"its property {_INDEX} is {text}" if text else f"it has no property {_INDEX}"
        yield finding(
            "topic-index-behind",
            f"{state}, but its last message has index {index}, so new messages get indexes that older ones"
            " have",
            evidence={"property": int(text or -1), "last_index": index},
            **view.place(ledger.ledger_id),
        )


def _last_index(source: EntrySource, ledger_id: int, entry_id: int) -> int | None:
    """Return the index of the last message in an entry, None if it has none or can't be read."""
    try:
        raw = source.read(ledger_id, entry_id)
        frame = decode_frame(decode_bookie_entry(raw.data).data if raw.bookie else raw.data, verify=False)
    except (NotFoundError, DecodeError):
        return None
    return None if frame.index_range is None else frame.index_range[1]


RULES: Final[tuple[Rule, ...]] = (
    missing_entries, missing_copies, surplus_entries, digests, passwords, index_property,
)  # fmt: skip


def _copy_findings(
    view: TopicView, ledger: Ledger, copies: _Copies, ensembles: Ensembles
) -> Iterator[Finding]:
    where = view.place(ledger.ledger_id)
    quorums = {"write_quorum": ensembles.write_quorum, "ack_quorum": ensembles.ack_quorum}
    if copies.below:
        consumed = view.consumed(ledger)
        yield finding(
            "ledger-below-ack-quorum",
            f"{copies.below} of its entries have fewer copies than the ack quorum of {ensembles.ack_quorum};"
            f" the first is {copies.first}{'; every subscription is past it' if consumed else ''}",
            severity=Severity.NOTE if consumed else Severity.ERROR,
            evidence=quorums | {"entries": copies.below, "first": copies.first, "copies": copies.least},
            **where,
        )
    elif copies.without:
        yield finding(
            "ledger-under-replicated",
            f"{', '.join(copies.without)} should have copies of its entries, but has none",
            evidence=quorums | {"bookies": list(copies.without)},
            **where,
        )


def _ensembles(view: TopicView, ledger: Ledger) -> Ensembles | None:
    """Return the ensembles of a ledger, None if they are not completely known yet, or invalid."""
    members = view.facts(ledger.ledger_id).bookies
    try:
        if ledger.bookkeeper is not None:
            return ledger.bookkeeper.ensembles()
    except DecodeError:
        return None
    if len(members.segments) != 1 or len(members.segments[0]) < members.write_quorum:
        return None
    return Ensembles(
        ledger_id=ledger.ledger_id,
        write_quorum=members.write_quorum,
        ack_quorum=members.ack_quorum,
        segments=(Segment(0, members.segments[0]),),
        last_entry=None,
        digest_type="CRC32",
        password=None,
    )


def _count_copies(source: EntrySource, ensembles: Ensembles, last: int) -> _Copies:
    """Count copies on disks; a bookie whose disks were not given is assumed to have all of its own."""
    import numpy as np

    if source.bookies is None:
        return _Copies()
    copies, lacking = np.zeros(last + 1, np.int16), {}
    for bookie in sorted({member for segment in ensembles.segments for member in segment.members}):
        expected = _mask(placement_on(ensembles, frozenset({bookie})), last)
        if bookie in source.bookies:
            present = _on_bookie(source, bookie, ensembles.ledger_id, last) & expected
            if not present.any():
                lacking[bookie] = expected
            expected = present
        copies += expected
    # If no copy of an entry is left at all, it is not this bookie's fault alone.
    without = [bookie for bookie, expected in lacking.items() if copies[expected].any()]
    # Entries without any copy are reported by `missing_entries`.
    low = np.flatnonzero((copies > 0) & (copies < ensembles.ack_quorum))
    if not len(low):
        return _Copies(without=tuple(without))
    return _Copies(len(low), int(low[0]), int(copies[low].min()), tuple(without))


def _mask(place: Placement, last: int) -> NDArray[np.bool_]:
    import numpy as np

    ids, mask = np.arange(last + 1), np.zeros(last + 1, np.bool_)
    for stripe in place.stripes:
        part = slice(stripe.first, min(stripe.stop, last + 1))
        mask[part] |= np.isin(ids[part] % stripe.size, stripe.remainders)
    return mask


def _on_bookie(source: EntrySource, bookie: str, ledger_id: int, last: int) -> NDArray[np.bool_]:
    import numpy as np

    from pulsar_meta.entries.locations import within_files

    mask = np.zeros(last + 1, np.bool_)
    for part in source.parts:
        if part.bookies is not None and bookie in part.bookies:
            for table in part.located(ledger_id, 0, last) or ():
                mask[within_files(table)] = True
    return mask


def _ask_for_copies(source: EntrySource, ensembles: Ensembles, last: int) -> _Copies:
    """Ask running bookies for the first and the last entry, because counting all reads them all."""
    asked = sorted({0, last})
    lacking = {entry_id: source.lacking(ensembles.ledger_id, entry_id) for entry_id in asked}
    copies = {entry_id: ensembles.write_quorum - len(lacking[entry_id]) for entry_id in asked}
    low = [entry_id for entry_id in asked if 0 < copies[entry_id] < ensembles.ack_quorum]
    if low:
        return _Copies(len(low), low[0], min(copies[entry_id] for entry_id in low))
    replicas = {entry_id: frozenset(ensembles.replicas(entry_id)) for entry_id in asked}
    without = [
        bookie
        for bookie in sorted(frozenset().union(*replicas.values()))
        if all(bookie in lacking[entry_id] for entry_id in asked if bookie in replicas[entry_id])
    ]
    return _Copies(without=tuple(without) if any(copies.values()) else ())
