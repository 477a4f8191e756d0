"""Tiered storage on a real S3 server (moto): the messages of a captured topic, read from objects alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.spark.message_source import MessageSourceReader
from tests.cli.program import pulsar_meta_here
from tests.codecs.bookie_files.offload_objects import offloaded
from tests.message_truth import rows_of
from tests.seek_truth import bookie_urls

BUCKET = "cold"
TOPIC = "persistent://public/default/codec-zstd"
COLUMNS = ["topic", "ledger_id", "entry_id", "batch_index", "key", "payload", "error"]
# The server's library and the client's warn about their own sockets and clocks.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3 server with an empty bucket, and a client of it that shares nothing with ours."""
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield client
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def folder(capture: Callable[[str], Path]) -> Path:
    return capture("pulsar-4.2.4-killed")


def ledgers_of(folder: Path) -> list[int]:
    stats = json.loads((folder / "truth.json").read_text())[TOPIC]["internalStats"]
    return [one["ledgerId"] for one in stats["ledgers"] if one["entries"]]


def offload(client: Any, folder: Path, ledger_id: int) -> None:
    """Put the frames of a ledger into the bucket, as the offloader of Pulsar writes them."""
    with open_entries(bookie_urls(folder)) as source:
        frames = [bytes(decode_bookie_entry(raw.data).data) for raw in source.read_many(ledger_id)]
    data, index = offloaded(frames)
    key = f"0a1b2c3d-0000-4000-8000-0123456789ab-ledger-{ledger_id}"
    client.put_object(Bucket=BUCKET, Key=key, Body=data)
    client.put_object(Bucket=BUCKET, Key=f"{key}-index", Body=index)


def test_messages_come_from_objects_alone(s3: Any, folder: Path, tmp_path: Path) -> None:
    expected, _ = rows_of(folder, [TOPIC], readable=False)
    for ledger_id in ledgers_of(folder):
        offload(s3, folder, ledger_id)
    store, entries = f"snapshot:{folder / 'metadata.ndjson'}", f"offload:s3://{BUCKET}"
    reader = MessageSourceReader({"store": store, "entries": entries, "topics": TOPIC}, COLUMNS)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows == [{name: row[name] for name in COLUMNS} for row in expected.values()]
    done = pulsar_meta_here("export", TOPIC, "--to", tmp_path / "out", "--store", store, "--entries", entries)
    assert done.returncode == 0, done.stderr
    assert f"{len(rows)} messages".encode() in done.stderr


def test_a_bucket_that_is_not_there_is_one_line(s3: Any) -> None:
    with ExitStack() as stack, pytest.raises(PulsarMetaError) as raised:
        stack.enter_context(open_entries(["offload:s3://nowhere"])).ledgers()
    assert isinstance(raised.value, NotFoundError)
    assert "\n" not in str(raised.value)
