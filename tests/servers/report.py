"""A pytest plugin for `make interop`: resolves the jars first, and says loudly what did not run."""

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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missed: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if NO_JARS in reason:
            missed[report.nodeid.partition("::")[0], reason.partition(NO_JARS)[2]] += 1
    if missed:
        terminalreporter.section("DID NOT RUN AGAINST REAL PULSAR", sep="!", red=True, bold=True)
        for (suite, reason), count in sorted(missed.items()):
            terminalreporter.line(f"{suite}: {count} tests: {reason}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    lacking = any(why_not(version) for version in VERSIONS)
    if lacking and exitstatus == 0 and os.environ.get("CI"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
