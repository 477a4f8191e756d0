"""The report of a new release names everything that the program does not know in its capture."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from pulsar_meta.codecs.names import TopicName
from tests.servers import jars
from tests.servers.clients import programs
from tests.servers.jars import NoJars
from tests.servers.new_release import entries_not_understood, main, values_not_understood

PLAIN = TopicName.parse("public/default/plain").path


def test_nothing_is_unknown_in_the_newest_capture(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-5.0.0-M1")
    assert not values_not_understood(folder)
    assert not entries_not_understood(folder, ["persistent://public/default/plain"])


def test_unknown_values_and_fields_are_counted(capture: Callable[[str], Path], tmp_path: Path) -> None:
    lines = (capture("pulsar-4.2.4-3bookies") / "metadata.ndjson").read_text().splitlines()
    [record] = [line for line in map(json.loads, lines) if line.get("path") == PLAIN]
    newer = base64.b64decode(record["value"]) + b"\xf8\x07\x01"
    values = [
        {**record, "value": base64.b64encode(newer).decode()},
        {**record, "path": "/new/of-6/7", "value": base64.b64encode(b"\xff\x00").decode()},
        {**record, "path": "/ledgers/00/0000/L0007", "value": base64.b64encode(b"?").decode()},
    ]
    (tmp_path / "metadata.ndjson").write_text("".join(json.dumps(value) + "\n" for value in values))
    found = values_not_understood(tmp_path)
    assert found["/managed-ledgers/public/default: ManagedLedgerInfo: unknown field 127"] == 1
    assert found["/new/of-N/N: Bytes, no kind of value"] == 1
    assert len(found) == 3


def test_a_capture_goes_on_if_the_go_client_takes_too_long_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow() -> Path:
        raise TimeoutExpired(["go", "build"], 600)

    monkeypatch.setattr(programs, "go_client", too_slow)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/go")
    assert programs.why_no_go() == "the Go client was not built in 600 seconds"


def test_a_release_without_jars_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(version: str) -> Path:
        raise NoJars(f"Maven cannot resolve Pulsar {version}")

    monkeypatch.setattr(jars, "resolve", refuse)
    assert main("9.9.9", str(tmp_path)) == 3
    assert "9.9.9: no capture, Maven cannot resolve Pulsar 9.9.9" in capsys.readouterr().err
