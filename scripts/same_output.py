"""Say whether two checkouts print the same: every command, over every capture, in every form.

    scripts/same_output.py OLD NEW [CAPTURE…]

OLD and NEW are directories with a checkout of this repository each; a CAPTURE is a name or a file of
fixtures/captures, or an unpacked directory (default: every one that NEW ships). Both checkouts run the same
commands, each in a directory of its own, in a process that stays; stdout, exit code, stderr and the files
that were made are compared byte for byte. Masked are the path of that directory, the names of temporary
directories, of undo files that the program names itself and of checkpoints, the seconds of `--estimate`,
when an undo file, a snapshot or a page was made, and how old a copy is, nothing else.

Prints a table and the first lines of every difference; exit code 1 if there is any.
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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    from sample_commands import Command, help_pages, of_capture, over_disks, topics_in
    from sample_stores import of_store, schemas

DIFF_LINES = 12
# What every run makes anew: temporary directories, and the names of undo files and checkpoints.
ANEW = (
    rb"(HOME/tmp/)[^/\s]+",
    rb"(/undo/)\d{8}T[\d.]+(?=-)",
    rb"(/undo/\*-[a-z-]+-)\d+(?=\.ndjson)",
    rb"(\.checkpoint-)\d{8}T[\d.]+",
)
# A worker whose stdin is closed ends by itself, unless it hangs.
SECONDS_TO_END = 120
# The capture of which each topic is asked about.
WIDE = "pulsar-4.2.4"
PARTS = ("stdout", "exit", "stderr", "files")


# --- the worker: one checkout, main() again and again ---


def only_roots_of(checkout: Path) -> None:
    """Have `pulsar_meta` come from `checkout` alone, whatever this environment installed."""
    roots = sorted({str(found.parent) for found in checkout.glob("*/pulsar_meta")})
    others = [path for path in sys.path if not (Path(path) / "pulsar_meta").is_dir()]
    sys.path[:] = [*roots, *others]
    os.environ["PYTHONPATH"] = os.pathsep.join(roots)


def strangers(checkout: Path) -> list[str]:
    """Return our modules that came from elsewhere, after all."""
    ours = {name: module for name, module in sys.modules.items() if name.startswith("pulsar_meta.")}
    places = {name: module.__file__ or list(module.__path__)[-1] for name, module in ours.items()}
    return [name for name, place in places.items() if not place.startswith(f"{checkout}/")]


def run_once(main: Callable[[], None], words: list[str], files: dict[str, str]) -> int:
    """Run the program with its three streams at files; return its exit code."""
    flags = {"stdin": os.O_RDONLY, "stdout": os.O_WRONLY | os.O_CREAT | os.O_TRUNC}
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        opened = os.open(files[name], flags.get(name, flags["stdout"]), 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout = os.fdopen(0, "r", closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    sys.argv = ["pulsar-meta", *words]
    try:
        main()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:  # noqa: BLE001 what nobody foresaw is a result like others
        sys.stderr.write(f"TRACEBACK {type(error).__name__}: {error}\n")
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    gc.unfreeze()
    return code


def worker(checkout: Path) -> None:
    """Run what is asked for on stdin, a JSON object a line, and answer with exit codes."""
    asked, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    only_roots_of(checkout)
    from pulsar_meta.cli.app import COMMANDS, main

    print(json.dumps(list(COMMANDS)), file=answers, flush=True)
    for line in asked:
        request = json.loads(line)
        os.environ["COLUMNS"] = str(request["columns"])
        code = run_once(main, request["words"], request["files"])
        print(json.dumps({"code": code, "strangers": strangers(checkout)}), file=answers, flush=True)


# --- the parent ---


@dataclass(frozen=True)
class Result:
    """What one command left in one checkout."""

    stdout: bytes
    exit: bytes
    stderr: bytes
    files: bytes


class Checkout:
    """One checkout: its process, its directory."""

    def __init__(self, source: Path, home: Path) -> None:
        self.source, self.home = source.resolve(), home
        for name in ("tmp", "state", "streams"):
            (home / name).mkdir(parents=True)
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("PULSAR_META_", "XDG_"))
        }
        environment = kept | {
            "TMPDIR": str(home / "tmp"),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CONFIG_HOME": str(home / "state"),
            "TZ": "UTC",
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", str(self.source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=home,
            env=environment,
        )
        self.names: list[str] = self._answer()
        self.files = {name: str(home / "streams" / name) for name in ("stdin", "stdout", "stderr")}

    def ask(self, command: Command) -> None:
        """Start a command."""
        stdin = command.stdin
        if command.stdin_file is not None:
            stdin = self._content(command.stdin_file)
        Path(self.files["stdin"]).write_bytes(stdin)
        request = {"words": command.words, "columns": command.columns, "files": self.files}
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)

    def result(self, command: Command) -> Result:
        """Return what the command left, with what must differ masked."""
        answer = self._answer()
        if answer["strangers"]:
            raise SystemExit(f"{self.source}: modules from elsewhere: {answer['strangers']}")
        stdout, stderr = (Path(self.files[name]).read_bytes() for name in ("stdout", "stderr"))
        if command.keep is not None:
            (self.home / command.keep).write_bytes(stdout)
        files = b"".join(b"== %s\n%s" % (name.encode(), self._content(name)) for name in command.made)
        code = b"%d" % answer["code"]
        return Result(
            self._masked(stdout, command), code, self._masked(stderr, command), self._masked(files, command)
        )

    def fresh_copies(self, capture: Path) -> None:
        """Lay the capture out anew: its metadata as a directory and as a database that may be written.

        Beside them its disks with flipped bytes, an empty directory, and a file that is no record.
        """
        for name in ("copy", "database", "hurt"):
            shutil.rmtree(self.home / name, ignore_errors=True)
        for old in self.home.glob("*undo-*"):
            old.unlink()
        (self.home / "empty").mkdir(exist_ok=True)
        (self.home / "garbage").write_bytes(b"\xff\xfe\xfd")
        if not has_metadata(capture):
            return
        hurt(capture, self.home / "hurt")
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
        for mask in (*ANEW, *command.masks):
            text = re.sub(mask, rb"\1*", text)
        return text


@dataclass
class Findings:
    """What was compared, by the command's name, and what differed."""

    run: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    differences: dict[str, Counter[str]] = field(default_factory=dict)
    shown: Counter[str] = field(default_factory=Counter)

    def add(self, command: Command, where: str, old: Result, new: Result, show: int) -> None:
        """Count one command, and print how its results differ."""
        name = command.words[0] if command.words else "(nothing)"
        self.run[name] += 1
        parts = [part for part in PARTS if getattr(old, part) != getattr(new, part)]
        self.differences.setdefault(name, Counter()).update(parts or ["equal"])
        for part in parts:
            self.shown[f"{name} {part}"] += 1
            if self.shown[f"{name} {part}"] <= show:
                print(f"\n--- {where}: pulsar-meta {' '.join(command.words)}\n    {part} differs:")
                print("\n".join(difference(getattr(old, part), getattr(new, part))))

    def took(self, command: Command, seconds: float) -> None:
        """Add to the seconds of the command's name."""
        name = command.words[0] if command.words else "(nothing)"
        self.seconds[name] = self.seconds.get(name, 0) + seconds

    def table(self) -> str:
        """Return the table, the sum last."""
        lines = [
            f"{'command':20}{'run':>7}{'equal':>7}" + "".join(f"{part:>8}" for part in PARTS) + " seconds"
        ]
        total = Counter[str]()
        for name in sorted(self.run):
            counted = self.differences[name]
            total.update(counted)
            lines.append(self._line(name, self.run[name], counted, self.seconds[name]))
        return "\n".join([*lines, self._line("all", self.run.total(), total, sum(self.seconds.values()))])

    @staticmethod
    def _line(name: str, run: int, counted: Counter[str], seconds: float) -> str:
        cells = "".join(f"{counted[part]:8}" for part in PARTS)
        return f"{name:20}{run:7}{counted['equal']:7}{cells}{seconds:8.1f}"


def difference(old: bytes, new: bytes) -> list[str]:
    """Return the first lines in which two outputs differ."""
    texts = [part.decode("utf-8", "backslashreplace").splitlines() for part in (old, new)]
    found = [line[:300] for line in difflib.unified_diff(*texts, "old", "new", n=0, lineterm="")]
    rest = [f"    … {len(found) - DIFF_LINES} lines more"] if len(found) > DIFF_LINES else []
    return ["    " + line for line in found[:DIFF_LINES]] + rest or ["    (bytes that are no text)"]


def hurt(capture: Path, place: Path) -> None:
    """Copy the disks of a capture with a byte flipped at every seventh of each entry log."""
    shutil.copytree(capture, place, ignore=shutil.ignore_patterns("rocksdb", "*.ndjson"))
    for log in place.glob("bookie*/current/*.log"):
        content = bytearray(log.read_bytes())
        for at in range(len(content) // 7, len(content), len(content) // 7 + 1):
            content[at] ^= 0x40
        log.write_bytes(content)


def has_metadata(capture: Path) -> bool:
    """Return whether a capture holds the cluster's metadata, not its bookies' disks alone."""
    return (capture / "metadata.ndjson").is_file()


def unpacked(capture: str, shipped: Path, into: Path) -> list[Path]:
    """Return the directories with the clusters of the capture of this name or at this path."""
    whole = Path(capture).resolve()
    if not whole.is_dir():
        archive = whole if whole.is_file() else shipped / f"{capture}.tar.xz"
        with tarfile.open(archive) as packed:
            packed.extractall(into)
        whole = into / archive.name.removesuffix(".tar.xz")
    return [whole] if has_metadata(whole) else sorted(bookie.parent for bookie in whole.glob("*/bookie0"))


def commands_of(old: Checkout, capture: Path, wide: bool) -> Iterator[Command]:
    """Yield the commands for a capture; its topics are those that the old checkout decodes."""
    if not has_metadata(capture):
        yield from over_disks(("--entries", f"bookie-disk:{capture.name}"))
        return
    words = ("decode", "--store", f"snapshot:{capture.name}/metadata.ndjson", "/managed-ledgers")
    command = Command((*words, "-o", "ndjson"))
    old.ask(command)
    topics = topics_in(old.result(command).stdout)
    yield from of_capture(capture.name, (capture / "rocksdb").is_dir(), topics, wide)
    yield from of_store(capture.name, topics)


def compare(old: Checkout, new: Checkout, captures: Sequence[Path], show: int, wide: bool) -> Findings:
    """Run everything in both."""
    findings = Findings()
    rounds: list[tuple[str, Callable[[], Iterator[Command]]]] = [
        ("help", lambda: help_pages(sorted({*old.names, *new.names}))),
        ("schemas", lambda: schemas(old.names)),
    ]
    for capture in captures:
        rounds.append((capture.name, partial(commands_of, old, capture, wide or capture.name == WIDE)))
    laid_out = {capture.name: capture for capture in captures}
    for where, commands in rounds:
        if where in laid_out:
            for checkout in (old, new):
                (checkout.home / where).symlink_to(laid_out[where])
                checkout.fresh_copies(laid_out[where])
        started = time.monotonic()
        for command in commands():
            begun = time.monotonic()
            old.ask(command)
            new.ask(command)
            findings.add(command, where, old.result(command), new.result(command), show)
            findings.took(command, time.monotonic() - begun)
        print(f"{where}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return findings


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("captures", nargs="*")
    parser.add_argument("--show", type=int, default=2, help="differences shown of a command and kind")
    parser.add_argument("--wide", action="store_true", help=f"each topic of each capture, not only {WIDE}'s")
    return parser.parse_intermixed_args()


def run() -> int:
    """Compare two checkouts; 1 if they differ."""
    asked = arguments()
    shipped = asked.new.resolve() / "fixtures" / "captures"
    names = asked.captures or sorted(file.name.removesuffix(".tar.xz") for file in shipped.glob("*.tar.xz"))
    with tempfile.TemporaryDirectory(prefix="same-output-") as made:
        place = Path(made).resolve()
        captures = [found for name in names for found in unpacked(name, shipped, place / "captures")]
        # Names of one length: a path's length may decide where a table breaks.
        old, new = Checkout(asked.old, place / "old"), Checkout(asked.new, place / "new")
        findings = compare(old, new, captures, asked.show, asked.wide)
        old.close()
        new.close()
    print(f"\n{findings.table()}")
    print("masked: the working directory, names with a time in them, and what commands' masks match")
    return int(any(set(counted) - {"equal"} for counted in findings.differences.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(Path(sys.argv[2]))
    else:
        sys.exit(run())
