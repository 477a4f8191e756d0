"""`encode` as a program: its inputs, its outputs and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.values import CURSOR, LEDGER, PROGRAM, Run, payload


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-2.8.2"])
def test_a_snapshot_survives_a_round_trip_through_json(
    run: Run, name: str, capture: Callable[[str], Path]
) -> None:
    snapshot = capture(name) / "metadata.ndjson"
    done = run("decode", snapshot, "-o", "json")
    assert (done.returncode, done.stderr) == (0, b"")
    back = run("encode", stdin=done.stdout)
    assert (back.returncode, back.stderr) == (0, b"")
    before = [json.loads(line) for line in snapshot.read_bytes().splitlines()]
    after = [json.loads(line) for line in back.stdout.splitlines()]
    assert [(line["path"], line["version"]) for line in after] == [
        (line["path"], line["version"]) for line in before
    ]
    for original, restored in zip(before, after, strict=True):
        assert payload(b64decode(original["value"])) == payload(b64decode(restored["value"])), original[
            "path"
        ]


@pytest.mark.parametrize("codec", ["none", "lz4", "zlib", "zstd", "snappy"])
def test_encode_compresses_with_the_given_codec(run: Run, ledger_file: Path, codec: str) -> None:
    document = run("decode", ledger_file, "-o", "json").stdout
    done = run("encode", "--compression", codec, stdin=document)
    assert payload(done.stdout) == (None if codec == "none" else codec, LEDGER)


@pytest.mark.parametrize(("threshold", "codec"), [(10, "zstd"), (11, None), (12, None)])
def test_encode_compresses_only_values_over_the_threshold(
    run: Run, ledger_file: Path, threshold: int, codec: str | None
) -> None:
    document = run("decode", ledger_file, "-o", "json").stdout
    assert payload(run("encode", "--threshold", threshold, stdin=document).stdout)[0] == codec


def test_a_note_tells_that_the_field_order_was_lost(run: Run) -> None:
    decoded = run("decode", "-", "--type", "ManagedCursorInfo", "-o", "json", stdin=bytes.fromhex("48070801"))
    assert decoded.returncode == 0
    assert b"would change the bytes" in decoded.stderr
    done = run("encode", "--quiet", stdin=decoded.stdout)
    assert done.returncode == 0
    assert b"another order" in done.stderr
    assert done.stdout == bytes.fromhex("08014807")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (b"", 2, b"no documents"),
        (b"[]", 2, b"no documents"),
        (b"{", 4, b"not JSON"),
        (b"\xff", 4, b"not UTF-8"),
        (b"[" * 100_000, 4, b"JSON"),
        (b"7", 4, b"expected an object with kind and value"),
        (b'{"kind": "Nonsense", "value": {}}', 2, b"unknown kind"),
        (b'{"kind": "ManagedLedgerInfo", "value": null}', 4, b"only a part"),
        (b'{"kind": "ManagedCursorInfo", "value": {"cursorsLedgerId": "x"}}', 4, b"value.cursorsLedgerId"),
        (
            b'{"kind": "ManagedLedgerInfo", "value": {}, "envelope": {"codec": "rar"}}',
            4,
            b"envelope.codec: expected one of none, lz4",
        ),
    ],
)
def test_json_that_is_no_document_is_refused(run: Run, text: bytes, code: int, words: bytes) -> None:
    done = run("encode", stdin=text)
    assert (done.returncode, done.stdout) == (code, b"")
    assert words in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_values_without_paths_get_the_names_of_their_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(LEDGER)
    (tmp_path / "b.bin").write_bytes(CURSOR)
    listed = run("decode", "a.bin", "b.bin", "-o", "json").stdout
    lines = [json.loads(line) for line in run("encode", stdin=listed).stdout.splitlines()]
    assert [(line["path"], b64decode(line["value"])) for line in lines] == [
        ("/a.bin", LEDGER),
        ("/b.bin", CURSOR),
    ]


def test_raw_bytes_are_not_written_to_a_terminal(ledger_file: Path, run: Run) -> None:
    document = run("decode", ledger_file, "-o", "json").stdout
    (ledger_file.parent / "d.json").write_bytes(document)
    for force, code in ((), 2), (("--force",), 0):
        master, slave = pty.openpty()
        done = subprocess.run(
            [PROGRAM, "encode", ledger_file.parent / "d.json", *force],
            stdout=slave,
            stderr=subprocess.PIPE,
            timeout=30,
            check=False,
        )
        os.close(slave)
        os.close(master)
        assert done.returncode == code
        assert bool(done.stderr) == (code == 2)


def test_output_can_be_written_to_a_file(run: Run, tmp_path: Path, ledger_file: Path) -> None:
    document = run("decode", ledger_file, "-o", "json").stdout
    assert run("encode", "--output", "again.bin", stdin=document).stdout == b""
    assert payload((tmp_path / "again.bin").read_bytes()) == ("zstd", LEDGER)


def test_a_directory_is_no_input(run: Run, tmp_path: Path) -> None:
    done = run("encode", tmp_path)
    assert (done.returncode, done.stdout) == (6, b"")
    assert b"cannot be read: Is a directory" in done.stderr


@pytest.mark.parametrize("form", ["json", "table", "plain", "csv", "html", "parquet"])
def test_other_output_formats_are_refused(run: Run, ledger_file: Path, form: str) -> None:
    document = run("decode", ledger_file, "-o", "json").stdout
    done = run("encode", "-o", form, "--output", "again.bin", stdin=document)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert not (ledger_file.parent / "again.bin").exists()


def test_raw_holds_one_value_and_ndjson_any_number(run: Run, ledger_file: Path) -> None:
    document = run("decode", ledger_file, "-o", "json").stdout
    assert payload(run("encode", "-o", "raw", stdin=document).stdout) == ("zstd", LEDGER)
    (line,) = run("encode", "-o", "ndjson", stdin=document).stdout.splitlines()
    assert payload(b64decode(json.loads(line)["value"])) == ("zstd", LEDGER)
    several = run("encode", "-o", "raw", stdin=document * 2)
    assert (several.returncode, several.stdout) == (2, b"")


def test_kinds_that_no_broker_compresses_stay_uncompressed_with_one_note(run: Run, ledger_file: Path) -> None:
    position = b'{"kind": "PositionInfo", "source": "p", "value": {"ledgerId": 1, "entryId": 2}}'
    ledger = run("decode", ledger_file, "-o", "json").stdout
    done = run("encode", "--compression", "lz4", stdin=position + ledger + position)
    first, second, _ = (b64decode(json.loads(line)["value"]) for line in done.stdout.splitlines())
    assert (first, payload(second)[0]) == (bytes.fromhex("08011002"), "lz4")
    assert (
        done.stderr
        == b"pulsar-meta: PositionInfo stays uncompressed, because brokers can't read it compressed\n"
    )
