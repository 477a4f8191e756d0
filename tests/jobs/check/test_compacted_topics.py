"""System topics whose compacted ledger covers their trimmed ledgers, as brokers and `rebuild` leave them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import check_findings, healthy_store

# Its compacted ledger ends at 234:0.
TOPIC = TopicName.parse("public/default/__transaction_buffer_snapshot")
COVERED = 234


def add_ledger(store: MemoryStore, ledger_id: int) -> None:
    """Add metadata of a closed ledger of the topic with one entry, copied from another topic's ledger."""
    decoded = decode_ledger_metadata(store.values[ledger_path(25)].value)
    decoded.metadata.lastEntryId = 0
    for pair in decoded.metadata.customMetadata:
        if pair.key == "pulsar/managed-ledger":
            pair.value = TOPIC.path.removeprefix("/managed-ledgers/").encode()
    store.values[ledger_path(ledger_id)] = Versioned(
        ledger_path(ledger_id), encode_ledger_metadata(decoded), 0
    )


@pytest.mark.parametrize(("ledger_id", "lost"), [(COVERED, False), (COVERED + 1, True)])
def test_ledgers_that_the_compacted_ledger_covers_are_not_lost(
    capture: Callable[[str], Path], ledger_id: int, lost: bool
) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    info = decode_managed_ledger(store.values[TOPIC.path].value)
    del store.values[ledger_path(info.ledgerInfo[0].ledgerId)]
    info.ClearField("ledgerInfo")
    store.values[TOPIC.path] = store.values[TOPIC.path]._replace(value=info.SerializeToString())
    add_ledger(store, ledger_id)
    codes = {finding.code for finding in check_findings(store) if finding.topic == str(TOPIC)}
    assert ("topic-record-lost" in codes, "system-topic-unreadable" in codes) == (lost, lost)


@pytest.mark.parametrize("ledger_id", [-1, 7_654_321])
def test_a_wrong_reference_is_corrected_if_the_compacted_data_exists(
    capture: Callable[[str], Path], ledger_id: int
) -> None:
    store, topic = healthy_store(capture("pulsar-4.2.4")), TopicName.parse("public/default/compacted")
    path = topic.cursor_path("__compaction")
    info = decode_cursor(store.values[path].value)
    wanted, info.properties[0].value = info.properties[0].value, ledger_id
    store.values[path] = store.values[path]._replace(value=info.SerializeToString())
    [missing] = [each for each in check_findings(store) if each.code == "compaction-ledger-missing"]
    assert missing.repair == f"pulsar-meta repair compaction {topic} --ledger {wanted}"
    del store.values[ledger_path(wanted)]
    [missing] = [each for each in check_findings(store) if each.code == "compaction-ledger-missing"]
    assert missing.repair == f"pulsar-meta repair compaction {topic} --drop"
