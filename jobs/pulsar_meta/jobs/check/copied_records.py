"""Finds records that are copies of another topic's, cursor's or schema's, and what they explain.

A record that was written to a wrong path looks like many faults at once. All of them are explained if the
record names the same ledgers as the original, and if these ledgers were created for the original's owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor
from pulsar_meta.codecs.names import TopicName, decode_name
from pulsar_meta.jobs.check.case_context import CaseContext, with_case
from pulsar_meta.jobs.check.codes import Finding, finding, first_of
from pulsar_meta.jobs.check.orphans import path_of
from pulsar_meta.jobs.topics.evidence import Case, Piece, Witness
from pulsar_meta.jobs.topics.owners import Owner, Role, named_by

COPIED_RECORD: Final = "record-copied"
_FOREIGN: Final = frozenset(("ledger-in-two-topics", "ledger-foreign"))
# Findings about a cursor that has another cursor's record, or that follows another topic's list.
OF_POSITIONS: Final = frozenset(("cursor-beyond-end", "cursor-in-vanished-ledger", "cursor-ranges"))
OF_POINTERS: Final = frozenset(("cursor-ledger-foreign", "bucket-ledger-foreign"))
_SCHEMA: Final = "schema-ledger-foreign"
# The most ledgers that a finding names.
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copied record: its path, place and kind, the original's name, and what shows it.

    `ledgers` are those that the record names, `own` are ledgers that were created for it and that it does not
    name. `explained` are the findings that the copy explains.
    """

    kind: str
    place: Mapping[str, str | None]
    original: str
    ledgers: Sequence[int]
    own: Sequence[int]
    supports: tuple[Piece, ...]
    against: tuple[Piece, ...]
    explained: Sequence[Finding]


def without_copies(
    context: CaseContext, suspicions: Sequence[Finding]
) -> tuple[list[Finding], list[Finding]]:
    """Return a finding for each copied record, and the suspicions that no copied record explains.

    The others are added to the consequences of root causes.
    """
    copies: list[Finding] = []
    left = list(suspicions)
    for find in (_copied_topics, _copied_cursors, _copied_schemas):
        for copy in list(find(context, left)):
            explained = set(map(id, copy.explained))
            left = [each for each in left if id(each) not in explained]
            context.causes.consequences.extend(copy.explained)
            copies.append(_finding(copy))
    return copies, left


def _finding(copy: _Copy) -> Finding:
    count = len(copy.explained)
    findings = "1 finding" if count == 1 else f"{count} findings"
    text = f"its record looks like a copy of that of {copy.original}; this explains {findings}"
    if copy.own:
        text += f". Ledgers that were created for it and that it does not name: {first_of(copy.own, _NAMED)}"
    suspicion = finding(
        COPIED_RECORD,
        text,
        severity=min((each.severity for each in copy.explained), key=lambda severity: severity.rank),
        evidence={
            "kind": copy.kind,
            "original": copy.original,
            "ledgers": list(copy.ledgers[:_NAMED]),
            "own": list(copy.own[:_NAMED]),
            "consequences": count,
        },
        **copy.place,
    )
    claim = f"the record is a copy of that of {copy.original}"
    case = Case(claim, copy.supports, copy.against, next_step="Compare both records: get TOPIC")
    return with_case(suspicion, case)


def _created_for(count: int, name: str) -> Piece:
    text = f"{count} ledger{' was' if count == 1 else 's were'} created for {name}"
    return Piece(Witness.METADATA, f"according to custom metadata, {text}")


def _groups(
    suspicions: Sequence[Finding], codes: frozenset[str], key: Callable[[Finding], str | None]
) -> dict[str, list[Finding]]:
    """Return the suspicions with these codes by a key, without those that have none."""
    groups: dict[str, list[Finding]] = {}
    for each in suspicions:
        name = key(each) if each.code in codes else None
        if name is not None:
            groups.setdefault(name, []).append(each)
    return groups


def _copied_topics(context: CaseContext, suspicions: Sequence[Finding]) -> Iterator[_Copy]:
    """Yield the topics whose lists only have ledgers that were created for one other topic."""
    for name, foreign in _groups(suspicions, _FOREIGN, lambda each: each.topic).items():
        owners = {(each.evidence.get("role"), each.evidence.get("owner")) for each in foreign}
        role, owner = next(iter(owners))
        listed, found = context.topic(name).ids, {each.ledger_id or 0 for each in foreign}
        if len(owners) > 1 or role != "data" or found != set(listed):
            continue
        own = _orphans(context, suspicions, "data", name, None)
        own |= {
            each.ledger_id or 0: each
            for each in suspicions
            if each.code == "ledger-not-listed" and each.topic == name
        }
        supports = [_created_for(len(found), str(owner)), *_by_original(context, str(owner), found, own)]
        if len(found) == len(supports) == 1:
            # It can be one ledger at a wrong place.
            continue
        place = {"topic": name, "path": TopicName.parse(name).path}
        explained = _once([*foreign, *own.values(), *_of_followers(name, found, suspicions)])
        against = tuple(_by_cursors(context, name, found, "these ledgers"))
        supports += _by_cursors(context, name, own.keys(), "ledgers that the list does not have")
        yield _Copy("topic", place, str(owner), listed, sorted(own), tuple(supports), against, explained)


def _by_original(
    context: CaseContext, owner: str, found: Set[int], own: Mapping[int, Finding]
) -> Iterator[Piece]:
    """Yield what the owner's list shows: the same ledgers, ledgers of the topic, or that it is gone."""
    record = context.reader.store.find(TopicName.parse(owner).path)
    theirs = set(context.topic(owner).ids)
    if record is None:
        yield Piece(Witness.LIST, f"{owner} has no record")
    if theirs & found:
        yield Piece(Witness.LIST, f"the list of {owner} has {len(theirs & found)} of these ledgers")
    if theirs & own.keys():
        yield Piece(Witness.LIST, f"the list of {owner} has {len(theirs & own.keys())} ledgers of the topic")
    if own:
        yield Piece(
            Witness.METADATA, f"the list has none of {len(own)} ledgers that were created for the topic"
        )


def _by_cursors(context: CaseContext, name: str, ledgers: Set[int], which: str) -> Iterator[Piece]:
    for cursor, acknowledged in context.topic(name).cursors.items():
        if ledgers & set(acknowledged):
            yield Piece(Witness.CURSORS, f"the subscription {cursor} acknowledged entries of {which}")
            return


def _of_followers(name: str, listed: Set[int], suspicions: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the suspicions that the list of another topic causes: about positions, and about its ledgers."""
    for each in suspicions:
        if each.topic == name and (each.code in OF_POSITIONS or each.ledger_id in listed):
            yield each


def _orphans(
    context: CaseContext, suspicions: Sequence[Finding], role: Role, name: str, cursor: str | None
) -> dict[int, Finding]:
    """Return the unreferenced ledgers that were created for an owner, by id."""
    found: dict[int, Finding] = {}
    for each in suspicions:
        if each.code not in ("orphan-ledger", "orphan-bucket") or each.ledger_id is None:
            continue
        if each.evidence.get("owner") != name or (role == "data" and each.evidence.get("role") != role):
            continue
        owner = context.reader.ledger(each.ledger_id).owner
        if owner is not None and (role == "data" or owner.cursor == cursor):
            found[each.ledger_id] = each
    return found


def _copied_cursors(context: CaseContext, suspicions: Sequence[Finding]) -> Iterator[_Copy]:
    groups = _groups(suspicions, OF_POSITIONS | OF_POINTERS, lambda each: each.path if each.cursor else None)
    for path, wrong in groups.items():
        name, cursor = str(wrong[0].topic), str(wrong[0].cursor)
        original = _original_of(context, path)
        if original is None:
            continue
        owner, ledger_id = original
        own = _orphans(context, suspicions, "cursor", name, cursor)
        supports = (
            Piece(Witness.CURSORS, f"the record of {owner.cursor} of {owner.name} is the same"),
            _created_for(1, owner.name),
        )
        place = {"topic": name, "cursor": cursor, "path": path}
        yield _Copy(
            "cursor",
            place,
            f"{owner.cursor} of {owner.name}",
            [ledger_id],
            sorted(own),
            supports,
            (),
            _once([*wrong, *own.values()]),
        )


def _original_of(context: CaseContext, path: str) -> tuple[Owner, int] | None:
    """Find another cursor with the same record, by the owners of the ledgers that the record names."""
    store = context.reader.store
    record = store.find(path)
    if record is None:
        return None
    try:
        info = decode_cursor(record.value)
    except DecodeError:
        return None
    state = [info.cursorsLedgerId] if info.cursorsLedgerId != STATE_IN_RECORD else []
    for ledger_id in (*state, info.markDeleteLedgerId):
        owner = context.reader.ledger(ledger_id).owner
        if owner is None or owner.role not in ("data", "cursor"):
            continue
        try:
            topic = TopicName.parse(owner.name)
        except UsageError:
            continue
        if owner.cursor is None:
            paths = [f"{topic.path}/{name}" for name in store.children(topic.path)]
        else:
            paths = [topic.cursor_path(owner.cursor)]
        for other in store.read_many([each for each in paths if each != path]):
            if other is not None and other.value == record.value:
                found = TopicName.from_path(topic.path)
                return owner._replace(name=str(found or topic), cursor=_cursor_of(other.path)), ledger_id
    return None


def _cursor_of(path: str) -> str:
    name = path.rpartition("/")[2]
    with suppress(DecodeError):
        return decode_name(name)
    return name


def _copied_schemas(context: CaseContext, suspicions: Sequence[Finding]) -> Iterator[_Copy]:
    for path, wrong in _groups(suspicions, frozenset((_SCHEMA,)), lambda each: each.path).items():
        owners = {(each.evidence.get("role"), each.evidence.get("owner")) for each in wrong}
        role, name = next(iter(owners))
        if len(owners) > 1 or role != "schema" or name is None:
            continue
        original = path_of(Owner(0, "schema", str(name), None, None))
        ours, theirs = context.reader.store.read_many([path, str(original)])
        if ours is None or theirs is None or ours.value != theirs.value:
            continue
        ledgers = [owner.ledger_id for owner in named_by(ours, None, lambda path, why: None)]
        own = _orphans(context, suspicions, "schema", str(wrong[0].topic).partition("://")[2], None)
        supports = (
            Piece(Witness.STORE, f"the record of the schema of {name} is the same"),
            _created_for(len(ledgers), f"the schema of {name}"),
        )
        place = {"topic": wrong[0].topic, "path": path}
        yield _Copy(
            "schema",
            place,
            f"the schema of {name}",
            ledgers,
            sorted(own),
            supports,
            (),
            _once([*wrong, *own.values()]),
        )


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without repetitions."""
    return list({id(each): each for each in findings}.values())
