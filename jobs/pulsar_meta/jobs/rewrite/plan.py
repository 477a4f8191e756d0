"""Plans: the changes of a run, recorded before the run.

A plan is NDJSON. The first line names the store and the command, `{"plan": 1, "command", "store",
"counters"?}`. Then there is a `PlanLine` for each value, with names only for segments and their cursors.
Lines of changed values have digests. They have `effect` (create, remove) unless the value is replaced, and
`new` (base64) unless it follows from the old value and the codec.

The command that made a plan applies it. It computes each new value again and only compares it with the plan.
Other paths, creations and removals are refused.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

from pulsar_meta.access.files import bounded_lines
from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.errors import DecodeError, GuardError, UsageError, decoding, unreadable
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.envelope import managed_place
from pulsar_meta.codecs.names import managed_ledger_places
from pulsar_meta.jobs.rewrite.apply import READ_GROUP, Batches, chunks
from pulsar_meta.jobs.rewrite.decision import (
    Action,
    Decided,
    Decision,
    Effect,
    by_rule,
    content,
    digest,
    keep,
    skip,
)
from pulsar_meta.jobs.rewrite.rules import recode
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.rewrite.run_files import (
    HEADER_LIMIT,
    StoreDocument,
    StoreIdentity,
    check_file,
    check_identity,
    read_identity,
)
from pulsar_meta.jobs.topics.related import PlaceNames, ScalableTopics, named_at
from pulsar_meta.jobs.topics.scope import Kind
from pulsar_meta.stores.base import Store, Versioned

FORMAT = 1
NONE: Final[Mapping[str, int]] = {}
# The required fields of a line, by its action.
NEEDED: Final = {
    "rewrite": ("path", "version", "old_sha256", "new_sha256"),
    "keep": ("path",),
    "skip": ("path",),
}


class PlanHeader(TypedDict):
    """The first line of a plan; `counters` has the next number of sequential nodes, by path."""

    plan: int
    command: str
    store: StoreDocument
    counters: NotRequired[dict[str, int]]


class PlanLine(PlaceNames):
    """The planned change of a value and its reason; sizes are in bytes, `new` is base64."""

    path: str
    version: int
    action: Action
    reason: NotRequired[str]
    codec_before: str | None
    codec_after: str | None
    size_before: int
    size_after: int
    effect: NotRequired[Effect]
    old_sha256: NotRequired[str | None]
    new_sha256: NotRequired[str | None]
    new: NotRequired[str]


def plan_header(command: str, store: StoreIdentity, counters: Mapping[str, int] = NONE) -> PlanHeader:
    """Return the first line of a plan."""
    header: PlanHeader = {"plan": FORMAT, "command": command, "store": store.document()}
    if counters:
        header["counters"] = dict(counters)
    return header


def plan_line(seen: Versioned, decision: Decision, *, with_new: bool = False) -> PlanLine:
    """Return the line of one value."""
    line: PlanLine = {
        "path": seen.path,
        "version": seen.version,
        "action": decision.action,
        "codec_before": decision.codec_before,
        "codec_after": decision.codec_after,
        "size_before": decision.size_before,
        "size_after": decision.size_after,
    }
    if decision.reason is not None:
        line["reason"] = decision.reason
    if decision.action == "rewrite":
        if decision.effect != "replace":
            line["effect"] = decision.effect
        line["old_sha256"] = digest(content(seen))
        line["new_sha256"] = digest(decision.new)
        if with_new and decision.new is not None:
            line["new"] = b64encode(decision.new).decode()
    return line


def named_lines(store: Store, decided: Iterable[Decided], *, with_new: bool = False) -> Iterator[PlanLine]:
    """Yield the lines of values; those of segments say which segment, and of which scalable topic."""
    scalable = ScalableTopics(store)
    for group in chunks(decided, READ_GROUP):
        # A value that will be created does not exist yet.
        places = [managed_place(seen.path, seen.value or decision.new or b"") for seen, decision in group]
        owners = scalable.of(place[0] for place in places if place is not None)
        for (seen, decision), place in zip(group, places, strict=True):
            line = plan_line(seen, decision, with_new=with_new)
            owner = None if place is None else owners[place[0]]
            names = PlaceNames() if place is None or owner is None else named_at(place, owner)
            yield {"path": line["path"], **names, **line}


def read_plan(path: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Return the header of a plan and its lines, which are read as they are asked for."""
    check_file(path)
    try:
        with path.open("rb") as file:
            header = _object(file.readline(HEADER_LIMIT), path, 1)
    except OSError as error:
        raise unreadable(error, str(path)) from error
    if header.get("plan") != FORMAT or not isinstance(header.get("store"), dict):
        raise DecodeError(f"not a plan of format {FORMAT}: the first line names no store", source=str(path))
    return header, _plan_lines(path)


def apply_plan(store: Store, file: Path, kind: Kind, *, other_store: bool = False) -> Rewrite:
    """Make the rewrite of a plan of compress-cursors or compress-ledgers.

    UsageError for a plan of another command, GuardError for one of another store, and for one that has a line
    of something else than giving another codec to a value of that kind; DecodeError for a broken one.
    """
    command = f"compress-{kind}s"
    header, _ = read_plan(file)
    if header.get("command") != command:
        raise UsageError(f"{file}: a plan of {header.get('command')}, not of {command}")
    check_identity(header["store"], read_identity(store), source=str(file), allowed=other_store)
    for _ in rewrites(file, kind):
        # All of it, before anything is written.
        pass
    return Rewrite(
        command, lambda batches: planned(rewrites(file, kind), batches, kind), by_rule(leave_moved)
    )


def rewrites(file: Path, kind: Kind) -> Iterator[dict[str, Any]]:
    """Yield the lines of a plan that change a value. Raises like `apply_plan`."""
    _, lines = read_plan(file)
    for number, line in enumerate(lines, 2):
        if line["action"] == "rewrite":
            _check_line(line, number, kind, str(file))
            yield line


def planned(lines: Iterable[dict[str, Any]], batches: Batches, kind: Kind) -> Generator[Decided]:
    """Yield the values of a plan with decisions; values that have changed since count as moved."""
    for group in chunks(lines, READ_GROUP):
        values = batches.read([str(line["path"]) for line in group])
        for line, seen in zip(group, values, strict=True):
            yield seen, _decide(line, seen, kind)


def leave_moved(seen: Versioned) -> Decision:
    """Skip a planned value that met a conflict."""
    return skip(seen, "moved")


def _check_line(line: dict[str, Any], number: int, kind: Kind, source: str) -> None:
    places = managed_ledger_places(str(line["path"]))
    if not any((cursor is None) == (kind == "ledger") for _, cursor in places):
        raise GuardError(f"line {number}: {line['path']} is no {kind} of a topic", source=source)
    if line["old_sha256"] is None or line["new_sha256"] is None or "new" in line:
        raise GuardError(
            f"line {number}: compress-{kind}s gives another codec to what is there; it creates, removes and"
            " brings nothing",
            source=source,
        )
    if line.get("codec_after") not in CODECS:
        raise DecodeError(f"line {number}: no codec {line.get('codec_after')!r}", source=source)
    _version(line)


def _decide(line: dict[str, Any], seen: Versioned, kind: Kind) -> Decision:
    held = digest(content(seen))
    if held == line["new_sha256"]:
        return keep(seen, "already", line["codec_after"])
    if held != line["old_sha256"] or seen.version != _version(line):
        return leave_moved(seen)
    decision = recode(kind, seen, line["codec_after"])
    if decision.action == "rewrite" and digest(decision.new) != line["new_sha256"]:
        note = "the codec here makes other bytes than when it was planned"
        return skip(seen, "packs-differently", note=note)
    return decision


def _version(line: dict[str, Any]) -> int:
    # JSON carries versions beyond 2^53 as strings.
    try:
        return int(line["version"])
    except (TypeError, ValueError, OverflowError) as error:
        raise DecodeError(f"{line['path']}: the plan's version is no number") from error


def _plan_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, text in enumerate(bounded_lines(file), 1):
            if number == 1:
                continue
            line = _object(text, path, number)
            needed = NEEDED.get(str(line.get("action")))
            if needed is None:
                raise DecodeError(f"line {number}: no action {line.get('action')!r}", source=str(path))
            missing = [name for name in needed if name not in line]
            if missing:
                raise DecodeError(f"line {number}: no {', '.join(missing)}", source=str(path))
            yield line


def _object(text: bytes, path: Path, number: int) -> dict[str, Any]:
    with decoding(str(path), what=f"line {number}"):
        return read_json_object(text)
