"""Which directories a bookie has: entry logs, indexes and journals, found below one path.

A bookie writes its cookie, a text, into the `current` directory of each; two bookies never share one.
Source: apache/bookkeeper Cookie.java, LedgerDirsManager.java, LastLogMark in Journal.java.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.codecs.journal import decode_mark
from pulsar_meta.entries.data_files import entry_logs, journals
from pulsar_meta.entries.interleaved_locations import PATTERN

CURRENT: Final = "current"
MAX_DEPTH: Final = 3

_ledger_dirs_re = re.compile(r'^ledgerDirs: "(.*)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class BookieLayout:
    """The `current` directories of one bookie; `ledger_dirs` in the order of its cookie."""

    ledger_dirs: tuple[Path, ...]
    index_dirs: tuple[Path, ...]
    journal_dirs: tuple[Path, ...]

    @property
    def interleaved(self) -> bool:
        """Whether index files of interleaved storage stand in place of a database."""
        return any(next(directory.glob(PATTERN), None) for directory in self.index_dirs)

    def index_of(self, ledger_dir: Path) -> Path:
        """Return where the index of a ledger directory lies: in itself, or the nth for the nth."""
        if has_database(ledger_dir):
            return ledger_dir
        apart = [path for path in self.index_dirs if path not in self.ledger_dirs]
        at = self.ledger_dirs.index(ledger_dir)
        return apart[at] if len(apart) == len(self.ledger_dirs) else ledger_dir

    def mark(self, journal_dir: Path) -> tuple[int, int] | None:
        """Return the newest mark that belongs to a journal: what lies before it is in the entry logs."""
        known = journals(journal_dir)
        marks = [mark for mark in self._marks() if mark[0] in known]
        if not marks and len(self.journal_dirs) == 1:
            marks = self._marks()
        return max(marks, default=None)

    def _marks(self) -> list[tuple[int, int]]:
        found = []
        for directory in self.ledger_dirs:
            for path in sorted(directory.glob("lastMark*")):
                try:
                    found.append(decode_mark(path.read_bytes()))
                except DecodeError:
                    # A torn mark is as good as none: more of the journal is read.
                    continue
        return found


def find_bookies(path: Path, journal: Path | None = None, index: Path | None = None) -> list[BookieLayout]:
    """Return the layout of every bookie at and below `path`.

    `journal` and `index` are where these lie if not there. NotFoundError where there is no bookie.
    """
    found = list(_current_dirs(path))
    ledger_dirs = [directory for directory in found if _is_ledger_dir(directory)]
    if not ledger_dirs:
        raise NotFoundError("no bookie's data there (a directory with current/*.log)", source=str(path))
    bookies: dict[str, list[Path]] = {}
    for directory in ledger_dirs:
        bookies.setdefault(_cookie(directory), []).append(directory)
    others = [*found, *_below(journal), *_below(index)]
    return [_layout(cookie, own, others, len(bookies) == 1) for cookie, own in bookies.items()]


def has_database(directory: Path) -> bool:
    """Tell whether a `current` directory has a RocksDB of locations."""
    return (directory / "locations" / "CURRENT").is_file()


def _layout(cookie: str, ledger_dirs: list[Path], found: Iterable[Path], alone: bool) -> BookieLayout:
    mine = [directory for directory in found if alone or _cookie(directory) == cookie]
    order = _cookie_order(cookie)
    return BookieLayout(
        ledger_dirs=tuple(sorted(ledger_dirs, key=lambda directory: (_place(directory, order), directory))),
        index_dirs=tuple(_unique(directory for directory in mine if _is_index_dir(directory))),
        journal_dirs=tuple(_unique(directory for directory in mine if journals(directory))),
    )


def _current_dirs(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        raise NotFoundError("no such directory", source=str(path))
    if path.name == CURRENT:
        yield path
        return

    def refuse(error: OSError) -> None:
        raise UnreachableError(f"cannot be read: {error.strerror}", source=str(error.filename))

    for directory, names, _ in os.walk(path, onerror=refuse):
        depth = len(Path(directory).relative_to(path).parts)
        if CURRENT in names:
            yield Path(directory) / CURRENT
        names[:] = sorted(name for name in names if name != CURRENT) if depth < MAX_DEPTH else []


def _below(path: Path | None) -> Iterator[Path]:
    return iter(()) if path is None else _current_dirs(path)


def _is_ledger_dir(directory: Path) -> bool:
    return (directory / "lastId").exists() or bool(entry_logs([directory]))


def _is_index_dir(directory: Path) -> bool:
    return has_database(directory) or next(directory.glob(PATTERN), None) is not None


def _cookie(directory: Path) -> str:
    try:
        return (directory / "VERSION").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cookie_order(cookie: str) -> list[Path]:
    """Return the ledger directories as the bookie itself lists them (a count, then each, after tabs)."""
    match = _ledger_dirs_re.search(cookie)
    return [Path(name) for name in match[1].split("\\t")[1:]] if match else []


def _place(directory: Path, order: list[Path]) -> int:
    """Return the place of a directory in the cookie, by its own name: the rest of its path may differ."""
    names = [path.name for path in order]
    name = directory.parent.name
    return names.index(name) if names.count(name) == 1 else len(names)


def _unique(directories: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(directories))
