"""Small inputs that claim to be large end commands with an error that names what raises the limit."""

from __future__ import annotations

from pathlib import Path

from tests.cli.program import environment, pulsar_meta_here
from tests.peak_memory import zookeeper_gzip

MIB = str(1 << 20)


def refused(folder: Path, *words: str, **limits: str) -> str:
    """Run a command that ends with exit code 4 and one line on stderr; return the line."""
    done = pulsar_meta_here(*words, env=environment(folder / "state", **limits), folder=folder)
    assert done.returncode == 4, done.stderr
    return done.stderr.decode()


def test_a_compressed_zookeeper_snapshot_may_not_grow_without_limit(tmp_path: Path) -> None:
    zookeeper_gzip(tmp_path, size=4 << 20)
    message = refused(tmp_path, "ls", "/", "--store", "zk-files:zk", PULSAR_META_MAX_UNPACKED=MIB)
    assert "(raise the limit with PULSAR_META_MAX_UNPACKED)" in message
