"""`decode` as a program: its inputs, outputs and exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfoMetadata
from tests.cli.program import limited
from tests.cli.values import CURSOR, LEDGER, PROGRAM, Run

LEDGER_VALUE = {"ledgerInfo": [{"ledgerId": 7, "entries": 10, "size": 1000, "timestamp": 1}]}


def documents(done: subprocess.CompletedProcess[bytes]) -> Any:
    return json.loads(done.stdout)


def test_one_file_is_one_document(run: Run, ledger_file: Path) -> None:
    done = run("decode", ledger_file, "-o", "json")
    assert (done.returncode, done.stderr) == (0, b"")
    document = documents(done)
    assert document == {
        "source": str(ledger_file),
        "kind": "ManagedLedgerInfo",
        "envelope": {"codec": "zstd", "stored_size": len(ledger_file.read_bytes()), "raw_size": 11},
        "value": LEDGER_VALUE,
        "meaning": document["meaning"],
    }
    assert document["meaning"]["entries"] == 10


def test_several_files_and_directories_are_a_list(run: Run, tmp_path: Path, ledger_file: Path) -> None:
    (tmp_path / "cursor.bin").write_bytes(CURSOR)
    listed = documents(run("decode", ledger_file, "cursor.bin", "-o", "json"))
    assert [item["kind"] for item in listed] == ["ManagedLedgerInfo", "ManagedCursorInfo"]
    directory = tmp_path / "values"
    directory.mkdir()
    (directory / "only").write_bytes(CURSOR)
    assert [item["kind"] for item in documents(run("decode", directory, "-o", "json"))] == [
        "ManagedCursorInfo"
    ]
    matched = run("decode", "*.bin", "-o", "ndjson").stdout.splitlines()
    assert [json.loads(line)["source"] for line in matched] == ["cursor.bin", "ledger.bin"]


def test_stdin_may_be_bytes_hex_or_base64(run: Run) -> None:
    raw = run("decode", "-", "-o", "json", stdin=LEDGER)
    in_hex = run("decode", "-", "--hex", "-o", "json", stdin=LEDGER.hex(" ", 4).encode() + b"\n")
    in_base64 = run("decode", "-", "--base64", "-o", "json", stdin=b64encode(LEDGER) + b"\n")
    for done in (raw, in_hex, in_base64):
        assert documents(done)["value"] == LEDGER_VALUE
    lines = LEDGER.hex() + "\n\n" + CURSOR.hex() + "\n"
    several = run("decode", "-", "--hex", "--lines", "-o", "json", stdin=lines.encode())
    assert [(item["source"], item["kind"]) for item in documents(several)] == [
        ("-:1", "ManagedLedgerInfo"),
        ("-:3", "ManagedCursorInfo"),
    ]


@pytest.mark.parametrize("text", [b"0g", b"abc", b"\xff"])
def test_invalid_hex_is_a_one_line_error(run: Run, text: bytes) -> None:
    done = run("decode", "-", "--hex", stdin=text)
    assert done.returncode == 4
    assert done.stdout == b""
    assert done.stderr.startswith(b"pulsar-meta: -: not hex")
    assert done.stderr.count(b"\n") == 1


def test_the_path_of_a_file_determines_its_kind(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "managed-ledgers/public/default/persistent/orders/my+sub"
    place.mkdir(parents=True)
    (place / ".value").write_bytes(bytes.fromhex("08051003"))
    document = documents(run("decode", place / ".value", "-o", "json"))
    assert document["kind"] == "ManagedCursorInfo"
    assert document["path"] == "/managed-ledgers/public/default/persistent/orders/my+sub"


def test_ambiguous_content_needs_type(run: Run) -> None:
    done = run("decode", "-", stdin=bytes.fromhex("08051003"))
    assert done.returncode == 2
    assert b"ManagedCursorInfo and PositionInfo" in done.stderr
    assert b"--type" in done.stderr
    named = run("decode", "-", "--type", "PositionInfo", "-o", "json", stdin=bytes.fromhex("08051003"))
    assert documents(named)["value"] == {"ledgerId": 5, "entryId": 3}


def test_a_small_file_that_claims_two_gigabytes_is_refused(tmp_path: Path) -> None:
    header = ManagedLedgerInfoMetadata(uncompressedSize=2**31 - 1)
    header.compressionType = 3  # type: ignore[assignment]
    claim = header.SerializeToString()
    body = wrap_envelope(bytes(4000), "zstd")
    file = tmp_path / "bomb"
    file.write_bytes(b"Gx" + len(claim).to_bytes(4, "big") + claim + body[12:])
    assert file.stat().st_size < 100
    for options in ((), ("--max-size", str(2**31 - 1))):
        done = subprocess.run(
            limited("-d", 200 << 10, PROGRAM, "decode", file, "--type", "ManagedLedgerInfo", *options),
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stdout) == (4, b"")
        assert done.stderr.count(b"\n") == 1
        assert b"2147483647" in done.stderr


def test_a_corrupt_value_is_partly_decoded_among_others(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(LEDGER + bytes.fromhex("0a090809"))
    (tmp_path / "b").write_bytes(LEDGER)
    done = run("decode", "a", "b", "missing", "--type", "ManagedLedgerInfo", "-o", "json")
    assert done.returncode == 4
    broken, intact = documents(done)
    assert broken["error"]["offset"] == 11
    assert [ledger["ledgerId"] for ledger in broken["value"]["ledgerInfo"]] == [7, 9]
    assert intact["value"] == LEDGER_VALUE
    errors = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["error"], line.get("source")) for line in errors] == [
        ("decode", "a"),
        ("not-found", "missing"),
    ]
    assert errors[0]["offset"] == 11


def test_a_missing_file_is_not_found(run: Run) -> None:
    done = run("decode", "nowhere.bin")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr == b"pulsar-meta: nowhere.bin: no such file\n"


@pytest.mark.parametrize(
    "arguments",
    [("decode", "-", "--lines"), ("decode", "-", "--hex", "--base64"), ("decode", "-", "--type", "Nonsense")],
)
def test_wrong_arguments_are_usage_errors(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr


def test_values_below_a_path_of_a_store_are_decoded(run: Run, capture: Callable[[str], Path]) -> None:
    snapshot = capture("pulsar-4.2.4") / "metadata.ndjson"
    prefix = "/managed-ledgers/public/default/persistent/orders"
    done = run("decode", "--store", f"snapshot:{snapshot}", prefix, "-o", "json")
    ledger, cursor = documents(done)
    assert (ledger["path"], ledger["kind"], ledger["version"]) == (prefix, "ManagedLedgerInfo", 11)
    assert (cursor["kind"], cursor["envelope"]["codec"]) == ("ManagedCursorInfo", "lz4")
    assert cursor["meaning"]["acked"][0] == {"ledger_id": 18, "entries": [[10, 10], [42, 42], [45, 45]]}
    assert all(type(word) is str for word in cursor["value"]["batchedEntryDeletionIndexInfo"][0]["deleteSet"])


def test_stores_in_a_directory_and_in_rocksdb_are_decoded(
    run: Run, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    place = tmp_path / "tree/managed-ledgers/public/default/persistent/t"
    place.mkdir(parents=True)
    (place / ".value").write_bytes(LEDGER)
    from_directory = documents(
        run("decode", "--store", f"dir:{tmp_path}/tree", "/managed-ledgers", "-o", "json")
    )
    assert [item["value"] for item in from_directory] == [LEDGER_VALUE]
    rocksdb = capture("pulsar-4.2.4") / "rocksdb"
    before = sorted(os.listdir(rocksdb))
    done = run("decode", "--store", f"rocksdb:{rocksdb}", "/managed-ledgers", "-o", "ndjson")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) > 100
    assert sorted(os.listdir(rocksdb)) == before


def test_a_snapshot_can_be_read_from_stdin(run: Run, capture: Callable[[str], Path]) -> None:
    lines = (capture("pulsar-4.2.4") / "metadata.ndjson").read_bytes()
    done = run("decode", "-", "-o", "ndjson", stdin=lines)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == len(lines.splitlines())
    assert json.loads(done.stdout.splitlines()[0])["source"] == "-"


@pytest.mark.parametrize("kind", ["Json", "Text", "Bytes", "json"])
@pytest.mark.parametrize("from_stdin", [True, False])
def test_type_takes_precedence_over_detecting_a_snapshot(
    run: Run, tmp_path: Path, kind: str, from_stdin: bool
) -> None:
    value = b'{"path": "/a", "version": 1, "value": "aGVsbG8="}'
    (tmp_path / "value").write_bytes(value)
    name, stdin = ("-", value) if from_stdin else ("value", b"")
    document = documents(run("decode", name, "--type", kind, "-o", "json", stdin=stdin))
    shown = json.loads(value) if kind.lower() == "json" else value.decode()
    assert document["value"] == (b64encode(value).decode() if kind == "Bytes" else shown)
    assert "path" not in document
    as_snapshot = documents(run("decode", name, "-o", "ndjson", stdin=stdin))
    assert (as_snapshot["path"], as_snapshot["value"]) == ("/a", "hello")


def test_plain_text_has_ranges_times_and_notes(run: Run, capture: Callable[[str], Path]) -> None:
    snapshot = capture("pulsar-4.2.4-killed") / "metadata.ndjson"
    text = run("decode", "--store", f"snapshot:{snapshot}", "/managed-ledgers/public/default").stdout.decode()
    assert "only a snapshot" in text
    assert "envelope: zstd" in text
    assert "closed 2026-" in text
    orders = (capture("pulsar-4.2.4")) / "metadata.ndjson"
    prefix = "/managed-ledgers/public/default/persistent/orders"
    text = run("decode", "--store", f"snapshot:{orders}", prefix).stdout.decode()
    assert "    ledger 18: entries 10, 42, 45\n" in text
    assert "    batch 18:1: still open 1-6, 11-14; acknowledged 0, 7-10 and all later ones\n" in text
    assert "properties b=zwei €" in text


def test_an_escape_sequence_in_a_value_does_not_reach_the_terminal(run: Run) -> None:
    document = {
        "kind": "ManagedCursorInfo",
        "value": {"cursorsLedgerId": -1, "cursorProperties": [{"name": "n", "value": "\x1b[2J\nx"}]},
    }
    value = run("encode", stdin=json.dumps(document).encode()).stdout
    text = run("decode", "-", "--type", "ManagedCursorInfo", stdin=value).stdout
    assert b"\x1b" not in text
    assert b"n = \\x1b[2J\\nx\n" in text


@pytest.mark.parametrize(("kind", "data"), [("ManagedCursorInfo", CURSOR), ("Text", b"16")])
def test_decode_imports_only_what_a_kind_needs(tmp_path: Path, kind: str, data: bytes) -> None:
    file = tmp_path / "value"
    file.write_bytes(data)
    program = "import sys; from pulsar_meta.cli.app import main; main()"
    arguments = ["decode", str(file), "--type", kind, "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "import time:" in line}
    assert ("google.protobuf" in imported) == (kind == "ManagedCursorInfo")
    assert not {"pulsar_meta.jobs.topics.topic", "pulsar_meta.cli.rewriting"} & imported
    unused = ("cli.render.pages", "cli.schemas", "codecs.salvage", "jobs.rewrite", "jobs.topics")
    assert not {f"pulsar_meta.{name}" for name in unused} & imported
    heavy = {"pyspark", "pyarrow", "numpy", "kazoo", "grpc", "rocksdict", "rich", "google_crc32c"}
    heavy |= {"csv", "email", "hashlib", "socket", "sqlite3", "tempfile"}
    assert not {name for name in imported if name.split(".")[0] in heavy}


def test_an_empty_path_is_not_found(run: Run, capture: Callable[[str], Path], tmp_path: Path) -> None:
    store = f"snapshot:{capture('pulsar-2.8.2') / 'metadata.ndjson'}"
    existing = "/managed-ledgers/public/default/persistent/orders"
    done = run("decode", "--store", store, "/managed-ledgers/no", existing, "-o", "json")
    assert done.returncode == 3
    assert documents(done)[0]["path"] == existing
    error = json.loads(done.stderr)
    assert (error["error"], error["message"]) == ("not-found", "nothing at or below /managed-ledgers/no")
    (tmp_path / "empty").mkdir()
    for arguments, why in (
        (["empty"], b"no file in this directory"),
        (["--store", "dir:empty"], b"nothing at or below /"),
        (["-", "--hex", "--lines"], b"the file has no lines"),
        (["no*.bin"], b"no such file"),
        ([existing], b"no such file; if it is a path in a store, add --store URL"),
    ):
        done = run("decode", *arguments)
        assert (done.returncode, done.stdout) == (3, b"")
        assert why in done.stderr
        assert done.stderr.count(b"\n") == 1


def test_empty_input_needs_type(run: Run) -> None:
    done = run("decode", "-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"an empty value fits ManagedLedgerInfo, Text and Bytes" in done.stderr
    assert documents(run("decode", "-", "--type", "ManagedLedgerInfo", "-o", "json"))["value"] == {}


def test_empty_stdin_that_was_not_asked_for_is_explained(run: Run) -> None:
    done = run("decode")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stdin is empty: add files, paths of a store" in done.stderr


@pytest.mark.parametrize("name", ["pulsar-2.8.2", "pulsar-4.2.4"])
def test_a_store_is_decoded_whole_though_its_first_value_is_empty(
    run: Run, capture: Callable[[str], Path], name: str
) -> None:
    """The root of ZooKeeper has an empty value."""
    file = capture(name) / "metadata.ndjson"
    done = run("decode", "--store", f"snapshot:{file}", "-o", "ndjson")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, len(file.read_bytes().splitlines()))


def test_a_listed_file_may_be_empty(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    done = run(
        "decode", "--stdin-names", "--type", "Text", "-o", "ndjson", stdin=b"%b/empty" % bytes(tmp_path)
    )
    assert (done.returncode, documents(done)["value"]) == (0, "")


def test_raw_is_the_content_of_the_envelope(run: Run, tmp_path: Path, ledger_file: Path) -> None:
    assert run("decode", ledger_file, "-o", "raw").stdout == LEDGER
    assert run("decode", "-", "--hex", "-o", "raw", stdin=CURSOR.hex().encode()).stdout == CURSOR
    # Text may begin with the two letters that mark an envelope.
    place = tmp_path / "tree/admin/policies/t"
    place.mkdir(parents=True)
    (place / ".value").write_bytes(b"Gx, no envelope")
    assert run("decode", "--store", f"dir:{tmp_path}/tree", "-o", "raw").stdout == b"Gx, no envelope"


def test_raw_needs_a_single_intact_value(run: Run, ledger_file: Path, tmp_path: Path) -> None:
    several = run("decode", ledger_file, ledger_file, "-o", "raw")
    assert (several.returncode, several.stdout) == (2, b"")
    assert run("decode", "no-such-file", "-o", "raw").returncode == 3
    ledger_file.write_bytes(ledger_file.read_bytes()[:-3])
    broken = run("decode", ledger_file, "-o", "raw", "--output", "out.bin")
    assert (broken.returncode, broken.stdout) == (4, b"")
    assert str(ledger_file).encode() in broken.stderr
    assert not (tmp_path / "out.bin").exists()


def test_raw_is_not_written_to_a_terminal(ledger_file: Path) -> None:
    master, slave = pty.openpty()
    done = subprocess.run(
        [PROGRAM, "decode", ledger_file, "-o", "raw"],
        stdout=slave,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    os.close(slave)
    os.close(master)
    assert done.returncode == 2
    assert b"--force" in done.stderr


def test_a_directory_that_cannot_be_read_does_not_hide_others(
    run: Run, tmp_path: Path, ledger_file: Path
) -> None:
    (tmp_path / "values/closed").mkdir(parents=True)
    (tmp_path / "values/open").write_bytes(CURSOR)
    done = run("decode", "values", "no/file", ledger_file, "-o", "ndjson")
    assert (done.returncode, done.stdout.count(b"\n")) == (3, 2)
    (tmp_path / "values/closed").chmod(0)
    without_override: list[str | Path] = (
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []
    )
    words = [*without_override, PROGRAM, "decode", "values", "values/closed/x", ledger_file, "-o", "ndjson"]
    closed = subprocess.run(words, capture_output=True, cwd=tmp_path, timeout=60, check=False)
    (tmp_path / "values/closed").chmod(0o755)
    assert closed.returncode == 6
    assert [json.loads(line)["kind"] for line in closed.stdout.splitlines()] == [
        "ManagedCursorInfo",
        "ManagedLedgerInfo",
    ]
    assert [json.loads(line)["message"] for line in closed.stderr.splitlines()] == [
        "cannot be read: Permission denied"
    ] * 2


def test_a_pipe_is_read_without_a_dash(run: Run) -> None:
    for words in ((), ("-",)):
        done = run("decode", *words, "--type", "ManagedLedgerInfo", "-o", "json", stdin=LEDGER)
        assert (done.returncode, documents(done)["source"]) == (0, "-")
        assert documents(done)["value"] == LEDGER_VALUE


def test_decode_does_not_read_from_a_terminal() -> None:
    master, slave = pty.openpty()
    try:
        done = subprocess.run([PROGRAM, "decode"], stdin=slave, capture_output=True, timeout=60)
    finally:
        os.close(master)
        os.close(slave)
    assert done.returncode == 2
    assert b"nothing to decode" in done.stderr


def test_the_environment_can_set_the_store(
    run: Run, capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    snapshot = f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}"
    prefix = "/managed-ledgers/public/default/persistent/orders"
    from_option = run("decode", "--store", snapshot, prefix, "-o", "json")
    without_store = run("decode", prefix, "-o", "json")
    assert (without_store.returncode, b"--store" in without_store.stderr) == (3, True)
    monkeypatch.setenv("PULSAR_META_STORE", snapshot)
    assert documents(run("decode", prefix, "-o", "json")) == documents(from_option)
    # Files are still read as files.
    (tmp_path / "ledger").write_bytes(LEDGER)
    assert documents(run("decode", "ledger", "-o", "json"))["value"] == LEDGER_VALUE
    assert documents(run("decode", tmp_path / "ledger", "-o", "json"))["value"] == LEDGER_VALUE


def test_a_long_line_of_a_compressed_snapshot_is_refused(tmp_path: Path) -> None:
    """The file has 8 KB of zstd that decompress to a line of 255 MB."""
    line = b'{"path": "/x", "version": 0, "value": "' + b"A" * (255 << 20) + b'"}\n'
    file = tmp_path / "bomb.ndjson.zst"
    file.write_bytes(zstandard.compress(line))
    del line
    assert file.stat().st_size < 64 << 10
    for options in ((), ("--max-size", "1000000")):
        done = subprocess.run(
            limited("-d", 400 << 10, PROGRAM, "decode", file, *options),
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 4, done.stderr
        assert b"--max-size" in done.stderr
        assert b"Traceback" not in done.stderr


def test_max_size_allows_longer_lines(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "long.ndjson"
    value = b64encode(bytes(3_000_000)).decode()
    file.write_text(json.dumps({"path": "/x", "version": 0, "value": value}) + "\n")
    refused = run("decode", file, "--max-size", "2000000", "-o", "json")
    assert (refused.returncode, b"line 1" in refused.stderr) == (4, True)
    accepted = run("decode", file, "--max-size", "3000000", "-o", "ndjson")
    assert (accepted.returncode, documents(accepted)["value"]) == (0, value)


def test_a_redacted_property_is_shown_as_redacted(run: Run, tmp_path: Path) -> None:
    metadata = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=1, length=0, state=LedgerMetadataFormat.OPEN,
        customMetadata=[{"key": "password", "value": b"geheim"}],
    )  # fmt: skip
    (tmp_path / "ledger").write_bytes(encode_ledger_metadata(LedgerMetadata(3, metadata)))
    text = run("decode", "ledger").stdout
    assert b"  custom password = (redacted)\n" in text
    assert b"geheim" not in text
    assert b"custom password = geheim" in run("decode", "ledger", "--show-passwords").stdout
