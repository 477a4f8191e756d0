"""A rebuild from an older store and today's disks keeps everything that either of them has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName, ledger_of_path, ledger_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.rebuild.evidence import Rebuilt
from pulsar_meta.jobs.rebuild.old_store import read_old_store
from pulsar_meta.jobs.rebuild.rebuilt import Known, rebuilt_values
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.jobs.values.places import copied
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import is_within
from pulsar_meta.stores.registry import open_store

Made = dict[str, Rebuilt]
LedgerInfo = ManagedLedgerInfo.LedgerInfo


def rebuilt(folder: Path, old: str, *disks: str, as_they_were: bool = False) -> Made:
    faults: list[PulsarMetaError] = []
    with open_store(f"snapshot:{folder / old}") as store:
        known = Known(old=read_old_store(store, faults.append), policies_as_they_were=as_they_were)
    urls = [f"bookie-disk:{folder / disk}" for disk in disks] or [f"bookie-disk:{folder}"]
    with open_entries(urls) as source:
        records = list(rebuilt_values(source, faults.append, known))
    assert not faults
    assert len({record.path for record in records}) == len(records)
    return {record.path: record for record in records}


def check_ledgers(path: str, before: list[LedgerInfo], after: list[LedgerInfo], made: Made) -> None:
    """Check that the ledgers with entries are unchanged. The disks also know the size of the last one."""
    here = [info for info in before if ledger_path(info.ledgerId) in made]
    assert [info.ledgerId for info in after] == [info.ledgerId for info in here], path
    for ledger, expected in zip(after, here, strict=True):
        if expected.timestamp:
            assert ledger == expected, path
        else:
            assert ledger.entries == made[ledger_path(ledger.ledgerId)].facts["last_entry"] + 1


@pytest.mark.parametrize("name", ["pulsar-2.8.2", "pulsar-4.2.4", "pulsar-4.2.4-3bookies"])
def test_the_newest_store_is_rebuilt_unchanged(capture: Callable[[str], Path], name: str) -> None:
    folder = capture(name)
    made = rebuilt(folder, "metadata.ndjson", as_they_were=True)
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        records = [record for record in copied(store) if record.value]
    compared = 0
    for record in records:
        rebuilt_record = made.get(record.path)
        value = None if rebuilt_record is None else rebuilt_record.value
        if ledger_of_path(record.path) is not None:
            closed = decode_ledger_metadata(record.value).metadata.state == LedgerMetadataFormat.CLOSED
            # A ledger without entries exists only in the store, and one that was open is closed at its end.
            assert rebuilt_record is None or not closed or value == record.value, record.path
        elif is_within(record.path, MANAGED_LEDGERS):
            assert rebuilt_record is not None, record.path
            assert value is not None, record.path
            if TopicName.from_path(record.path) is None:
                old, new = decode_cursor(record.value), decode_cursor(value)
                if "of which no disk has an entry" in rebuilt_record.evidence[-1]:
                    assert ledger_path(old.markDeleteLedgerId) not in made
                    old.markDeleteLedgerId, old.markDeleteEntryId = (
                        new.markDeleteLedgerId,
                        new.markDeleteEntryId,
                    )
                assert new == old, record.path
            else:
                before, after = decode_managed_ledger(record.value), decode_managed_ledger(value)
                check_ledgers(record.path, list(before.ledgerInfo), list(after.ledgerInfo), made)
                assert {p.key: p.value for p in after.properties}.items() >= {
                    p.key: p.value for p in before.properties
                }.items()
                assert after.terminatedPosition == before.terminatedPosition
        else:
            assert value == record.value, record.path
        compared += rebuilt_record is not None
    assert compared > 200
    names = {record.path for record in records}
    more = [path for path, value in made.items() if path not in names and value.facts.get("cursor")]
    assert not more


def test_newer_data_on_the_disks_is_added(capture: Callable[[str], Path]) -> None:
    folder, old = capture("pulsar-4.2.4"), "metadata-after-step-2.ndjson"
    made = rebuilt(folder, old)
    now_url = f"snapshot:{folder / 'metadata.ndjson'}"
    with open_store(f"snapshot:{folder / old}") as then, open_store(now_url) as now:
        next_id = read_old_store(then, print).next_id
        for name in ("orders", "marks", "delayed", "parted-partition-0"):
            before, after = (read_topic(store, TopicName.parse(name)) for store in (then, now))
            ledgers = made[after.path].facts["ledgers"]
            assert {ledger.ledger_id for ledger in after.ledgers if ledger.entries} <= set(ledgers)
            assert ledgers == sorted(ledgers)
            assert before.terminated == after.terminated
        policies = then.read("/admin/policies/public/default").value
    value = made["/admin/policies/public/default"].value
    assert value is not None
    assert json.loads(value)["retention_policies"] == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert json.loads(value)["bundles"] == json.loads(policies)["bundles"]
    # Cursor ledgers from before the old store that it does not name were given up by then.
    assert all(
        (record.facts["cursor_ledger"] or 0) >= next_id for record in made.values() if is_recovered(record)
    )
    gone = [record for record in made.values() if record.certainty == "gone" and "gone" in record.facts]
    assert all(record.value is None and record.facts["gone"] < next_id for record in gone)


def is_recovered(record: Rebuilt) -> bool:
    return str(record.facts.get("cursor", "")).startswith("recovered-") and record.value is not None


def test_ledgers_that_no_disk_has_are_removed_and_reported(capture: Callable[[str], Path]) -> None:
    """Two of three bookies are lost. The topics keep the ledgers that are left."""
    made = rebuilt(capture("pulsar-4.2.4-3bookies"), "metadata.ndjson", "bookie0")
    gone = {
        record.facts["gone"]: record
        for record in made.values()
        if record.certainty == "gone" and "gone" in record.facts
    }
    assert gone
    for ledger_id, record in gone.items():
        topic = TopicName.parse(record.facts["of"].partition(",")[0])
        assert ledger_id not in made[topic.path].facts["ledgers"]
        assert record.evidence[0] == "the old store refers to it, but no disk has it"
