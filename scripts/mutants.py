"""Change one line at a time and show the changes that no test notices.

    python scripts/mutants.py [--seed 1] [--count 20] [--map FILE] [--only TEXT]

Takes a random sample of one-line changes (mutants) to the packages that write and decide: another comparison,
a number plus one, `and` for `or`, `min` for `max`, True for False, or without a `not` or a statement. For
each mutant, runs the tests that call the changed function, shortest first, in a copy of the tree, and prints
whether one failed. The exit code is the number of survivors, at most 100.

The first run records which functions each test calls, which takes as long as all tests that need neither
Spark nor Maven. `--map` keeps this record in a file. `--only` selects mutants by a part of "path:line:".
Read each survivor before you write a test: a change that makes no difference to users survives rightly.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
ROOTS: Final = ("api", "cli", "codecs", "proto", "access", "stores", "entries", "brokers", "jobs")
JOBS: Final = ("rewrite", "repair", "export", "rebuild", "check", "seek")
PACKAGES: Final = (*(f"jobs/pulsar_meta/jobs/{name}" for name in JOBS), "stores/pulsar_meta/stores")
TESTS: Final = ("tests/jobs", "tests/stores", "tests/cli", "tests/api")
UNFIT: Final = "interop or nightly or spark"
# The tests of one mutant take at most this many seconds if they pass. The longest are left out.
BUDGET: Final = 60.0
# A mutant may loop forever. pytest itself needs some seconds to start.
STARTING, SLOWER = 60, 4
OPPOSITES: Final = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
RECORD: Final = "MUTANTS_RECORD"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change to the bytes `begin` to `end` of one line of a file, in a function."""

    file: str
    line: int
    begin: int
    end: int
    text: str
    function: str

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        lines = source.splitlines(keepends=True)
        old = lines[self.line - 1]
        lines[self.line - 1] = old[: self.begin] + self.text.encode() + old[self.end :]
        return b"".join(lines)

    def diff(self, source: bytes) -> str:
        """Return the old and the new line."""
        old, new = (text.splitlines()[self.line - 1].decode() for text in (source, self.apply(source)))
        return f"    - {old.strip()}\n    + {new.strip()}"


class Finder:
    """Collects the mutants of a file."""

    def __init__(self, file: str, source: bytes) -> None:
        self.mutants: list[Mutant] = []
        self._file, self._lines, self._function = file, source.splitlines(), ""
        self._visit(ast.parse(source), "")

    def _visit(self, node: ast.AST, prefix: str) -> None:
        outer = self._function
        if isinstance(node, ast.ClassDef):
            prefix += f"{node.name}."
        elif isinstance(node, ast.FunctionDef):
            self._function = f"{prefix}{node.name}"
            prefix = f"{self._function}.<locals>."
        if self._function:
            self._mutate(node)
        # f-strings are messages, and before Python 3.12 their parts have no positions.
        for child in () if isinstance(node, ast.JoinedStr) else ast.iter_child_nodes(node):
            self._visit(child, prefix)
        self._function = outer

    def _mutate(self, node: ast.AST) -> None:
        match node:
            case ast.Compare():
                operands = pairwise([node.left, *node.comparators])
                for (left, right), operator in zip(operands, node.ops, strict=True):
                    self._between(left, right, *OPPOSITES[type(operator)])
            case ast.BoolOp():
                for left, right in pairwise(node.values):
                    self._between(left, right, *OPPOSITES[type(node.op)])
            case ast.UnaryOp(op=ast.Not()):
                self._add(node.lineno, node.col_offset, node.col_offset + len("not "), "")
            case ast.Constant(value=bool()):
                self._replace(node, str(not node.value))
            case ast.Constant(value=int() as number):
                self._replace(node, str(number + 1))
            case ast.Name(id=name) if name in NAMES:
                self._replace(node, NAMES[name])
            case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Continue():
                self._replace(node, "pass")

    def _replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        if node.lineno == node.end_lineno and node.end_col_offset is not None:
            self._add(node.lineno, node.col_offset, node.end_col_offset, text)

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        if left.end_lineno == right.lineno:
            at = self._lines[right.lineno - 1].find(old.encode(), left.end_col_offset, right.col_offset)
            if at >= 0:
                self._add(right.lineno, at, at + len(old), new)

    def _add(self, line: int, begin: int, end: int, text: str) -> None:
        self.mutants.append(Mutant(self._file, line, begin, end, text, self._function))


class Recorder:
    """A plugin of pytest that appends to a file the functions that each test calls."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._codes: set[CodeType] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        """Record a test and its fixtures."""
        self._codes.clear()
        began = time.monotonic()
        threading.settrace(self._see)
        sys.settrace(self._see)
        yield
        sys.settrace(None)
        # Threads that a test left behind may still call functions.
        calls = sorted(filter(None, map(_name_of, self._codes.copy())))
        document = {"test": item.nodeid, "seconds": time.monotonic() - began, "calls": calls}
        with self._file.open("a") as out:
            out.write(json.dumps(document) + "\n")

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        self._codes.add(frame.f_code)


def _name_of(code: CodeType) -> str | None:
    """Return "path::function" of a function in one of the packages, else None."""
    path = code.co_filename.removeprefix(f"{Path(__file__).parent.parent}/")
    return f"{path}::{code.co_qualname}" if path.startswith(PACKAGES) else None


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder if pytest loads this module as a plugin."""
    if file := os.environ.get(RECORD):
        config.pluginmanager.register(Recorder(Path(file)))


class Copy:
    """A copy of the tree. The tests of a mutant run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(git, cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def pytest(self, arguments: list[str], seconds: float | None = None, record: str = "") -> tuple[int, str]:
        """Run pytest and return its exit code and output. If it takes longer, kill it and return 1."""
        path = os.pathsep.join(str(self.folder / root) for root in (*ROOTS, "scripts"))
        environment = os.environ | {"PYTHONPATH": path, "HYPOTHESIS_PROFILE": "quick", RECORD: record}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        output = self.folder / "output.txt"
        with output.open("wb") as out:
            running = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=out, stderr=out, start_new_session=True
            )
            try:
                code = running.wait(seconds)
            except subprocess.TimeoutExpired:
                code = 1
            finally:
                # Also ends a server that a test left behind.
                if running.poll() is None:
                    os.killpg(running.pid, signal.SIGKILL)
                    running.wait()
        return code, output.read_text(errors="replace")

    def record(self, file: Path) -> None:
        """Run all tests once and record the functions that they call."""
        code, output = self.pytest(["-p", "mutants", "-m", f"not ({UNFIT})", *TESTS], record=str(file))
        if code not in (0, 1):
            raise SystemExit(output[-2000:])

    def tests(self) -> set[str]:
        """Return the ids of all tests that there are."""
        code, output = self.pytest(["--collect-only", "-m", f"not ({UNFIT})", *TESTS])
        if code != 0:
            raise SystemExit(output[-2000:])
        return {line for line in output.splitlines() if "::" in line}

    def kills(self, mutant: Mutant, tests: list[str], seconds: float) -> bool:
        """Return True if one of the tests fails with the mutant."""
        file, source = self.folder / mutant.file, (ROOT / mutant.file).read_bytes()
        chosen = self.folder / "chosen.txt"
        chosen.write_text("\n".join(tests))
        for content in (mutant.apply(source), source):
            file.write_bytes(content)
            # Python takes compiled code as current if the source has the same size and second.
            shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)
            if content != source:
                code, output = self.pytest(["-x", f"@{chosen}"], STARTING + SLOWER * seconds)
        if code not in (0, 1, 2):
            raise SystemExit(output[-2000:])
        return code != 0


def read_record(file: Path, existing: set[str]) -> dict[str, list[tuple[float, str]]]:
    """Return the existing tests that call each function, with their durations in seconds.

    A record of an older commit may have tests that were removed or renamed.
    """
    tests: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for line in file.read_text().splitlines():
        document = json.loads(line)
        for function in document["calls"] if document["test"] in existing else ():
            tests[function].append((document["seconds"], document["test"]))
    return tests


def choose(tests: list[tuple[float, str]]) -> tuple[list[str], float]:
    """Return the shortest tests that fit the budget, at least one, and their duration in seconds."""
    chosen: list[str] = []
    total = 0.0
    for seconds, test in sorted(tests):
        if chosen and total + seconds > BUDGET:
            break
        chosen.append(test)
        total += seconds
    return chosen, total


def sample(seed: int, count: int, only: str) -> list[Mutant]:
    """Return random mutants, the same number from each package if it has as many."""
    dice, groups = random.Random(seed), []
    for package in PACKAGES:
        group: list[Mutant] = []
        for path in sorted((ROOT / package).rglob("*.py")):
            mutants = Finder(str(path.relative_to(ROOT)), path.read_bytes()).mutants
            group += [mutant for mutant in mutants if only in f"{mutant.file}:{mutant.line}:"]
        dice.shuffle(group)
        groups.append(group)
    return list(islice((mutant for row in zip_longest(*groups) for mutant in row if mutant), count))


def main() -> int:
    """Run a sample of mutants; return the number of survivors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--map", type=Path, help="a file that keeps which functions each test calls")
    parser.add_argument("--only", default="", help="a part of path:line: of the mutants")
    options = parser.parse_args()
    mutants, survivors = sample(options.seed, options.count, options.only), 0
    print(f"seed {options.seed}, {len(mutants)} mutants", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder, "tree"))
        record = options.map or Path(folder, "record.ndjson")
        if not record.exists():
            copy.record(record)
        callers = read_record(record, copy.tests())
        for mutant in mutants:
            tests, seconds = choose(callers[f"{mutant.file}::{mutant.function}"])
            verdict = "killed" if tests and copy.kills(mutant, tests, seconds) else "SURVIVED"
            survivors += verdict == "SURVIVED"
            print(f"{verdict} ({len(tests)} tests) {mutant.file}:{mutant.line} in {mutant.function}")
            print(mutant.diff((ROOT / mutant.file).read_bytes()), flush=True)
    print(f"{len(mutants) - survivors} killed, {survivors} survived")
    return min(survivors, 100)


if __name__ == "__main__":
    sys.exit(main())
