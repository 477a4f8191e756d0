"""Batches acknowledged in part, by a real broker anew: states in cursor ledgers and in records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.batch_ack_truth import differences
from tests.servers.batch_acks import LONG_ARRAYS, make

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("settings", [{}, LONG_ARRAYS], ids=["ranges", "long arrays"])
def test_acknowledgements_are_those_of_the_broker(
    version: str, tmp_path: Path, settings: Mapping[str, str]
) -> None:
    make(version, tmp_path, settings)
    for part in ("killed", "closed"):
        assert differences(tmp_path / part) == []
