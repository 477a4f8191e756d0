"""Help pages: plain text as wide as the terminal, in which names are never broken."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

WIDEST: Final = 100
# A longer name has its text on the lines below it.
_NAMES: Final = 26
_COMMON: Final = "Common options"

ENVIRONMENT: Final = {
    "PULSAR_META_STORE": "Store URL, if --store is not given.",
    "PULSAR_META_LEDGER_STORE": "Store URL of /ledgers, if --ledger-store is not given.",
    "PULSAR_META_ENTRIES": "Sources of entries, separated by spaces, if --entries is not given.",
    "PULSAR_META_MASTER": "Spark master URL, if --master is not given.",
    "PULSAR_META_JOBS": "Number of processes that read logs, if --jobs is not given.",
    "PULSAR_META_SERVICE_URL": "Service URL that lookup asks, if --service-url is not given.",
    "PULSAR_META_MAX_UNPACKED": "Bytes to which a compressed file may grow. Default: 512 MiB.",
    "PULSAR_META_OFFLOAD_TIMEOUT": "Seconds to wait for an answer of tiered storage. Default: 60.",
    "PULSAR_META_PROFILE": "Profile, if --profile is not given.",
    "PULSAR_META_CONFIG": "Config file. Default: $XDG_CONFIG_HOME/pulsar-meta/config.toml.",
    "XDG_STATE_HOME": "Directory for undo files, which are written to pulsar-meta/undo in it.",
}


class HelpfulCommand(TyperCommand):
    """A command with a help page of this module."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        formatter.write(_page(command_page(self, ctx.command_path, self.get_params(ctx), _width())))


class HelpfulGroup(TyperGroup):
    """The program, or a command with subcommands; its help page lists the commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept `repair --plan FILE` for `repair plan FILE`, and list the subcommands if one is missing."""
        first, equals, value = (args[0] if args else "").partition("=")
        if "plan" in self.commands and first == "--plan":
            args = ["plan", *([value] if equals else []), *args[1:]]
        elif ctx.parent is not None and first.startswith("-") and not self._accepts(first):
            ctx.fail(f"a subcommand is missing before {first}: choose {', '.join(sorted(self.commands))}")
        elif ctx.parent is not None and not args:
            ctx.fail(f"a subcommand is missing: choose {', '.join(sorted(self.commands))}")
        return super().parse_args(ctx, args)

    def _accepts(self, option: str) -> bool:
        return option == "--help" or any(option in param.opts for param in self.params)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        page = program_page if ctx.parent is None else noun_page
        formatter.write(_page(page(self, ctx.command_path, self.get_params(ctx), _width())))


def _width() -> int:
    return min(WIDEST, max(40, shutil.get_terminal_size().columns)) - 1


def _page(blocks: Iterable[Sequence[str]]) -> str:
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def command_page(command: Any, path: str, params: Sequence[Any], width: int) -> Iterator[Sequence[str]]:
    """Yield the blocks of a command's page: usage, text, examples, arguments, and options by heading."""
    arguments = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option"]
    usage = " ".join([path, "[OPTIONS]", *map(argument_name, arguments)])
    yield _wrapped(f"Usage: {usage}", width, indent=7)
    yield from _text(command.help, width)
    described = {argument_name(param): param.help for param in arguments if param.help}
    yield _definitions("Arguments", described, width)
    for heading, members in by_heading(options).items():
        yield _definitions(heading, {option_name(param): option_text(param) for param in members}, width)


def program_page(group: Any, path: str, params: Sequence[Any], width: int) -> Iterator[Sequence[str]]:
    """Yield the blocks of the program's page."""
    *blocks, more = noun_page(group, path, params, width)
    yield from (*blocks, _definitions("Environment", ENVIRONMENT, width), more)


def noun_page(group: Any, path: str, params: Sequence[Any], width: int) -> Iterator[Sequence[str]]:
    """Yield the blocks of the page of a command with subcommands."""
    yield [f"Usage: {path} [OPTIONS] COMMAND [ARGUMENTS]"]
    yield from _text(group.help, width)
    ordered = sorted(enumerate(group.commands.values()), key=lambda item: _first(group, item[1]))
    for heading, members in groupby((item[1] for item in ordered), key=lambda item: item.rich_help_panel):
        texts = {member.name: _first_paragraph(member.help) for member in members}
        yield _definitions(str(heading), texts, width, names=max(map(len, group.commands)))
    yield _definitions("Options", {option_name(param): option_text(param) for param in params}, width)
    yield [f"{path} COMMAND --help describes a command in detail."]


def _first(group: Any, command: Any) -> tuple[int, bool]:
    """Return the position of the first command under the same heading; groups of commands come before it."""
    headings = [other.rich_help_panel for other in group.commands.values()]
    return headings.index(command.rich_help_panel), not hasattr(command, "commands")


def _text(docstring: str, width: int) -> Iterator[Sequence[str]]:
    text, heading, examples = inspect.cleandoc(docstring or "").partition("\n\nExamples:\n")
    for paragraph in text.split("\n\n"):
        yield textwrap.wrap(
            " ".join(paragraph.split()), width, break_on_hyphens=False, break_long_words=False
        )
    if heading:
        yield ["Examples:", *(f"  {line.strip()}" for line in examples.splitlines() if line.strip())]


def _first_paragraph(docstring: str) -> str:
    return " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split())


def _definitions(
    heading: str, described: Mapping[str, str], width: int, *, names: int | None = None
) -> Sequence[str]:
    """Return lines with names and their texts; a text starts below its name if the name is long."""
    if not described:
        return ()
    margin = min(_NAMES, names or max(map(len, described)), width // 3) + 4
    lines = [f"{heading}:"]
    for name, text in described.items():
        words = _wrapped(text, width - margin)
        if len(name) + 4 <= margin and words:
            lines.append(f"  {name:{margin - 2}}{words.pop(0)}")
        else:
            lines.append(f"  {name}")
        lines += [" " * margin + line for line in words]
    return lines


def _wrapped(text: str, width: int, *, indent: int = 0) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    )


def by_heading(options: Sequence[Any]) -> dict[str, list[Any]]:
    """Group options by heading: the command's options first, the common ones last."""
    groups: dict[str, list[Any]] = {"Options": []}
    for param in options:
        heading = _COMMON if "--help" in param.opts else (param.rich_help_panel or "Options")
        groups.setdefault(heading, []).append(param)
    if _COMMON in groups:
        groups[_COMMON] = groups.pop(_COMMON)
    return groups


def argument_name(param: Any) -> str:
    """Return the name of an argument, in brackets if it can be left out."""
    name = param.metavar or param.name.upper()
    return f"{name if param.required else f'[{name}]'}{'...' if param.nargs != 1 else ''}"


def option_name(param: Any) -> str:
    """Return the spellings of an option, the short one first, and the name of its value."""
    spellings = sorted(param.opts, key=len)
    if param.secondary_opts:
        # Click would print --a/--no-a, which can't be wrapped.
        return ", ".join((*spellings, *param.secondary_opts))
    value = "" if param.is_flag or param.count else f" {param.metavar}"
    # Options without a short spelling are indented to line up with the long spellings.
    return ("" if spellings[0][1] != "-" else "    ") + ", ".join(spellings) + value


def option_text(param: Any) -> str:
    """Return the help of an option with its environment variable and its default."""
    text = param.help or ""
    if param.multiple and "repeatable" not in text.lower():
        text += " Repeatable."
    if param.envvar:
        text += f" Environment: {param.envvar}."
    default = param.default
    if callable(default) or default in (None, "", False, ()) or param.is_flag or not param.show_default:
        return text
    return text if "efault" in text else f"{text} Default: {_shown(default)}."


def _shown(value: object) -> str:
    text = str(value.value) if isinstance(value, Enum) else str(value)
    return text.removesuffix(".0")
