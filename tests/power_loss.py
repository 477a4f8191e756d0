"""What a power loss can leave on the disk, from a record of what a program wrote, synced and renamed.

`RecordedDisk` looks at a directory whenever the program syncs, renames, creates or removes something. It
knows which bytes and names were synced, as POSIX defines it: fsync of a file covers its bytes and not its
name, and fsync of a directory covers the names in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from stat import S_ISDIR
from threading import RLock
from typing import Any
from unittest.mock import patch

# The name of a directory in `Names`. Files have a number each.
DIRECTORY = -1
RENAMES = ("replace", "rename")
Names = dict[str, int]
# The names that appear (None: disappear) in one step, such as both names of a rename.
Step = dict[str, int | None]


@dataclass(frozen=True)
class DiskState:
    """A moment: the names and bytes that programs see, and those that survive for sure.

    `steps` are the changes of names since, in order. `note` is what the program did next, and `noted` what a
    test wants to keep from that moment.
    """

    synced_names: Names
    steps: tuple[Step, ...]
    synced: dict[int, bytes]
    written: dict[int, bytes]
    note: str
    noted: Any = None

    @property
    def unsynced(self) -> list[str]:
        """The files that a power loss could damage or lose, and names that it could bring back."""
        lost = {path for step in self.steps for path in step}
        names = _after(self.synced_names, self.steps)
        return sorted(lost | {path for path, number in names.items() if self._is_unsynced(number)})

    def _is_unsynced(self, number: int) -> bool:
        return number != DIRECTORY and self.synced.get(number) != self.written[number]

    def left(self, random: Random | None = None, *, kept: bool = False) -> dict[str, bytes | None]:
        """The files (None: directories) after a power loss.

        Unsynced changes are dropped, `kept`, or with `random` anything between: bytes are cut off, or have
        holes of zeros.
        """
        count = random.randint(0, len(self.steps)) if random else len(self.steps) * kept
        names = _after(self.synced_names, self.steps[:count])
        files: dict[str, bytes | None] = {}
        for path, number in sorted(names.items()):
            if os.path.dirname(path) in ("", *files):
                files[path] = None if number == DIRECTORY else self._bytes(number, random, kept=kept)
        return files

    def _bytes(self, number: int, random: Random | None, *, kept: bool) -> bytes:
        synced, written = self.synced.get(number, b""), self.written[number]
        if random is None:
            return written if kept else synced
        if not written.startswith(synced):
            return random.choice((synced, written))
        first, last = sorted(random.randint(len(synced), len(written)) for _ in range(2))
        # `written` with a hole, or cut, or both.
        hole = written[:first] + bytes(last - first)
        return random.choice((written[:first], hole, hole + written[last:]))


def _after(names: Names, steps: tuple[Step, ...]) -> Names:
    changed: dict[str, int | None] = dict(names)
    for step in steps:
        changed |= step
    return {path: number for path, number in changed.items() if number is not None}


def write_files(root: Path, files: dict[str, bytes | None]) -> None:
    """Write what a power loss left below `root`."""
    root.mkdir(parents=True)
    for path, data in files.items():
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)


@dataclass
class RecordedDisk:
    """The states of the files below `root`, each before and after an operation, while `recording`."""

    root: Path
    # Called for each state, for what a test wants to keep with it.
    observe: Callable[[], Any] = lambda: None
    states: list[DiskState] = field(default_factory=list)
    # Files that were renamed before their bytes were synced.
    renamed_unsynced: list[str] = field(default_factory=list)
    _names: Names = field(default_factory=dict)
    _synced_names: Names = field(default_factory=dict)
    _steps: list[Step] = field(default_factory=list)
    _synced: dict[int, bytes] = field(default_factory=dict)
    _written: dict[int, bytes] = field(default_factory=dict)
    # The numbers of files by inode.
    _numbers: dict[int, int] = field(default_factory=dict)
    _next: int = 0
    _lock: Any = field(default_factory=RLock)

    @contextmanager
    def recording(self) -> Iterator[RecordedDisk]:
        """Record. What exists already counts as synced. The last state is that after the end."""
        self._look()
        self._steps.clear()
        self._synced_names = dict(self._names)
        self._synced = dict(self._written)
        with ExitStack() as stack:
            for name in ("replace", "rename", "unlink", "remove", "mkdir", "rmdir"):
                stack.enter_context(patch.object(os, name, self._watched(name, getattr(os, name))))
            # A sync costs time, and no test needs a real one.
            stack.enter_context(patch.object(os, "fsync", self._sync))
            yield self
        self.note("the end")

    def note(self, text: str) -> None:
        """Record the present state, before the operation that `text` names."""
        with self._lock:
            self._look()
            self.states.append(
                DiskState(
                    dict(self._synced_names),
                    tuple(self._steps),
                    dict(self._synced),
                    dict(self._written),
                    text,
                    self.observe(),
                )
            )

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **more: Any) -> Any:
            with self._lock:
                self.note(f"{name} {' '.join(str(each) for each in args)}")
                if name in RENAMES:
                    self._check_rename(str(args[0]))
                result = real(*args, **more)
                self._look(renamed=name in RENAMES)
            return result

        return watched

    def _check_rename(self, source: str) -> None:
        number = self._names.get(os.path.relpath(source, self.root), DIRECTORY)
        if number != DIRECTORY and self._synced.get(number) != self._written[number]:
            self.renamed_unsynced.append(source)

    def _sync(self, descriptor: int) -> None:
        with self._lock:
            self._look()
            status = os.fstat(descriptor)
            path = self._path_of(status.st_ino)
            self.note(f"fsync {path}")
            if not S_ISDIR(status.st_mode):
                number = self._numbers.get(status.st_ino)
                if number in self._written:
                    self._synced[number] = self._written[number]
            elif path is not None:
                self._sync_names(path)

    def _sync_names(self, folder: str) -> None:
        """Move the changed names of a directory from `_steps` to `_synced_names`."""
        for at, step in enumerate(self._steps):
            changed = {path: number for path, number in step.items() if os.path.dirname(path) == folder}
            self._synced_names = _after(self._synced_names, (changed,))
            self._steps[at] = {path: number for path, number in step.items() if path not in changed}
        self._steps = [step for step in self._steps if step]

    def _path_of(self, inode: int) -> str | None:
        """The path of an inode below the root, "" for the root, None for another place."""
        for path in ("", *self._names):
            if (self.root / path).exists() and (self.root / path).stat().st_ino == inode:
                return path
        return None

    def _look(self, *, renamed: bool = False) -> None:
        """Compare the directory with the last look, and note new bytes and names."""
        names = dict[str, int]()
        for folder, folders, files in os.walk(self.root):
            within = os.path.relpath(folder, self.root).removeprefix(".")
            names |= {os.path.join(within, name): DIRECTORY for name in folders}
            for name in files:
                path = Path(folder, name)
                number = names[os.path.join(within, name)] = self._number(path.stat().st_ino)
                self._written[number] = path.read_bytes()
        gone: Step = dict.fromkeys(sorted(self._names.keys() - names.keys(), reverse=True))
        new: Step = {path: names[path] for path in sorted(names) if names[path] != self._names.get(path)}
        if renamed:
            self._steps.append(gone | new)
        else:
            self._steps += [{path: number} for path, number in (gone | new).items()]
        self._names = names

    def _number(self, inode: int) -> int:
        """The number of a file. A new file gets a new one, even if it has the inode of a removed file."""
        number = self._numbers.get(inode)
        if number is None or number not in self._names.values():
            number = self._numbers[inode] = self._next
            self._next += 1
        return number
