"""Partly acknowledged batches in cursor states, compared with the memory of the broker that wrote them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.batch_ack_truth import differences

Capture = Callable[[str], Path]
NAME = "pulsar-4.2.4-batch-acks-{}"


@pytest.mark.parametrize("part", ["killed", "closed", "killed-long-arrays", "closed-long-arrays"])
def test_acknowledgements_equal_the_brokers(capture: Capture, part: str) -> None:
    assert differences(capture(NAME.format(part))) == []


def test_states_in_ledgers_have_batches_and_closed_cursors_lose_them(capture: Capture) -> None:
    """4.2.4 writes the batches to the record when it closes a cursor, but does not read them from there."""
    counts = {}
    for part in ("killed", "closed"):
        truth = orjson.loads((capture(NAME.format(part)) / "truth.json").read_bytes())
        (topic,) = truth.values()
        counts[part] = sum(map(len, topic["batchAcks"].values()))
    assert counts == {"killed": 55, "closed": 0}


def test_another_state_than_the_brokers_is_noticed(capture: Capture, tmp_path: Path) -> None:
    shutil.copytree(capture(NAME.format("killed")), tmp_path / "mixed")
    truth = (capture(NAME.format("closed")) / "truth.json").read_bytes()
    (tmp_path / "mixed" / "truth.json").write_bytes(truth)
    wrong = differences(tmp_path / "mixed")
    assert len([line for line in wrong if "batches" in line]) == 5
