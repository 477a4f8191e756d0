"""Which Java would run Spark, and the reasons why none can."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_meta.jobs.engine import choose_engine, java_command, why_no_java


def write_java(folder: Path, prints: str, mode: int = 0o755) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{prints}' >&2\n")
    java.chmod(mode)
    return java


@pytest.mark.parametrize("variable", ["JAVA_HOME", "PATH"])
def test_a_java_that_cannot_be_executed_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    java = write_java(tmp_path, 'openjdk version "17.0.1"', 0o644)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("pulsar_meta.jobs.engine.packaged_java", lambda: None)
    monkeypatch.setenv(variable, str(tmp_path if variable == "JAVA_HOME" else java.parent))
    assert java_command() is None
    missing = why_no_java()
    assert missing is not None
    assert missing.startswith("java not found")
    assert "\n" not in missing
    assert choose_engine("auto", 0, "local[1]") == ("local", f"running without Spark: {missing}")


@pytest.mark.parametrize(
    ("prints", "expected"),
    [
        ('openjdk version "17.0.1"', None),
        ('openjdk version "21" 2023-09-19', None),
        ('java version "1.8.0_402"', "is Java 8"),
        ("Segmentation fault", "does not run"),
    ],
)
def test_the_version_of_java_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, expected: str | None
) -> None:
    write_java(tmp_path, prints)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    missing = why_no_java()
    assert missing is None if expected is None else expected in str(missing)


def test_an_unreadable_folder_has_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/proc/1/root/nowhere")
    assert java_command() is None
