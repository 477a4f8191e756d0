"""Commands run without Spark if it is optional; if it is required, they explain why it cannot start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import environment, pulsar_meta_here

COMMANDS = (
    "seek orders --index 5",
    "check-index txn",
    "verify-entries txn",
    "dump-entries txn --where a",
    "plan-batches txn --keys a",
    "build-index txn --dry-run",
    "check --only segments",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run_without_java_unless_spark_is_required(
    capture: Callable[[str], Path], tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hides the Spark session of other tests, which may run in this process."""
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    folder = capture("pulsar-4.2.4")
    settings = environment(
        tmp_path,
        JAVA_HOME=str(tmp_path),
        PULSAR_META_STORE=f"snapshot:{folder / 'metadata.ndjson'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )
    required = pulsar_meta_here(*command.split(), "--engine", "spark", env=settings)
    assert (required.returncode, required.stdout) == (6, b"")
    assert required.stderr.startswith(b"pulsar-meta: Spark cannot run: java not found in JAVA_HOME")
    assert required.stderr.count(b"\n") == 1
    done = pulsar_meta_here(*command.split(), "--master", "local[1]", env=settings)
    local = pulsar_meta_here(*command.split(), "--engine", "local", env=settings)
    assert (done.returncode, done.stdout) == (local.returncode, local.stdout)
    assert done.stderr.startswith(b"running without Spark: java not found in JAVA_HOME")
    assert done.stderr.partition(b"\n")[2] == local.stderr
