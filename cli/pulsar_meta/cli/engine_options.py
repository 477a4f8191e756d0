"""Whether a command's work is done by this process or by Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_meta.access.processes import cores
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.engine import LOCAL, SparkSettings, choose_engine_to_read
from pulsar_meta.jobs.pool import is_worth_processes
from pulsar_meta.jobs.topics.topic import Ledger

if TYPE_CHECKING:
    from pulsar_meta.entries.base import EntrySource
    from pulsar_meta.jobs.entries.entry_sources import Sources

ENGINE = "Engine"
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        max=9999,
        rich_help_panel=ENGINE,
        help="Processes that read large logs. Default: one a core. Environment: PULSAR_META_JOBS.",
    ),
]


class Engine(StrEnum):
    """What runs the work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def processes(shell: Shell, jobs: Jobs, sources: Sources, source: EntrySource) -> int:
    """Return how many processes are to read `source`, which is `sources`: 1 where more are not worth it."""
    count = jobs or shell.settings.jobs or cores()
    return count if count > 1 and is_worth_processes(sources.urls, source) else 1


@dataclass(frozen=True)
class EngineOptions:
    """Whether and how Spark is used."""

    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            rich_help_panel=ENGINE,
            help="auto: Spark with --master or for many entries, where Java 17 is installed; else local.",
        ),
    ] = Engine.AUTO
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            rich_help_panel=ENGINE,
            help="Spark's. Default: local[*]. Environment: PULSAR_META_MASTER.",
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", rich_help_panel=ENGINE, help="KEY=VALUE for Spark, repeatable."),
    ] = None

    def spark(self, faults: Faults) -> SparkSettings:
        """Return which Spark is meant, `faults` taking what its workers find damaged.

        UsageError for a --conf that is not KEY=VALUE.
        """
        shell = faults.shell
        master = self.master or shell.settings.master or LOCAL
        return SparkSettings(master, self._conf(), shell.verbose, shell.say, faults)

    def _conf(self) -> dict[str, str]:
        pairs = [text.partition("=") for text in self.conf or ()]
        for key, equals, _ in pairs:
            if not equals or not key:
                raise UsageError(f"--conf is KEY=VALUE, not {key!r}")
        return {key: value for key, _, value in pairs}

    def chosen(
        self, shell: Shell, ledgers: Iterable[Ledger], source: EntrySource, entries: int | None = None
    ) -> str:
        """Return "local" or "spark" for a command that reads these ledgers; say why `auto` cannot.

        `entries` is how many entries they claim, where somebody has counted them.
        """
        chosen, why = choose_engine_to_read(str(self.engine), ledgers, source, self.master, entries)
        if why:
            shell.say(why)
        return chosen
