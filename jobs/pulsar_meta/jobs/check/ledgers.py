"""The ledgers of a topic: what its list says, beside what BookKeeper says of each.

Sources: apache/pulsar ManagedLedgerImpl (initialize, ledgerClosed, internalTrimLedgers); what brokers did
with each was tried on 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.check.codes import Code, Finding, Severity, Where
from pulsar_meta.jobs.check.facts import mark_of
from pulsar_meta.jobs.check.records import LEFTOVER
from pulsar_meta.jobs.check.sight import Check, Sight
from pulsar_meta.jobs.topics.topic import Ledger, Position

DEADLINE: Final = "bookies delete its entries at their next garbage collection, since no metadata names it"

WITHOUT_METADATA: Final = Code(
    "ledger-without-metadata",
    Severity.ERROR,
    "A ledger of a topic that BookKeeper has no metadata of",
    means="The topic's list names a ledger that is not below `/ledgers`: nobody can open it, whether or not"
    " the bookies still have its entries.",
    broker="The topic loads. Reading stops before the ledger, and clients get nothing, silently; with"
    " autoSkipNonRecoverableData its entries count as acknowledged. **If it is the last of the list,"
    " loading drops it from the list**, with whatever it held.",
    errors=(
        "Error opening ledger for reading",
        "LedgerNotExistException: No such ledger exists on Metadata Server",
        "Ledger not found: 29",
    ),
    comes="The metadata was deleted by hand or by a tool that took the ledger for an orphan, or a restore"
    " of the store lost it.",
    cure="There is a deadline: bookies delete the entries of ledgers without metadata at their next garbage"
    " collection. Stop the bookies, or their collection, first. Then write the metadata again: CLOSED, the"
    " last entry one less than the list counts, the length that the list has; for the last of the list"
    " OPEN, with no last entry, so that the broker recovers it. Before a broker runs, where it is the last."
    " What is no longer on the bookies has to go out of the list.",
    unless="Ledgers that were offloaded and deleted from BookKeeper; the last ledger, if it was empty (some"
    " releases delete it before they write the list): without entries given that is undecided, a warning;"
    " shadow topics; a store that has no `/ledgers` at all. A note where every subscription is past it.",
    evidence={
        "entries": int | None,
        "size": int | None,
        "on_bookies": int | None,
        "last_on_bookies": int | None,
        "last_acknowledged": int | None,
    },
)
END_LOW: Final = Code(
    "ledger-end-low",
    Severity.ERROR,
    "A ledger that ends earlier in BookKeeper than the topic counts",
    means="BookKeeper's metadata has it closed at a lower entry than the topic's list counts.",
    broker="No error: what comes after is silently not read. Of the last ledger of the list newer releases"
    " also write the lower count into the list.",
    comes="The metadata was rebuilt or edited with a wrong last entry.",
    cure="Write the right last entry into the metadata (one less than the count), or make it OPEN.",
    evidence={"entries": int, "last_entry": int, "size": int | None, "length": int},
)
END_HIGH: Final = Code(
    "ledger-end-high",
    Severity.ERROR,
    "A ledger that ends later in BookKeeper than the topic counts",
    means="BookKeeper's metadata has it closed at a higher entry than the topic's list counts.",
    broker="If the bookies do not have these entries reading stalls; of the last ledger clients time out in"
    " getLastMessageId. If they have them, the list counts too few.",
    errors=("NonRecoverableLedgerException: No such entry",),
    comes="The metadata was rebuilt or edited with a wrong last entry; or a close failed and a recovery"
    " later found more entries than the writer had confirmed.",
    cure="If the bookies do not have them, make the metadata OPEN with no last entry and let the broker"
    " recover it; else correct the list.",
    unless="Where BookKeeper's length also goes beyond the list's size the entries are likely there: a"
    " warning.",
    evidence={
        "entries": int,
        "last_entry": int,
        "size": int | None,
        "length": int,
        "last_on_bookies": int | None,
    },
)
OPEN_BEHIND: Final = Code(
    "ledger-open-behind",
    Severity.NOTE,
    "A ledger that the topic has closed and BookKeeper has not",
    means="The topic's list has its count, BookKeeper's metadata is OPEN or IN_RECOVERY.",
    broker="It opens the ledger, which recovers and closes it. Nothing is lost.",
    comes="A close that failed, or a broker that was stopped in it.",
    cure="None needed.",
    evidence={"entries": int, "last_entry": int | None, "size": int | None, "length": int, "state": str},
)
COUNTS_ZERO: Final = Code(
    "ledger-counts-zero",
    Severity.ERROR,
    "A ledger in the middle that the topic counts as empty",
    means="The topic's list has no entries for a ledger that is not its last, and BookKeeper does not say"
    " that it is empty.",
    broker="**Loading drops it from the list and deletes its metadata**, with all its entries.",
    errors=("Deleted empty ledger",),
    comes="A list that was rebuilt or edited without counts.",
    cure="Write the right count into the list before a broker loads the topic; never zero, not even with an"
    " OPEN record behind it.",
    unless="What BookKeeper closed without entries.",
    evidence={"last_entry": int | None, "last_on_bookies": int | None},
)
NOT_LISTED: Final = Code(
    "ledger-not-listed",
    Severity.ERROR,
    "A ledger with entries that its topic does not list",
    means="A ledger says by its custom metadata that it is the topic's, it has entries, its id lies among"
    " those of the list or above them, and it is not there.",
    broker="A silent gap: nobody reads it, and nothing says so.",
    comes="The list was edited or restored without it.",
    cure="Put it back into the list, with its count.",
    unless="Ids below the first of the list (trimming writes the list first: these are orphans) and ledgers"
    " without entries.",
    evidence={"last_entry": int | None, "length": int},
)
TERMINATED: Final = Code(
    "terminated-before-end",
    Severity.ERROR,
    "A topic that was terminated before its end",
    means="The position at which the topic was terminated lies before its last entry.",
    broker="Reading ends there; what comes after is not delivered.",
    comes="The list was edited, or restored from two times.",
    cure="Remove the position, or write the right one.",
    evidence={"terminated": tuple[int, int], "last": tuple[int, int]},
)
DUPLICATE: Final = Code(
    "ledger-duplicate",
    Severity.NOTE,
    "A ledger that the list has twice",
    means="The topic's list names the same ledger more than once.",
    broker="The last one counts; the list is written back without the other.",
    comes="The list was edited.",
    cure="None needed, unless their counts differ.",
)
UNORDERED: Final = Code(
    "ledger-unordered",
    Severity.NOTE,
    "A list that is not in the order of its ledgers",
    means="The topic's record has its ledgers in another order than they were written in.",
    broker="It sorts them, and writes the list back sorted.",
    comes="Offloading and ledgers' properties write the list in the order of a hash map.",
    cure="None needed.",
)
IN_TWO: Final = Code(
    "ledger-in-two-topics",
    Severity.ERROR,
    "A ledger that two topics list",
    means="Two topics name the same ledger as their data.",
    broker="Its messages are read in both. **Trimming or deleting one topic deletes the other's ledger.**",
    comes="A list that was copied or edited by hand.",
    cure="Take it out of the list that it does not belong to, before anything trims that topic; the"
    " ledger's custom metadata names the owner.",
    unless="Shadow topics.",
    evidence={"owner": str, "role": str},
)
FOREIGN: Final = Code(
    "ledger-foreign",
    Severity.ERROR,
    "A ledger that says it is another topic's",
    means="The topic's list names a ledger that was created for something else, by its custom metadata.",
    broker="Its messages are read as the topic's. **Trimming deletes it from the other one.**",
    comes="A list that was copied or edited by hand.",
    cure="Take it out of the list, and put it back into the list of its owner if it is missing there.",
    unless="Shadow topics.",
    evidence={"owner": str, "role": str},
)
CODES: Final = (
    WITHOUT_METADATA, END_LOW, END_HIGH, OPEN_BEHIND, COUNTS_ZERO, NOT_LISTED, TERMINATED, DUPLICATE,
    UNORDERED, IN_TWO, FOREIGN,
)  # fmt: skip


def without_metadata(sight: Sight) -> Iterator[Finding]:
    """Ledgers of the list that BookKeeper does not know."""
    if sight.is_shadow:
        return
    if _looks_deleted(sight):
        yield LEFTOVER.found(
            f"it has no subscription, and BookKeeper knows none of its {len(sight.ledgers)} ledgers: what a"
            " deletion leaves that is cut short; if it was none, all its entries are lost",
            severity=Severity.WARNING,
            evidence={"ledgers": [ledger.ledger_id for ledger in sight.ledgers[:10]]},
            **sight.where(),
        )
        return
    for ledger in sight.ledgers:
        gone = ledger.offload is not None and ledger.offload.bookkeeper_deleted
        if ledger.metadata == "absent" and not gone:
            is_last = ledger.ledger_id == sight.ledgers[-1].ledger_id
            # Of an empty one in the middle nothing is lost: the broker drops it.
            if ledger.counted or ledger.entries:
                yield _missing(sight, ledger, is_last=is_last)
            elif is_last:
                yield from _missing_last(sight, ledger)


def _looks_deleted(sight: Sight) -> bool:
    """Return whether all ledgers of a topic are gone that nobody subscribes to; in a pass nobody knows.

    A broker deletes the cursors first, then the ledgers, then the record.
    """
    if not sight.whole or sight.cursors or not any(ledger.counted for ledger in sight.ledgers):
        return False
    return all(ledger.metadata == "absent" for ledger in sight.ledgers)


def _missing(sight: Sight, ledger: Ledger, *, is_last: bool) -> Finding:
    entries = ledger.counted or ledger.entries
    held = _held(sight, ledger.ledger_id)
    evidence = {"entries": entries, "size": ledger.size, "on_bookies": held}
    if sight.consumed(ledger):
        text = f"BookKeeper has no metadata of it; every subscription is past its {entries} entries"
        return WITHOUT_METADATA.found(
            text, severity=Severity.NOTE, evidence=evidence, **sight.where(ledger.ledger_id)
        )
    loading = "; loading the topic drops it from the list" if is_last else ""
    text = f"BookKeeper has no metadata of it: its {entries} entries cannot be read{loading}; {DEADLINE}"
    return WITHOUT_METADATA.found(text, evidence=evidence, **sight.where(ledger.ledger_id))


def _missing_last(sight: Sight, ledger: Ledger) -> Iterator[Finding]:
    """The last ledger, whose count nobody wrote down: it may have been empty, which is healthy."""
    held, read = _held(sight, ledger.ledger_id), _read_up_to(sight, ledger.ledger_id)
    known = max(-1 if one is None else one for one in (held, read))
    where = sight.where(ledger.ledger_id)
    evidence = {"last_on_bookies": held, "last_acknowledged": read}
    if known >= 0:
        text = (
            f"BookKeeper has no metadata of the last ledger, which had {known + 1} entries or more: loading"
            f" the topic drops it from the list; {DEADLINE}"
        )
        yield WITHOUT_METADATA.found(text, evidence=evidence, **where)
    elif sight.cluster.source is None:
        text = (
            "BookKeeper has no metadata of the last ledger; if it had entries, loading the topic drops"
            f" them with it, and {DEADLINE} (--entries would tell whether it had any)"
        )
        yield WITHOUT_METADATA.found(text, severity=Severity.WARNING, evidence=evidence, **where)


def ends(sight: Sight) -> Iterator[Finding]:
    """Where BookKeeper and the list disagree about a ledger's end, or about whether it has one."""
    for ledger in sight.ledgers:
        facts = sight.facts(ledger.ledger_id)
        counted = _counted(sight, ledger)
        last = facts.last_entry
        if facts.metadata != "known" or not counted or last == counted - 1:
            continue
        where = sight.where(ledger.ledger_id)
        evidence: Where = {
            "entries": counted,
            "last_entry": last,
            "size": ledger.size,
            "length": facts.length,
        }
        if last is None:
            text = f"the list has {counted} entries of it, BookKeeper has it as {facts.state}"
            yield OPEN_BEHIND.found(text, evidence=evidence | {"state": facts.state}, **where)
        elif last + 1 < counted:
            text = (
                f"the list has {counted} entries, BookKeeper {last + 1}: reading silently leaves out the rest"
            )
            yield END_LOW.found(text, evidence=evidence, **where)
        elif last + 1 > counted == ledger.counted:
            yield _end_high(sight, ledger, last, evidence, where)


def _end_high(sight: Sight, ledger: Ledger, last: int, evidence: Where, where: Where) -> Finding:
    held = _held(sight, ledger.ledger_id)
    longer = sight.facts(ledger.ledger_id).length > (ledger.size or 0)
    there = longer if held is None else held >= last
    text = f"the list has {ledger.counted} entries, BookKeeper {last + 1}"
    if there:
        return END_HIGH.found(
            f"{text}, which are likely there: the list counts too few",
            severity=Severity.WARNING,
            evidence=evidence | {"last_on_bookies": held},
            **where,
        )
    text += ": reading stalls where the bookies have no more"
    return END_HIGH.found(text, evidence=evidence | {"last_on_bookies": held}, **where)


def counts_zero(sight: Sight) -> Iterator[Finding]:
    """Ledgers in the middle of the list that a broker would take for empty."""
    if sight.topic is None or sight.topic.terminated is not None or sight.is_shadow:
        return
    for ledger in sight.ledgers[:-1]:
        facts = sight.facts(ledger.ledger_id)
        if ledger.counted or facts.metadata != "known" or facts.last_entry == -1 or _is_again(sight, ledger):
            continue
        held = _held(sight, ledger.ledger_id)
        if facts.last_entry is None and held is None and sight.cluster.source is not None:
            continue
        known = "it is not closed" if facts.last_entry is None else f"it has {facts.last_entry + 1} entries"
        yield COUNTS_ZERO.found(
            f"the list has no entries of it, and by BookKeeper {known}: loading the topic drops it from the"
            " list and deletes its metadata",
            evidence={"last_entry": facts.last_entry, "last_on_bookies": held},
            **sight.where(ledger.ledger_id),
        )


def not_listed(sight: Sight) -> Iterator[Finding]:
    """Ledgers with entries that were made for the topic and are not in its list, below its first excepted."""
    if not sight.ledgers or sight.is_shadow:
        return
    first, listed = sight.ledgers[0].ledger_id, sight.listed
    for ledger_id in sight.owned:
        facts = sight.facts(ledger_id)
        if ledger_id < first or ledger_id in listed or facts.metadata != "known":
            continue
        last = facts.last_entry if facts.last_entry is not None else sight.held_of_open(ledger_id)
        if last is not None and last >= 0:
            yield NOT_LISTED.found(
                f"it has {last + 1} entries of the topic, whose list does not name it: a silent gap",
                evidence={"last_entry": last, "length": facts.length},
                **sight.where(ledger_id) | {"path": ledger_path(ledger_id)},
            )


def terminated(sight: Sight) -> Iterator[Finding]:
    """Whether the topic ends before its entries do."""
    if sight.topic is None or sight.topic.terminated is None:
        return
    end = sight.topic.terminated
    for ledger in sight.ledgers:
        last = sight.facts(ledger.ledger_id).last_entry
        last = ledger.counted - 1 if last is None else last
        if last >= 0 and Position(ledger.ledger_id, last) > end:
            text = (
                f"terminated at {end.ledger_id}:{end.entry_id}, and it goes on to {ledger.ledger_id}:{last}"
            )
            evidence = {"terminated": list(end), "last": [ledger.ledger_id, last]}
            yield TERMINATED.found(text, evidence=evidence, **sight.where(end.ledger_id))
            return


def order(sight: Sight) -> Iterator[Finding]:
    """Ledgers that the list has twice, or not in their order."""
    twice = sorted(
        {one.ledger_id for one, other in pairwise(sight.ledgers) if one.ledger_id == other.ledger_id}
    )
    for ledger_id in twice:
        yield DUPLICATE.found("the list has it more than once", **sight.where(ledger_id))
    if sight.topic is not None and not sight.topic.in_order:
        yield UNORDERED.found("the list is not in the order of its ledgers", **sight.where())


def foreign(sight: Sight) -> Iterator[Finding]:
    """Ledgers of the list that were created for somebody else."""
    mine = mark_of("data", str(sight.name))
    for ledger in () if sight.is_shadow else sight.ledgers:
        facts = sight.facts(ledger.ledger_id)
        if facts.mark and facts.mark != mine:
            owner = facts.owner
            named = "something else" if owner is None else f"{owner.role} of {owner.name}"
            both = owner is not None and sight.lists(owner.name, ledger.ledger_id)
            text = "which lists it too: " if both else ""
            yield (IN_TWO if both else FOREIGN).found(
                f"it was created as {named}, {text}trimming this topic deletes it there",
                evidence={} if owner is None else {"owner": owner.name, "role": owner.role},
                **sight.where(ledger.ledger_id),
            )


TOPIC_CHECKS: Final[tuple[Check, ...]] = (
    without_metadata, ends, counts_zero, not_listed, terminated, order, foreign,
)  # fmt: skip


def _counted(sight: Sight, ledger: Ledger) -> int:
    """Return how many entries the topic's record says that a ledger has, 0 where it does not say."""
    end = None if sight.topic is None else sight.topic.terminated
    if end is not None and end.ledger_id == ledger.ledger_id and not ledger.counted:
        return max(0, end.entry_id + 1)
    return ledger.counted


def _held(sight: Sight, ledger_id: int) -> int | None:
    """Return the last entry that bookies have of a ledger; None for none, or where none was given."""
    source = sight.cluster.on_bookies
    return None if source is None else source.last_entry(ledger_id)


def _read_up_to(sight: Sight, ledger_id: int) -> int | None:
    """Return the highest entry of a ledger that a cursor has acknowledged with all before it."""
    ends = (cursor.mark_delete for cursor in sight.cursors)
    return max((end.entry_id for end in ends if end is not None and end.ledger_id == ledger_id), default=None)


def _is_again(sight: Sight, ledger: Ledger) -> bool:
    return any(one.counted for one in sight.ledgers if one.ledger_id == ledger.ledger_id)
