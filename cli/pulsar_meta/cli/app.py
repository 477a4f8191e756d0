"""The program `pulsar-meta`: finds the command, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from pulsar_meta.cli.commands import COMMANDS
from pulsar_meta.cli.errors import report
from pulsar_meta.cli.shell import Exit, with_shell
from pulsar_meta.codecs.errors import PulsarMetaError


def print_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pulsar-meta {version('pulsar-meta')}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Read, verify, search and rewrite what Apache Pulsar keeps in its metadata store and on its bookies."""


def build_app(only: str | None = None) -> typer.Typer:
    """Return the Typer application with every command, or with just the one that is about to run."""
    app = typer.Typer(
        name="pulsar-meta",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        add_completion=only is None,
    )
    app.callback()(root)
    for name, command in COMMANDS.items():
        if only in (None, name):
            module, _, function = command.target.partition(":")
            app.command(name, rich_help_panel=command.group)(
                with_shell(getattr(import_module(module), function))
            )
    return app


def main() -> None:
    """Run the command line; the one place where an error becomes an exit code."""
    first = sys.argv[1] if len(sys.argv) > 1 else None
    try:
        build_app(first if first in COMMANDS else None)()
    except PulsarMetaError as error:
        report(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output left (`| head`): no error; keep the interpreter's last flush quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
