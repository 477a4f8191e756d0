"""Tiered storage on an S3 server (moto): the messages of a captured topic, read only from objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.spark.message_source import MessageSourceReader
from tests.cli.program import pulsar_meta_here
from tests.message_truth import rows_of
from tests.servers.s3 import BUCKET, client, offload, s3_server

TOPIC = "persistent://public/default/codec-zstd"
COLUMNS = ["topic", "ledger_id", "entry_id", "batch_index", "key", "payload", "error"]
# The libraries of the server and the client warn about their own sockets and clocks.
pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3 server, which the environment points to, and a client for it."""
    import s3fs

    with s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield client(environment)
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def folder(capture: Callable[[str], Path]) -> Path:
    return capture("pulsar-4.2.4-killed")


def ledgers_of(folder: Path) -> list[int]:
    stats = orjson.loads((folder / "truth.json").read_bytes())[TOPIC]["internalStats"]
    return [ledger["ledgerId"] for ledger in stats["ledgers"] if ledger["entries"]]


def test_messages_are_read_only_from_objects(s3: Any, folder: Path, tmp_path: Path) -> None:
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


def test_a_missing_bucket_is_a_one_line_error(s3: Any) -> None:
    with ExitStack() as stack, pytest.raises(PulsarMetaError) as raised:
        stack.enter_context(open_entries(["offload:s3://nowhere"])).ledgers()
    assert isinstance(raised.value, NotFoundError)
    assert "\n" not in str(raised.value)
