"""Topics without partitions that have the name of a partitioned topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import healthy_store

Capture = Callable[[str], Path]
PLAIN = TopicName.parse("public/default/plain")
CODE = "topic-beside-partitioned"


def partitioned(capture: Capture) -> MemoryStore:
    """Return a store in which a topic with messages also has a number of partitions."""
    store = healthy_store(capture("pulsar-4.2.4"))
    path = PLAIN.partitioned_path
    store.values[path] = Versioned(path, b'{"partitions":2}', 0, None, None)
    return store


def found_in(store: MemoryStore, *releases: str, name: str = "") -> list[Finding]:
    options = CheckOptions(min_age=0, releases=releases)
    names = (name,) if name else ()
    return [each for each in checkup(store, None, names, options).findings() if each.code == CODE]


@pytest.mark.parametrize(
    ("releases", "severity"),
    [((), Severity.WARNING), (("4.0.7",), Severity.WARNING), (("4.0.7", "4.2.4"), Severity.ERROR)],
)
def test_the_severity_depends_on_the_releases(
    capture: Capture, releases: tuple[str, ...], severity: Severity
) -> None:
    [found] = found_in(partitioned(capture), *releases)
    assert (found.topic, found.severity, found.repair) == (str(PLAIN), severity, None)
    assert found.evidence["partitions"] == 2
    assert found.evidence["entries"] > 0


def test_a_check_of_the_topic_finds_it_too(capture: Capture) -> None:
    assert len(found_in(partitioned(capture), name=str(PLAIN))) == 1


def test_a_topic_without_entries_is_a_note(capture: Capture) -> None:
    store = partitioned(capture)
    record = store.values[PLAIN.path]
    info = decode_managed_ledger(record.value)
    del info.ledgerInfo[:]
    store.values[PLAIN.path] = record._replace(value=info.SerializeToString())
    assert [each.severity for each in found_in(store)] == [Severity.NOTE]


def test_an_open_ledger_may_have_entries(capture: Capture) -> None:
    store = partitioned(capture)
    record = store.values[PLAIN.path]
    info = decode_managed_ledger(record.value)
    del info.ledgerInfo[:-1]
    info.ledgerInfo[0].entries = 0
    store.values[PLAIN.path] = record._replace(value=info.SerializeToString())
    path = ledger_path(info.ledgerInfo[0].ledgerId)
    decoded = decode_ledger_metadata(store.values[path].value)
    decoded.metadata.state = LedgerMetadataFormat.OPEN
    decoded.metadata.ClearField("lastEntryId")
    store.values[path] = store.values[path]._replace(value=encode_ledger_metadata(decoded))
    [found] = found_in(store)
    assert (found.severity, "may have entries" in found.message) == (Severity.WARNING, True)


def test_the_parent_of_subscriptions_is_no_topic(capture: Capture) -> None:
    store = partitioned(capture)
    store.values[PLAIN.path] = store.values[PLAIN.path]._replace(value=b"")
    assert found_in(store) == []


def test_a_number_of_partitions_that_is_gone_when_it_is_read_again_is_not_reported(capture: Capture) -> None:
    class Deleted(MemoryStore):
        def read(self, path: str) -> Versioned:
            if path == PLAIN.partitioned_path:
                self.values.pop(path, None)
            return super().read(path)

    store = Deleted()
    store.values = partitioned(capture).values
    assert found_in(store) == []
