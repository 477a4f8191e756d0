"""Reports tests that did not run or failed at first. As a plugin of `make interop`, it resolves jars."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.servers.versions import FULL, NO_JARS, VERSIONS, why_not


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


def failed_first(terminal: pytest.TerminalReporter) -> None:
    """Print how the tests failed that passed only when repeated."""
    for failed in terminal.getreports("rerun"):
        terminal.section(f"FAILED AT FIRST TRY: {failed.nodeid}", sep="!", red=True, bold=True)
        terminal.write_line(failed.longreprtext)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    lacking = any(why_not(version) for version in VERSIONS)
    if lacking and exitstatus == 0 and os.environ.get("CI"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
