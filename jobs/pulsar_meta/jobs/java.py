"""The Java that Spark needs: which one would run, and whether it is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

NEEDED: Final = 17
HINT: Final = f"Java {NEEDED} or newer (Debian: openjdk-17-jre-headless)"
_version_re = re.compile(r'version "(?:1\.)?(\d+)')


def java_command() -> str | None:
    """Return the `java` that Spark starts: that of JAVA_HOME, else the one on the PATH.

    None where there is none, or none that may be executed.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    return shutil.which("java")


def why_no_java() -> str | None:
    """Return why Spark cannot run here, None where it can."""
    command = java_command()
    if command is None:
        home = os.environ.get("JAVA_HOME")
        return f"there is no java{f' in JAVA_HOME ({home})' if home else ''}: install {HINT}"
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command} does not run ({error}): install {HINT}"
    version = _version_re.search(said.stderr + said.stdout)
    if version is None or said.returncode:
        return f"{command} does not run: install {HINT}"
    if int(version[1]) < NEEDED:
        return f"{command} is Java {version[1]}: install {HINT}"
    return None
