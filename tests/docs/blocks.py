"""The blocks of commands on the pages of the documentation, and what they say is printed.

A block without a language is one of commands: all its lines, or where lines begin with `$ ` those, and what
is below each is what it prints. `…` stands for anything in a line, a line of it for any lines. The comment
`<!-- not run: why -->` before a block says that no test runs it.
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
    """A command as one types it, continued lines joined, and what is said to be printed (None: nothing)."""

    command: str
    printed: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Block:
    """Steps of a page from the line `line` on; `not_run` says why no test can run them."""

    page: Path
    line: int
    steps: tuple[Step, ...]
    not_run: str | None


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of commands of a page in its order."""
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
    """Yield what stands as code within the text and begins with the program's name."""
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            if child.type == "code_inline" and child.content.startswith("pulsar-meta "):
                yield child.content


def _steps(lines: list[str]) -> Iterator[Step]:
    asked, printed = "", list[str]()
    typed_only = not any(line.startswith("$ ") for line in lines)
    for line in lines:
        if asked.endswith("\\"):
            asked = f"{asked[:-1].rstrip()} {line.strip()}"
        elif typed_only or line.startswith("$ "):
            yield from _step(asked, printed)
            asked, printed = line.removeprefix("$ ").strip(), []
        else:
            printed.append(line)
    yield from _step(asked, printed)


def _step(asked: str, printed: list[str]) -> Iterator[Step]:
    if asked and not asked.startswith("#"):
        yield Step(asked, tuple(printed) or None)


def split_at_operator(command: str) -> tuple[list[str], str]:
    """Return the words of the first simple command of a line, and the rest from its operator on."""
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
    """Yield the arguments of each `pulsar-meta` in a line of shell."""
    for found in re.finditer(r"(?<![-/\w.])pulsar-meta(?:\.pex)? (?=[a-z-])", command):
        words, _ = split_at_operator(command[found.end() :])
        yield words


def is_printed(said: tuple[str, ...], printed: str) -> bool:
    """Return whether a page says what was printed."""
    pattern = ""
    for line in said:
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += re.escape(line.rstrip()).replace("…", "[^\n]*") + r"[ \t]*\n"
    return re.fullmatch(pattern, printed if printed.endswith("\n") else printed + "\n") is not None
