"""Makes the man pages: one for the program, one for each command and for each group of commands.

Their texts are those of --help and of docs/commands: see command_pages.py. `man pulsar-meta seek` finds
the page pulsar-meta-seek.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from command_pages import Section, all_commands, sections

ROOT: Final = Path(__file__).parents[1]
MAN: Final = Path("docs") / "man"
PROGRAM: Final = "pulsar-meta"
# Characters that roff would change or that mean something to it.
_ESCAPES: Final = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", '"': r"\(dq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
)


def man_pages(program: Any) -> dict[Path, str]:
    """Return the man pages of a program by path."""
    commands, known = dict(all_commands(program)), sections()
    groups = {name: group for name, group in program.commands.items() if hasattr(group, "commands")}
    pages = {PROGRAM: _page(PROGRAM, program.help, _group_body(PROGRAM, program, commands))}
    for name, group in groups.items():
        members = {full: command for full, command in commands.items() if full.startswith(f"{name} ")}
        full = f"{PROGRAM} {name}"
        pages[full] = _page(full, group.help, _group_body(full, group, members))
    for name, command in commands.items():
        full = f"{PROGRAM} {name}"
        pages[full] = _page(full, command.help, _command_body(full, command, known[name]))
    return {MAN / f"{name.replace(' ', '-')}.1": text for name, text in pages.items()}


def _page(name: str, docstring: str, body: Iterable[str]) -> str:
    """Return a page: its title, its name with the first sentence of the help, and the body."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    title = name.replace(" ", "-")
    first = _paragraphs(docstring)[0].rstrip(".")
    lines = [f'.TH {roff(title.upper())} 1 "" "{PROGRAM} {version}" "{PROGRAM}"', ".nh", ".ad l", ".SH NAME"]
    return "\n".join([*lines, f"{roff(title)} \\- {roff(first)}", *body]) + "\n"


def _command_body(name: str, command: Any, section: Section) -> Iterator[str]:
    from pulsar_meta.cli.render.help import argument_name, by_heading, option_name, option_text

    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    yield from _synopsis(f"{name} [OPTIONS]", *map(argument_name, arguments))
    yield from _description(command.help)
    yield from _definitions("arguments", {argument_name(item): item.help for item in arguments if item.help})
    for heading, members in by_heading(options).items():
        yield from _definitions(heading, {option_name(item): option_text(item) for item in members})
    yield from _definitions("exit status", {str(code): text for code, text in section.exits.items()})
    yield from _examples(command.help)
    yield from _see_also(PROGRAM)


def _group_body(name: str, group: Any, commands: Mapping[str, Any]) -> Iterator[str]:
    from pulsar_meta.cli.render.help import ENVIRONMENT, option_name, option_text

    yield from _synopsis(f"{name} [OPTIONS] COMMAND [ARGUMENTS]")
    yield from _description(group.help)
    yield from _definitions("commands", {key: _paragraphs(item.help)[0] for key, item in commands.items()})
    yield from _definitions("options", {option_name(item): option_text(item) for item in group.params})
    if name == PROGRAM:
        yield from _definitions("environment", ENVIRONMENT)
    yield from _see_also(*(f"{PROGRAM} {key}" for key in commands))


def _synopsis(*words: str) -> Iterator[str]:
    yield from (".SH SYNOPSIS", roff(" ".join(words)))


def _description(docstring: str) -> Iterator[str]:
    yield ".SH DESCRIPTION"
    for at, paragraph in enumerate(_paragraphs(docstring)):
        yield from (*([".PP"] if at else []), roff(paragraph))


def _paragraphs(docstring: str) -> list[str]:
    text = inspect.cleandoc(docstring).partition("\n\nExamples:\n")[0]
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def _examples(docstring: str) -> Iterator[str]:
    lines = inspect.cleandoc(docstring).partition("\n\nExamples:\n")[2].splitlines()
    if lines:
        yield from (".SH EXAMPLES", ".nf", *(roff(line.strip()) for line in lines if line.strip()), ".fi")


def _definitions(heading: str, texts: Mapping[str, str]) -> Iterator[str]:
    if texts:
        yield f".SH {roff(heading.upper())}"
    for name, text in texts.items():
        yield from (".TP", f"\\fB{roff(name.strip())}\\fP", roff(text))


def _see_also(*names: str) -> Iterator[str]:
    pages = [f"\\fB{roff(name.replace(' ', '-'))}\\fP(1)" for name in names]
    yield from (".SH SEE ALSO", ",\n".join(pages))


def roff(text: str) -> str:
    """Escape a text for roff: it is printed as it is, and is no request."""
    escaped = text.translate(_ESCAPES)
    escaped = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in escaped)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped
