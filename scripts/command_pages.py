"""Makes the reference pages of commands: docs/commands.md and one page for each command in docs/commands.

Texts and options come from --help, exit codes and examples from command_examples.md. A section of that file
has the name of its command, a line with its exit codes, lines that explain some of them, and examples.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

EXAMPLES: Final = Path(__file__).parent / "command_examples.md"
INDEX: Final = Path("docs") / "commands.md"
# What exit codes mean for commands that don't say more.
MEANINGS: Final = {
    0: "ok",
    1: "something was left undone, for example because a value has changed meanwhile",
    2: "the command line is wrong",
    3: "what you named was not found",
    4: "something can't be decoded",
    5: "a value has changed since it was read",
    6: "a store, broker, bookie or file can't be read",
    7: "refused by a guard; the message names the option that overrides it",
}
_START: Final = """# Commands

Each command has a page with examples, options and exit codes. [Output and exit codes](contract.md) describes
what commands print. `pulsar-meta COMMAND --help` prints the same texts and options. The examples run on the
files of a Pulsar 4.2.4, which `PULSAR_META_STORE` and `PULSAR_META_ENTRIES` name.
"""


class Section(NamedTuple):
    """A section of command_examples.md: the meanings of exit codes, and examples as Markdown."""

    exits: Mapping[int, str]
    examples: str


def sections() -> dict[str, Section]:
    """Return the sections of command_examples.md by command."""
    found = {}
    for text in re.split(r"(?m)^# ", EXAMPLES.read_text(encoding="utf-8"))[1:]:
        head, _, examples = text.partition("\n\n")
        name, codes, *lines = head.splitlines()
        meanings = {int(code): meaning for code, _, meaning in (line.partition(": ") for line in lines)}
        exits = {code: meanings.get(code, MEANINGS[code]) for code in map(int, codes.split()[1:])}
        found[name] = Section(exits, examples.strip())
    return found


def command_pages(program: Any) -> dict[Path, str]:
    """Return the pages of a program by path."""
    commands, known = dict(all_commands(program)), sections()
    pages = {_path(name): page(name, command, known[name]) for name, command in commands.items()}
    return {INDEX: index(commands), **pages}


def all_commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the commands of a group and of its groups, in the order of the program's help."""
    headings = [command.rich_help_panel for command in group.commands.values()]
    for name, command in sorted(
        group.commands.items(), key=lambda item: headings.index(item[1].rich_help_panel)
    ):
        if hasattr(command, "commands"):
            yield from all_commands(command, f"{name} ")
        else:
            yield before + name, command


def _path(name: str) -> Path:
    return INDEX.with_suffix("") / f"{name.replace(' ', '-')}.md"


def index(commands: Mapping[str, Any]) -> str:
    """Return the page that lists the commands."""
    parts, heading = [_START], None
    for name, command in commands.items():
        if (panel := "Repair" if " " in name else command.rich_help_panel) != heading:
            heading = panel
            parts.append(f"\n## {heading}\n\n| command | use |\n|---|---|\n")
        first = inspect.cleandoc(command.help).partition("\n\n")[0]
        parts.append(f"| [{name}]({_path(name).relative_to('docs')}) | {prose(first)} |\n")
    return "".join(parts)


def page(name: str, command: Any, section: Section) -> str:
    """Return the page of a command."""
    text, _, lines = inspect.cleandoc(command.help).partition("\n\nExamples:\n")
    more = "\n".join(f"    {line.strip()}" for line in lines.splitlines() if line.strip())
    options = [param for param in command.params if param.param_type_name == "option"]
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = " ".join(["pulsar-meta", name, "[OPTIONS]", *map(_argument, arguments)])
    parts = [f"# {name}", *map(prose, text.split("\n\n")), f"```text\n{usage}\n```"]
    if section.examples:
        parts += ["## Examples", section.examples]
    parts += ["## More command lines" if section.examples else "## Examples"]
    parts += [f"<!-- not run: from the help of the command -->\n\n{more}"]
    if any(param.help for param in arguments):
        rows = [(_argument(param), param.help) for param in arguments if param.help]
        parts += ["## Arguments", _table("argument", rows)]
    for heading, members in _by_heading(options).items():
        parts += [f"## {heading}", _table("option", [(_option(param), _help(param)) for param in members])]
    codes = "".join(f"| {code} | {prose(meaning)} |\n" for code, meaning in section.exits.items())
    parts += [f"## Exit codes\n\n| exit code | meaning |\n|---|---|\n{codes}".rstrip()]
    parts += ["[All exit codes](../contract.md#exit-codes)"]
    return "\n\n".join(parts) + "\n"


def _argument(param: Any) -> str:
    from pulsar_meta.cli.render.help import argument_name

    return argument_name(param)


def _option(param: Any) -> str:
    from pulsar_meta.cli.render.help import option_name

    return option_name(param).strip()


def _help(param: Any) -> str:
    from pulsar_meta.cli.render.help import option_text

    return option_text(param)


def _by_heading(options: Sequence[Any]) -> dict[str, list[Any]]:
    from pulsar_meta.cli.render.help import by_heading

    return by_heading(options)


def _table(kind: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {_code(name)} | {prose(text)} |" for name, text in rows]
    return "\n".join([f"| {kind} | meaning |", "|---|---|", *lines])


def _code(text: str) -> str:
    """Show text as code, in a cell of a table as well."""
    return f"<code>{escape(text, quote=False).replace('|', '&#124;').replace('*', '&#42;')}</code>"


def prose(text: str) -> str:
    """Convert a text of the help to Markdown: options, URLs and patterns become code."""
    return " ".join(map(_word, " ".join(text.split()).split(" ")))


def _word(word: str) -> str:
    match = re.fullmatch(r"([(\"']?)(.*?)([)\"'.,;:]*)", word)
    before, inside, after = match.groups() if match else ("", word, "")
    if word.startswith("`") or inside.endswith("`"):
        return word
    if re.match(r"--?[a-z]|[A-Z]+_[A-Z_]+|\\|\$", inside) or re.search(r"://|[*<>\[\]|_{}]", inside):
        return before + _code(inside) + after
    return word
