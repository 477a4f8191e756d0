"""Java, as the tests need it: for Spark, ZooKeeper and the classes that come with Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

OLDEST: Final = 17
# A Java of a test lives for seconds: what it would compile well and collect in parallel never pays.
BRIEF: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def executable() -> str | None:
    """Return the `java` of JAVA_HOME, else that of PATH; None where there is none that may be executed."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)


@cache
def why_not() -> str | None:
    """Return why no Java program of the tests can run here, None where one can."""
    java = executable()
    if java is None:
        return (
            f"Java {OLDEST} is needed, and there is no `java` here: apt-get install openjdk-17-jre-headless"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < OLDEST:
        return f"Java {OLDEST} is needed, and {java} says {said.strip().partition(chr(10))[0]!r}"
    return None
