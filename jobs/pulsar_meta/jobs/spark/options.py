"""Options of the Spark data sources, which Spark hands over as text under names in lower case."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pulsar_meta.codecs.errors import UsageError


def whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    """Return the option `name` as a number from 1 on; UsageError, naming it, for what is none."""
    text = options.get(name.lower(), str(default))
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise UsageError(f"{name} is a whole number, not {text[:40]!r}")
    return max(1, int(text))


def several(options: Mapping[str, str], name: str) -> list[str]:
    """Return the texts of the option `name`: spaces between, or a JSON list; UsageError for a broken list.

    Names of topics may have spaces in them. Spark's own option `paths` is such a list, too.
    """
    text = options.get(name.lower(), "").strip()
    if not text.startswith("["):
        return text.split()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise UsageError(f"{name} is no JSON list of texts: {text[:40]!r}")
    return found


def truth(options: Mapping[str, str], name: str) -> bool:
    """Return the option `name`, true or false, false without it; UsageError, naming it, for anything else."""
    text = options.get(name.lower(), "false")
    if text.lower() not in ("true", "false"):
        raise UsageError(f"{name} is true or false, not {text[:40]!r}")
    return text.lower() == "true"
