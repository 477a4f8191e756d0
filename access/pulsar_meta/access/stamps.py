"""Whether files were written since somebody looked: by their sizes and times, without reading them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class Stamps:
    """Sizes and times of files and directories as they were when this was made."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Take paths; what is not there counts as changed once it is."""
        self._before = {path: _stamp(path) for path in paths}

    @property
    def changed(self) -> bool:
        """Whether any of them is another now."""
        return any(_stamp(path) != before for path, before in self._before.items())


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None
