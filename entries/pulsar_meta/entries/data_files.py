"""The files that contain entries. They are mapped into memory on demand."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pulsar_meta.access.mapped import MappedFile
from pulsar_meta.codecs.errors import DecodeError

# Each mapping needs a file descriptor.
MAX_OPEN: Final = 128
# A location has the log's number in its upper 32 bits and is never negative.
LAST_LOG: Final = 0x7FFFFFFF

_log_re = re.compile(r"^([0-9a-f]{1,8})\.log$")
_journal_re = re.compile(r"^([0-9a-f]{1,16})\.txn$")


class DataFiles:
    """Numbered files. The number is the upper half of a location."""

    def __init__(self, paths: Mapping[int, Path]) -> None:
        self.paths = dict(paths)
        self._open: OrderedDict[int, MappedFile] = OrderedDict()

    def view(self, number: int) -> memoryview:
        """Return the bytes of a file. Unreadable pages appear as zeros, which `check` reports.

        Raises DecodeError if the file is missing, UnreachableError if it can't be mapped.
        """
        return self._mapped(number).view

    def check(self, number: int) -> None:
        """Raise UnreachableError if a part of the file could not be read."""
        self._mapped(number).check()

    def name(self, number: int) -> str:
        """Return the path of a file for messages."""
        return str(self._path(number))

    def close(self) -> None:
        """Discard the mappings. Can be called twice."""
        self._open.clear()

    def _mapped(self, number: int) -> MappedFile:
        mapped = self._open.get(number)
        if mapped is None:
            mapped = self._open[number] = MappedFile(self._path(number))
            if len(self._open) > MAX_OPEN:
                # Views that are still in use keep their mapping alive.
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(number)
        return mapped

    def _path(self, number: int) -> Path:
        path = self.paths.get(number)
        if path is None:
            raise DecodeError(f"the index refers to the entry log {number:x}.log, which is missing")
        return path


def entry_logs(directories: Iterable[Path]) -> dict[int, Path]:
    """Return {id: path} of the entry logs in `current` directories, except for logs under compaction.

    Ids that don't fit into a location are left out; `misnamed_logs` lists those files.
    """
    return {number: path for number, path in _numbered(directories, _log_re).items() if number <= LAST_LOG}


def misnamed_logs(directories: Iterable[Path]) -> list[Path]:
    """List the files that are named like entry logs but have impossible ids."""
    return [path for number, path in _numbered(directories, _log_re).items() if number > LAST_LOG]


def journals(directory: Path) -> dict[int, Path]:
    """Return {id: path} of the journal files in a `current` directory, oldest first."""
    return _numbered([directory], _journal_re)


def _numbered(directories: Iterable[Path], pattern: re.Pattern[str]) -> dict[int, Path]:
    paths = {
        int(match[1], 16): path
        for directory in directories
        for path in directory.iterdir()
        if (match := pattern.match(path.name))
    }
    return dict(sorted(paths.items()))
