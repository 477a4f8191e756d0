"""Compare what two checkouts print: every command, on every capture, in every format.

    scripts/same_output.py OLD NEW [CAPTURE…]

OLD and NEW are directories with a checkout of this repository. A CAPTURE is a name or a file of
fixtures/captures, or an unpacked directory (default: every capture of NEW). Both checkouts run the same
commands, each in a directory of its own and in a process that keeps running. Their stdout, exit codes, stderr
and files are compared byte for byte. Only these are masked: the path of that directory, names of temporary
directories, of undo files that the program names, and of checkpoints, the seconds of `--estimate`, the times
at which undo files, snapshots and pages were made, and the age of a copy.

Prints the first lines of each difference and a table. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from house import use_only

if __name__ == "__main__":
    from sample_commands import Command, disk_commands, help_pages, metadata_commands, topics_in
    from sample_stores import schemas, store_commands

DIFF_LINES = 12
# Names that differ in each run: temporary directories, undo files and checkpoints.
VARYING = (
    rb"(HOME/tmp/)[^/\s]+",
    rb"(/undo/)\d{8}T[\d.]+(?=-)",
    rb"(/undo/\*-[a-z-]+-)\d+(?=\.ndjson)",
    rb"(\.checkpoint-)\d{8}T[\d.]+",
)
# A worker ends when its stdin is closed, unless it hangs.
SECONDS_TO_END = 120
# For this capture, commands about a single topic run for each of its topics.
WIDE = "pulsar-4.2.4"
PARTS = ("stdout", "exit", "stderr", "files")


# --- the worker, which runs the commands in one checkout ---


def foreign_modules(checkout: Path) -> list[str]:
    """Return the modules of ours that were not imported from `checkout`."""
    ours = {name: module for name, module in sys.modules.items() if name.startswith("pulsar_meta.")}
    files = {name: module.__file__ or list(module.__path__)[-1] for name, module in ours.items()}
    return [name for name, file in files.items() if not file.startswith(f"{checkout}/")]


def run_once(main: Callable[[], None], words: list[str], files: dict[str, str]) -> int:
    """Run the program with its three streams redirected to files; return its exit code."""
    flags = {"stdin": os.O_RDONLY, "stdout": os.O_WRONLY | os.O_CREAT | os.O_TRUNC}
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        descriptor = os.open(files[name], flags.get(name, flags["stdout"]), 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(0, "r", closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    sys.argv = ["pulsar-meta", *words]
    try:
        main()
        code = 0
    except SystemExit as exited:
        code = exited.code if isinstance(exited.code, int) else int(exited.code is not None)
    except BaseException as error:  # noqa: BLE001 an unforeseen error is a result, too
        sys.stderr.write(f"TRACEBACK {type(error).__name__}: {error}\n")
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    gc.unfreeze()
    return code


def worker(checkout: Path) -> None:
    """Run the commands that arrive on stdin, one JSON object per line, and answer with their exit codes."""
    requests, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.environ["PYTHONPATH"] = os.pathsep.join(use_only(checkout))
    from pulsar_meta.cli.app import COMMANDS, main

    print(json.dumps(list(COMMANDS)), file=answers, flush=True)
    for line in requests:
        request = json.loads(line)
        os.environ["COLUMNS"] = str(request["columns"])
        code = run_once(main, request["words"], request["files"])
        print(json.dumps({"code": code, "foreign": foreign_modules(checkout)}), file=answers, flush=True)


# --- the parent, which compares the results ---


@dataclass(frozen=True)
class Result:
    """The output, exit code and files of a command in one checkout."""

    stdout: bytes
    exit: bytes
    stderr: bytes
    files: bytes


class Checkout:
    """A checkout, the process that runs its commands, and the directory in which they run."""

    def __init__(self, source: Path, home: Path) -> None:
        self.source, self.home = source.resolve(), home
        for name in ("tmp", "state", "streams"):
            (home / name).mkdir(parents=True)
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("PULSAR_META_", "XDG_"))
        }
        state = str(home / "state")
        own = {"TMPDIR": str(home / "tmp"), "XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state, "TZ": "UTC"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", str(self.source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=home,
            env=inherited | own,
        )
        self.names: list[str] = self._answer()
        self.files = {name: str(home / "streams" / name) for name in ("stdin", "stdout", "stderr")}

    def start(self, command: Command) -> None:
        """Start a command."""
        stdin = command.stdin if command.stdin_file is None else self._content(command.stdin_file)
        Path(self.files["stdin"]).write_bytes(stdin)
        request = {"words": command.words, "columns": command.columns, "files": self.files}
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)

    def result(self, command: Command) -> Result:
        """Wait for a command and return its result, in which the varying parts are masked."""
        answer = self._answer()
        if answer["foreign"]:
            raise SystemExit(f"{self.source}: these modules come from another checkout: {answer['foreign']}")
        stdout, stderr = (Path(self.files[name]).read_bytes() for name in ("stdout", "stderr"))
        if command.keep is not None:
            (self.home / command.keep).write_bytes(stdout)
        files = b"".join(b"== %s\n%s" % (name.encode(), self._content(name)) for name in command.made)
        masked = partial(self._masked, command=command)
        return Result(masked(stdout), b"%d" % answer["code"], masked(stderr), masked(files))

    def prepare(self, capture: Path) -> None:
        """Create the capture's writable copies: its metadata as a directory and as a database.

        Also creates its disks with flipped bytes, an empty directory, and a file that is no record.
        """
        for name in ("copy", "database", "hurt"):
            shutil.rmtree(self.home / name, ignore_errors=True)
        for old in self.home.glob("*undo-*"):
            old.unlink()
        (self.home / "empty").mkdir(exist_ok=True)
        (self.home / "garbage").write_bytes(b"\xff\xfe\xfd")
        if not has_metadata(capture):
            return
        damage_copy(capture, self.home / "hurt")
        with (capture / "metadata.ndjson").open() as lines:
            for line in lines:
                value = json.loads(line)
                folder = self.home / f"copy{value['path']}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / ".value").write_bytes(base64.b64decode(value["value"]))
        if (capture / "rocksdb").is_dir():
            shutil.copytree(capture / "rocksdb", self.home / "database")

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(SECONDS_TO_END)

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.source}: the process ended with {self.process.wait()}")
        return json.loads(line)

    def _content(self, name: str) -> bytes:
        file = self.home / name
        return file.read_bytes() if file.is_file() else b"(no such file)\n"

    def _masked(self, text: bytes, command: Command) -> bytes:
        text = text.replace(str(self.home).encode(), b"HOME").replace(str(self.source).encode(), b"CHECKOUT")
        for mask in (*VARYING, *command.masks):
            text = re.sub(mask, rb"\1*", text)
        return text


@dataclass
class Comparison:
    """How many commands ran, how long they took, and what differed, by the command's name."""

    run: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    differences: dict[str, Counter[str]] = field(default_factory=dict)
    shown: Counter[str] = field(default_factory=Counter)

    def add(self, command: Command, place: str, old: Result, new: Result, show: int) -> None:
        """Count a command, and print how its results differ."""
        name = command.name
        self.run[name] += 1
        parts = [part for part in PARTS if getattr(old, part) != getattr(new, part)]
        self.differences.setdefault(name, Counter()).update(parts or ["equal"])
        for part in parts:
            self.shown[f"{name} {part}"] += 1
            if self.shown[f"{name} {part}"] <= show:
                print(f"\n--- {place}: pulsar-meta {' '.join(command.words)}\n    {part} differs:")
                print("\n".join(difference(getattr(old, part), getattr(new, part))))

    def is_equal(self) -> bool:
        """Return True if nothing differed."""
        return not any(set(counts) - {"equal"} for counts in self.differences.values())

    def table(self) -> str:
        """Format a line for each command, and the totals."""
        heading = f"{'command':20}{'run':>7}{'equal':>7}" + "".join(f"{part:>8}" for part in PARTS)
        lines = [f"{heading} seconds"]
        total = Counter[str]()
        for name in sorted(self.run):
            total.update(self.differences[name])
            lines.append(self._line(name, self.run[name], self.differences[name], self.seconds[name]))
        return "\n".join([*lines, self._line("all", self.run.total(), total, sum(self.seconds.values()))])

    @staticmethod
    def _line(name: str, run: int, counts: Counter[str], seconds: float) -> str:
        cells = "".join(f"{counts[part]:8}" for part in PARTS)
        return f"{name:20}{run:7}{counts['equal']:7}{cells}{seconds:8.1f}"


def difference(old: bytes, new: bytes) -> list[str]:
    """Return the first lines in which two outputs differ."""
    texts = [part.decode("utf-8", "backslashreplace").splitlines() for part in (old, new)]
    lines = [line[:300] for line in difflib.unified_diff(*texts, "old", "new", n=0, lineterm="")]
    more = [f"    … {len(lines) - DIFF_LINES} more lines"] if len(lines) > DIFF_LINES else []
    return ["    " + line for line in lines[:DIFF_LINES]] + more or ["    (bytes that are no text)"]


def damage_copy(capture: Path, target: Path) -> None:
    """Copy the disks of a capture and flip seven bytes in each entry log."""
    shutil.copytree(capture, target, ignore=shutil.ignore_patterns("rocksdb", "*.ndjson"))
    for log in target.glob("bookie*/current/*.log"):
        content = bytearray(log.read_bytes())
        for at in range(len(content) // 7, len(content), len(content) // 7 + 1):
            content[at] ^= 0x40
        log.write_bytes(content)


def has_metadata(capture: Path) -> bool:
    """Return True if a capture has the cluster's metadata, not only its bookies' disks."""
    return (capture / "metadata.ndjson").is_file()


def unpacked(capture: str, shipped: Path, into: Path) -> list[Path]:
    """Return the directories of the clusters in a capture, which is a name, a file or a directory."""
    folder = Path(capture).resolve()
    if not folder.is_dir():
        archive = folder if folder.is_file() else shipped / f"{capture}.tar.xz"
        with tarfile.open(archive) as files:
            files.extractall(into)
        folder = into / archive.name.removesuffix(".tar.xz")
    return [folder] if has_metadata(folder) else sorted(bookie.parent for bookie in folder.glob("*/bookie0"))


def commands_of(old: Checkout, capture: Path, wide: bool) -> Iterator[Command]:
    """Yield the commands for a capture, whose topics are those that the old checkout decodes."""
    if not has_metadata(capture):
        yield from disk_commands(("--entries", f"bookie-disk:{capture.name}"))
        return
    words = ("decode", "--store", f"snapshot:{capture.name}/metadata.ndjson", "/managed-ledgers")
    command = Command((*words, "-o", "ndjson"))
    old.start(command)
    topics = topics_in(old.result(command).stdout)
    yield from metadata_commands(capture.name, (capture / "rocksdb").is_dir(), topics, wide)
    yield from store_commands(capture.name, topics)


def compare(old: Checkout, new: Checkout, captures: Sequence[Path], show: int, wide: bool) -> Comparison:
    """Run all commands in both checkouts and compare their results."""
    comparison = Comparison()
    rounds: dict[str, Callable[[], Iterator[Command]]] = {
        "help": lambda: help_pages(sorted({*old.names, *new.names})),
        "schemas": lambda: schemas(old.names),
    }
    folders = {capture.name: capture for capture in captures}
    for name, capture in folders.items():
        rounds[name] = partial(commands_of, old, capture, wide or name == WIDE)
    for place, commands in rounds.items():
        if place in folders:
            for checkout in (old, new):
                (checkout.home / place).symlink_to(folders[place])
                checkout.prepare(folders[place])
        started = time.monotonic()
        for command in commands():
            begun = time.monotonic()
            old.start(command)
            new.start(command)
            comparison.add(command, place, old.result(command), new.result(command), show)
            comparison.seconds[command.name] += time.monotonic() - begun
        print(f"{place}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return comparison


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("captures", nargs="*")
    parser.add_argument("--show", type=int, default=2, help="differences to show per command and part")
    parser.add_argument(
        "--wide", action="store_true", help=f"run all topics of each capture, not only {WIDE}'s"
    )
    return parser.parse_intermixed_args()


def run() -> int:
    """Compare two checkouts; return 1 if they differ."""
    options = arguments()
    shipped = options.new.resolve() / "fixtures" / "captures"
    names = options.captures or sorted(file.name.removesuffix(".tar.xz") for file in shipped.glob("*.tar.xz"))
    with tempfile.TemporaryDirectory(prefix="same-output-") as made:
        folder = Path(made).resolve()
        captures = [capture for name in names for capture in unpacked(name, shipped, folder / "captures")]
        # Both names have the same length, because tables are folded by the length of paths.
        old, new = Checkout(options.old, folder / "old"), Checkout(options.new, folder / "new")
        comparison = compare(old, new, captures, options.show, options.wide)
        old.close()
        new.close()
    print(f"\n{comparison.table()}")
    print("masked: the working directory, names that contain a time, and the masks of each command")
    return int(not comparison.is_equal())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(Path(sys.argv[2]))
    else:
        sys.exit(run())
