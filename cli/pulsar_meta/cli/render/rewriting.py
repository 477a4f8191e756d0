"""What a person reads of a rewriting: its plan, its progress, its summary, and how to go on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.render.tables import View
from pulsar_meta.jobs.rewrite.decision import Summary


def summary_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a summary."""
    before, after = document["bytes_before"], document["bytes_after"]
    ratio = f" ({before / after:.2f}x)" if after else ""
    yield f"{document['seen']} seen, {document['rewritten']} rewritten: {before} -> {after} bytes{ratio}"
    for name in ("kept", "skipped"):
        reasons = ", ".join(f"{reason} {count}" for reason, count in document[f"{name}_for"].items())
        yield f"{document[name]} {name}" + (f": {reasons}" if reasons else "")
    yield f"{document['conflicts']} conflicts, {document['undecodable']} undecodable"
    if document["undo_file"]:
        yield f"undo with: pulsar-meta undo {document['undo_file']}"


def _plan_row(line: dict[str, Any]) -> list[str]:
    codecs = f"{line['codec_before'] or '-'} -> {line['codec_after'] or '-'}"
    sizes = [str(line["size_before"]), str(line["size_after"])]
    return [line["action"], line.get("reason", ""), codecs, *sizes, str(line["version"]), line["path"]]


PLAN = View(
    ["action", "reason", "codec", "before", "after", "version", "path"],
    _plan_row,
    right=frozenset({"before", "after", "version"}),
)


def resume_command(arguments: Sequence[str], undo_file: Path) -> str:
    """Return the command line that continues a run, to be typed into a shell."""
    words = ["pulsar-meta", *(redact(argument) for argument in arguments)]
    if not any(word == "--undo-file" or word.startswith("--undo-file=") for word in words):
        words += ["--undo-file", str(undo_file)]
    if "--resume" not in words:
        words.append("--resume")
    return shlex.join(words)


@contextmanager
def progress_of_writes(*, quiet: bool) -> Iterator[Callable[[int, Summary], None]]:
    """Give what is called with each number of values that are done; on stderr, only at a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda count, summary: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    column = TextColumn(
        "{task.completed:.0f} values, {task.fields[rate]:.0f}/s, {task.fields[saved]} bytes saved"
    )
    console = Console(stderr=True)
    with Progress(SpinnerColumn(), column, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("values", total=None, rate=0.0, saved=0)

        def advance(count: int, summary: Summary) -> None:
            bar.update(task, advance=count, saved=summary.saved, rate=bar.tasks[task].speed or 0.0)

        yield advance
