"""What `make test` runs: pytest, the checks beside it, and, once a machine, the compiling of Oxia's server.

    python scripts/test.py -n 2 --dist worksteal -m "not interop and not chaos"

The arguments are pytest's. What the tests write lies in memory where /dev/shm has room, as stores and servers
wait for the disk after each write. At the end come the times of all parts and pytest's own last line;
the exit code is 0 where every part was fine.
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
# Beside pytest, which gets the processors first.
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
    """One part that has run: its exit code, what it printed and how long it took."""

    name: str
    code: int
    output: str
    seconds: float


class Beside(threading.Thread):
    """Runs commands one after the other; `done` holds those that ended."""

    def __init__(self, commands: dict[str, list[str]]) -> None:
        super().__init__(daemon=True)
        self.done: list[Part] = []
        self._commands = commands
        self.start()

    def run(self) -> None:
        """Run all of them, also after one that failed."""
        for name, command in self._commands.items():
            began = time.monotonic()
            ran = subprocess.run(
                [*NICE, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            self.done.append(Part(name, ran.returncode, ran.stdout, time.monotonic() - began))


@contextmanager
def fast_files() -> Iterator[dict[str, str]]:
    """Lend the environment of tests whose files lie in memory, if there is room; remove them afterwards."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM:
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory(prefix="tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        # As /tmp has it: some tests become another user.
        os.chmod(folder, 0o1777)
        yield os.environ | {"TMPDIR": folder}


def run_pytest(arguments: list[str], environment: dict[str, str]) -> Part:
    """Run pytest, its output shown as it comes; of it the last line is kept."""
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
    """End pytest too, whose workers and servers end with it."""
    sys.exit(128 + number)


def main() -> int:
    """Run everything; return 1 where a part failed."""
    signal.signal(signal.SIGTERM, leave)
    # Tests start the program hundreds of times: compiled once, not each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A shell has what runs in its background ignore it, and tests are about it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    beside = [Beside(OXIA), Beside(CHECKS)]
    with fast_files() as environment:
        tests = run_pytest(sys.argv[1:], environment)
    for thread in beside:
        thread.join()
    parts = [part for thread in beside for part in thread.done]
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
