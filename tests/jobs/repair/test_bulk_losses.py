"""The losses of a run that changes many records, and what confirms them."""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.repair.bulk_losses import LISTED, BulkLosses
from pulsar_meta.jobs.repair.losses import NOTHING, Losses
from pulsar_meta.jobs.rewrite.decision import keep, write
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.stores.base import current
from pulsar_meta.stores.memory import MemoryStore
from tests.jobs.repair.conftest import Patient

PLAIN, MARKS = TopicName.parse("plain"), TopicName.parse("marks")


def losses(store: MemoryStore, changes: Iterable[tuple[str, bytes | None]]) -> Losses:
    bulk = BulkLosses(store, OtherClusters(store))
    for path, new in changes:
        seen = current(store, path)
        bulk.add((seen, write(seen, new)))
    return bulk.total()


def test_unchanged_and_new_values_lose_nothing(patient: Patient) -> None:
    bulk = BulkLosses(patient.store, OtherClusters(patient.store))
    seen = current(patient.store, PLAIN.path)
    bulk.add((seen, keep(seen, "same")))
    assert bulk.total() == NOTHING
    record = patient.store.read(PLAIN.path).value
    patient.remove(PLAIN.path)
    assert losses(patient.store, [(PLAIN.path, record), ("/admin/x", b"1")]) == NOTHING


def test_one_topic_is_confirmed_by_its_name(patient: Patient) -> None:
    info = decode_managed_ledger(patient.store.read(PLAIN.path).value)
    [first, *_] = info.ledgerInfo
    text = f"{PLAIN}: {first.entries} entries in 1 ledger become unreachable"
    del info.ledgerInfo[0]
    lost = losses(patient.store, [(PLAIN.path, info.SerializeToString())])
    assert lost == Losses((text,), str(PLAIN))


def test_removed_ledgers_belong_to_the_topics_that_list_them(patient: Patient) -> None:
    assert losses(patient.store, [(ledger_path(25), None)]) == Losses(
        (f"ledger 25 is data of {PLAIN}: 50 entries become unreachable",), str(PLAIN)
    )


def test_a_ledger_that_ends_earlier_loses_entries(patient: Patient) -> None:
    metadata = decode_ledger_metadata(patient.store.read(ledger_path(25)).value)
    metadata.metadata.lastEntryId -= 3
    shorter = encode_ledger_metadata(metadata)
    assert losses(patient.store, [(ledger_path(25), shorter)]) == Losses(
        ("ledger 25: its last 3 entries become unreachable",), str(PLAIN)
    )
    longer = patient.store.read(ledger_path(25)).value
    patient.put(ledger_path(25), shorter)
    assert losses(patient.store, [(ledger_path(25), longer)]) == NOTHING


def test_several_topics_are_confirmed_by_their_number(patient: Patient) -> None:
    lost = losses(patient.store, [(PLAIN.path, None), (MARKS.path, None), (ledger_path(25), None)])
    assert lost.confirm == "2 topics"
    assert [text.rpartition(": ")[0] for text in lost.texts[:2]] == [str(PLAIN), str(MARKS)]


def test_the_list_of_losses_is_bounded(patient: Patient) -> None:
    paths = [path for path in patient.store.values if path.startswith("/managed-ledgers/")]
    lost = losses(patient.store, [(path, None) for path in paths])
    assert len(lost.texts) == LISTED + 1
    count, _, unit = (lost.confirm or "").partition(" ")
    assert (unit, int(count) > 5) == ("topics", True)
    assert lost.texts[-1].startswith("losses that are not listed: ")
