"""Files that contain entries, mapped into memory on demand.

If a mapped file is truncated, or a sector is bad, the kernel sends SIGBUS to the thread that reads the page.
The handler replaces the page by zeros so that the thread can continue, and `check` reports the failure. Call
`check` before you use the data. On systems other than Linux the signal ends the process.

A handler in Python can't do this, because it only runs after the reading instruction, which would be retried
forever. The handler is therefore a C function made by ctypes, which runs in the reading thread.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import signal
import sys
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pulsar_meta.access.files import open_regular
from pulsar_meta.codecs.errors import DecodeError, UnreachableError

# The first address of each mapping and the address after its end, and the pages that could not be read.
_mapped: Final[dict[int, int]] = {}
_unreadable: Final[set[int]] = set()
_installed: Final[list[object]] = []


class MappedFile:
    """A regular file's bytes in the read-only `view`. The mapping exists as long as a view of it."""

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises DecodeError if it doesn't exist or isn't a regular file, UnreachableError if mapping it fails.
        """
        self.path = path
        self.view = memoryview(b"")
        self._start = 0
        try:
            with open_regular(path) as file:
                if file.seek(0, 2):
                    self._map(file.fileno())
        except FileNotFoundError as error:
            raise DecodeError("the file no longer exists", source=str(path)) from error
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UnreachableError(f"cannot read the file: {reason}", source=str(path)) from error

    def check(self) -> None:
        """Raise UnreachableError if a part of the file could not be read so far."""
        if _unreadable and any(self._start <= place < self._start + len(self.view) for place in _unreadable):
            reason = "cannot read a part of the file; it was truncated, or its disk is failing"
            raise UnreachableError(reason, source=str(self.path))

    def _map(self, number: int) -> None:
        mapping = mmap.mmap(number, 0, access=mmap.ACCESS_READ)
        self.view = memoryview(mapping)
        if sys.platform == "linux":
            _install()
            self._start = _address(mapping)
            _mapped[self._start] = self._start + len(mapping)
            weakref.finalize(mapping, _forget, self._start, self._start + len(mapping))


def _forget(start: int, end: int) -> None:
    _mapped.pop(start, None)
    _unreadable.difference_update([place for place in _unreadable if start <= place < end])


class _SigAction(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _SigInfo(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_int),
        ("error", ctypes.c_int),
        ("code", ctypes.c_int),
        ("address", ctypes.c_void_p),
    )


class _Buffer(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("object", ctypes.py_object), ("rest", ctypes.c_byte * 128))


def _address(mapping: mmap.mmap) -> int:
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapping), ctypes.byref(buffer), 0)
    try:
        return int(buffer.address)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


def _install() -> None:
    """Handle SIGBUS for these mappings. For all other memory the previous handler stays in charge."""
    if _installed:
        return
    library = ctypes.CDLL(None)
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    # SA_SIGINFO, and MAP_FIXED of mmap(2).
    ours, before, fixed = _SigAction(flags=4), _SigAction(), 0x10
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed

    def unreadable(number: int, info: object, context: object) -> None:
        place = info.contents.address or 0  # type: ignore[attr-defined]
        page = place & ~(mmap.PAGESIZE - 1)
        if any(start <= place < end for start, end in list(_mapped.items())):
            _unreadable.add(page)
            library.mmap(page, mmap.PAGESIZE, mmap.PROT_READ, kind, -1, 0)
        else:
            # The instruction is retried immediately, and the previous handler then gets the signal.
            library.sigaction(signal.SIGBUS, ctypes.byref(before), None)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(_SigInfo), ctypes.c_void_p)(unreadable)
    ours.handler = ctypes.cast(handler, ctypes.c_void_p).value
    # The handler must not be garbage-collected.
    _installed.append(handler)
    library.sigaction(signal.SIGBUS, ctypes.byref(ours), ctypes.byref(before))


# Each mapping needs a file descriptor.
MAX_OPEN: Final = 128
# A location has the log's number in its upper 32 bits and is never negative.
LAST_LOG: Final = 0x7FFFFFFF

_log_re = re.compile(r"^([0-9a-f]{1,8})\.log$")
_journal_re = re.compile(r"^([0-9a-f]{1,16})\.txn$")


class DataFiles:
    """Numbered files. The number is the upper half of a location.

    `directories` are those that may have the files, even if they have none.
    """

    def __init__(self, paths: Mapping[int, Path], directories: Sequence[Path] = ()) -> None:
        self.paths = dict(paths)
        parents = (path.parent for path in self.paths.values())
        self.directories = tuple(dict.fromkeys((*parents, *directories)))
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
