"""Frames that `pack-entries` and `attach-metadata` make, read and made by Pulsar's own code."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.frames.frame import MetadataAppender, decode_frame, strip_broker_metadata
from pulsar_meta.jobs.batches.batching import Batching
from pulsar_meta.jobs.batches.packing import Numbering, Packing, messages_of_lines, pack_messages, read_frames
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata
from tests.jobs.captured_frames import frames_of
from tests.servers.jvm import Jvm

pytestmark = pytest.mark.interop

MODULE = "tests.interop.oracle.frames"


def properties(number: int) -> dict[str, str]:
    return {"r": str(number // 5), "n": str(number)}


def packed(codec: str) -> list[bytes]:
    messages = [
        {"payload": f"message {n}" * n, "properties": {"r": str(n // 5), "n": str(n)}} for n in range(23)
    ]
    lines = [json.dumps(message).encode() for message in messages]
    made = messages_of_lines(lines, producer="p", clock=lambda: 7, numbering=Numbering())
    frames = pack_messages(made, Batching(("r",)), Packing(codec, keys=("r",)))
    return list(read_frames(io.BytesIO(b"".join(frames))))


@pytest.mark.parametrize("codec", ["none", "lz4", "zlib", "zstd", "snappy"])
def test_pulsar_reads_what_is_packed(oracle: Jvm, codec: str) -> None:
    frames = packed(codec)
    parsed = oracle.call(f"{MODULE}:parse_frames", frames)
    batches = []
    for number, parts in enumerate(parsed):
        assert parts["stored"] == parts["computed"]
        metadata = MessageMetadata.FromString(parts["metadata"])
        assert [(pair.key, pair.value) for pair in metadata.properties] == [("r", str(number))]
        batches.append((parts["metadata"], parts["payload"]))
    opened = oracle.call(f"{MODULE}:open_batches", batches)
    found = [
        (
            bytes(payload),
            {pair.key: pair.value for pair in SingleMessageMetadata.FromString(single).properties},
        )
        for batch in opened
        for single, payload in batch
    ]
    assert found == [(b"message %d" % n * n, {"r": str(n // 5), "n": str(n)}) for n in range(23)]


@pytest.mark.parametrize("topic", ["orders", "go-lz4", "chunked", "encrypted"])
def test_pulsars_interceptors_attach_the_same(
    oracle: Jvm, capture: Callable[[str], Path], topic: str
) -> None:
    bare = [bytes(strip_broker_metadata(frame)[0]) for frame in frames_of(capture("pulsar-4.2.4"), topic)]
    appender = MetadataAppender(("index",), lambda published: 0)
    counted = [(frame, decode_frame(frame).index_width) for frame in bare]
    theirs = oracle.call(f"{MODULE}:add_broker_metadata", counted, ["Index"])
    assert [appender.attach(frame) for frame in bare] == theirs
