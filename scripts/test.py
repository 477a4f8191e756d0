"""Runs pytest and, at the same time, the static checks and the compilation of Oxia's server for `make test`.

    python scripts/test.py -n 2 --dist worksteal -m "not interop and not nightly"

The arguments are pytest's. If /dev/shm has room, the tests write to memory, because stores and servers wait
for the disk after each write. The last lines are the times of all parts and pytest's own last line. The exit
code is 0 if every part succeeded.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BIN: Final = Path(sys.executable).parent
# pytest gets the processors first.
NICE: Final = ("nice", "-n", "10")
CHECKS: Final = {
    "ruff check": [str(BIN / "ruff"), "check", "."],
    "ruff format": [str(BIN / "ruff"), "format", "--check", "."],
    "import-linter": [str(BIN / "lint-imports")],
    "generated files": [sys.executable, "scripts/generate.py", "--check"],
    "mypy": [str(BIN / "mypy")],
}
MEMORY: Final = Path("/dev/shm")
ROOM: Final = 6 << 30
OXIA: Final = {"Oxia's server": [sys.executable, "-m", "tests.servers.oxia"]}


@dataclass(frozen=True, slots=True)
class Part:
    """A part that has run: its exit code, its output and its duration."""

    name: str
    code: int
    output: str
    seconds: float


class Background(threading.Thread):
    """Runs commands one after the other; `done` has the results."""

    def __init__(self, commands: dict[str, list[str]]) -> None:
        super().__init__(daemon=True)
        self.done: list[Part] = []
        self._commands = commands
        self.start()

    def run(self) -> None:
        """Run all commands, even if one fails."""
        for name, command in self._commands.items():
            began = time.monotonic()
            ran = subprocess.run(
                [*NICE, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            self.done.append(Part(name, ran.returncode, ran.stdout, time.monotonic() - began))


@contextmanager
def fast_files() -> Iterator[dict[str, str]]:
    """Yield an environment in which tests write to memory, if there is room; remove the files afterwards."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM:
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory(prefix="tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        # Same mode as /tmp, because some tests run as another user.
        os.chmod(folder, 0o1777)
        yield os.environ | {"TMPDIR": folder}


def run_pytest(arguments: list[str], environment: dict[str, str]) -> Part:
    """Run pytest and pass its output through; return its last line."""
    began, tail = time.monotonic(), b""
    color = ["--color=yes"] if sys.stdout.isatty() else []
    command = [sys.executable, "-m", "pytest", *color, *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        try:
            while piece := os.read(running.stdout.fileno(), 1 << 16):
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
                tail = (tail + piece)[-(1 << 16) :]
        except SystemExit:
            running.terminate()
            raise
    lines = tail.decode(errors="replace").splitlines() or [""]
    return Part("pytest", running.returncode, lines[-1], time.monotonic() - began)


def leave(number: int, frame: object) -> None:
    """End this process and pytest, whose workers and servers end with it."""
    sys.exit(128 + number)


def main() -> int:
    """Run everything; return 1 if a part failed."""
    signal.signal(signal.SIGTERM, leave)
    # Tests start the program hundreds of times, so it should be compiled only once.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Background processes of a shell ignore SIGINT, but some tests need it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    background = [Background(OXIA), Background(CHECKS)]
    with fast_files() as environment:
        tests = run_pytest(sys.argv[1:], environment)
    for thread in background:
        thread.join()
    parts = [part for thread in background for part in thread.done]
    failed = [part for part in parts if part.code]
    for part in failed:
        print(f"\n== {part.name} ==\n{part.output}")
    print()
    for part in [*parts, tests]:
        print(f"{part.name:<16} {'FAILED' if part.code else 'fine':<7} {part.seconds:6.1f} s")
    print(tests.output)
    if failed:
        print(f"FAILED: {', '.join(part.name for part in failed)}")
    return int(bool(failed or tests.code))


if __name__ == "__main__":
    sys.exit(main())
