"""Packing messages into frames, and batch plans for topics of real producers."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.frames.batch import open_entry
from pulsar_meta.codecs.frames.entry_json import properties_of
from pulsar_meta.codecs.frames.frame import decode_frame, strip_broker_metadata
from pulsar_meta.jobs.batches.batch_plan import BatchPlan, BatchPlanDocument
from pulsar_meta.jobs.batches.batching import Batching
from pulsar_meta.jobs.batches.packing import read_frames
from tests.cli.program import pulsar_meta_here
from tests.jobs.captured_frames import frames_of

Capture = Callable[[str], Path]
Json = dict[str, Any]


def run(*arguments: str | Path, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return pulsar_meta_here(*arguments, stdin=data)


def packed(messages: list[Json], *options: str) -> list[bytes]:
    lines = "".join(json.dumps(message) + "\n" for message in messages).encode()
    done = run("pack-entries", "-", *options, data=lines)
    assert (done.returncode, done.stderr) == (0, b"")
    return list(read_frames(io.BytesIO(done.stdout)))


def opened(frame: bytes) -> list[tuple[bytes, dict[str, str]]]:
    messages = open_entry(decode_frame(frame)).messages
    return [(bytes(message.payload), properties_of(message.metadata.properties)) for message in messages]


MESSAGES: list[Json] = [
    {"payload": "one", "properties": {"region": "eu", "n": "1"}, "event_time": 5},
    {"payload_base64": "AP8=", "properties": {"region": "eu", "n": "2"}, "key": "k"},
    {"payload": "", "properties": {"region": "us"}, "null_value": True},
]


@pytest.mark.parametrize("codec", ["none", "lz4", "zlib", "zstd", "snappy"])
def test_packed_messages_are_unpacked_unchanged(codec: str) -> None:
    first, second = packed(MESSAGES, "--keys", "region", "--compression", codec, "--publish-time", "9")
    batch, single = decode_frame(first), decode_frame(second)
    assert (batch.checksum, single.checksum) == ("ok", "ok")
    assert batch.metadata.num_messages_in_batch == 2
    assert (batch.metadata.publish_time, batch.metadata.highest_sequence_id) == (9, 1)
    assert properties_of(batch.metadata.properties) == {"region": "eu"}
    assert not single.metadata.HasField("num_messages_in_batch")
    assert opened(first) == [(b"one", {"region": "eu", "n": "1"}), (b"\0\xff", {"region": "eu", "n": "2"})]
    assert opened(second) == [(b"", {"region": "us"})]
    inside = open_entry(batch).messages
    assert (inside[0].metadata.event_time, inside[1].metadata.partition_key) == (5, "k")
    assert single.metadata.null_value


def test_without_keys_no_property_is_hoisted_as_in_java() -> None:
    (frame,) = packed(MESSAGES)
    assert not decode_frame(frame).metadata.properties
    assert len(opened(frame)) == 3


def test_options_select_the_form_of_frames() -> None:
    (frame,) = packed(MESSAGES[:1], "--no-checksum", "--batches-of-one", "--producer", "p")
    decoded = decode_frame(frame)
    assert (decoded.checksum, decoded.metadata.producer_name) == ("absent", "p")
    assert decoded.metadata.HasField("num_messages_in_batch")
    assert len(packed([*MESSAGES[:2], {"payload": "x", "flush": True}])) == 2
    assert len(packed(MESSAGES[:2] * 3, "--max-messages", "2")) == 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"[]", b"line 2: a message must be a JSON object"),
        (b"{", b"line 2: not JSON"),
        (b'{"payload": 7}', b"line 2: payload: expected text"),
        (b'{"payload": "a", "payload_base64": "YQ=="}', b"line 2: a message can't have both payload"),
        (b'{"payload_base64": "!"}', b"line 2: payload: expected text, or base64"),
        (b'{"properties": ["a"]}', b"line 2: properties: expected an object"),
        (b'{"properties": {"a": 1}}', b"line 2: message.properties"),
        (b'{"properties": {"a": null}}', b"line 2: a property without a value"),
        (b'{"publish_time": null}', b"publish_time is null"),
        (b'{"publish_time": "soon"}', b"line 2: message.publish_time"),
        (b'{"num_messages_in_batch": 3}', b"line 2: num_messages_in_batch is set when"),
        (b'{"colour": "red"}', b"line 2: message.colour"),
    ],
)
def test_lines_that_are_not_messages_are_refused(line: bytes, words: bytes) -> None:
    done = run("pack-entries", data=b'{"payload": "fine"}\n' + line + b"\n")
    assert done.returncode == 4
    assert words in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_packed_and_attached_frames_verify(tmp_path: Path) -> None:
    bare, full = tmp_path / "bare", tmp_path / "full"
    lines = "".join(
        json.dumps({"payload": f"{n}", "properties": {"r": str(n // 7)}}) + "\n" for n in range(50)
    )
    run("pack-entries", "--keys", "r", "--compression", "lz4", "--output", bare, data=lines.encode())
    run("attach-metadata", bare, "--output", full)
    done = run("verify-entries", "--entries", f"frames:{full}", "-v")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"8 entries" in done.stderr


def plan_of(frames: list[bytes], batching: Batching, *, rebatch: bool = False) -> BatchPlanDocument:
    plan = BatchPlan(batching, rebatch=rebatch)
    for frame in frames:
        plan.add(memoryview(frame))
    return plan.document()


@pytest.mark.parametrize("topic", ["orders", "cpp-zstd", "codec-zlib", "plain", "strings", "txn"])
def test_without_keys_the_plan_equals_the_stored_batches(capture: Capture, topic: str) -> None:
    frames = frames_of(capture("pulsar-4.2.4"), topic)
    plan = plan_of(frames, Batching())
    before, after = plan["before"], plan["after"]
    assert before["batches"] == after["batches"] == len(frames) - sum(plan["unopened"].values())
    assert before["largest_batch"] == after["largest_batch"]
    assert abs(before["bytes"] - after["bytes"]) <= before["bytes"] * 0.02
    stored = sum(len(strip_broker_metadata(frame)[0]) for frame in frames)
    assert before["bytes"] == stored or plan["unopened"]
    assert plan["out_of_order"] == 0
    assert not any(plan["wrong_batches"].values())


def test_the_three_rules_differ_on_a_real_topic(capture: Capture) -> None:
    frames = frames_of(capture("pulsar-4.2.4"), "orders")
    keys = ("region", "type")
    same = plan_of(frames, Batching(keys))
    proposed = plan_of(frames, Batching(keys, "as-proposed"))
    apart = plan_of(frames, Batching(keys, "by-properties"))
    assert same["messages"] == proposed["messages"] == apart["messages"] == 4500
    assert same["after"]["batches"] > apart["after"]["batches"] > proposed["after"]["batches"]
    assert not any(same["wrong_batches"].values())
    assert proposed["wrong_batches"]["properties"] > 0
    assert (same["out_of_order"], proposed["out_of_order"]) == (0, 0)
    assert apart["out_of_order"] > 0
    assert same["breaking_keys"]["region"] > same["breaking_keys"]["type"] > 0


def test_transactions_split_batches_also_across_entries(capture: Capture) -> None:
    plan = plan_of(frames_of(capture("pulsar-4.2.4"), "txn"), Batching(), rebatch=True)
    assert plan["breaks"]["transaction"] > 0
    assert plan["after"]["batches"] < plan["before"]["batches"]
    assert any(reason.startswith("marker TXN_") for reason in plan["unopened"])


def test_the_command_prints_a_plan(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    sources = ["--store", f"rocksdb:{folder}/rocksdb", "--entries", f"bookie-disk:{folder}/bookie0"]
    done = run("plan-batches", "orders", "--keys", "region", *sources, "-o", "json")
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    assert (plan["topic"], plan["messages"], plan["before"]["batches"]) == (
        "persistent://public/default/orders",
        4500,
        163,
    )
    assert run("plan-batches", "nowhere", "--keys", "region", *sources).returncode == 3
    assert run("plan-batches", "orders", "--keys", "a,a", *sources).returncode == 2
    few = json.loads(run("plan-batches", "orders", "--keys", "a", *sources, "-n", "7", "-o", "json").stdout)
    assert few["before"]["batches"] == 7
    end = json.loads(
        run("plan-batches", "orders", "--keys", "a", *sources, "--from", "-5", "-o", "json").stdout
    )
    assert end["before"]["batches"] == 5


@pytest.mark.spark
@pytest.mark.usefixtures("session")
def test_each_topic_has_its_plan_also_by_spark(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    sources = ["--store", f"rocksdb:{folder}/rocksdb", "--entries", f"bookie-disk:{folder}/bookie0"]
    words = ["plan-batches", "parted", "orders", "--keys", "region", *sources, "-o", "json"]
    here = run(*words)
    coverage = {"topics": 4, "ledgers": 12, "entries": 207}
    assert (here.returncode, json.loads(here.stderr)) == (0, {"checked": coverage, "not_checked": {}})
    plans = json.loads(here.stdout)
    assert len(plans) > 2
    assert plans[0]["topic"] == "persistent://public/default/parted-partition-0"
    assert plans[-1]["topic"] == "persistent://public/default/orders"
    there = run(*words, "--engine", "spark", "--master", "local[1]")
    assert there.returncode == 0, there.stderr
    assert json.loads(there.stdout) == plans
