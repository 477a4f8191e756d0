"""Runs the installed program as a script does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("pulsar-meta")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it; the exit code is the caller's to look at."""
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)


def stated(*arguments: str) -> Any:
    """Return the JSON of a command that succeeds without a word on stderr."""
    done = run(*arguments, "-o", "json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def lookup(url: str, topic: str, *options: str) -> dict[str, Any]:
    """Return the one answer of `lookup`."""
    found: dict[str, Any] = stated("lookup", topic, "--service-url", url, *options)
    return found
