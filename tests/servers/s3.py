"""An S3 server (moto) with one bucket, and ledgers in it as Pulsar offloads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.sources import open_entries
from tests.codecs.bookie_files.offload_objects import offloaded
from tests.seek_truth import bookie_urls

BUCKET: Final = "cold"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Start a server with an empty bucket, and return the environment in which clients find it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        client(environment).create_bucket(Bucket=BUCKET)
        yield environment
    finally:
        server.stop()


def client(environment: dict[str, str]) -> Any:
    """Return a client of the server that shares nothing with pulsar-meta's."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )


def offload(s3: Any, folder: Path, ledger_id: int) -> None:
    """Put the frames of a capture's ledger into the bucket, as Pulsar's offloader does."""
    with open_entries(bookie_urls(folder)) as source:
        frames = [bytes(decode_bookie_entry(raw.data).data) for raw in source.read_many(ledger_id)]
    data, index = offloaded(frames)
    key = f"0a1b2c3d-0000-4000-8000-0123456789ab-ledger-{ledger_id}"
    s3.put_object(Bucket=BUCKET, Key=key, Body=data)
    s3.put_object(Bucket=BUCKET, Key=f"{key}-index", Body=index)
