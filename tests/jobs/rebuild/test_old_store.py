"""An older store and the disks of today: nothing that either knows is lost, and the newer one counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName, ledger_of_path, ledger_path
from pulsar_meta.entries.registry import open_entries
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
        found = list(rebuilt_values(source, faults.append, known))
    assert not faults
    assert len({record.path for record in found}) == len(found)
    return {record.path: record for record in found}


def check_ledgers(path: str, before: list[LedgerInfo], after: list[LedgerInfo], made: Made) -> None:
    """The same ledgers, but for those without entries; of the last one the disks know how many it has."""
    here = [info for info in before if ledger_path(info.ledgerId) in made]
    assert [info.ledgerId for info in after] == [info.ledgerId for info in here], path
    for one, other in zip(after, here, strict=True):
        if other.timestamp:
            assert one == other, path
        else:
            assert one.entries == made[ledger_path(one.ledgerId)].facts["last_entry"] + 1


@pytest.mark.parametrize("name", ["pulsar-2.8.2", "pulsar-4.2.4", "pulsar-4.2.4-3bookies"])
def test_with_the_newest_store_all_is_as_it_was(capture: Callable[[str], Path], name: str) -> None:
    folder = capture(name)
    made = rebuilt(folder, "metadata.ndjson", as_they_were=True)
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        held = [one for one in copied(store) if one.value]
    compared = 0
    for one in held:
        found = made.get(one.path)
        value = None if found is None else found.value
        if ledger_of_path(one.path) is not None:
            closed = decode_ledger_metadata(one.value).metadata.state == LedgerMetadataFormat.CLOSED
            # One without entries is nowhere but in the store; one that was open is closed where it ends.
            assert found is None or not closed or value == one.value, one.path
        elif is_within(one.path, MANAGED_LEDGERS):
            assert value is not None, one.path
            if TopicName.from_path(one.path) is None:
                assert decode_cursor(value) == decode_cursor(one.value), one.path
            else:
                before, after = decode_managed_ledger(one.value), decode_managed_ledger(value)
                check_ledgers(one.path, list(before.ledgerInfo), list(after.ledgerInfo), made)
                assert {p.key: p.value for p in after.properties}.items() >= {
                    p.key: p.value for p in before.properties
                }.items()
                assert after.terminatedPosition == before.terminatedPosition
        else:
            assert value == one.value, one.path
        compared += found is not None
    assert compared > 200
    names = {one.path for one in held}
    more = [path for path, one in made.items() if path not in names and one.facts.get("cursor")]
    assert not more


def test_what_is_newer_on_the_disks(capture: Callable[[str], Path]) -> None:
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
    # What was there then, and without a name, had been given up.
    assert all((one.facts["cursor_ledger"] or 0) >= next_id for one in made.values() if is_recovered(one))
    gone = [one for one in made.values() if one.certainty == "gone" and "gone" in one.facts]
    assert all(one.value is None and one.facts["gone"] < next_id for one in gone)


def is_recovered(one: Rebuilt) -> bool:
    return str(one.facts.get("cursor", "")).startswith("recovered-") and one.value is not None


def test_a_ledger_that_is_gone(capture: Callable[[str], Path]) -> None:
    """Of three bookies two are lost: the topics go on with what is left, and what is not is said."""
    made = rebuilt(capture("pulsar-4.2.4-3bookies"), "metadata.ndjson", "bookie0")
    gone = {
        one.facts["gone"]: one for one in made.values() if one.certainty == "gone" and "gone" in one.facts
    }
    assert gone
    for ledger_id, one in gone.items():
        topic = TopicName.parse(one.facts["of"].partition(",")[0])
        assert ledger_id not in made[topic.path].facts["ledgers"]
        assert one.evidence[0] == "the old store names it, and no disk has it"
