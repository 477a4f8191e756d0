"""The values that belong to a topic, compared with the custom metadata that brokers wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from pulsar_meta.codecs.names import TopicName, ledger_of_path, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.restore.values import Remains, TopicValues
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.registry import open_store


@pytest.fixture
def store(capture: Callable[[str], Path]) -> Iterator[Store]:
    with open_store(f"rocksdb:{capture('pulsar-4.2.4') / 'rocksdb'}") as opened:
        yield opened


def belongings(
    store: Store, name: str, *, policies: bool = False, remains: Remains | None = None
) -> TopicValues:
    return TopicValues(store, chosen_topics(store, [name]), policies, None, remains)


def created_for(record: Versioned) -> str:
    """Return the topic for which a broker created a ledger, from the ledger's metadata."""
    ledger_id = ledger_of_path(record.path)
    assert ledger_id is not None
    custom = bookkeeper_ledger_of(ledger_id, record).custom
    if "pulsar/schemaId" in custom:
        return custom["pulsar/schemaId"]
    named = custom.get("pulsar/compactedTopic") or custom.get("pulsar/delayedIndexTopic")
    topic = (
        TopicName.parse(named)
        if named
        else TopicName.from_path(f"/managed-ledgers/{custom['pulsar/managed-ledger']}")
    )
    assert topic is not None
    topic = topic.partitioned or topic
    return f"{topic.namespace_name}/{topic.local}"


def test_each_topic_has_its_ledgers_and_no_others(store: Store) -> None:
    records = [record for record in store.scan("/managed-ledgers") if TopicName.from_path(record.path)]
    names = {
        (topic.partitioned or topic) for record in records if (topic := TopicName.from_path(record.path))
    }
    checked = 0
    for name in sorted(names, key=str):
        values = list(belongings(store, str(name)).values())
        paths = [value.path for value in values]
        assert len(paths) == len(set(paths))
        owners = {created_for(value) for value in values if ledger_of_path(value.path) is not None}
        own = f"{name.namespace_name}/{name.local}"
        # Pending-ack logs of transactions are topics of their own.
        assert all(owner == own or owner.startswith(f"{own}-") for owner in owners), (own, owners)
        checked += len(paths)
        others = [path for path in paths if path.startswith("/managed-ledgers")]
        assert all(path.startswith((name.path, f"{name.path}-")) for path in others)
    assert checked > 250


def test_a_namespace_has_all_its_topics_once(store: Store) -> None:
    paths = [value.path for value in belongings(store, "public/default", policies=True).values()]
    assert len(paths) == len(set(paths))
    below = {
        record.path for record in store.scan("/managed-ledgers/public/default/persistent") if record.value
    }
    assert below <= set(paths)
    assert {"/admin/policies/public", "/admin/policies/public/default"} <= set(paths)


def test_ledgers_that_are_not_on_the_disks_are_left_out(store: Store, capture: Callable[[str], Path]) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        names = [str(TopicName.from_path(record.path)) for record in store.scan("/managed-ledgers")]
        topic = next(
            topic
            for name in names
            if name != "None"
            and len((topic := read_topic(store, TopicName.parse(name))).ledgers) > 2
            and all(source.last_entry(ledger.ledger_id) is not None for ledger in topic.ledgers[:2])
        )
        hidden, logged = topic.ledgers[0].ledger_id, topic.ledgers[1].ledger_id
        for unindexed_too, left_out in ((False, {hidden, logged}), (True, {hidden})):
            remaining = cast(EntrySource, _Without(source, {hidden, logged}))
            remains = Remains(remaining, {logged}, unindexed_too)
            values = {
                value.path: value for value in belongings(store, str(topic.name), remains=remains).values()
            }
            assert (remains.counts["gone"], remains.counts["unindexed"]) == (1, 1)
            assert not {ledger_path(ledger_id) for ledger_id in left_out} & values.keys()
            kept = [ledger.ledger_id for ledger in topic.ledgers if ledger.ledger_id not in left_out]
            assert {ledger_path(ledger_id) for ledger_id in kept} <= values.keys()
            assert _ledgers(values[TopicName.parse(topic.name).path]) == kept


def _ledgers(record: Versioned) -> list[int]:
    from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger, ledgers_by_id

    return [ledger.ledgerId for ledger in ledgers_by_id(decode_managed_ledger(record.value))]


class _Without:
    """Disks from which some ledgers were deleted."""

    def __init__(self, source: EntrySource, ledgers: set[int]) -> None:
        self._source, self._ledgers = source, ledgers

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        return iter(()) if ledger_id in self._ledgers else self._source.entry_ids(ledger_id)
