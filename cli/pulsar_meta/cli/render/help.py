"""Help pages: plain text of the terminal's width in which no name is ever broken."""

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
# Names longer than this have their text below them.
_NAMES: Final = 26
_COMMON: Final = "Common options"

ENVIRONMENT: Final = {
    "PULSAR_META_STORE": "The store, where --store is not given.",
    "PULSAR_META_LEDGER_STORE": "Beside it the store of /ledgers, where that is another one.",
    "PULSAR_META_ENTRIES": "The sources of entries, separated by spaces, where --entries is not given.",
    "PULSAR_META_MASTER": "Spark's master, where --master is not given.",
    "PULSAR_META_JOBS": "How many processes read logs, where --jobs is not given.",
    "PULSAR_META_SERVICE_URL": "Where lookup asks, where --service-url is not given.",
    "PULSAR_META_PROFILE": "The profile, where --profile is not given.",
    "PULSAR_META_CONFIG": "The config file. Default: $XDG_CONFIG_HOME/pulsar-meta/config.toml.",
    "XDG_STATE_HOME": "Undo files are written below it, in pulsar-meta/undo.",
}


class HelpfulCommand(TyperCommand):
    """A command whose help page is ours."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        formatter.write(_page(command_page(self, ctx.command_path, self.get_params(ctx), _width())))


class HelpfulGroup(TyperGroup):
    """The program itself, or what has commands of two words; the help page lists the commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        page = program_page if ctx.parent is None else noun_page
        formatter.write(_page(page(self, ctx.command_path, self.get_params(ctx), _width())))


def _width() -> int:
    return min(WIDEST, max(40, shutil.get_terminal_size().columns)) - 1


def _page(blocks: Iterable[Sequence[str]]) -> str:
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def command_page(command: Any, path: str, params: Sequence[Any], width: int) -> Iterator[Sequence[str]]:
    """Yield the blocks of a command's page: usage, text, examples, arguments, options by their headings."""
    arguments = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option"]
    usage = " ".join([path, "[OPTIONS]", *map(_argument_name, arguments)])
    yield _wrapped(f"Usage: {usage}", width, indent=7)
    yield from _text(command.help, width)
    described = {_argument_name(param): param.help for param in arguments if param.help}
    yield _definitions("Arguments", described, width)
    for heading, members in _by_heading(options).items():
        yield _definitions(heading, {_option_name(param): _option_text(param) for param in members}, width)


def program_page(group: Any, path: str, params: Sequence[Any], width: int) -> Iterator[Sequence[str]]:
    """Yield the blocks of the program's own page."""
    *what, more = noun_page(group, path, params, width)
    yield from (*what, _definitions("Environment", ENVIRONMENT, width), more)


def noun_page(group: Any, path: str, params: Sequence[Any], width: int) -> Iterator[Sequence[str]]:
    """Yield the blocks of the page of what has commands."""
    yield [f"Usage: {path} [OPTIONS] COMMAND [ARGUMENTS]"]
    yield from _text(group.help, width)
    ordered = sorted(enumerate(group.commands.values()), key=lambda item: _first(group, item[1]))
    for heading, members in groupby((item[1] for item in ordered), key=lambda item: item.rich_help_panel):
        texts = {member.name: _first_paragraph(member.help) for member in members}
        yield _definitions(str(heading), texts, width, names=max(map(len, group.commands)))
    yield _definitions("Options", {_option_name(param): _option_text(param) for param in params}, width)
    yield [f"{path} COMMAND --help says more about each command."]


def _first(group: Any, command: Any) -> int:
    """Return where the heading of a command comes first."""
    return [other.rich_help_panel for other in group.commands.values()].index(command.rich_help_panel)


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
    """Return the lines of names and what they mean: beside the name, or below one that is long."""
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


def _by_heading(options: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the options by heading: a command's own first, what all have last."""
    found: dict[str, list[Any]] = {"Options": []}
    for param in options:
        heading = _COMMON if "--help" in param.opts else (param.rich_help_panel or "Options")
        found.setdefault(heading, []).append(param)
    if _COMMON in found:
        found[_COMMON] = found.pop(_COMMON)
    return found


def _argument_name(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return f"{name if param.required else f'[{name}]'}{'...' if param.nargs != 1 else ''}"


def _option_name(param: Any) -> str:
    """Return the spellings of an option, the short one first, and what its value is called."""
    spellings = sorted(param.opts, key=len)
    if param.secondary_opts:
        # --a/--no-a, on lines that fit.
        return ", ".join((*spellings, *param.secondary_opts))
    value = "" if param.is_flag or param.count else f" {param.metavar}"
    # Those without a short spelling are as far to the right.
    return ("" if spellings[0][1] != "-" else "    ") + ", ".join(spellings) + value


def _option_text(param: Any) -> str:
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
