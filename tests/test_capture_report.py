"""The capture report finds nothing wrong in a capture, and notices a changed truth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.capture_report import main

Capture = Callable[[str], Path]


@pytest.mark.nightly
def test_a_capture_has_nothing_wrong_or_unexplained(
    capture: Capture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(capture("pulsar-4.2.4-killed"))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| all | | 375 | 375 | 375 |" in lines
    assert "indexes asked: 10264; as the truth: 10264" in lines
    assert lines[-2] == "wrong or not explained: 0"


def test_a_wrong_truth_is_noticed(
    capture: Capture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(capture("pulsar-4.2.4-killed"), folder)
    truth = orjson.loads((folder / "truth.json").read_bytes())
    orders = truth["persistent://public/default/orders"]
    orders["messages"][0]["sha"] = "0" * 16
    orders["messages"][1]["ix"] += 5000
    orders["getMessageIdByIndex"]["1028"]["entryId"] += 1
    (folder / "truth.json").write_text(json.dumps(truth))
    assert main([str(folder)]) == 1
    output = capsys.readouterr().out
    assert "another payload" in output
    assert "index 5001" in output
    assert "index 1028: ours" in output
