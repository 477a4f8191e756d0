"""The files that hold entries, mapped into memory as they are needed."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pulsar_meta.access.mapped import MappedFile
from pulsar_meta.codecs.errors import DecodeError

# Each mapping holds a file descriptor.
MAX_OPEN: Final = 128
# A location has the number of the log in its upper 32 bits and is never negative.
LAST_LOG: Final = 0x7FFFFFFF

_log_re = re.compile(r"^([0-9a-f]{1,8})\.log$")
_journal_re = re.compile(r"^([0-9a-f]{1,16})\.txn$")


class DataFiles:
    """Numbered files; a number is the upper half of a location."""

    def __init__(self, paths: Mapping[int, Path]) -> None:
        self.paths = dict(paths)
        self._open: OrderedDict[int, MappedFile] = OrderedDict()

    def view(self, number: int) -> memoryview:
        """Return the bytes of a file; DecodeError where it is gone, UnreachableError where it is refused.

        What could not be read of it looks like zeros until `check` is called.
        """
        return self._mapped(number).view

    def check(self, number: int) -> None:
        """Raise UnreachableError where a part of a file that was viewed could not be read."""
        self._mapped(number).check()

    def name(self, number: int) -> str:
        """Return the path of a file, for messages."""
        return str(self._path(number))

    def close(self) -> None:
        """Forget the mappings. Safe to call twice."""
        self._open.clear()

    def _mapped(self, number: int) -> MappedFile:
        mapped = self._open.get(number)
        if mapped is None:
            mapped = self._open[number] = MappedFile(self._path(number))
            if len(self._open) > MAX_OPEN:
                # Views handed out keep their mapping alive.
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(number)
        return mapped

    def _path(self, number: int) -> Path:
        path = self.paths.get(number)
        if path is None:
            raise DecodeError(f"the index points into entry log {number:x}.log, which is not there")
        return path


def entry_logs(directories: Iterable[Path]) -> dict[int, Path]:
    """Return the entry logs in `current` directories by their id, logs under compaction left out.

    An id that does not fit a location is no entry log's: `misnamed_logs` has those.
    """
    return {number: path for number, path in _numbered(directories, _log_re).items() if number <= LAST_LOG}


def misnamed_logs(directories: Iterable[Path]) -> list[Path]:
    """Return the files that are named as entry logs and have a number that none can have."""
    return [path for number, path in _numbered(directories, _log_re).items() if number > LAST_LOG]


def journals(directory: Path) -> dict[int, Path]:
    """Return the journal files in a `current` directory by their id, oldest first."""
    return _numbered([directory], _journal_re)


def _numbered(directories: Iterable[Path], pattern: re.Pattern[str]) -> dict[int, Path]:
    found = {
        int(match[1], 16): path
        for directory in directories
        for path in directory.iterdir()
        if (match := pattern.match(path.name))
    }
    return dict(sorted(found.items()))
