"""The plan: what a run would do, written down before it does it.

NDJSON. The first line names the store and the command, `{"plan": 1, "command", "store"}`; then a line for
each value: `{"path", "version", "action", "reason"?, "codec_before", "codec_after", "size_before",
"size_after", "old_sha256"?, "new_sha256"?, "new"?}`. The digests stand where something is to be written,
`new` (base64) where it does not follow from the old value and the codec.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError, decoding
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.jobs.rewrite.batches import READ_GROUP, Batches, chunks
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, content, digest, keep, skip, write
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.rewrite.run_files import (
    HEADER_LIMIT,
    StoreIdentity,
    check_file,
    check_identity,
    read_identity,
)
from pulsar_meta.stores.base import Store, Versioned

FORMAT = 1
# What a line has to have, by its action.
NEEDED: Final = {
    "rewrite": ("path", "version", "old_sha256", "new_sha256"),
    "keep": ("path",),
    "skip": ("path",),
}

# Makes the new bytes from the value as it is and the codec that the plan names.
Recode = Callable[[Versioned, str], bytes]


def plan_header(command: str, store: StoreIdentity) -> dict[str, Any]:
    """Return the first line of a plan."""
    return {"plan": FORMAT, "command": command, "store": store.document()}


def plan_line(seen: Versioned, decision: Decision, *, with_new: bool = False) -> dict[str, Any]:
    """Return the line of one value."""
    line: dict[str, Any] = {"path": seen.path, "version": seen.version, "action": decision.action}
    if decision.reason is not None:
        line["reason"] = decision.reason
    line |= {
        "codec_before": decision.codec_before,
        "codec_after": decision.codec_after,
        "size_before": decision.size_before,
        "size_after": decision.size_after,
    }
    if decision.action == "rewrite":
        line["old_sha256"] = digest(content(seen))
        line["new_sha256"] = digest(decision.new)
        if with_new and decision.new is not None:
            line["new"] = b64encode(decision.new).decode()
    return line


def read_plan(path: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Return the header of a plan and its lines, which are read as they are asked for."""
    check_file(path)
    try:
        with path.open("rb") as file:
            header = _object(file.readline(HEADER_LIMIT), path, 1)
    except OSError as error:
        raise NotFoundError(f"no plan: {error.strerror}", source=str(path)) from error
    if header.get("plan") != FORMAT or not isinstance(header.get("store"), dict):
        raise DecodeError(f"not a plan of format {FORMAT}: the first line names no store", source=str(path))
    return header, _plan_lines(path)


def apply_plan(
    store: Store, file: Path, command: str, recode: Recode, *, other_store: bool = False
) -> Rewrite:
    """Return what a plan of `command` says; UsageError for one of another, GuardError for another store's."""
    header, _ = read_plan(file)
    if header.get("command") != command:
        raise UsageError(f"{file}: a plan of {header.get('command')}, not of {command}")
    check_identity(header["store"], read_identity(store), source=str(file), allowed=other_store)
    return Rewrite(command, lambda batches: planned(read_plan(file)[1], batches, recode), leave_moved)


def planned(lines: Iterable[dict[str, Any]], batches: Batches, recode: Recode) -> Generator[Decided]:
    """Yield the values of a plan with the decision that it names; those that changed since have moved."""
    for group in chunks((line for line in lines if line["action"] == "rewrite"), READ_GROUP):
        values = batches.read([str(line["path"]) for line in group])
        for line, seen in zip(group, values, strict=True):
            yield seen, _decide(line, seen, recode)


def leave_moved(seen: Versioned) -> Decision:
    """Return what becomes of a planned value that met a conflict: a plan is applied as it is or not."""
    return skip(seen, "moved")


def _decide(line: dict[str, Any], seen: Versioned, recode: Recode) -> Decision:
    held = digest(content(seen))
    if held == line["new_sha256"]:
        return keep(seen, "already", line.get("codec_after"))
    if held != line["old_sha256"] or seen.version != _version(line):
        return leave_moved(seen)
    codec = line.get("codec_after")
    new = _given(line) if "new" in line or line["new_sha256"] is None else recode(seen, str(codec))
    if digest(new) != line["new_sha256"]:
        return skip(
            seen, "packs-differently", note="the codec here makes other bytes than when it was planned"
        )
    return write(seen, new, line.get("codec_before"), codec)


def _version(line: dict[str, Any]) -> int:
    # JSON carries versions beyond 2^53 as strings.
    try:
        return int(line["version"])
    except (TypeError, ValueError) as error:
        raise DecodeError(f"{line['path']}: the plan's version is no number") from error


def _given(line: dict[str, Any]) -> bytes | None:
    if line.get("new") is None:
        return None
    try:
        return b64decode(line["new"], validate=True)
    except (Base64Error, ValueError, TypeError) as error:
        raise DecodeError(f"{line['path']}: the plan's new value is not base64") from error


def _plan_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
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
