"""The layouts of `fixtures/bookies`, made anew by real bookies: what these serve is what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bookie_truth import differences
from tests.servers.bookie_layouts import compile_provider, layouts
from tests.servers.restartable import skip_or_fail

pytestmark = pytest.mark.interop

NAMES = [*layouts(None), "reused-aligned", "reused-within"]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_bookie_serves_is_read(name: str, tmp_path: Path) -> None:
    makers = layouts(compile_provider(tmp_path))
    if name not in makers:
        skip_or_fail("javac", "javac is not installed (Debian: openjdk-17-jdk-headless)")
    makers[name](tmp_path / name)
    for scan in (False, True):
        assert differences(tmp_path / name, scan=scan) == []
