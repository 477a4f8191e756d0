"""What a person at a terminal sees of a run of writes: values, their rate, and the bytes saved so far."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pulsar_meta.cli.shell import Shell

if TYPE_CHECKING:
    from pulsar_meta.jobs.rewrite.tally import Tally


@contextmanager
def watched(shell: Shell, tally: Tally) -> Iterator[Callable[[int], None]]:
    """Give what is called with each number of values that are done; on stderr, only at a terminal."""
    if shell.quiet or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    told = TextColumn(
        "{task.completed:.0f} values, {task.fields[rate]:.0f}/s, {task.fields[saved]} bytes saved"
    )
    console = Console(stderr=True)
    with Progress(SpinnerColumn(), told, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("values", total=None, rate=0.0, saved=0)

        def advance(count: int) -> None:
            bar.update(task, advance=count, saved=tally.saved, rate=bar.tasks[task].speed or 0.0)

        yield advance
