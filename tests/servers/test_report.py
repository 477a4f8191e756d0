"""Tests that pass only at their second try are reported, and can let a run fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.report import Explanation, explained_reruns, explanation_of

REPOSITORY = Path(__file__).parents[2]
KNOWN: Explanation = {"test": "a.py::test_b", "fault": "f", "upstream": "apache/pulsar#1"}
# Fails at its first try only.
ONCE = """
from pathlib import Path

def test_once():
    file = Path(__file__).with_suffix(".tried")
    tried = file.exists()
    file.touch()
    assert tried
"""
CONFTEST = """
from tests.servers import report

def pytest_sessionfinish(session):
    report.fail_unexplained(session)

def pytest_terminal_summary(terminalreporter):
    report.failed_first(terminalreporter)
"""


def test_every_explanation_names_a_test_and_a_fault_upstream() -> None:
    for each in explained_reruns():
        file, _, name = each["test"].partition("::")
        assert f"def {name.partition('[')[0]}(" in (REPOSITORY / file).read_text()
        assert each["fault"]
        assert re.fullmatch(r"apache/(pulsar|bookkeeper)#[0-9]+", each["upstream"])


@pytest.mark.parametrize(
    ("test", "known"), [("a.py::test_b", True), ("a.py::test_b[4.2.4]", True), ("a.py::test_bc", False)]
)
def test_an_explanation_is_for_all_parameters_of_a_test(test: str, known: bool) -> None:
    assert explanation_of(test, [KNOWN]) == (KNOWN if known else None)


@pytest.mark.parametrize(("variable", "code"), [("", 0), ("0", 0), ("1", 1)])
def test_a_test_that_passes_at_its_second_try_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, code: int
) -> None:
    (tmp_path / "test_once.py").write_text(ONCE)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    monkeypatch.setenv("PULSAR_META_EXPLAIN_RERUNS", variable)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    command = [sys.executable, "-m", "pytest", "-q", "--reruns", "1", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == code, done.stdout
    assert "1 passed, 1 rerun" in done.stdout
    assert "FAILED AT FIRST TRY: test_once.py::test_once" in done.stdout
    assert "assert tried" in done.stdout
