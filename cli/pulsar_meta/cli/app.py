"""The program `pulsar-meta`: finds the command, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import functools
import gc
import io
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from pulsar_meta.cli.commands import COMMANDS, NOUNS
from pulsar_meta.cli.errors import os_failure, report, wants_json
from pulsar_meta.cli.options import flattened
from pulsar_meta.cli.outputs import replace_closed_streams
from pulsar_meta.cli.render.help import HelpfulCommand, HelpfulGroup
from pulsar_meta.cli.shell import Exit
from pulsar_meta.codecs.errors import PulsarMetaError, UsageError

# Typer has no public name for the error that all its usage errors are.
TyperUsageError: Any = typer.BadParameter.__bases__[0]


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
    """Return the Typer application with every command, or with just the one, or the noun, about to run."""
    app = typer.Typer(
        name="pulsar-meta",
        cls=HelpfulGroup,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        add_completion=only is None,
    )
    app.callback()(root)
    nouns: dict[str, typer.Typer] = {"": app}
    for name, command in COMMANDS.items():
        noun, _, verb = name.rpartition(" ")
        if only not in (None, name, noun):
            continue
        if noun not in nouns:
            nouns[noun] = _noun(app, noun)
        module, _, function = command.target.partition(":")
        called = getattr(import_module(module), function)
        nouns[noun].command(verb, cls=HelpfulCommand, help=called.__doc__, rich_help_panel=command.group)(
            with_collector(flattened(called, command.forms))
        )
    return app


def _noun(app: typer.Typer, name: str) -> typer.Typer:
    """Add what has commands of two words, and return it."""
    heading, text = NOUNS[name]
    noun = typer.Typer(cls=HelpfulGroup, pretty_exceptions_enable=False)
    app.add_typer(noun, name=name, help=text, rich_help_panel=heading)
    return noun


def named(arguments: list[str]) -> str | None:
    """Return the command, or the noun, that a command line begins with; None where that cannot be said.

    `--version` needs no command at all, and none of their modules.
    """
    first, both = arguments[:1], " ".join(arguments[:2])
    if first == ["--version"]:
        return "--version"
    return next((one for one in (*first, both) if one in COMMANDS or one in NOUNS), None)


def with_collector(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` so that garbage is looked for again, but not in what start-up made."""

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> None:
        # It lives to the end: no collection needs to look at it, not even the last one.
        gc.freeze()
        gc.enable()
        command(*args, **given)

    return run


def drop_unwritten() -> None:
    """Let go of what stdout does not take: else the interpreter's last flush fails, and is the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def usage_failure(error: Any) -> UsageError:
    """Return what Typer found wrong with the command line, with the command whose --help says more."""
    asked = error.ctx.command_path if error.ctx is not None else "pulsar-meta"
    text = error.format_message()
    from difflib import get_close_matches

    # Typer lists options that begin alike or differ little, in the order of the alphabet.
    possible, listed, _ = text.partition(" (Possible options: ")
    if listed:
        wrong = possible.rpartition(" ")[2]
        likely = get_close_matches(wrong, error.possibilities, n=1) or sorted(error.possibilities)
        text = f"{possible}. Did you mean {' or '.join(likely)}?"
    return UsageError(f"{text.replace('Value error, ', '').rstrip('.')} (see {asked} --help)")


def writes_file(arguments: list[str]) -> bool:
    """Return whether a command line says --output."""
    return any(argument == "--output" or argument.startswith("--output=") for argument in arguments)


def speak_utf8() -> None:
    """Have data and talk in UTF-8 whatever the locale; bytes of a name that are none are shown as escapes.

    A terminal that shows another encoding keeps it.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")


def main() -> None:
    """Run the command line; the one place where an error becomes an exit code."""
    arguments = sys.argv[1:]
    as_json = wants_json(arguments)
    try:
        failure = run(arguments)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:  # noqa: BLE001
        from pulsar_meta.cli.errors import report_unforeseen

        report_unforeseen(error, arguments, as_json=as_json)
        sys.exit(Exit.UNFORESEEN)
    finally:
        gc.enable()
        drop_unwritten()
    report(failure, as_json=as_json)
    sys.exit(failure.exit_code)


def run(arguments: list[str]) -> PulsarMetaError:
    """Run a command and leave, or return the error that ended it."""
    if "stdout" in replace_closed_streams() and not writes_file(arguments):
        return UsageError("stdout is closed: give --output FILE, or > /dev/null")
    speak_utf8()
    # Start-up makes tens of thousands of objects and no garbage; looking for some is a tenth of its time.
    gc.disable()
    first = arguments[0] if arguments else None
    try:
        app = build_app(named(arguments))
        if first is None:
            app(["--help"], standalone_mode=False)
            sys.exit(Exit.USAGE)
        code = app(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:
        sys.exit(0)
    except SystemExit as leaving:
        # Typer ends with 1 where a reader left (`| head`), which is no error.
        sys.exit(0 if isinstance(leaving.__context__, BrokenPipeError) else leaving.code)
    except PulsarMetaError as error:
        return error
    except TyperUsageError as error:
        return usage_failure(error)
    except OSError as error:
        return os_failure(error)
    except UnicodeEncodeError as error:
        # Output takes every character, so it is a name that was asked for: no store and no broker has it.
        return UsageError(f"{error.object!r}: names and paths are UTF-8")
