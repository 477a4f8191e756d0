"""Text about a run that rewrites values: plan, question, summary, and the commands that resume or undo it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.text import counted, harmless, size, without_middle
from pulsar_meta.codecs.json_text import Document, dumps
from pulsar_meta.jobs.rewrite.decision import Decided, Effect
from pulsar_meta.jobs.values.comparison import NAMED

if TYPE_CHECKING:
    from pulsar_meta.cli.render.pages import Section


def summary_lines(document: Document, undo: str | None = None) -> Iterator[str]:
    """Yield the lines of a summary without zeros; `undo` is the command that undoes the run."""
    yield f"{document['seen']} seen, {_changed(document, _DONE)}"
    yield from _others(document)
    if undo is not None:
        yield f"undo with: {undo}"


def _others(document: Document) -> Iterator[str]:
    """Yield the lines of a summary about values that don't change, and about counters."""
    for name in ("kept", "skipped"):
        reasons = ", ".join(f"{reason} {count}" for reason, count in document[f"{name}_for"].items())
        if document[name]:
            yield f"{document[name]} {name}" + (f": {reasons}" if reasons else "")
    if document["conflicts"]:
        yield counted(document["conflicts"], "conflicts")
    if document["undecodable"]:
        yield f"{document['undecodable']} undecodable"
    for path, number in document.get("counters", {}).items():
        yield f"the next number of {path}: {number}; undo does not move counters back"


def _changed(document: Document, verbs: Mapping[Effect, str]) -> str:
    before, after = document["bytes_before"], document["bytes_after"]
    done = effects(document)
    parts = [f"{count} {verbs[name]}" for name, count in done.items() if count] or [f"0 {verbs['replace']}"]
    if done["replace"] or not document["rewritten"]:
        ratio = f" ({before / after:.2f}x)" if before > after > 0 else ""
        return f"{', '.join(parts)}: {before} -> {after} bytes{ratio}"
    return f"{', '.join(parts)}: {abs(after - before)} bytes"


def named(names: Sequence[str], count: int) -> str:
    """List the first of `count` names for a sentence."""
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(map(harmless, names)) + more


def effects(document: Document) -> dict[Effect, int]:
    """Count the values of a summary that are replaced, created and removed."""
    created, removed = document["created"], document["removed"]
    return {"replace": document["rewritten"] - created - removed, "create": created, "remove": removed}


def question_lines(document: Document, first: Sequence[Decided]) -> Iterator[str]:
    """Yield the lines above the confirmation question: the `first` writes, then the summary."""
    for record, decision in first:
        sizes = f"{decision.size_before} -> {decision.size_after}"
        amount = sizes if decision.effect == "replace" else str(decision.size_before or decision.size_after)
        yield f"  {_TO_DO[decision.effect]} {record.path}: {amount} bytes"
    if document["rewritten"] > len(first):
        yield f"  and {document['rewritten'] - len(first)} more"
    yield from planned_lines(document)


def planned_lines(document: Document) -> Iterator[str]:
    """Yield the lines of the summary of a plan."""
    yield f"{document['seen']} seen, {_changed(document, _PLANNED)}"
    yield from _others(document)


def question(document: Document) -> str:
    """Return the confirmation question."""
    parts = [
        f"{_TO_DO[name]} {counted(count, 'values')}" for name, count in effects(document).items() if count
    ]
    if document.get("counters"):
        parts.append("move counters forward")
    return f"{', '.join(parts)}?"


_DONE: dict[Effect, str] = {"replace": "rewritten", "create": "created", "remove": "removed"}
_PLANNED: dict[Effect, str] = {"replace": "to rewrite", "create": "to create", "remove": "to remove"}
_TO_DO: dict[Effect, str] = {"replace": "write", "create": "create", "remove": "remove"}


def _plan_row(line: Document) -> list[str]:
    codecs = f"{line['codec_before'] or '-'} -> {line['codec_after'] or '-'}"
    sizes = [str(line["size_before"]), str(line["size_after"])]
    return [
        line.get("effect") or line["action"],
        line.get("reason", ""),
        codecs,
        *sizes,
        str(line["version"]),
        line["path"],
    ]


class PlanView(View):
    """The values of a plan; an HTML page begins with those that change."""

    def sections(self, documents: Iterable[Document]) -> Iterator[Section]:
        """Yield one table."""
        yield from View.sections(self, sorted(documents, key=lambda line: line["action"] == "keep"))


PLAN = PlanView(
    ["action", "reason", "codec", "before (bytes)", "after (bytes)", "version", "path"],
    _plan_row,
    right=frozenset({"before (bytes)", "after (bytes)", "version"}),
    fields=(
        "action",
        "reason",
        "codec_before",
        "codec_after",
        "size_before",
        "size_after",
        "version",
        "path",
        "topic",
        "scalable_topic",
        "cursor",
    ),
    title="Plan: values before and after",
    bars={"before (bytes)": "size_before", "after (bytes)": "size_after"},
)


_OF_STORE = ("--store", "--ledger-store", "--profile")


def undo_command(arguments: Sequence[str], undo_file: Path | str) -> str:
    """Return the command line that undoes a run, with the store options of this command line."""
    words, given = ["pulsar-meta", "undo", str(undo_file)], list(map(redact, arguments))
    for at, word in enumerate(given):
        if word.startswith(tuple(f"{option}=" for option in _OF_STORE)):
            words.append(word)
        elif word in _OF_STORE:
            words += given[at : at + 2]
    return shlex.join(words)


def resume_command(arguments: Sequence[str], undo_file: Path) -> str:
    """Return the shell command that resumes a run."""
    words = ["pulsar-meta", *(redact(argument) for argument in arguments)]
    if not any(word == "--undo-file" or word.startswith("--undo-file=") for word in words):
        words += ["--undo-file", str(undo_file)]
    if "--resume" not in words:
        words.append("--resume")
    return shlex.join(words)


_ESTIMATE = (
    "codec", "values", "rewritten", "undecodable", "bytes_before", "bytes_after", "ratio", "seconds",
    "under_threshold", "unreadable",
)  # fmt: skip


def estimate_view(by: str | None) -> View:
    """Return the rows of an estimate with exact numbers, grouped by the field `by`."""
    fields = (*([by] if by else []), *_ESTIMATE)
    return View(fields, lambda row: [str(row[name] or 0) for name in fields], fields=fields)


def estimate_table(by: str | None) -> View:
    """Return the rows of an estimate for a terminal, with units of sizes."""
    headings = (
        *([by] if by else []),
        "codec",
        "values",
        "compressed",
        "before",
        "after",
        "ratio",
        "undecodable",
    )

    def row(document: Document) -> list[str]:
        sizes = [size(document["bytes_before"]), size(document["bytes_after"])]
        counts = [str(document["values"]), str(document["rewritten"])]
        ratio = f"{document['ratio']:.2f}" if document["ratio"] else ""
        group = [document[by] or ""] if by else []
        return [*group, document["codec"], *counts, *sizes, ratio, str(document["undecodable"])]

    return View(headings, row, frozenset(headings[-6:]), rare=frozenset({"undecodable"}))


# Columns for the value of a field, before or after.
LONGEST = 60


def change_summary(differences: list[Document]) -> str:
    """Return `field: before -> after` of the first differences, and the number of the others."""
    fields = "; ".join(
        f"{change['field'].removeprefix('value.')}: {_text(change['before'])} -> {_text(change['after'])}"
        for change in differences[:NAMED]
    )
    more = len(differences) - NAMED
    return f"{fields}; {more} more" if more > 0 else fields


def _text(value: object) -> str:
    if value is None:
        return "(none)"
    return without_middle(value if isinstance(value, str) else dumps(value), LONGEST)
