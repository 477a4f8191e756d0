"""Regular expressions that are compiled when they are first used, so that a start does not wait for them."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _LazyPattern:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(re.compile(self._pattern, self._flags), name)
        # The next access does not come here.
        setattr(self, name, attribute)
        return attribute


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` returns, except that errors in the pattern are raised when it is used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))
