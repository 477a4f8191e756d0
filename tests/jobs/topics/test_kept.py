"""Topics that are kept in temporary files and read several times."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.jobs.topics import kept
from pulsar_meta.jobs.topics.kept import kept_topics
from pulsar_meta.jobs.topics.topic import every_topic, with_bookkeeper
from pulsar_meta.stores.registry import open_store


@pytest.mark.parametrize("block", [1, 7, kept.BLOCK])
def test_topics_are_the_same_each_time(
    block: int, capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "BLOCK", block)
    faults: list[Exception] = []
    with open_store(f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}") as store:
        expected = list(every_topic(store, faults.append))
        expected = [
            topic.with_ledgers(with_bookkeeper(store, topic.ledgers, faults.append)) for topic in expected
        ]
    assert len(expected) > 40
    assert any(ledger.bookkeeper for topic in expected for ledger in topic.ledgers)
    with kept_topics(iter(expected)) as topics:
        begun = iter(topics)
        first = [next(begun) for _ in range(20)]
        assert list(topics) == expected
        assert [*first, *begun] == expected
        assert topics.ledgers == sum(len(topic.ledgers) for topic in expected)
        assert topics.entries == sum(ledger.entries or 0 for topic in expected for ledger in topic.ledgers)


def test_no_topics_are_kept_as_none() -> None:
    with kept_topics(()) as topics:
        assert (list(topics), topics.ledgers, topics.entries) == ([], 0, 0)


def test_missing_room_for_temporary_files_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(UnreachableError, match="cannot be kept in temporary files"), kept_topics(()):
        pass
