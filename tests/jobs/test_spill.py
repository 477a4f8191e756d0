"""Collections in temporary files: spooled topics, and sorted lines."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.jobs import spill
from pulsar_meta.jobs.spill import Spool, sorted_lines
from pulsar_meta.jobs.topics.topic import every_topic, with_bookkeeper
from pulsar_meta.stores.registry import open_store


@pytest.mark.parametrize("block", [1, 7, spill.SPOOL_BLOCK])
def test_a_spool_yields_the_same_topics_each_time(
    block: int, capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "SPOOL_BLOCK", block)
    faults: list[Exception] = []
    with open_store(f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}") as store:
        expected = list(every_topic(store, faults.append))
        expected = [
            topic.with_ledgers(with_bookkeeper(store, topic.ledgers, faults.append)) for topic in expected
        ]
    assert len(expected) > 40
    assert any(ledger.bookkeeper for topic in expected for ledger in topic.ledgers)
    with Spool(iter(expected), lambda topic: 1 + len(topic.ledgers)) as topics:
        begun = iter(topics)
        first = [next(begun) for _ in range(20)]
        assert list(topics) == expected
        assert [*first, *begun] == expected


def test_an_empty_spool_needs_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with Spool[str](()) as items:
        assert list(items) == []


def test_a_spool_without_space_for_temporary_files_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(UnreachableError, match="cannot write a temporary file"):
        Spool(range(spill.SPOOL_BLOCK))


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17, 1000])
def test_sorted_runs_are_merged_stably(count: int) -> None:
    chance = random.Random(count)
    lines = [f"{chance.randrange(50):02d}\n\0{number}" for number in range(count)]
    with patch.object(spill, "RUN", 8), patch.object(spill, "RUN_BLOCK", 3):
        merged = list(sorted_lines(iter(lines), key=lambda line: line[:2]))
    assert merged == sorted(lines, key=lambda line: line[:2])


def test_few_lines_are_sorted_without_a_disk() -> None:
    with patch("tempfile.TemporaryFile", side_effect=OSError(28, "full")):
        assert list(sorted_lines(["b", "a"], key=str)) == ["a", "b"]
        with pytest.raises(UnreachableError, match="full"):
            list(sorted_lines(map(str, range(spill.RUN)), key=str))
