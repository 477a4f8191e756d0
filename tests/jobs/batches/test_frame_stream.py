"""Removing broker metadata from frames of real brokers, and attaching it again."""

from __future__ import annotations

import io
import json
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.frame import (
    INTERCEPTORS,
    MetadataAppender,
    decode_frame,
    encode_frame,
    encode_prefix,
    parse_interceptors,
    strip_broker_metadata,
)
from pulsar_meta.jobs.batches.packing import FrameCount, attach_frames, read_frames, strip_frames, write_frame
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata
from tests.cli.program import pulsar_meta_here
from tests.jobs.captured_frames import fail, frames_of

Capture = Callable[[str], Path]


def stream_of(frames: list[bytes]) -> io.BytesIO:
    return io.BytesIO(b"".join(map(write_frame, frames)))


def appender(frames: list[bytes]) -> MetadataAppender:
    """Return an appender whose clock gives the broker timestamps of these frames."""
    times = iter([decode_frame(frame).broker_timestamp or 0 for frame in frames])
    return MetadataAppender(("timestamp", "index"), lambda published: next(times))


@pytest.mark.parametrize(
    "topic", ["orders", "go-lz4", "cpp-lz4", "strings", "chunked", "encrypted", "txn", "terminated"]
)
def test_stripped_and_attached_frames_equal_the_brokers_bytes(capture: Capture, topic: str) -> None:
    frames = frames_of(capture("pulsar-4.2.4"), topic)
    count = FrameCount()
    bare = list(read_frames(io.BytesIO(b"".join(strip_frames(iter(frames), count, fail)))))
    assert (count.frames, count.changed, count.bare) == (len(frames), len(frames), 0)
    assert all(decode_frame(frame).checksum == "ok" for frame in bare)
    back = list(read_frames(io.BytesIO(b"".join(attach_frames(iter(bare), appender(frames), FrameCount())))))
    assert back == frames


def test_frames_without_broker_metadata_are_kept_and_counted(capture: Capture) -> None:
    frames = frames_of(capture("pulsar-4.2.4"), "late-index")
    count = FrameCount()
    stripped = list(read_frames(io.BytesIO(b"".join(strip_frames(iter(frames), count, fail)))))
    had = [frame[:2] == b"\x0e\x02" for frame in frames]
    assert (count.frames, count.changed, count.bare) == (len(frames), sum(had), had.count(False))
    assert 0 < count.bare < count.frames
    kept = [new == old for new, old, head in zip(stripped, frames, had, strict=True) if not head]
    assert all(kept)


def bare_frame(messages: int | None = None, *, transaction: bool = False) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=7)
    if transaction:
        metadata.txnid_most_bits = metadata.txnid_least_bits = 1
    if messages is not None:
        metadata.num_messages_in_batch = messages
    return encode_frame(metadata, b"payload")


def indexes(frames: list[bytes], last_index: int = -1) -> list[int | None]:
    numbers = MetadataAppender(("index",), lambda published: 0, last_index)
    return [decode_frame(numbers.attach(frame)).index for frame in frames]


def test_the_index_is_that_of_the_last_message() -> None:
    frames = [
        bare_frame(3),
        bare_frame(),
        bare_frame(1),
        bare_frame(5, transaction=True),
    ]
    assert indexes(frames) == [2, 3, 4, 5]
    assert indexes(frames, last_index=99) == [102, 103, 104, 105]


def test_only_the_chosen_interceptors_write() -> None:
    only_time = MetadataAppender(("timestamp",), lambda published: published + 1)
    broker = decode_frame(only_time.attach(bare_frame())).broker_metadata
    assert broker is not None
    assert broker.broker_timestamp == 8
    assert not broker.HasField("index")


def test_attaching_twice_needs_replace() -> None:
    attached = MetadataAppender(("index",), lambda published: 0).attach(bare_frame())
    with pytest.raises(DecodeError, match="already"):
        MetadataAppender(("index",), lambda published: 0).attach(attached)
    replaced = MetadataAppender(("index",), lambda published: 0, 9, replace=True).attach(attached)
    assert decode_frame(replaced).index == 10
    assert bytes(strip_broker_metadata(replaced)[0]) == bare_frame()


def test_interceptors_have_short_and_full_names() -> None:
    assert parse_interceptors(",".join(INTERCEPTORS.values())) == ("timestamp", "index")
    assert parse_interceptors(" index ") == ("index",)
    for wrong in ("", "index,index", "Other", "index," + INTERCEPTORS["index"]):
        with pytest.raises(UsageError):
            parse_interceptors(wrong)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0\0", "4 bytes of a frame's size, found 2"),
        (b"\0\0\0\x09abc", "claims 9 bytes, but only 3 are left"),
        (b"\xff\xff\xff\xff", "claims 4294967295"),
    ],
)
def test_truncated_streams_are_decode_errors(data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words) as caught:
        list(read_frames(io.BytesIO(write_frame(b"first") + data)))
    assert caught.value.offset == 9


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_streams_survive_a_round_trip(frames: list[bytes]) -> None:
    assert list(read_frames(stream_of(frames))) == frames


@pytest.mark.parametrize("rest", [b"", b"\0\0", b"\0\0\0\x63x", b"\0\0\0\x02zz"])
@pytest.mark.parametrize("broker", [b"", encode_prefix(BrokerEntryMetadata(index=3))])
def test_an_invalid_frame_is_bad_with_and_without_broker_metadata(broker: bytes, rest: bytes) -> None:
    count, faults = FrameCount(), list[Exception]()
    frame = bare_frame()
    out = b"".join(strip_frames(iter([broker + rest, frame]), count, faults.append))
    assert list(read_frames(io.BytesIO(out))) == [broker + rest, frame]
    assert (count.frames, count.changed, count.bare, count.bad) == (2, 0, 1, 1)
    assert [str(fault).split(":")[0] for fault in faults] == ["frame 0"]


def run(*arguments: str | Path, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return pulsar_meta_here(*arguments, stdin=data)


def test_the_commands_work_as_a_pipe_and_keep_positions(tmp_path: Path) -> None:
    file = tmp_path / "in"
    file.write_bytes(stream_of([bare_frame(2), bare_frame()]).getvalue())
    file.with_name("in.idx").write_text('{"ledger": 5, "entry": 0}\n{"ledger": 5, "entry": 1}\n')
    out = tmp_path / "out"
    done = run("attach-metadata", file, "--start-index", "10", "--timestamp", "publish-time", "--output", out)
    assert (done.returncode, done.stderr) == (
        0,
        b"2 frames: broker metadata attached, the last index is 12\n",
    )
    shown = run("dump-entries", "--entries", f"frames:{out}", "-o", "json")
    rows = [
        (row["ledger_id"], row["entry_id"], row["first_index"], row["last_index"])
        for row in json.loads(shown.stdout)
    ]
    assert rows == [(5, 0, 10, 11), (5, 1, 12, 12)]
    back = run("strip-metadata", "-", data=out.read_bytes())
    assert back.stdout == file.read_bytes()
    assert back.stderr == b"2 frames: 2 stripped, 0 had no broker metadata\n"


def test_a_failure_leaves_no_output_and_names_the_frame(tmp_path: Path) -> None:
    out = tmp_path / "out"
    frames = stream_of([bare_frame(), b"\0\0\0\x63x"]).getvalue()
    done = run("attach-metadata", "-", "--output", out, data=frames)
    assert done.returncode == 4
    assert done.stderr.startswith(b"pulsar-meta: stdin: frame 1: MessageMetadata claims 99 bytes")
    assert not out.exists()
    bad = struct.pack(">I", 7) + b"\x0e\x02\0\0\0\x09x"
    frame = next(attach_frames(iter([bare_frame()]), appender([bare_frame()]), FrameCount()))
    done = run("strip-metadata", "-", data=bad + frame + bad)
    # Bad frames stay in place, and the frame after them is stripped.
    assert (done.returncode, done.stdout) == (1, bad + write_frame(bare_frame()) + bad)
    assert [line.split(b":")[1] for line in done.stderr.splitlines()[:2]] == [b" frame 0", b" frame 2"]
    assert done.stderr.splitlines()[2].endswith(b"2 are corrupt and not changed")
    nothing = run("strip-metadata", "-", data=write_frame(b""))
    assert (nothing.returncode, nothing.stdout) == (1, write_frame(b""))
    assert b"1 frames: 0 stripped, 0 had no broker metadata, 1 are corrupt" in nothing.stderr
    assert run("strip-metadata", "-", data=bad[:-1]).returncode == 4
    assert run("strip-metadata", tmp_path / "missing").returncode == 3
    assert run("attach-metadata", "-", "--timestamp", "soon").returncode == 2
