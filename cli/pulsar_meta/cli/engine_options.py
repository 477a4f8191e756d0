"""What commands take that can run by Spark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError

ENGINE = "Engine"


class Engine(StrEnum):
    """What runs the work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True)
class EngineOptions:
    """Whether and how Spark is used."""

    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            rich_help_panel=ENGINE,
            help="auto: Spark with --master or for very much, if Java 17 is here; else local.",
        ),
    ] = Engine.AUTO
    master: Annotated[
        str | None, typer.Option("--master", rich_help_panel=ENGINE, help="Spark's; default local[*].")
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", rich_help_panel=ENGINE, help="KEY=VALUE for Spark, repeatable."),
    ] = None

    @property
    def settings(self) -> dict[str, str]:
        """The --conf options as a dictionary; UsageError for one that is not KEY=VALUE."""
        pairs = [text.partition("=") for text in self.conf or ()]
        for key, equals, _ in pairs:
            if not equals or not key:
                raise UsageError(f"--conf is KEY=VALUE, not {key!r}")
        return {key: value for key, _, value in pairs}

    def chosen(self, shell: Shell, entries: int) -> str:
        """Return "local" or "spark" for a command that reads so many entries; tell why `auto` cannot."""
        from pulsar_meta.jobs.engine import choose_engine_to_read

        chosen, why = choose_engine_to_read(str(self.engine), entries, self.master)
        if why:
            shell.say(why)
        return chosen
