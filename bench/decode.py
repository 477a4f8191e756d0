"""How fast `decode` is, as ratios measured in one run: `python bench/decode.py`.

start-up     `pulsar-meta decode` of a text and of a cursor against a Typer program that does nothing; the
             cursor needs protobuf, whose import alone is shown beside it
one large    a managed ledger of 30 000 ledgers in ZSTD to JSON, against inflate, parse, plain json.dumps
scan         a snapshot's cursors through the store and the codec, against a loop that only parses; and
             all the way to JSON documents
"""

from __future__ import annotations

import base64
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import zstandard

from pulsar_meta.cli.inputs import open_input
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.json_text import dumps
from pulsar_meta.codecs.metadata.cursor import decode_cursor
from pulsar_meta.codecs.metadata.envelope import read_header, wrap_envelope
from pulsar_meta.jobs.values.value_inputs import InputForm, values_of_files
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.registry import open_store

LEDGERS = 30_000
CURSORS = 20_000
ROUNDS = 15

BARE = """
import typer
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

@app.command()
def nothing(file: str) -> None:
    print(file)

app()
"""
IMPORT = "import pulsar_meta.proto.MLDataFormats_pb2"


def compare(
    what: str,
    goal: str,
    ours: Callable[[], object],
    bare: Callable[[], object],
    *,
    clock: Callable[[], float] = time.process_time,
) -> None:
    """Print the medians of both, taken in turns, and their ratio; other processes' time does not count."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for measured, call in zip(times, (ours, bare), strict=True):
            gc.collect()
            start = clock()
            call()
            measured.append(clock() - start)
    one, other = median(times[0]), median(times[1])
    print(f"{what}: {one * 1000:.1f} ms against {other * 1000:.1f} ms, ratio {one / other:.2f} (goal {goal})")


def start_up(folder: Path) -> None:
    """Compare whole processes."""
    cursor = folder / "cursor.bin"
    cursor.write_bytes(ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString())
    text = folder / "text"
    text.write_text("16")
    program = str(Path(sys.executable).with_name("pulsar-meta"))
    bare = folder / "bare.py"
    bare.write_text(BARE)
    nothing = [sys.executable, str(bare), "16"]
    protobuf = [sys.executable, "-c", f"{IMPORT}\nexec(open({str(bare)!r}).read())", "16"]
    for what, kind, file, other in (
        ("start-up, text", "Text", text, nothing),
        ("start-up, cursor", "ManagedCursorInfo", cursor, nothing),
        ("start-up, cursor, against Typer and protobuf", "ManagedCursorInfo", cursor, protobuf),
    ):
        ours = [program, "decode", str(file), "--type", kind, "-o", "json"]
        compare(what, "<= 1.25", partial(start, ours), partial(start, other), clock=time.perf_counter)


def start(command: list[str]) -> None:
    """Run a program to its end."""
    subprocess.run(command, check=True, capture_output=True)


def one_large() -> None:
    """Compare the way from stored bytes to JSON text."""
    info = ManagedLedgerInfo()
    for number in range(LEDGERS):
        info.ledgerInfo.add(
            ledgerId=number * 7, entries=50_000, size=10**9 + number, timestamp=1_795_000_000_000 + number
        )
    stored = wrap_envelope(info.SerializeToString(), "zstd")
    options = DecodeOptions(kind="ManagedLedgerInfo")

    def bare() -> str:
        body = zstandard.ZstdDecompressor().decompress(stored[read_header(stored).body_at :])
        parsed = ManagedLedgerInfo.FromString(body)
        fields = ("ledgerId", "entries", "size", "timestamp")
        return json.dumps([{name: getattr(item, name) for name in fields} for item in parsed.ledgerInfo])

    compare(
        f"{LEDGERS} ledgers",
        "<= 3",
        lambda: dumps(decode_document(stored, source="bench", options=options).document),
        bare,
    )


def scan(folder: Path) -> None:
    """Compare a scan of a snapshot with a loop that reads, takes the base64 apart and parses."""
    snapshot = folder / "cursors.ndjson"
    with snapshot.open("w") as out:
        for number in range(CURSORS):
            line = {
                "path": path_of(number),
                "version": 1,
                "value": base64.b64encode(cursor_value(number)).decode(),
            }
            out.write(json.dumps(line) + "\n")

    def scanned() -> int:
        with open_store(f"snapshot:{snapshot}") as store:
            return sum(decode_cursor(found.value).cursorsLedgerId for found in store.scan("/"))

    def documents() -> int:
        values = values_of_files([str(snapshot)], InputForm(), open_input)
        return sum(
            len(dumps(decode_document(value.data, source="s", path=value.path).document)) for value in values
        )

    def bare() -> int:
        with snapshot.open() as lines:
            stored = (base64.b64decode(json.loads(line)["value"]) for line in lines)
            return sum(ManagedCursorInfo.FromString(value).cursorsLedgerId for value in stored)

    compare(f"{CURSORS} cursors, scanned", "<= 1.25, that is 0.8 of its speed", scanned, bare)
    compare(f"{CURSORS} cursors, as documents", "none", documents, bare)


def path_of(number: int) -> str:
    """Return the path of one of the cursors."""
    return f"/managed-ledgers/public/default/persistent/topic-{number // 10}/subscription-{number % 10}"


def cursor_value(number: int) -> bytes:
    """Return the bytes of a cursor with a few holes, as most have."""
    cursor = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=number, markDeleteEntryId=5)
    cursor.lastActive = 1_795_000_000_000
    for hole in range(number % 8):
        item = cursor.individualDeletedMessages.add()
        item.lowerEndpoint.ledgerId = item.upperEndpoint.ledgerId = number
        item.lowerEndpoint.entryId, item.upperEndpoint.entryId = 10 * hole + 6, 10 * hole + 9
    return cursor.SerializeToString()


def main() -> None:
    """Run all three."""
    with tempfile.TemporaryDirectory() as name:
        start_up(Path(name))
        one_large()
        scan(Path(name))


if __name__ == "__main__":
    main()
