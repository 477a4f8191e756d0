"""The program as a person or a script runs it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MAIN: Final = (sys.executable, "-c", "from pulsar_meta.cli.app import main; main()")


def environment(state: Path, **more: str) -> dict[str, str]:
    """Return the environment of a run whose state directory is `state`, without settings of this user."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULSAR_META_", "XDG_"))
    }
    return kept | {"XDG_STATE_HOME": str(state), "XDG_CONFIG_HOME": str(state / "config")} | more


def pulsar_meta(
    *arguments: str | Path, env: Mapping[str, str], stdin: bytes = b"", seconds: float = 120
) -> subprocess.CompletedProcess[bytes]:
    """Run the program to its end."""
    words = [*MAIN, *map(str, arguments)]
    return subprocess.run(words, input=stdin, capture_output=True, env=dict(env), timeout=seconds)
