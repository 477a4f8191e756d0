"""Measure how fast `decode` is, as ratios within one run: `python -m bench.decode`.

start-up     `pulsar-meta decode` of a text and of a cursor, against a Typer program that does nothing; for
             the cursor also against one that imports protobuf
one large    records of 10 MB in ZSTD, a topic's and a cursor's, converted to JSON, against decompressing,
             parsing and writing the fields with orjson
before       with --before CHECKOUT: `decode -o ndjson` of 100 000 cursors in a database, against another
             checkout (the goal refers to f6bdcaa, the last commit before `decode` was made faster);
             processor time of complete processes minus that of a thousand cursors, alternating
scan         the cursors of a snapshot, read through the store and the codec, against a loop that only
             parses; then also converted to JSON documents
"""

from __future__ import annotations

import argparse
import base64
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import zstandard
from bench.growth import cursor as growth_cursor

from pulsar_meta.cli.streams import open_input
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.documents.document_text import DocumentTexts
from pulsar_meta.codecs.json_text import dumps
from pulsar_meta.codecs.metadata.envelope import decode_cursor, read_header, wrap_envelope
from pulsar_meta.jobs.rewrite.apply import chunks
from pulsar_meta.jobs.values.value_inputs import InputForm, ValueInput, values_of_files
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo, NestedPositionInfo
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb_writer import create_database

LARGE = 430_000
MANY = 100_000
CURSORS = 20_000
ROUNDS = 15
COMMANDS = 3
ROOT = Path(__file__).resolve().parents[1]

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
    name: str,
    goal: str,
    ours: Callable[[], object],
    bare: Callable[[], object],
    *,
    clock: Callable[[], float] = time.process_time,
) -> None:
    """Measure both alternately and print their medians in processor time, and the ratio."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for measured, call in zip(times, (ours, bare), strict=True):
            gc.collect()
            start = clock()
            call()
            measured.append(clock() - start)
    mine, other = median(times[0]), median(times[1])
    print(
        f"{name}: {mine * 1000:.1f} ms against {other * 1000:.1f} ms, ratio {mine / other:.2f} (goal {goal})"
    )


def start_up(folder: Path) -> None:
    """Measure complete processes."""
    cursor = folder / "cursor.bin"
    cursor.write_bytes(ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString())
    text = folder / "text"
    text.write_text("16")
    program = str(Path(sys.executable).with_name("pulsar-meta"))
    bare = folder / "bare.py"
    bare.write_text(BARE)
    nothing = [sys.executable, str(bare), "16"]
    protobuf = [sys.executable, "-c", f"{IMPORT}\nexec(open({str(bare)!r}).read())", "16"]
    for name, kind, file, other in (
        ("start-up, text", "Text", text, nothing),
        ("start-up, cursor", "ManagedCursorInfo", cursor, nothing),
        ("start-up, cursor, against Typer and protobuf", "ManagedCursorInfo", cursor, protobuf),
    ):
        ours = [program, "decode", str(file), "--type", kind, "-o", "json"]
        compare(name, "<= 1.25", partial(start, ours), partial(start, other), clock=time.perf_counter)


def start(command: list[str]) -> None:
    """Run a program to its end."""
    subprocess.run(command, check=True, capture_output=True)


def one_large() -> None:
    """Measure the conversion of stored bytes to JSON text."""
    topic = "/managed-ledgers/public/default/persistent/topic"
    for name, path, message, plain in (
        ("managed ledger", topic, large_ledger(), ledger_fields),
        ("cursor", f"{topic}/subscription", large_cursor(), cursor_fields),
    ):
        raw = message.SerializeToString()
        stored = wrap_envelope(raw, "zstd")
        compare(
            f"{name} of {len(raw) / 1e6:.0f} MB",
            "<= 2",
            partial(text_of, stored, path),
            partial(fields_of, stored, type(message), plain),
        )


def large_ledger() -> ManagedLedgerInfo:
    """Build a topic's record with LARGE closed ledgers and an open one."""
    info = ManagedLedgerInfo()
    for number in range(LARGE):
        info.ledgerInfo.add(
            ledgerId=100_000 + number * 7,
            entries=50_000,
            size=10**9 + number,
            timestamp=1_795_000_000_000 + number,
        )
    info.ledgerInfo.add(ledgerId=100_000 + LARGE * 7)
    return info


def large_cursor() -> ManagedCursorInfo:
    """Build a cursor with LARGE holes in a few ledgers."""
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=6)
    for number in range(LARGE):
        item = info.individualDeletedMessages.add()
        item.lowerEndpoint.ledgerId = item.upperEndpoint.ledgerId = 123_456 + number // 50_000
        item.lowerEndpoint.entryId, item.upperEndpoint.entryId = 5 * number, 5 * number + 3
    return info


def text_of(stored: bytes, path: str) -> str | None:
    """Return the text that the command writes for a value."""
    return next(DocumentTexts(DecodeOptions()).of([ValueInput("bench", stored, path)]))


def fields_of(
    stored: bytes, kind: type[ManagedLedgerInfo | ManagedCursorInfo], plain: Callable[[Any], Any]
) -> bytes:
    """Return the JSON of a message's fields, without their meaning."""
    body = zstandard.ZstdDecompressor().decompress(stored[read_header(stored).body_at :])
    return orjson.dumps(plain(kind.FromString(body)))


def ledger_fields(info: ManagedLedgerInfo) -> list[dict[str, int]]:
    """Return the fields of the ledgers."""
    fields = ("ledgerId", "entries", "size", "timestamp")
    return [{name: getattr(item, name) for name in fields} for item in info.ledgerInfo]


def cursor_fields(info: ManagedCursorInfo) -> list[dict[str, dict[str, int]]]:
    """Return the fields of the ranges."""
    return [
        {
            "lowerEndpoint": position_fields(item.lowerEndpoint),
            "upperEndpoint": position_fields(item.upperEndpoint),
        }
        for item in info.individualDeletedMessages
    ]


def position_fields(position: NestedPositionInfo) -> dict[str, int]:
    """Return the fields of a position."""
    return {"ledgerId": position.ledgerId, "entryId": position.entryId}


def before(checkout: Path, folder: Path) -> None:
    """Compare complete commands of this checkout and of another one."""
    urls = []
    for count in (MANY, MANY // 100):
        url = f"rocksdb:{folder / str(count)}"
        create_database(folder / str(count), url)
        with open_store(url, read_only=False) as store:
            for group in chunks(range(count), 1024):
                store.put_many([(path_of(number), growth_cursor(number), ABSENT) for number in group])
        urls.append(url)
    times: dict[Path, list[float]] = {ROOT: [], checkout: []}
    for _ in range(COMMANDS):
        for place, seconds in times.items():
            large, small = (command_seconds(place, url) for url in urls)
            seconds.append(large - small)
    our_seconds, other_seconds = (median(seconds) for seconds in times.values())
    rate = round((MANY - MANY // 100) / our_seconds)
    print(
        f"{MANY} cursors, ndjson: {other_seconds / our_seconds:.1f} times as fast as {checkout.name}"
        f" (goal >= 4), {rate}/s"
    )


def command_seconds(checkout: Path, url: str) -> float:
    """Run one command and return its processor time."""
    roots = sorted({str(root.parent) for root in checkout.glob("*/pulsar_meta")})
    code = f"import sys; sys.path[:0] = {roots!r}; from pulsar_meta.cli.app import main; main()"
    then = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ["decode", "--store", url, "-o", "ndjson"]
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.DEVNULL)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return now.ru_utime + now.ru_stime - then.ru_utime - then.ru_stime


def scan(folder: Path) -> None:
    """Compare a scan of a snapshot with a loop that reads lines, decodes base64 and parses."""
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
            return sum(decode_cursor(stored.value).cursorsLedgerId for stored in store.scan("/"))

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
    """Return the path of a cursor."""
    return f"/managed-ledgers/public/default/persistent/topic-{number // 10}/subscription-{number % 10}"


def cursor_value(number: int) -> bytes:
    """Build a cursor with a few holes, like most cursors have."""
    cursor = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=number, markDeleteEntryId=5)
    cursor.lastActive = 1_795_000_000_000
    for hole in range(number % 8):
        item = cursor.individualDeletedMessages.add()
        item.lowerEndpoint.ledgerId = item.upperEndpoint.ledgerId = number
        item.lowerEndpoint.entryId, item.upperEndpoint.entryId = 10 * hole + 6, 10 * hole + 9
    return cursor.SerializeToString()


def main() -> None:
    """Run all measurements, or only the comparison with another checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.before:
            before(options.before.resolve(), Path(name))
            return
        start_up(Path(name))
        one_large()
        scan(Path(name))


if __name__ == "__main__":
    main()
