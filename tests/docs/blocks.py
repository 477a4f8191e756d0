"""The command blocks on the pages of the documentation, and the output that the pages show.

A block without a language holds commands. If lines begin with `$ `, those are the commands, and the lines
below each are its output; otherwise every line is a command. `…` matches any text in a line, and a line with
only `…` matches any lines. `<!-- not run: why -->` before a block keeps tests from running it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK: Final = re.compile(r"<!-- not run: (.+) -->\s*")
OPERATORS: Final = ("|", "||", ">", ">>", "<", "&&", ";", ")")


@dataclass(frozen=True)
class Step:
    """A command with continued lines joined, and the output that the page shows (None if it shows none)."""

    command: str
    printed: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Block:
    """The steps of a block, its first line, and the reason why no test can run it (None if tests do)."""

    page: Path
    line: int
    steps: tuple[Step, ...]
    not_run: str | None


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of commands of a page in order."""
    why = None
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            mark = MARK.fullmatch(token.content)
            why = mark[1] if mark else None
            continue
        if token.type in ("code_block", "fence") and not token.info.strip():
            yield Block(page, (token.map or [0])[0] + 1, tuple(_steps(token.content.splitlines())), why)
        why = None


def inline_of(page: Path) -> Iterator[str]:
    """Yield the inline code that begins with the program's name."""
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            if child.type == "code_inline" and child.content.startswith("pulsar-meta "):
                yield child.content


def _steps(lines: list[str]) -> Iterator[Step]:
    command, printed = "", list[str]()
    typed_only = not any(line.startswith("$ ") for line in lines)
    for line in lines:
        if command.endswith("\\"):
            command = f"{command[:-1].rstrip()} {line.strip()}"
        elif typed_only or line.startswith("$ "):
            yield from _step(command, printed)
            command, printed = line.removeprefix("$ ").strip(), []
        else:
            printed.append(line)
    yield from _step(command, printed)


def _step(command: str, printed: list[str]) -> Iterator[Step]:
    if command and not command.startswith("#"):
        yield Step(command, tuple(printed) or None)


def split_at_operator(command: str) -> tuple[list[str], str]:
    """Split a line into the words of its first simple command and the remainder from the operator on."""
    source = StringIO(command)
    lexer = shlex.shlex(source, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words = list[str]()
    for word in lexer:
        if word in OPERATORS:
            return words, f"{word} {command[source.tell() :].strip()}"
        if word.startswith("#"):
            break
        words.append(word)
    return words, ""


def runs_of_program(command: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of `pulsar-meta` in a line of shell."""
    for match in re.finditer(r"(?<![-/\w.])pulsar-meta(?:\.pex)? (?=[a-z-])", command):
        words, _ = split_at_operator(command[match.end() :])
        yield words


def is_printed(shown: tuple[str, ...], printed: str) -> bool:
    """Return True if the output on a page matches the printed text."""
    pattern = ""
    for line in shown:
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += re.escape(line.rstrip()).replace("…", "[^\n]*") + r"[ \t]*\n"
    return re.fullmatch(pattern, printed if printed.endswith("\n") else printed + "\n") is not None
