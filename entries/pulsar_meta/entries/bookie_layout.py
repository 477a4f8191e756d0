"""Find the directories of bookies below a path: entry logs, indexes and journals.

A bookie writes its cookie, a text, into each `current` directory, and two bookies never share a directory.
The order of directories in the cookie matters. The nth index directory belongs to the nth ledger directory,
and `lastMark.N` to journal N.

Sources: apache/bookkeeper Cookie.java, LedgerDirsManager.java, DbLedgerStorage.java, LastLogMark.java.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pulsar_meta.access.files import read_regular
from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.bookie_files.journal import decode_mark
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.codecs.metadata.ledger_metadata import decode_cookie
from pulsar_meta.entries.data_files import entry_logs, journals
from pulsar_meta.entries.locations import PATTERN

DISK: Final = "bookie-disk:"
OPTIONS: Final = ("journal", "index")
CURRENT: Final = "current"
MAX_DEPTH: Final = 3
NOWHERE: Final = -1
# A mark has 16 bytes, and a cookie some lines of text.
LARGEST_MARK: Final = 4096
LARGEST_COOKIE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BookieLayout:
    """The `current` directories of one bookie, and the content of its cookie, if there is one.

    `directories` includes empty ones. The lists are those in the cookie.
    """

    ledger_dirs: tuple[Path, ...]
    index_dirs: tuple[Path, ...]
    journal_dirs: tuple[Path, ...]
    bookie_id: str | None = None
    cookie: bytes = b""
    ledger_list: tuple[Path, ...] = ()
    index_list: tuple[Path, ...] = ()
    journal_list: tuple[Path, ...] = ()
    directories: tuple[Path, ...] = ()

    @property
    def interleaved(self) -> bool:
        """Whether the bookie uses interleaved storage with index files instead of a database."""
        return any(next(directory.glob(PATTERN), None) for directory in self.index_dirs)

    def database(self, ledger_dir: Path) -> Path | None:
        """Return the location database of a ledger directory, or None if none certainly belongs to it."""
        if has_database(ledger_dir):
            return ledger_dir / "locations"
        apart = [path for path in self.index_dirs if path not in self.ledger_dirs]
        if len(apart) == len(self.ledger_dirs) == 1:
            return apart[0] / "locations"
        number = place(ledger_dir, self.ledger_list)
        mine = [path for path in apart if place(path, self.index_list) == number != NOWHERE]
        return mine[0] / "locations" if len(mine) == 1 else None

    def mark(self, journal_dir: Path) -> tuple[int, int] | None:
        """Return the newest mark of a journal as (file id, offset). Everything before it is in entry logs."""
        number = place(journal_dir, self.journal_list)
        if len(self.journal_list) > 1 and number != NOWHERE:
            return max(self._marks(f"lastMark.{number}"), default=None)
        marks, known = self._marks("lastMark*"), journals(journal_dir)
        if len(self.journal_dirs) > 1:
            marks = [mark for mark in marks if mark[0] in known]
        return max(marks, default=None)

    @property
    def written(self) -> list[Path]:
        """Directories and files of which at least one changes whenever the bookie writes."""
        paths = [*self.ledger_dirs, *self.journal_dirs]
        for directory in self.ledger_dirs:
            paths += [*directory.glob("lastMark*"), *list(entry_logs([directory]).values())[-1:]]
        for directory in self.journal_dirs:
            paths += list(journals(directory).values())[-1:]
        return paths

    def _marks(self, pattern: str) -> list[tuple[int, int]]:
        marks = []
        for directory in self.ledger_dirs:
            for path in sorted(directory.glob(pattern)):
                try:
                    marks.append(decode_mark(read_regular(path, LARGEST_MARK)))
                except DecodeError:
                    # Without a mark, more of the journal is read, which does no harm.
                    continue
        return marks


def split_url(url: str) -> tuple[Path, dict[str, str]]:
    """Return the path and the options of a `bookie-disk:` URL. Raises UsageError if it is invalid."""
    rest = url.partition(":")[2]
    path, _, query = rest.partition("?")
    options = dict(part.split("=", 1) for part in query.split("&") if "=" in part)
    unknown = sorted(set(options) - set(OPTIONS)) or [
        part for part in query.split("&") if part and "=" not in part
    ]
    if unknown or not path:
        raise UsageError("expected bookie-disk:PATH[?journal=PATH&index=PATH]", source=redact(url))
    return Path(path.removeprefix("//") if path.startswith("///") else path), options


def layouts_of(url: str) -> list[BookieLayout]:
    """Return the layout of every bookie of a `bookie-disk:` URL.

    Raises UsageError if the URL is invalid, and NotFoundError if there is no bookie.
    """
    path, options = split_url(url)
    journal, index = options.get("journal"), options.get("index")
    apart = Path(index) if index and index != "scan" else None
    return find_bookies(path, Path(journal) if journal else None, apart)


def find_bookies(path: Path, journal: Path | None = None, index: Path | None = None) -> list[BookieLayout]:
    """Return the layout of every bookie at and below `path`.

    `journal` and `index` are the paths of journals and indexes that are stored elsewhere. Raises
    NotFoundError if there is no bookie.
    """
    directories = list(_current_dirs(path))
    cookies = {
        _cookie_text(directory): None
        for directory in directories
        if _is_ledger_dir(directory) or journals(directory)
    }
    if not cookies:
        raise NotFoundError("no data of a bookie found (current/ with *.log or *.txn)", source=str(path))
    for other in filter(None, (journal, index)):
        directories += _current_dirs(other)
    return [_layout(text, directories, len(cookies) == 1) for text in cookies]


def has_database(directory: Path) -> bool:
    """Whether a `current` directory has a location database."""
    return (directory / "locations").is_dir()


def place(directory: Path, listed: Sequence[Path]) -> int:
    """Return the index of a `current` directory in a cookie's list, or NOWHERE if it is ambiguous.

    Copied disks have other paths than on the bookie, so the path with the most equal names at the end counts.
    """
    scores = [_common_suffix(directory.parent, path) for path in listed]
    best = max(scores, default=0)
    return scores.index(best) if best and scores.count(best) == 1 else NOWHERE


def _layout(text: str, directories: Iterable[Path], alone: bool) -> BookieLayout:
    mine = tuple(dict.fromkeys(path for path in directories if alone or _cookie_text(path) == text))
    bookie_id, (ledger_list, index_list, journal_list) = _bookie_id(text), _lists(text)
    return BookieLayout(
        ledger_dirs=tuple(path for path in mine if _is_ledger_dir(path)),
        index_dirs=tuple(path for path in mine if _is_index_dir(path)),
        journal_dirs=tuple(path for path in mine if journals(path)),
        bookie_id=bookie_id,
        cookie=next(filter(None, map(_cookie, mine)), b""),
        ledger_list=ledger_list,
        index_list=index_list or ledger_list,
        journal_list=journal_list,
        directories=mine,
    )


def _common_suffix(path: Path, other: Path) -> int:
    """Return the number of equal names at the end of two paths."""
    count = 0
    for left, right in zip(reversed(path.parts), reversed(other.parts), strict=False):
        if left != right:
            break
        count += 1
    return count


def _current_dirs(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        raise NotFoundError("no such directory", source=str(path))
    if path.name == CURRENT:
        yield path
        return

    def refuse(error: OSError) -> None:
        raise UnreachableError(f"cannot list the directory: {error.strerror}", source=str(error.filename))

    for directory, names, _ in os.walk(path, onerror=refuse):
        depth = len(Path(directory).relative_to(path).parts)
        if CURRENT in names:
            yield Path(directory) / CURRENT
        names[:] = sorted(name for name in names if name != CURRENT) if depth < MAX_DEPTH else []


def _is_ledger_dir(directory: Path) -> bool:
    return any(directory.glob("last*")) or bool(entry_logs([directory]))


def _is_index_dir(directory: Path) -> bool:
    return has_database(directory) or next(directory.glob(PATTERN), None) is not None


def _cookie_text(directory: Path) -> str:
    return _cookie(directory).decode("utf-8", "replace")


def _cookie(directory: Path) -> bytes:
    try:
        return read_regular(directory / "VERSION", LARGEST_COOKIE)
    except OSError:
        return b""


def _bookie_id(text: str) -> str | None:
    """Return the bookie id in a cookie, which ensembles refer to, or None."""
    try:
        return decode_cookie(text.encode()).fields.bookieHost or None
    except DecodeError:
        return None


def _lists(text: str) -> tuple[tuple[Path, ...], tuple[Path, ...], tuple[Path, ...]]:
    """Return the ledger, index and journal directories that a cookie lists."""
    try:
        cookie = decode_cookie(text.encode()).fields
    except DecodeError:
        return (), (), ()
    # Ledger and index directories are a count, followed by paths with a tab before each.
    ledgers, indexes = (
        tuple(map(Path, field.split("\t")[1:])) for field in (cookie.ledgerDirs, cookie.indexDirs)
    )
    return ledgers, indexes, tuple(map(Path, cookie.journalDir.split(",")))
