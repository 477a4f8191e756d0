"""The ledgers of a topic: its list compared with BookKeeper's metadata, and with tiered storage.

Sources: apache/pulsar ManagedLedgerImpl (initialize, ledgerClosed, internalTrimLedgers,
prepareLedgerInfoForOffloaded, completeLedgerInfoForOffloaded). The effects on brokers were tested with 4.0.7
and 4.2.4, those of offloads with 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.check.codes import Finding, Place, Severity, finding
from pulsar_meta.jobs.check.topic_view import Rule, TopicView
from pulsar_meta.jobs.topics.topic import Ledger, Offload, Position

_DEADLINE: Final = "bookies delete its entries at their next garbage collection, because it has no metadata"
_USES_OF_SIZE: Final = "retention by size, backlog quotas and statistics use the size in the list"
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def without_metadata(view: TopicView) -> Iterator[Finding]:
    """Check that BookKeeper knows the listed ledgers."""
    if view.is_shadow:
        return
    if _looks_deleted(view):
        yield finding(
            "leftover",
            f"it has no subscription, and BookKeeper knows none of its {len(view.ledgers)} ledgers: either"
            " its deletion was interrupted, or all its entries are lost",
            severity=Severity.WARNING,
            evidence={"ledgers": [ledger.ledger_id for ledger in view.ledgers[:10]]},
            **view.place(),
        )
        return
    for ledger in view.ledgers:
        gone = ledger.offload is not None and ledger.offload.is_only_copy
        if ledger.metadata == "absent" and not gone:
            is_last = ledger.ledger_id == view.ledgers[-1].ledger_id
            # A broker drops an empty ledger in the middle, and nothing is lost.
            if ledger.counted or ledger.entries:
                yield _missing(view, ledger, is_last=is_last)
            elif is_last:
                yield from _missing_last(view, ledger)


def _looks_deleted(view: TopicView) -> bool:
    """Return True if the topic has no cursors and all its ledgers are gone; only a whole view can tell.

    A broker deletes the cursors first, then the ledgers, then the record.
    """
    if not view.whole or view.cursors or not any(ledger.counted for ledger in view.ledgers):
        return False
    return all(ledger.metadata == "absent" for ledger in view.ledgers)


def _missing(view: TopicView, ledger: Ledger, *, is_last: bool) -> Finding:
    entries = ledger.counted or ledger.entries
    on_bookies = view.last_on_bookies(ledger.ledger_id)
    evidence = {"entries": entries, "size": ledger.size, "on_bookies": on_bookies}
    if view.consumed(ledger):
        text = f"BookKeeper has no metadata of it; every subscription is past its {entries} entries"
        severity = Severity.NOTE
    else:
        loading = "; loading the topic removes it from the list" if is_last else ""
        text = f"BookKeeper has no metadata of it: its {entries} entries can't be read{loading}; {_DEADLINE}"
        severity = Severity.ERROR
    place = view.place(ledger.ledger_id)
    return finding("ledger-without-metadata", text, severity=severity, evidence=evidence, **place)


def _missing_last(view: TopicView, ledger: Ledger) -> Iterator[Finding]:
    """Check the last ledger, which has no count yet; it may have been empty, which is normal."""
    on_bookies = view.last_on_bookies(ledger.ledger_id)
    acknowledged = _acknowledged_up_to(view, ledger.ledger_id)
    last = max(-1 if entry is None else entry for entry in (on_bookies, acknowledged))
    place = view.place(ledger.ledger_id)
    evidence = {"last_on_bookies": on_bookies, "last_acknowledged": acknowledged}
    if last >= 0:
        text = (
            f"BookKeeper has no metadata of the last ledger, which had at least {last + 1} entries: loading"
            f" the topic removes it from the list; {_DEADLINE}"
        )
        yield finding("ledger-without-metadata", text, evidence=evidence, **place)
    elif not view.context.sees_all(()):
        text = (
            "BookKeeper has no metadata of the last ledger; if it had entries, loading the topic removes them"
            f" together with it, and {_DEADLINE} (use --entries to find out if it had any)"
        )
        warning = Severity.WARNING
        yield finding("ledger-without-metadata", text, severity=warning, evidence=evidence, **place)


def _acknowledged_up_to(view: TopicView, ledger_id: int) -> int | None:
    """Return the highest mark-delete entry of any cursor in a ledger."""
    ends = (cursor.mark_delete for cursor in view.cursors)
    return max((end.entry_id for end in ends if end is not None and end.ledger_id == ledger_id), default=None)


def layouts(view: TopicView) -> Iterator[Finding]:
    """Check that the ensembles in BookKeeper's metadata are valid."""
    for ledger in () if view.is_shadow else view.ledgers:
        facts = view.facts(ledger.ledger_id)
        fault = facts.bookies.fault if facts.metadata == "known" else None
        if fault is not None:
            members = facts.bookies
            yield finding(
                "ledger-metadata-invalid",
                f"{fault}, so clients can't read it",
                severity=Severity.NOTE if view.consumed(ledger) else Severity.ERROR,
                evidence={
                    "write_quorum": members.write_quorum,
                    "ack_quorum": members.ack_quorum,
                    "bookies": sorted(members.all),
                },
                **view.place(ledger.ledger_id),
            )


def ends(view: TopicView) -> Iterator[Finding]:
    """Check that BookKeeper and the list agree about the end of each ledger."""
    for ledger in filter(view.disagrees, view.ledgers):
        facts, recorded = view.facts(ledger.ledger_id), view.recorded_entries(ledger)
        last, place = facts.last_entry, view.place(ledger.ledger_id)
        evidence: Place = {
            "entries": recorded,
            "last_entry": last,
            "size": ledger.size,
            "length": facts.length,
        }
        if last is None:
            text = f"the list has {recorded} entries, and BookKeeper has the ledger as {facts.state}"
            yield finding("ledger-open-behind", text, evidence=evidence | {"state": facts.state}, **place)
        elif last + 1 < recorded:
            yield from _end_low(view, ledger, last, evidence, place)
        else:
            yield _end_high(view, ledger, last, evidence, place)


def _end_low(view: TopicView, ledger: Ledger, last: int, evidence: Place, place: Place) -> Iterator[Finding]:
    """Check a ledger of which BookKeeper has fewer entries; the same end can make a termination too high."""
    end = None if view.topic is None else view.topic.terminated
    if _has_termination_only(view, ledger):
        # The position of the termination is reported instead.
        return
    text = f"the list has {view.recorded_entries(ledger)} entries, and BookKeeper has {last + 1}"
    text = f"{text}: the others are silently skipped"
    if end is not None and end.ledger_id == ledger.ledger_id and end.entry_id > last:
        text += f"; for the same reason, the topic's termination at {end.text} is after its last entry"
        evidence = evidence | {"terminated": list(end)}
    yield finding("ledger-end-low", text, evidence=evidence, **place)


def _has_termination_only(view: TopicView, ledger: Ledger) -> bool:
    """Return True if only the termination says that a ledger goes on after its end in BookKeeper."""
    last, on_bookies = view.facts(ledger.ledger_id).last_entry, view.last_on_bookies(ledger.ledger_id)
    return not ledger.counted and (last is None or on_bookies is None or on_bookies <= last)


def _end_high(view: TopicView, ledger: Ledger, last: int, evidence: Place, place: Place) -> Finding:
    on_bookies = view.last_on_bookies(ledger.ledger_id)
    longer = view.facts(ledger.ledger_id).length > (ledger.size or 0)
    exist = longer if on_bookies is None else on_bookies >= last
    text = f"the list has {ledger.counted} entries, and BookKeeper has {last + 1}"
    return finding(
        "ledger-end-high",
        f"{text}, which probably exist: the list counts too few"
        if exist
        else f"{text}: reading stalls after the last one that the bookies have",
        severity=Severity.WARNING if exist else Severity.ERROR,
        evidence=evidence | {"last_on_bookies": on_bookies},
        **place,
    )


def sizes(view: TopicView) -> Iterator[Finding]:
    """Check that BookKeeper and the list agree about the size of each ledger whose end they agree about.

    A broker that loads a topic measures its last ledger again.
    """
    for ledger in () if view.is_shadow else view.ledgers[:-1]:
        facts, size = view.facts(ledger.ledger_id), ledger.size
        if size is None or not ledger.counted or facts.last_entry != ledger.counted - 1:
            continue
        if not facts.may_have_length(size):
            yield _size_differs(view, ledger, size)


def _size_differs(view: TopicView, ledger: Ledger, size: int) -> Finding:
    """Return the finding about a size; the length in the last entry on a disk tells which one is wrong."""
    length, on_disk = view.facts(ledger.ledger_id).length, view.length_on_bookies(ledger)
    text, severity = f"the list has {size} bytes of it, and BookKeeper has {length}", Severity.WARNING
    if on_disk == size:
        text += ", which is wrong according to its last entry; brokers use the size in the list"
        severity = Severity.NOTE
    elif on_disk == length:
        text += f", as its last entry says: {_USES_OF_SIZE}"
    else:
        text += f": {_USES_OF_SIZE}"
        text += (
            " (use --entries to find out which is right)" if on_disk is None else f" (not {on_disk}: disks)"
        )
    if max(0, size) <= 2 * length and length <= 2 * size:
        # A ledger that was fenced can have pending entries in its size.
        severity = Severity.NOTE
    return finding(
        "ledger-size-differs",
        text,
        severity=severity,
        evidence={"size": size, "length": length, "on_disk": on_disk},
        undecided=on_disk != length,
        **view.place(ledger.ledger_id),
    )


def counts_zero(view: TopicView) -> Iterator[Finding]:
    """Check for ledgers before the last one that a broker would take for empty."""
    if view.topic is None or view.topic.terminated is not None or view.is_shadow:
        return
    for ledger in view.ledgers[:-1]:
        facts = view.facts(ledger.ledger_id)
        if ledger.counted or facts.metadata != "known" or facts.last_entry == -1:
            continue
        on_bookies = view.last_on_bookies(ledger.ledger_id)
        if _is_counted_later(view, ledger) or (
            facts.last_entry is None and on_bookies is None and view.context.sees_all(facts.bookies.all)
        ):
            continue
        state = "is not closed" if facts.last_entry is None else f"has {facts.last_entry + 1} entries"
        yield finding(
            "ledger-counts-zero",
            f"the list has no entries for it, but in BookKeeper it {state}: loading the topic removes it from"
            " the list and deletes its metadata",
            evidence={"last_entry": facts.last_entry, "last_on_bookies": on_bookies},
            **view.place(ledger.ledger_id),
        )


def _is_counted_later(view: TopicView, ledger: Ledger) -> bool:
    """Return True if the list has the ledger again, with a count; brokers use the last of several."""
    same = [other for other in view.ledgers if other.ledger_id == ledger.ledger_id]
    return bool(same[-1].counted)


def not_listed(view: TopicView) -> Iterator[Finding]:
    """Check that the topic lists its own ledgers with entries, except those below its first."""
    if not view.ledgers or view.is_shadow:
        return
    first, listed = view.ledgers[0].ledger_id, view.listed
    for ledger_id in view.owned:
        facts = view.facts(ledger_id)
        if ledger_id < first or ledger_id in listed or facts.metadata != "known":
            continue
        last = facts.last_entry if facts.last_entry is not None else view.last_of_unlisted(ledger_id)
        if last is not None and last >= 0:
            yield finding(
                "ledger-not-listed",
                f"the topic does not list it, so its {last + 1} entries are silently skipped",
                evidence={"last_entry": last, "length": facts.length},
                **view.place(ledger_id) | {"path": ledger_path(ledger_id)},
            )


def terminated(view: TopicView) -> Iterator[Finding]:
    """Check that a terminated topic has no entries after its end."""
    if view.topic is None or view.topic.terminated is None:
        return
    end, last = view.topic.terminated, view.first_after_termination()
    if last is None:
        yield from _terminated_after_end(view, end)
        return
    yield finding(
        "terminated-before-end",
        f"it is terminated at {end.ledger_id}:{end.entry_id}, but has entries up to"
        f" {last.ledger_id}:{last.entry_id}",
        evidence={"terminated": list(end), "last": list(last)},
        **view.place(end.ledger_id),
    )


def _terminated_after_end(view: TopicView, end: Position) -> Iterator[Finding]:
    """Check that the termination is not after the topic's last entry."""
    last = _last_entry(view)
    if last is None or end <= last or end.entry_id < 0:
        return
    text = (
        f"it is terminated at {end.ledger_id}:{end.entry_id}, but its last entry is"
        f" {last.ledger_id}:{last.entry_id}: consumers are never told that the topic"
        " has ended, and some readers get nothing"
    )
    undecided = False
    for ledger in view.ledgers if end.ledger_id == last.ledger_id else ():
        if ledger.ledger_id == end.ledger_id and view.disagrees(ledger):
            if not _has_termination_only(view, ledger):
                # Its end in BookKeeper is too low, which is reported instead.
                return
            undecided = view.last_on_bookies(ledger.ledger_id) is None
    if undecided:
        hint = " (use --entries to find out)" if view.context.on_bookies is None else ""
        text += f", unless BookKeeper's metadata ends the ledger too early{hint}"
    yield finding(
        "terminated-after-end",
        text,
        evidence={"terminated": list(end), "last": list(last)},
        undecided=undecided,
        **view.place(end.ledger_id),
    )


def _last_entry(view: TopicView) -> Position | None:
    """Return the last entry by BookKeeper's metadata and the list, None if a ledger's end is unknown."""
    for ledger in reversed(view.ledgers):
        facts = view.facts(ledger.ledger_id)
        last = facts.last_entry
        if last is None and not ledger.counted and facts.metadata != "absent":
            last = view.last_on_bookies(ledger.ledger_id)
            if last is None:
                return None
        last = ledger.counted - 1 if last is None else last
        if last >= 0:
            return Position(ledger.ledger_id, last)
    return None


def order(view: TopicView) -> Iterator[Finding]:
    """Check for ledgers that are listed twice or out of order."""
    ids = [ledger.ledger_id for ledger in view.ledgers]
    for ledger_id in sorted({first for first, second in pairwise(ids) if first == second}):
        yield finding("ledger-duplicate", "it is listed more than once", **view.place(ledger_id))
    if view.topic is not None and not view.topic.in_order:
        yield finding("ledger-unordered", "the list is not in the order of its ledgers", **view.place())


def foreign(view: TopicView) -> Iterator[Finding]:
    """Check for listed ledgers that were created for something else."""
    own = view.own_hash
    for ledger in () if view.is_shadow else view.ledgers:
        facts = view.facts(ledger.ledger_id)
        if not facts.owner_hash or facts.owner_hash == own:
            continue
        owner = facts.owner
        purpose = "something else" if owner is None else f"{owner.role} of {owner.name}"
        both = owner is not None and view.lists(owner.name, ledger.ledger_id)
        also = ", which lists it, too" if both else ""
        yield finding(
            "ledger-in-two-topics" if both else "ledger-foreign",
            f"it was created as {purpose}{also}: trimming this topic deletes it there",
            evidence=facts.owner_evidence,
            **view.place(ledger.ledger_id),
        )


RULES: Final[tuple[Rule, ...]] = (
    without_metadata, layouts, ends, sizes, counts_zero, not_listed, terminated, order, foreign,
)  # fmt: skip


def has_begun(offload: Offload) -> bool:
    """Return True if an object of this offload exists, or may exist."""
    return offload.complete or offload.uuid != _NO_UUID


def unfinished_offloads(view: TopicView) -> Iterator[Finding]:
    """Check for offloads that began some time ago and are not complete."""
    for ledger in view.ledgers:
        offload = ledger.offload
        if offload is None or offload.complete or not has_begun(offload):
            continue
        if view.context.is_old(offload.begun_at):
            since = "" if offload.begun_at is None else f" at {iso_time(offload.begun_at)}"
            yield finding(
                "offload-unfinished",
                f"its offload began{since} and did not finish",
                evidence={"uuid": offload.uuid, "begun_at": offload.begun_at},
                **view.place(ledger.ledger_id),
            )


def offloaded_objects(view: TopicView) -> Iterator[Finding]:
    """Check that tiered storage has the ledgers that were offloaded."""
    if view.context.source is None or not view.context.has_offload or view.is_shadow:
        return
    for ledger in view.ledgers:
        offload = ledger.offload
        if offload is None or not offload.complete or not ledger.entries:
            continue
        if ledger.ledger_id not in view.context.stored:
            use = "are only in" if offload.bookkeeper_deleted else "are read from"
            yield finding(
                "offload-object-missing",
                f"its {ledger.entries} entries {use} tiered storage, which has none of them",
                evidence={
                    "uuid": offload.uuid,
                    "driver": offload.driver,
                    "entries": ledger.entries,
                    "bookkeeper_deleted": offload.bookkeeper_deleted,
                },
                **view.place(ledger.ledger_id),
            )


OFFLOAD_RULES: Final[tuple[Rule, ...]] = (unfinished_offloads, offloaded_objects)
