"""The owners of ledgers, compared with the custom metadata that brokers wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_of_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of, read_bookkeeper_ledger
from pulsar_meta.jobs.topics.owners import (
    COMPACTED_LEDGER,
    Owner,
    first_owner,
    owner_in_custom,
    owners,
    owners_of,
)
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.topic_builder import MemoryEntries

COMPACTED = TopicName.parse("orders").cursor_path("__compaction")


def pointing(*, at: int, state: int = -1) -> bytes:
    """Build a compaction cursor that points to ledger `at` and has its state in ledger `state`."""
    record = ManagedCursorInfo(cursorsLedgerId=state, markDeleteLedgerId=1, markDeleteEntryId=9)
    record.properties.add(name=COMPACTED_LEDGER, value=at)
    return record.SerializeToString()


@pytest.mark.parametrize("name", ["pulsar-2.8.2", "pulsar-4.2.4", "pulsar-4.2.4-killed"])
def test_each_ledger_of_a_capture_has_the_owner_it_was_created_for(
    name: str, capture: Callable[[str], Path]
) -> None:
    folder = capture(name)
    faults: list[DecodeError] = []
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries([f"bookie-disk:{folder / 'bookie0'}"]) as source,
    ):
        there = {ledger_of_path(record.path): record for record in store.scan(LEDGERS)}
        created = {
            number: owner_in_custom(number, bookkeeper_ledger_of(number, record).custom)
            for number, record in there.items()
            if number is not None
        }
        named = owners_of(created, store, source, faults.append)
    assert not faults
    assert len({owner.role for owner in created.values() if owner is not None}) >= 4
    for number, owner in created.items():
        assert owner is not None
        assert [reference._replace(path=None) for reference in named[number]] == [owner]


def test_a_ledger_that_shadow_topics_list_too_belongs_to_their_source(capture: Callable[[str], Path]) -> None:
    with open_store(f"snapshot:{capture('pulsar-4.2.4-shadows') / 'metadata.ndjson'}") as store:
        created = owner_in_custom(7, read_bookkeeper_ledger(store, 7).custom)
        named = owners_of([7], store, None, _fail)[7]
    assert len(named) > 2
    assert named[0].name != str(TopicName.parse("source"))
    owner = first_owner(named, created)
    assert owner is not None
    assert owner.name == str(TopicName.parse("source"))
    assert first_owner(named, None) == named[0]
    assert first_owner([], created) is None


def _fail(error: DecodeError) -> None:
    raise error


def test_the_pointer_of_a_compaction_cursor_may_be_in_its_ledger() -> None:
    store, source = MemoryStore(), MemoryEntries()
    store.put(COMPACTED, pointing(at=7, state=5), ABSENT)
    unseen: list[str] = []
    faults: list[DecodeError] = []

    def owners_found() -> list[tuple[int, str, bool]]:
        found_owners = owners(store, source, faults.append, lambda path, why: unseen.append(f"{path}: {why}"))
        return [(owner.ledger_id, owner.role, owner.certain) for owner in found_owners]

    assert owners_found() == [(5, "cursor", True), (7, "compacted", False)]
    assert unseen == [f"{COMPACTED}: its state is in ledger 5, of which no source has an entry"]
    state = PositionInfo(ledgerId=1, entryId=9)
    state.properties.add(name=COMPACTED_LEDGER, value=8)
    source.put(5, 0, state.SerializeToString())
    assert owners_found() == [(5, "cursor", True), (8, "compacted", True)]
    assert (len(unseen), faults) == (1, [])


def test_a_corrupt_record_is_reported_and_the_others_are_read() -> None:
    store = MemoryStore()
    store.put(COMPACTED, pointing(at=7), ABSENT)
    store.put(TopicName.parse("broken").path, b"\x0a\x7f", ABSENT)
    store.put("/schemas/public/default/broken", b"\xff", ABSENT)
    store.put("/schemas/public/default", b"", ABSENT)
    faults: list[DecodeError] = []
    owners_by_ledger = owners_of([7, 9], store, None, faults.append)
    assert owners_by_ledger == {
        7: [Owner(7, "compacted", "persistent://public/default/orders", "__compaction", COMPACTED)],
        9: [],
    }
    assert sorted(str(fault.source) for fault in faults) == [
        "/managed-ledgers/public/default/persistent/broken",
        "/schemas/public/default/broken",
    ]


@pytest.mark.parametrize(
    "custom",
    [{}, {"component": "BK-SHELL-bookie"}, {"application": "DL"}, {"component": "managed-ledger"}],
)
def test_custom_metadata_of_other_applications_names_no_owner(custom: dict[str, str]) -> None:
    assert owner_in_custom(1, custom) is None
