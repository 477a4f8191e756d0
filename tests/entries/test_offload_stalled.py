"""Tiered storage that accepts connections and gives no answer, or one byte at a time, is unreachable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import environment, pulsar_meta
from tests.servers.scripted import Talk, dripping, stall, tcp_server

DRIPS = dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")


@pytest.mark.parametrize("talk", [stall, DRIPS], ids=["stalls", "drips"])
@pytest.mark.parametrize("place", ["http://127.0.0.1:{port}/bucket", "s3://bucket"], ids=["http", "s3"])
def test_storage_that_gives_no_answer_is_unreachable(place: str, talk: Talk, tmp_path: Path) -> None:
    with tcp_server(talk) as port:
        env = environment(
            tmp_path,
            PULSAR_META_OFFLOAD_TIMEOUT="1",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
            AWS_ACCESS_KEY_ID="key",
            AWS_SECRET_ACCESS_KEY="secret",
        )
        done = pulsar_meta("ledgers", "--entries", f"offload:{place.format(port=port)}", env=env)
    assert done.returncode == 6, done.stderr
    message = "no answer within 1 second (raise the limit with PULSAR_META_OFFLOAD_TIMEOUT)\n"
    assert done.stderr.decode().endswith(message)


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1e3", "9" * 20])
def test_a_limit_that_is_no_number_of_seconds_is_refused(text: str, tmp_path: Path) -> None:
    env = environment(tmp_path, PULSAR_META_OFFLOAD_TIMEOUT=text)
    done = pulsar_meta("ledgers", "--entries", f"offload:{tmp_path}", env=env)
    assert done.returncode == 2
    assert b"PULSAR_META_OFFLOAD_TIMEOUT: expected a number of seconds" in done.stderr
