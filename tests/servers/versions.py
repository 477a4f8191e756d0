"""The Pulsar versions of the tests against real Pulsar.

`PULSAR_VERSIONS="2.8.2 4.2.4"` chooses them (`make interop VERSIONS=…`). PULSAR_META_FULL=1 selects the full
sizes: 20 000 values in each test of the oracle, more than half a million per version. Without Maven, the
tests are skipped with a reason that starts with NO_JARS, and `tests.servers.report` prints what did not run.
If PULSAR_META_REQUIRED
has `maven` or `all`, they fail instead.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from tests.servers import jars

# The newest 4.2, and one of the 4.0 line, whose metadata is still Java protobuf.
NEWEST: Final = "4.2.4"
DEFAULT: Final = (NEWEST, "4.0.7")
VERSIONS: Final = tuple(os.environ.get("PULSAR_VERSIONS", "").split()) or DEFAULT
FULL: Final = os.environ.get("PULSAR_META_FULL", "") not in ("", "0")
NO_JARS: Final = "no jars: "


@cache
def why_not(version: str) -> str | None:
    """Return why there are no jars of `version`, or None if there are. The first call uses Maven."""
    try:
        jars.resolve(version)
    except jars.NoJars as error:
        return f"{NO_JARS}{error}"
    return None


def size(few: int, full: int) -> int:
    """Return the number of values to try: `few`, or `full` with PULSAR_META_FULL=1."""
    return full if FULL else few
