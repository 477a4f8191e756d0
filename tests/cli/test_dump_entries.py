"""`dump-entries` on real disks: compared with the brokers' truth, its limits and formats, and damage."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import orjson
import pytest

from pulsar_meta.codecs.columns.entries import decode_row
from pulsar_meta.codecs.frames.batch import join_batch
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata
from tests.cli.program import as_text, pulsar_meta_here
from tests.entry_truth import CHUNKED, ENCRYPTED, SAME, TRANSACTION, compare
from tests.nightly import mostly_at_night

CAPTURES = (
    "pulsar-2.8.2", "pulsar-3.0.7", "pulsar-4.0.7", "pulsar-4.2.4", "pulsar-4.2.4-killed",
    "pulsar-4.2.4-3bookies", "pulsar-5.0.0-M1",
)  # fmt: skip
Capture = Callable[[str], Path]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process."""
    return as_text(pulsar_meta_here("dump-entries", *arguments))


def dump(*arguments: str, expect: int = 0) -> list[Document]:
    done = run(*arguments, "-o", "json")
    assert done.returncode == expect, done.stderr
    documents: list[Document] = json.loads(done.stdout)
    return documents


def options(folder: Path, disks: Path) -> list[str]:
    """Return the options for a capture's store and disks."""
    return ["--store", f"snapshot:{folder / 'metadata.ndjson'}", "--entries", f"bookie-disk:{disks}"]


@pytest.fixture
def sources(capture: Capture) -> list[str]:
    """Return the options for the disks and the store of the main capture."""
    folder = capture("pulsar-4.2.4")
    return [
        "--entries",
        f"bookie-disk:{folder / 'bookie0'}",
        "--store",
        f"snapshot:{folder / 'metadata.ndjson'}",
    ]


@pytest.mark.parametrize(
    ("name", "index"),
    mostly_at_night(
        [*((name, "") for name in CAPTURES), ("pulsar-4.2.4", "?index=scan")],
        ("pulsar-2.8.2", ""),
        ("pulsar-4.2.4-3bookies", ""),
        ("pulsar-5.0.0-M1", ""),
        ("pulsar-4.2.4", "?index=scan"),
    ),
)
def test_every_message_of_the_truth_is_shown(name: str, index: str, capture: Capture) -> None:
    folder = capture(name)
    expected = sum(
        len(topic.get("messages") or ())
        for truth in folder.glob("truth*.json")
        for topic in orjson.loads(truth.read_bytes()).values()
    )
    compared = compare(folder, f"bookie-disk:{folder}{index}")
    assert set(compared) <= {SAME, CHUNKED, ENCRYPTED, TRANSACTION}
    assert compared.total() == expected > 10_000
    assert compared[SAME] > 0.99 * expected


@pytest.mark.parametrize("name", [name for name in CAPTURES if name != "pulsar-4.2.4"])
def test_scanned_disks_give_the_same_entries(name: str, capture: Capture) -> None:
    url = f"bookie-disk:{capture(name)}"
    with open_entries([url]) as source, open_entries([f"{url}?index=scan"]) as scanned:
        assert scanned.ledgers() == source.ledgers()
        for ledger in source.ledgers():
            entries, expected = (
                [(entry.entry_id, bytes(entry.data)) for entry in each.read_many(ledger)]
                for each in (scanned, source)
            )
            assert entries == expected


def test_entries_have_positions_index_ranges_and_times(sources: list[str]) -> None:
    first, second = dump("orders", *sources, "-n", "2")
    assert {name: second[name] for name in second if name != "metadata"} == {
        "ledger_id": 18, "entry_id": 1, "size": second["size"], "frame_checksum": "ok", "digest": "ok",
        "broker_timestamp": 1795240940186, "index": 15, "first_index": 1, "last_index": 15,
    }  # fmt: skip
    assert second["metadata"]["num_messages_in_batch"] == 15
    assert first["metadata"]["properties"] == {"region": "apac", "type": "order"}
    assert first["metadata"]["key"] == "k15"


def test_limits_select_entries(sources: list[str]) -> None:
    every = [(d["ledger_id"], d["entry_id"]) for d in dump("orders", *sources)]
    ledgers = sorted({ledger for ledger, _ in every})

    def positions(*options: str) -> list[tuple[int, int]]:
        return [(d["ledger_id"], d["entry_id"]) for d in dump("orders", *sources, *options)]

    assert every == sorted(every)
    assert positions("-n", "3") == every[:3]
    assert positions("--count", "0") == []
    for count in (1, 10, len(every) + 5):
        assert positions("--from", f"-{count}") == every[-count:]
    assert positions("--to", "-2") == every[:-1]
    middle = ledgers[len(ledgers) // 2]
    assert positions("--ledger", str(middle)) == [at for at in every if at[0] == middle]
    assert positions("--from", "2", "--to", "3") == [at for at in every if 2 <= at[1] <= 3]
    assert positions("--from", f"{middle}:1", "--to", f"{ledgers[-1]}:0") == [
        at for at in every if (middle, 1) <= at <= (ledgers[-1], 0)
    ]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--ledger", "5"], 3),
        (["--from", "3", "--to", "1"], 2),
        (["--from", "-1", "--to", "-3"], 2),
        (["--from", "22:0", "--to", "18:0"], 2),
    ],
)
def test_limits_that_select_nothing_are_errors(sources: list[str], options: list[str], code: int) -> None:
    result = run("orders", *sources, *options)
    assert result.returncode == code
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_ledger_number_needs_no_store(sources: list[str]) -> None:
    by_number = dump("18", *sources[:2])
    assert by_number == dump("orders", *sources, "--ledger", "18")


def test_a_partitioned_topic_means_all_its_partitions(sources: list[str]) -> None:
    partitioned = dump("parted", *sources)
    parts = [dump(f"parted-partition-{number}", *sources) for number in range(3)]
    assert partitioned == [document for part in parts for document in part]
    assert all(parts)


@pytest.mark.parametrize("form", ["text", "hex", "base64", "hash"])
def test_payloads_are_shown_in_each_format(form: str, sources: list[str]) -> None:
    decoders: dict[str, Callable[[str], bytes]] = {
        "text": str.encode,
        "hex": bytes.fromhex,
        "base64": base64.b64decode,
    }
    for document in dump("codec-zstd", *sources, "-n", "2", "--payload", form):
        hashed = dump(str(document["ledger_id"]), *sources, "-n", "2", "--payload", "hash")[
            document["entry_id"]
        ]
        for message, other in zip(document["messages"], hashed["messages"], strict=True):
            if form != "hash":
                payload = decoders[form](message["payload"])
                assert len(payload) == message["payload_size"]
                assert hashlib.sha256(payload).hexdigest() == other["payload_sha256"]
            assert ("payload" in message) == (form != "hash")


def test_payloads_can_be_written_to_a_directory(sources: list[str], tmp_path: Path) -> None:
    documents = dump("codec-zstd", *sources, "-n", "3", "--payload", str(tmp_path / "payloads"))
    hashed = dump("codec-zstd", *sources, "-n", "3", "--payload", "hash")
    names = set()
    for document, other in zip(documents, hashed, strict=True):
        for message, hashes in zip(document["messages"], other["messages"], strict=True):
            data = Path(message["payload_file"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == hashes["payload_sha256"]
            names.add(message["payload_file"])
    assert len(names) == len(list((tmp_path / "payloads").iterdir()))


def test_raw_output_can_be_read_as_frames(sources: list[str], tmp_path: Path) -> None:
    frames = tmp_path / "some.frames"
    assert run("codec-lz4", *sources, "-o", "raw", "--output", str(frames)).returncode == 0
    expected = dump("codec-lz4", *sources, "--payload", "hash")
    reread = dump("--entries", f"frames:{frames}", "--payload", "hash")
    for document in (*expected, *reread):
        del document["ledger_id"], document["entry_id"]
    assert reread == [{**document, "digest": "absent"} for document in expected]


def test_entries_that_are_not_opened_have_a_reason(sources: list[str]) -> None:
    chunked = dump("chunked", *sources, "--deep")
    assert chunked[0]["messages"] == []
    assert chunked[0]["unopened"].startswith("chunk 1 of ")
    assert {d["unopened"] for d in dump("encrypted", *sources, "--deep")} == {"encrypted"}
    txn = dump("txn", *sources, "--deep")
    assert {d["unopened"] for d in txn if "unopened" in d} == {"marker TXN_COMMIT", "marker TXN_ABORT"}
    unbatched = dump("plain", *sources, "--deep", "-n", "1")[0]
    assert len(unbatched["messages"]) == 1
    assert "batch_index" not in unbatched["messages"][0]


def test_ledgers_without_frames_are_explained(sources: list[str]) -> None:
    (schema,) = dump("42", *sources)
    assert schema["unopened"] == "no frame: the schema of public/default/strings"
    assert (schema["digest"], schema["metadata"]) == ("ok", {})
    bucket = dump("246", *sources, "-n", "1", "--deep")[0]
    assert bucket["unopened"] == "no frame: an index of delayed messages"
    assert bucket["messages"] == []
    # Without a store, the content decides. Ledger 2 has schemas, whose content is not recognized.
    assert dump("2", *sources[:2])[0]["unopened"].startswith("no frame: ")


def test_compacted_entries_have_their_original_positions(sources: list[str]) -> None:
    documents = dump("61", *sources, "--deep")
    assert documents
    for document in documents:
        assert (document["frame_checksum"], document["digest"]) == ("ok", "ok")
        assert document["compacted_from"]["ledger_id"] in (59, 60)
    placeholders = [m for d in documents for m in d["messages"] if m["metadata"].get("compacted_out")]
    assert placeholders
    assert {message["payload_size"] for message in placeholders} == {0}


def test_the_store_identifies_the_ledgers_of_cursors(capture: Capture) -> None:
    folder = capture("pulsar-2.8.2")
    documents = dump(
        "--entries", f"bookie-disk:{folder}", "--store", f"snapshot:{folder / 'metadata.ndjson'}", "--deep"
    )
    reasons = {document["unopened"] for document in documents if "unopened" in document}
    assert "no frame: state of the cursor huge" in reasons
    assert any(reason.startswith("no frame: by its content the state of a cursor") for reason in reasons)


def test_fields_of_other_interceptors_are_shown(tmp_path: Path) -> None:
    broker = BrokerEntryMetadata.FromString(b"\x08\x05\x10\x02\x98\x06\x2a")
    metadata = MessageMetadata(producer_name="p", sequence_id=2**63, publish_time=0)
    metadata.properties.add(key="odd", value="\x1b[31m red")
    frame = encode_frame(metadata, b"payload", broker_metadata=broker)
    (tmp_path / "f").write_bytes(len(frame).to_bytes(4, "big") + frame)
    (document,) = dump("--entries", f"frames:{tmp_path / 'f'}", "--deep")
    assert document["broker_metadata"] == {"unknown_fields": [{"number": 99, "wire_type": 0, "value": 42}]}
    assert document["metadata"]["sequence_id"] == str(2**63)
    table = run("--entries", f"frames:{tmp_path / 'f'}", "--deep", "-o", "table").stdout
    assert "\x1b" not in table
    assert "unknown broker fields 99" in " ".join(table.split())


def test_plain_output_has_one_line_per_entry_or_message(sources: list[str]) -> None:
    (line,) = run("orders", *sources, "--from", "-1").stdout.splitlines()
    assert line.split("\t")[:2] == ["242:5", "4186-4499"]
    lines = run("orders", *sources, "--from", "-1", "--deep").stdout.splitlines()
    assert len(lines) == 314
    assert lines[0].split("\t")[:2] == ["242:5:0", "4186"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nosuch", "orders", "-n", "1"], 3, "no topic persistent://public/default/nosuch"),
        (["999999"], 3, "ledger 999999: no source has an entry of it"),
        (["orders", "--from", "x"], 2, "ENTRY or LEDGER:ENTRY"),
        (["orders", "--from", "5:-1"], 2, "ENTRY or LEDGER:ENTRY"),
        (["orders", "-n", "-1"], 2, "--count"),
    ],
)
def test_invalid_arguments_are_explained(
    arguments: list[str], code: int, words: str, sources: list[str]
) -> None:
    done = run(*arguments, *sources)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_topic_needs_a_store(sources: list[str]) -> None:
    done = run("orders", *sources[:2])
    assert (done.returncode, done.stdout) == (2, "")
    assert "add --store" in done.stderr


def test_entries_of_other_bookies_are_not_reported_as_missing(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    store = ["--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    complete = dump("orders", *store, "--entries", f"bookie-disk:{folder}")
    done = run("orders", *store, "--entries", f"bookie-disk:{folder / 'bookie0'}", "-o", "json")
    assert done.returncode == 3
    assert 0 < len(json.loads(done.stdout)) < len(complete)
    assert json.loads(done.stderr) == {
        "checked": {"topics": 1, "ledgers": 6, "entries": 108},
        "not_checked": {"55 entries": "only bookies have them whose disks were not given"},
    }


@pytest.mark.parametrize("part", ["payload", "broker metadata", "ids", "size"])
def test_a_corrupt_entry_is_an_error_and_the_others_are_shown(
    part: str, sources: list[str], capture: Capture, tmp_path: Path
) -> None:
    bookie = tmp_path / "bookie"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", bookie)
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        disk, table = next(iter(source.located(18) or ()))
        location = table.locations[1]
        path, at = Path(disk.name(location >> 32)), location & 0xFFFFFFFF
    data = bytearray(path.read_bytes())
    size = struct.unpack_from(">i", data, at - 4)[0]
    match part:
        case "payload":
            data[at + size - 1] ^= 1
        case "broker metadata":
            data[at + 36 + 7] ^= 1
        case "ids":
            data[at + 7] ^= 1
        case "size":
            struct.pack_into(">i", data, at - 4, 2**31 - 1)
    path.write_bytes(data)
    intact = dump("orders", *sources)
    done = run("orders", *sources[2:], "--entries", f"bookie-disk:{bookie}", "-o", "json")
    assert done.returncode == 4
    shown = json.loads(done.stdout)
    broken = [(d["frame_checksum"], d["digest"]) for d in shown if (d["ledger_id"], d["entry_id"]) == (18, 1)]
    expected = {"payload": [("bad", "bad")], "broker metadata": [("ok", "bad")], "ids": [], "size": []}
    assert broken == expected[part]
    assert [d for d in shown if d["digest"] == "ok"] == [d for d in intact if d != intact[1]]
    error = json.loads(done.stderr.splitlines()[0])
    assert "18:1" in error["message"] + error["source"]
    if not broken:
        assert (error["source"], error["error"]) == (str(path), "decode")
        assert abs(error["offset"] - at) < 5
    raw = run(
        "orders", *sources[2:], "--entries", f"bookie-disk:{bookie}", "-o", "raw", "--output", os.devnull
    )
    assert (raw.returncode, "18:1" in raw.stderr) == (4, True)


def test_an_intact_copy_replaces_a_corrupt_one(capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    intact = dump("orders", *options(folder, folder))
    ledger = intact[0]["ledger_id"]
    disks = tmp_path / "disks"
    for disk in folder.glob("bookie*"):
        shutil.copytree(disk, disks / disk.name)
    with open_entries([f"bookie-disk:{disks}"]) as source:
        # This part is read first.
        part, table = next(iter(source.located(ledger) or ()))
        path, at = Path(part.name(table.locations[0] >> 32)), table.locations[0] & 0xFFFFFFFF
    data = bytearray(path.read_bytes())
    data[at + struct.unpack_from(">i", data, at - 4)[0] - 1] ^= 1
    path.write_bytes(data)
    done = run("orders", *options(folder, disks), "-o", "json")
    assert done.returncode == 4
    assert json.loads(done.stdout) == intact
    error = json.loads(done.stderr.splitlines()[0])
    assert error["source"] == f"entry {ledger}:{table.entry_ids[0]}"
    assert error["message"].startswith("a copy of it is corrupt")


def test_frames_that_cannot_be_read_have_a_reason(tmp_path: Path) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=9)
    frames = [b"", b"\x0e\x02\xff\xff\xff\xff", encode_frame(metadata, b"\0\0\0\x02xx")]
    (tmp_path / "f").write_bytes(b"".join(len(f).to_bytes(4, "big") + f for f in frames))
    shown = dump("--entries", f"frames:{tmp_path / 'f'}", "--deep", expect=4)
    assert [document["messages"] for document in shown] == [[], [], []]
    assert all(document["unopened"] for document in shown)


def test_frames_in_a_file_keep_their_positions(sources: list[str], tmp_path: Path) -> None:
    file = tmp_path / "frames"
    assert run("orders", *sources, "--from", "-3", "-o", "raw", "--output", str(file)).returncode == 0
    positions = [(d["ledger_id"], d["entry_id"]) for d in dump("--entries", f"frames:{file}")]
    assert positions == [(242, 3), (242, 4), (242, 5)]


def test_errors_are_json_if_the_output_is(sources: list[str]) -> None:
    done = run("no-such-topic", "orders", *sources, "-n", "1", "-o", "ndjson")
    assert done.returncode == 3
    assert json.loads(done.stderr.splitlines()[0])["error"] == "not-found"
    assert json.loads(done.stdout)["entry_id"] == 0


@pytest.mark.parametrize("slip", ["txt", "Text", "hexx", "payloads"])
def test_a_misspelled_payload_format_creates_no_directory(
    slip: str, sources: list[str], tmp_path: Path
) -> None:
    with chdir(tmp_path):
        done = run("orders", *sources, "-n", "1", "--payload", slip)
        assert (done.returncode, done.stdout) == (2, "")
        assert "choose text, hex, base64, hash or dir:DIR" in done.stderr
        assert list(tmp_path.iterdir()) == []
        assert run("orders", *sources, "-n", "1", "--payload", f"dir:{slip}").returncode == 0
        assert run("orders", *sources, "-n", "1", "--payload", slip).returncode == 0
        assert [path.name for path in tmp_path.iterdir()] == [slip]


def test_frames_written_to_a_device_get_no_index_file(sources: list[str], tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    assert run("orders", *sources, "-n", "1", "-o", "raw", "--output", str(tmp_path / "null")).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["null"]


def test_payloads_are_not_written_to_a_file(sources: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = run("orders", *sources, "-n", "1", "--payload", str(tmp_path / "file"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "directory" in done.stderr


def test_frames_are_read_only_from_a_regular_file(tmp_path: Path) -> None:
    done = run("--entries", f"frames:{tmp_path}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not a regular file" in done.stderr


def write_frames(file: Path, *frames: bytes) -> None:
    file.write_bytes(b"".join(len(frame).to_bytes(4) + frame for frame in frames))


def test_a_compression_that_pulsar_has_not_assigned_is_unknown(tmp_path: Path) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.MergeFromString(bytes([8 << 3, 9]))
    frame = encode_frame(metadata, b"payload")
    write_frames(tmp_path / "frames", frame)
    done = run("-o", "plain", "--entries", f"frames:{tmp_path / 'frames'}")
    assert done.stdout.split("\t")[7] == "unknown(9)"
    assert decode_row(memoryview(frame), bookie=False)["compression"] == "unknown(9)"


def test_an_index_smaller_than_its_batch_is_counted_as_clients_do(tmp_path: Path) -> None:
    batch = join_batch([(SingleMessageMetadata(), b"x")] * 3)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=3)
    frame = encode_frame(metadata, batch, broker_metadata=BrokerEntryMetadata(index=1))
    write_frames(tmp_path / "frames", frame)
    (shown,) = dump("--deep", "--entries", f"frames:{tmp_path / 'frames'}")
    assert (shown["first_index"], shown["last_index"]) == (-1, 1)
    assert [message["index"] for message in shown["messages"]] == [-1, 0, 1]
    assert decode_row(memoryview(frame), bookie=False)["first_index"] == -1
    done = run("-o", "plain", "--entries", f"frames:{tmp_path / 'frames'}")
    assert done.stdout.split("\t")[1] == "-1-1"
    assert "index 1 is smaller than its batch" in done.stdout
