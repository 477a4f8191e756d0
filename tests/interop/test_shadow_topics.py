"""Shadow topics of a real broker, made anew: every message and every answer as the broker gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.topics.topic import read_topic, topic_of
from pulsar_meta.stores.registry import open_store
from tests.capture_report import report_messages
from tests.seek_truth import compare_capture
from tests.servers.shadows import SHADOWS, make

pytestmark = pytest.mark.interop


def test_a_shadow_has_what_its_broker_reads(version: str, tmp_path: Path) -> None:
    folder = tmp_path / f"pulsar-{version}-shadows"
    truth = make(version, folder)
    messages, seeks = report_messages(folder, truth), compare_capture(folder)
    assert (messages.wrong, seeks.wrong) == ([], [])
    assert messages.same > 1000
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        for name in SHADOWS:
            topic = TopicName.parse(name)
            own, found = (
                [ledger.ledger_id for ledger in one.ledgers]
                for one in (topic_of(store.read(topic.path)), read_topic(store, topic))
            )
            assert (own != found) == (name not in ("of-shadow", "of-deleted")), name
