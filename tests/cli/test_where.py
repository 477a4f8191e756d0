"""`dump-entries --where`: the selected entries, where they were decided, and which stayed undecided."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata
from tests.cli.program import as_text, pulsar_meta_here

Capture = Callable[[str], Path]
FILTER = "region=eu and not type^=re"


def dump(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    sources = ["--store", f"rocksdb:{folder}/rocksdb", "--entries", f"bookie-disk:{folder}/bookie0"]
    return as_text(pulsar_meta_here("dump-entries", *arguments, *sources))


def shown(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def expected_positions(folder: Path) -> set[tuple[int, int, int]]:
    """Return the positions of the messages that match FILTER, according to a real client."""
    truth = orjson.loads((folder / "truth.json").read_bytes())["persistent://public/default/orders"][
        "messages"
    ]
    return {
        (message["l"], message["e"], max(message["b"], 0))
        for message in truth
        if message["props"].get("region") == "eu" and not message["props"].get("type", "").startswith("re")
    }


def positions(documents: list[dict[str, Any]]) -> set[tuple[int, int, int]]:
    return {
        (document["ledger_id"], document["entry_id"], message.get("batch_index", 0))
        for document in documents
        for message in document["messages"]
    }


def test_only_matching_messages_are_shown(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    done = dump(folder, "orders", "--where", FILTER, "--deep", "-o", "ndjson")
    documents = shown(done)
    assert positions(documents) == expected_positions(folder)
    levels = {document["where"]["decided_at"] for document in documents}
    assert levels <= {"entry", "message"}
    assert "message" in levels
    assert "0 could not be decided" in done.stderr


def test_batches_stay_undecided_at_entry_level(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    done = dump(folder, "orders", "--where", "region=eu", "--level", "entry", "-o", "ndjson")
    documents = shown(done)
    assert all(document["where"]["decided_at"] == "entry" for document in documents)
    assert not any("num_messages_in_batch" in document["metadata"] for document in documents)
    assert done.stderr == (
        '{"level": "note", "message": "163 entries: 1 match; 10 decided by their own metadata, 0 by opening'
        ' them, 153 could not be decided (153 batches, only opening tells)"}\n'
        '{"checked": {"topics": 1, "ledgers": 6, "entries": 163}, "not_checked": {}}\n'
    )


def test_plain_and_raw_output_have_the_matching_entries(capture: Capture, tmp_path: Path) -> None:
    folder, file = capture("pulsar-4.2.4"), tmp_path / "frames"
    lines = dump(folder, "orders", "--where", FILTER, "-n", "3").stdout.splitlines()
    assert len(lines) == 3
    assert all("decided by the " in line for line in lines)
    dump(folder, "orders", "--where", FILTER, "-o", "raw", "--output", str(file))
    entries = len({position[:2] for position in expected_positions(folder)})
    reread = as_text(pulsar_meta_here("dump-entries", "--entries", f"frames:{file}"))
    assert reread.returncode == 0
    assert len(reread.stdout.splitlines()) == entries


@pytest.mark.parametrize(
    "arguments", [["--where", "region="], ["--where", ""], ["--level", "entry"], ["--hoisted", "a"]]
)
def test_invalid_arguments_are_usage_errors(capture: Capture, arguments: list[str]) -> None:
    done = dump(capture("pulsar-4.2.4"), "orders", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.spark
@pytest.mark.usefixtures("session")
def test_spark_gives_the_same_output(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    arguments = ["orders", "--where", FILTER, "--deep", "-o", "ndjson"]
    local = dump(folder, *arguments)
    with_spark = dump(folder, *arguments, "--engine", "spark", "--master", "local[2]")
    assert with_spark.returncode == 0, with_spark.stderr
    assert with_spark.stdout == local.stdout
    assert with_spark.stderr == local.stderr


@pytest.mark.parametrize(
    "arguments", [["--engine", "spark"], ["--where", "a", "--engine", "spark", "-o", "raw"]]
)
def test_spark_is_refused_without_where_and_for_raw_output(
    capture: Capture, arguments: list[str], tmp_path: Path
) -> None:
    done = dump(capture("pulsar-4.2.4"), "orders", *arguments, "--output", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--engine" in done.stderr


def test_unreadable_frames_give_the_exit_code_that_they_give_without_a_filter(tmp_path: Path) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.properties.add(key="region", value="eu")
    frame = encode_frame(metadata, b"payload")
    wrong_checksum = bytearray(frame)
    wrong_checksum[-1] ^= 1
    file = tmp_path / "frames"
    for broken, code in ((b"no frame at all", 4), (bytes(wrong_checksum), 4), (frame, 0)):
        file.write_bytes(b"".join(len(data).to_bytes(4) + data for data in (frame, broken, frame)))
        for more in ((), ("--where", "region=eu"), ("--where", "region=us"), ("--where", "region", "--deep")):
            done = pulsar_meta_here("dump-entries", *more, "--entries", f"frames:{file}", "-o", "ndjson")
            assert done.returncode == code, more
