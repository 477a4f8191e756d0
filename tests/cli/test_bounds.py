"""Small inputs that claim to be large end commands with an error that names what raises the limit."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.cli.program import environment, pulsar_meta_here
from tests.peak_memory import RANGE, TOPIC, cursor_of, put, run_measured, zookeeper_gzip, zookeeper_snappy

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


def test_a_snapshot_in_snappy_is_refused_before_its_blocks_are_decompressed(tmp_path: Path) -> None:
    zookeeper_snappy(tmp_path, blocks=32)
    # The snapshot claims 512 MB.
    run = run_measured(
        *("ls", "/", "--store", "zk-files:zk"), folder=tmp_path, env={"PULSAR_META_MAX_UNPACKED": MIB}
    )
    assert run.code == 4, run.stderr
    assert "(raise the limit with PULSAR_META_MAX_UNPACKED)" in run.stderr
    assert 0 < run.peak < 150


LINE = b"x [main:A@1] - [public/default/persistent/orders] Created new ledger 1360\n"


def test_a_brokers_log_may_have_lines_of_any_length(tmp_path: Path, capture: Callable[[str], Path]) -> None:
    with (tmp_path / "broker.log").open("wb") as file:
        file.write(LINE.replace(b"1360", b"64") + b"[")
        # A sparse file with a line of 512 MB.
        file.seek(1 << 29)
        file.write(b"]\n" + LINE)
    run = run_measured(
        *("rebuild", "--broker-log", "broker.log", "--unnamed", "-o", "ndjson"),
        *("--entries", f"bookie-disk:{capture('pulsar-4.2.4')}"),
        folder=tmp_path,
    )
    assert run.code == 0, run.stderr
    assert run.peak < 400


def test_a_compressed_log_of_a_broker_may_not_grow_without_limit(tmp_path: Path) -> None:
    (tmp_path / "broker.log.gz").write_bytes(gzip.compress(b"\n" * (4 << 20)))
    rebuild = ("rebuild", "--broker-log", "broker.log.gz", "--entries", "bookie-disk:.", "--output", "out")
    message = refused(tmp_path, *rebuild, PULSAR_META_MAX_UNPACKED=MIB)
    assert "broker.log.gz: " in message
    assert "(raise the limit with PULSAR_META_MAX_UNPACKED)" in message


def test_cursors_that_unpack_to_gigabytes_together_take_little_memory(tmp_path: Path) -> None:
    put(tmp_path, TOPIC, b"")
    value = cursor_of(RANGE, 100_000_000 // len(RANGE))
    assert len(value) < 10_000
    for number in range(20):
        put(tmp_path, f"{TOPIC}/s{number}", value)
    for command in (
        ["check"],
        ["top"],
        ["decode", "/managed-ledgers", "-o", "ndjson"],
        ["get", f"{TOPIC}/s0"],
        ["show-cursor", "bomb", "s0"],
    ):
        run = run_measured(*command, "--store", "dir:store", folder=tmp_path)
        assert run.peak < 150, (command, run)
        assert "PULSAR_META_MAX_UNPACKED" in run.stderr, (command, run)
        assert run.code == (0 if command == ["check"] else 4), (command, run)


def test_many_cursors_below_the_limit_have_a_limit_together(tmp_path: Path) -> None:
    put(tmp_path, TOPIC, b"")
    for number in range(40):
        put(tmp_path, f"{TOPIC}/s{number}", cursor_of(RANGE, (3 << 20) // len(RANGE)))
    run = run_measured("check", "--store", "dir:store", folder=tmp_path)
    assert run.code == 4, run.stderr
    assert "this run's limit is 67108864 (raise the limit with PULSAR_META_MAX_UNPACKED)" in run.stderr
    assert run.peak < 1000


def test_a_compressed_snapshot_of_empty_lines_ends_with_an_error(tmp_path: Path) -> None:
    # 16 GB of empty lines, so reading all of them would take hours.
    frame = zstandard.ZstdCompressor().compress(b"\n" * (64 << 20))
    (tmp_path / "blank.zst").write_bytes(frame * 256)
    for command in (["get", "/a"], ["ls", "/"], ["check"]):
        words = (*command, "--store", "snapshot:blank.zst")
        message = refused(tmp_path, *words, PULSAR_META_MAX_UNPACKED=str(1 << 25))
        assert "more than 65536 lines without a value (raise the limit with PULSAR_META_" in message


@pytest.mark.parametrize(
    "words",
    [
        ("undo", "hostile", "--yes", "--store", "dir:."),
        ("compress-cursors", "--plan", "hostile", "--yes", "--store", "dir:."),
        ("repair", "plan", "hostile", "--yes", "--store", "dir:."),
        ("rebuild", "--names", "hostile", "--entries", "bookie-disk:.", "--output", "out"),
    ],
    ids=["undo", "plan", "fix plan", "names"],
)
def test_a_line_of_gigabytes_takes_little_memory(words: tuple[str, ...], tmp_path: Path) -> None:
    heads = {
        "undo": {"undo": 2, "command": "x", "codec": None, "store": {"url": "dir:.", "chroot": ""}},
        "compress-cursors": {"plan": 1, "command": "compress-cursors", "store": {"url": "dir:."}},
    }
    with (tmp_path / "hostile").open("wb") as file:
        if words[0] in heads:
            file.write(json.dumps(heads[words[0]]).encode() + b"\n")
        file.write(b'{"x": "')
        # A sparse file.
        file.truncate(3 << 30)
    run = run_measured(*words, folder=tmp_path, env={"PULSAR_META_MAX_UNPACKED": str(64 << 20)})
    assert run.code in (2, 3, 4, 7), run
    assert 0 < run.peak < 200, run
