"""Answers in parts, one for each partition of a topic: what is missing is told, and the rest is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import typer

from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import NotFoundError

Document = dict[str, Any]


class Parts:
    """The documents of all parts, one part after the other. A single part that is missing is an error."""

    def __init__(self, shell: Shell, parts: Iterable[Iterable[Document]]) -> None:
        """`parts` are read when they are iterated over."""
        self.shell = shell
        self.parts = list(parts)
        self.missing = False

    def __iter__(self) -> Iterator[Document]:
        for part in self.parts:
            try:
                yield from part
            except NotFoundError as error:
                if len(self.parts) == 1:
                    raise
                self.shell.warn(str(error))
                self.missing = True

    def check(self) -> None:
        """Leave with exit code 3 where a part was missing."""
        if self.missing:
            raise typer.Exit(Exit.NOT_FOUND)
