"""Reports tests that did not run or failed at first. As a plugin of `make interop`, it resolves jars."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypedDict

import pytest

from tests.servers.restartable import is_required
from tests.servers.versions import FULL, NO_JARS, VERSIONS, why_not

RERUNS: Final = Path(__file__).with_name("reruns.toml")


class Explanation(TypedDict):
    """Why a test may fail at its first try: a fault of a broker, with its number upstream."""

    test: str
    fault: str
    upstream: str


def pytest_report_header() -> str:
    return f"Pulsar {', '.join(VERSIONS)}, {'full' if FULL else 'small'} sizes"


def pytest_sessionstart() -> None:
    for version in VERSIONS:
        print(f"Pulsar {version}: {why_not(version) or 'jars are there'}", flush=True)


def did_not_run(terminal: pytest.TerminalReporter) -> None:
    """Print how many tests were skipped for each reason, and by file for tests against real Pulsar."""
    missed: Counter[str] = Counter()
    for skipped in terminal.getreports("skipped"):
        reason = skipped.longrepr[2] if isinstance(skipped.longrepr, tuple) else str(skipped.longrepr)
        reason = reason.removeprefix("Skipped: ")
        suite = f"{skipped.nodeid.partition('::')[0]}: " if NO_JARS in reason else ""
        missed[f"{suite}{reason}"] += 1
    if missed:
        terminal.section(f"DID NOT RUN: {missed.total()} TESTS", sep="!", red=True, bold=True)
        for reason, count in sorted(missed.items()):
            terminal.line(f"{count} tests: {reason}")


def explained_reruns() -> list[Explanation]:
    """Read the list of tests that may fail at their first try."""
    explanations: list[Explanation] = tomllib.loads(RERUNS.read_text())["explained"]
    return explanations


def explanation_of(test: str, explanations: Iterable[Explanation]) -> Explanation | None:
    """Return why a test may fail at its first try, None if the list does not have it."""
    return next(
        (each for each in explanations if test == each["test"] or test.startswith(f"{each['test']}[")), None
    )


def failed_first(terminal: pytest.TerminalReporter) -> None:
    """Print how the tests failed that passed only when repeated."""
    explanations = explained_reruns()
    for failed in terminal.getreports("rerun"):
        known = explanation_of(failed.nodeid, explanations)
        if known is not None:
            terminal.line(f"failed at first try: {failed.nodeid}: {known['fault']} ({known['upstream']})")
            continue
        terminal.section(f"FAILED AT FIRST TRY: {failed.nodeid}", sep="!", red=True, bold=True)
        terminal.write_line(failed.longreprtext)
        terminal.line(
            f"Find the cause. If it is a fault of the broker, add the test to tests/servers/{RERUNS.name}."
        )


def fail_unexplained(session: pytest.Session) -> None:
    """Let the run fail if a test passed only when repeated and the list does not explain it.

    This needs PULSAR_META_EXPLAIN_RERUNS=1. It is not the default, because an unknown fault of a broker would
    fail a run in which all tests pass in the end.
    """
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    wanted = os.environ.get("PULSAR_META_EXPLAIN_RERUNS", "") not in ("", "0")
    if terminal is None or session.exitstatus or not wanted:
        return
    explanations = explained_reruns()
    if any(explanation_of(failed.nodeid, explanations) is None for failed in terminal.getreports("rerun")):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    lacking = any(why_not(version) for version in VERSIONS)
    if lacking and exitstatus == 0 and is_required("maven"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
