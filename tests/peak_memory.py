"""Small inputs that claim to be large, and the peak memory of the commands that read them.

`python -m tests.peak_memory` prints a table of all cases, `python -m tests.peak_memory WORD` of some.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from typing import Final, NamedTuple
from zlib import adler32

from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from tests.cli.program import environment, limited

# The process prints the peak of its own memory image, which the memory of the tests does not raise.
_MEASURED: Final = """
import atexit, os, re
def report(folder=os.getcwd(), pid=os.getpid()):
    if os.getpid() == pid:
        peak = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]
        open(os.environ["PEAK_FILE"], "w").write(peak)
atexit.register(report)
from pulsar_meta.cli.app import main
main()
"""
# KiB of address space, so that an unbounded case ends with an error and not with the machine.
_LIMIT: Final = 7 << 20
TOPIC: Final = "/managed-ledgers/public/default/persistent/bomb"


class Run(NamedTuple):
    """The end of a measured command: its exit code, its peak memory in MiB, and its output."""

    code: int
    peak: int
    stdout: str
    stderr: str


def run_measured(*words: object, folder: Path, env: Mapping[str, str] | None = None) -> Run:
    """Run the program in a process of its own and measure its memory. Needs Linux."""
    file = folder / "peak"
    file.unlink(missing_ok=True)
    done = subprocess.run(
        limited("-v", _LIMIT, sys.executable, "-c", _MEASURED, *words),
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(folder / "state", PEAK_FILE=str(file)) | dict(env or {}),
        timeout=600,
    )
    peak = int(file.read_text()) >> 10 if file.exists() else -1
    return Run(done.returncode, peak, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class Case:
    """A hostile input: `make` writes it below a directory, `commands` read it there."""

    name: str
    make: Callable[[Path], None]
    commands: tuple[str, ...]


def put(folder: Path, path: str, value: bytes) -> None:
    """Write a value into the `dir:` store below a directory."""
    place = folder / "store" / path.removeprefix("/")
    place.mkdir(parents=True, exist_ok=True)
    (place / ".value").write_bytes(value)


def cursor_of(payload: bytes, copies: int) -> bytes:
    """Return a compressed cursor record that repeats the fields in `payload`."""
    head = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=0)
    return wrap_envelope(head.SerializeToString() + payload * copies, "zstd")


# The smallest range: entries (1, 1] of ledger 1.
RANGE: Final = bytes.fromhex("1a0c0a0408011001120408011001")
HUGE: Final = 200_000_000


def _bit_set(folder: Path) -> None:
    words = [0x5555555555555555] * 200_000
    record = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=0)
    batch = record.batchedEntryDeletionIndexInfo.add(deleteSet=words)
    batch.position.ledgerId, batch.position.entryId = 5, 0
    value = wrap_envelope(record.SerializeToString(), "zstd")
    put(folder, TOPIC, b"")
    put(folder, f"{TOPIC}/bits", value)
    (folder / "value").write_bytes(value)


def _ranges(folder: Path) -> None:
    put(folder, TOPIC, b"")
    value = cursor_of(RANGE, HUGE // len(RANGE))
    for number in range(20):
        put(folder, f"{TOPIC}/s{number}", value)
    (folder / "value").write_bytes(value)


def _many_small(folder: Path) -> None:
    put(folder, TOPIC, b"")
    value = cursor_of(RANGE, (48 << 20) // len(RANGE))
    for number in range(60):
        put(folder, f"{TOPIC}/s{number}", value)
    (folder / "value").write_bytes(value)


def _names(folder: Path) -> None:
    put(folder, TOPIC, b"")
    value = cursor_of(b"\x22\x00", (48 << 20) // 2)
    for number in range(20):
        put(folder, f"{TOPIC}/s{number}", value)
    (folder / "value").write_bytes(value)


def zookeeper_snapshot(*paths: str) -> bytes:
    """Return a snapshot of ZooKeeper's tree with empty nodes."""
    body = b"ZKSN" + pack(">iq", 2, 0) + pack(">ii", 0, 0)
    for path in ("", *paths):
        body += pack(">i", len(path)) + path.encode() + pack(">i", 0)
        body += pack(">qqqqqiiiqq", 0, 1, 1, 0, 0, 0, 0, 0, 0, 1)
    body += pack(">i", 1) + b"/"
    return body + pack(">q", adler32(body)) + pack(">i", 1) + b"/"


def zookeeper_gzip(folder: Path, size: int = 1 << 30) -> None:
    """Write a compressed snapshot with `size` zeros at its end."""
    (folder / "zk").mkdir()
    data = zookeeper_snapshot("/a") + bytes(size)
    (folder / "zk" / "snapshot.1.gz").write_bytes(gzip.compress(data, compresslevel=1))


def zookeeper_snappy(folder: Path, blocks: int = 128) -> None:
    """Write a compressed snapshot of blocks with 16 MiB of zeros each."""
    (folder / "zk").mkdir()
    (folder / "zk" / "snapshot.1.snappy").write_bytes(snappy_stream(bytes(1 << 24), blocks))


def snappy_stream(data: bytes, repeats: int = 1) -> bytes:
    """Return a stream of snappy-java whose blocks are all the same."""
    import snappy

    block = bytes(snappy.compress(data))
    packed = (pack(">i", len(block)) + block) * repeats
    return pack(">8sii", b"\x82SNAPPY\x00", 1, 1) + packed


def _blank_lines(folder: Path) -> None:
    import zstandard

    frame = zstandard.ZstdCompressor(level=3).compress(b"\n" * (64 << 20))
    (folder / "blank.zst").write_bytes(frame * 64)


def _long_line(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            # A sparse file: 3 GB that take no disk.
            file.write(b'{"x": "')
            file.truncate(3 << 30)

    return make


def _broker_log(folder: Path) -> None:
    with gzip.open(folder / "broker.log.gz", "wb", compresslevel=9) as file:
        for _ in range(48):
            file.write(b"[" * (64 << 20))


CASES: Final = (
    Case(
        "a bit set of 200000 words",
        _bit_set,
        (
            "show-cursor bomb bits --store dir:store",
            f"get {TOPIC}/bits --store dir:store",
            "decode value --type ManagedCursorInfo",
            "check --store dir:store",
            "top --store dir:store",
        ),
    ),
    Case(
        "20 cursors that unpack to 200 MB",
        _ranges,
        (
            "check --store dir:store",
            "top --store dir:store",
            f"get {TOPIC}/s0 --store dir:store",
            "show-cursor bomb s0 --store dir:store",
            "decode value --type ManagedCursorInfo",
            "snapshot --store dir:store --redact --output redacted",
            "decode /managed-ledgers --store dir:store -o ndjson",
        ),
    ),
    Case(
        "60 cursors with 48 MiB of ranges",
        _many_small,
        ("check --store dir:store", "top --store dir:store", f"get {TOPIC}/s0 --store dir:store"),
    ),
    Case(
        "20 cursors with 24 million properties",
        _names,
        ("check --store dir:store", "top --store dir:store", f"get {TOPIC}/s0 --store dir:store"),
    ),
    Case("zk-files: gzip", zookeeper_gzip, ("ls / --store zk-files:zk",)),
    Case("zk-files: snappy", zookeeper_snappy, ("ls / --store zk-files:zk",)),
    Case(
        "a .zst of blank lines",
        _blank_lines,
        ("get /a --store snapshot:blank.zst", "ls / --store snapshot:blank.zst"),
    ),
    Case("an undo file with a line of 3 GB", _long_line("undo"), ("undo undo --yes --store dir:.",)),
    Case("a plan with a line of 3 GB", _long_line("plan"), ("repair plan plan --yes --store dir:.",)),
    Case(
        "names with a line of 3 GB",
        _long_line("names"),
        ("rebuild --names names --entries bookie-disk:. --output out",),
    ),
    Case(
        "a broker's log of one line",
        _broker_log,
        ("rebuild --broker-log broker.log.gz --entries bookie-disk:. --output out",),
    ),
)


def main(words: list[str]) -> None:
    """Print a table with a row for each command of each case whose name contains one of `words`."""
    print("| input | command | exit | peak MB | message |\n|---|---|---|---|---|")
    for case in CASES:
        if words and not any(word in case.name for word in words):
            continue
        with tempfile.TemporaryDirectory() as name:
            case.make(Path(name))
            for command in case.commands:
                run = run_measured(*command.split(), folder=Path(name))
                message = (run.stderr.strip().splitlines() or [""])[0]
                print(
                    f"| {case.name} | `{command}` | {run.code} | {run.peak} | {message[:150]} |", flush=True
                )


if __name__ == "__main__":
    main(sys.argv[1:])
