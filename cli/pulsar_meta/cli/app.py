"""The program `pulsar-meta`: find the command, run it, and turn an error into one line and an exit code."""

from __future__ import annotations

import functools
import gc
import io
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from select import POLLERR, POLLHUP, poll
from types import FrameType
from typing import Annotated, Any

import typer

from pulsar_meta.cli.commands import COMMAND_GROUPS, COMMANDS
from pulsar_meta.cli.errors import from_os_error, is_json_requested, report
from pulsar_meta.cli.options import expand_option_groups, join_with_or
from pulsar_meta.cli.render.help import HelpfulCommand, HelpfulGroup
from pulsar_meta.cli.settings import distribution, set_limits
from pulsar_meta.cli.shell import Exit
from pulsar_meta.cli.streams import replace_closed_streams
from pulsar_meta.codecs.errors import PulsarMetaError, UsageError, install_hint

# Typer has no public name for the base class of its usage errors.
TyperUsageError: Any = typer.BadParameter.__bases__[0]
# The signals that `interrupt` received.
interrupts: list[int] = []


def print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        typer.echo(f"pulsar-meta {distribution().version}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Read, verify, search and repair Apache Pulsar's metadata and the entries on its bookies."""


def build_app(only: str | None = None) -> typer.Typer:
    """Build the Typer application, with every command or with only one command or command group.

    Building one command imports only that command's modules, which makes start-up fast.
    """
    app = typer.Typer(
        name="pulsar-meta",
        cls=HelpfulGroup,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        add_completion=only is None,
    )
    app.callback()(root)
    groups: dict[str, typer.Typer] = {"": app}
    for name, command in COMMANDS.items():
        group, _, subcommand = name.rpartition(" ")
        if only not in (None, name, group):
            continue
        if group not in groups:
            groups[group] = _add_group(app, group)
        module, _, attribute = command.target.partition(":")
        function = getattr(import_module(module), attribute)
        groups[group].command(
            subcommand, cls=HelpfulCommand, help=function.__doc__, rich_help_panel=command.heading
        )(with_garbage_collection(expand_option_groups(function, command.forms)))
    return app


def _add_group(app: typer.Typer, name: str) -> typer.Typer:
    heading, text = COMMAND_GROUPS[name]
    group = typer.Typer(cls=HelpfulGroup, pretty_exceptions_enable=False)
    app.add_typer(group, name=name, help=text, rich_help_panel=heading)
    return group


def requested_command(arguments: list[str]) -> str | None:
    """Return the command or command group that a command line begins with, or None if it is neither.

    `--version` is returned as well, because it needs no command and none of their modules.
    """
    first, first_two = arguments[:1], " ".join(arguments[:2])
    if first == ["--version"]:
        return "--version"
    return next((name for name in (*first, first_two) if name in COMMANDS or name in COMMAND_GROUPS), None)


def with_garbage_collection(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that it enables garbage collection, except for the objects made at start-up."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        # Objects made at start-up live until the end, so no collection has to visit them.
        gc.freeze()
        gc.enable()
        command(*args, **options)

    return run


def discard_unflushed() -> None:
    """Discard output that stdout rejects. Otherwise Python's last flush fails and changes the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def from_typer_error(error: Any) -> UsageError:
    """Convert Typer's usage error, and add which command's --help explains the options."""
    command = error.ctx.command_path if error.ctx is not None else "pulsar-meta"
    text = error.format_message()
    from difflib import get_close_matches

    # Typer lists all similar options alphabetically; only the closest one is shown.
    possible, listed, _ = text.partition(" (Possible options: ")
    argument = _argument_instead(error)
    if argument is not None:
        text = f"no option {error.option_name}: {argument} is an argument, so leave the option's name out"
    elif listed:
        wrong = possible.rpartition(" ")[2]
        likely = get_close_matches(wrong, error.possibilities, n=1) or sorted(error.possibilities)
        text = f"{possible}. Did you mean {' or '.join(likely)}?"
    text = _in_our_words(text.replace("Value error, ", "").rstrip("."), command.partition(" ")[2])
    return UsageError(f"{text} (see {command} --help)")


def _in_our_words(text: str, command: str) -> str:
    """Name what is missing as the help does, and list the choices of an option as words."""
    if wrong := re.match(r"Invalid value for (?:'(-\w)' / )?'(--[\w-]+)': '(.*)' is not one of (.*)", text):
        short, option, value, listed = wrong.groups()
        choices = re.findall(r"'([^']*)'", listed)
        if option == "--output-format" and command in COMMANDS:
            choices = list(COMMANDS[command].forms)
        return f"invalid {short or option} {value}: choose {join_with_or(choices)}"
    if missing := re.match(
        r"Missing (?:argument '(.*?)'|option '(.*?)')(?:\. Choose from:(.*))?", " ".join(text.split())
    ):
        argument, option, listed = missing.groups()
        choose = f": choose {join_with_or(listed.strip().split(', '))}" if listed else ""
        return f"missing {argument.upper() if argument else f'option {option}'}{choose}"
    return re.sub(r"^No such option:? ", "unknown option ", text)


def _argument_instead(error: Any) -> str | None:
    """Return the argument of the command that has the name of the unknown option, for example TOPIC."""
    wrong = getattr(error, "option_name", "").lstrip("-").upper()
    parameters = error.ctx.command.params if error.ctx is not None else ()
    names = [parameter.metavar or "" for parameter in parameters if parameter.param_type_name == "argument"]
    return wrong if any(wrong in re.split("[^A-Z]+", name) for name in names if wrong) else None


def writes_file(arguments: list[str]) -> bool:
    """Return True if a command line has --output."""
    return any(argument == "--output" or argument.startswith("--output=") for argument in arguments)


def use_utf8() -> None:
    """Read and write UTF-8 regardless of the locale. A terminal keeps its own encoding.

    Characters that the encoding doesn't have are written as escapes.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and note it: the module being loaded may turn it into an error of its own."""
    interrupts.append(number)
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line. This is the only place where an error becomes an exit code."""
    arguments = sys.argv[1:]
    as_json = is_json_requested(arguments)
    try:
        failure = run(arguments)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:  # noqa: BLE001
        if interrupts:
            sys.exit(Exit.INTERRUPTED)
        from pulsar_meta.cli.errors import report_unforeseen

        report_unforeseen(error, arguments, as_json=as_json)
        sys.exit(Exit.UNFORESEEN)
    finally:
        gc.enable()
        discard_unflushed()
    if interrupts:
        sys.exit(Exit.INTERRUPTED)
    report(failure, as_json=as_json)
    sys.exit(failure.exit_code)


def from_missing_module(error: ModuleNotFoundError) -> PulsarMetaError:
    """Convert the error of an import. Raises it again if the module is one of pulsar-meta."""
    if error.name is None or error.name.startswith("pulsar_meta"):
        raise error
    return UsageError(f"this needs {error.name}, which is not installed ({install_hint(error.name)})")


def from_system_error(error: OSError) -> PulsarMetaError:
    """Convert the error. Exit with 0 if it is that the reader of the output left (`| head`)."""
    if isinstance(error, BrokenPipeError) and _reader_left():
        sys.exit(0)
    return from_os_error(error)


def _reader_left() -> bool:
    """Return True if stdout or stderr is a pipe that nothing reads any more."""
    readers = poll()
    for output in (1, 2):
        readers.register(output, 0)
    return any(event & (POLLERR | POLLHUP) for _, event in readers.poll(0))


def run(arguments: list[str]) -> PulsarMetaError:
    """Run a command and exit, or return the error that ended it."""
    if "stdout" in replace_closed_streams() and not writes_file(arguments):
        return UsageError("stdout is closed: add --output FILE, or redirect stdout to /dev/null")
    use_utf8()
    # Start-up creates tens of thousands of objects and no garbage; collecting takes a tenth of its time.
    gc.disable()
    first = arguments[0] if arguments else None
    try:
        set_limits()
        app = build_app(requested_command(arguments))
        if first is None:
            app(["--help"], standalone_mode=False)
            sys.exit(Exit.USAGE)
        code = app(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except SystemExit as leaving:
        # Typer makes an exit with 1 of it.
        if isinstance(leaving.__context__, BrokenPipeError):
            return from_system_error(leaving.__context__)
        sys.exit(leaving.code)
    except PulsarMetaError as error:
        return error
    except TyperUsageError as error:
        return from_typer_error(error)
    except OSError as error:
        return from_system_error(error)
    except ModuleNotFoundError as error:
        return from_missing_module(error)
    except UnicodeEncodeError as error:
        # Output can encode every character, so this is a name on the command line.
        return UsageError(f"{error.object!r} is not valid UTF-8: names and paths are UTF-8")
