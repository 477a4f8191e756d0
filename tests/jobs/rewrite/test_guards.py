from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import GuardError, UsageError
from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from pulsar_meta.codecs.names import TopicName, split_managed_ledger_path
from pulsar_meta.jobs.rewrite.decision import Change, Decided, write
from pulsar_meta.jobs.rewrite.guards import (
    MIGRATION,
    Bundle,
    Guards,
    Overrides,
    bundle_of,
    bundles_named,
    owners_path,
)
from pulsar_meta.jobs.rewrite.readable import (
    TABLE,
    Form,
    Readability,
    Readers,
    Verdict,
    parse_version,
    registered_versions,
    verdict_of,
)
from pulsar_meta.jobs.rewrite.run_files import check_identity, read_identity
from pulsar_meta.jobs.rewrite.undo_log import read_records
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.snapshot import SnapshotStore
from tests.jobs.rewrite.conftest import MakeRun

TOPIC = TopicName.parse("public/default/orders")
PLAIN = ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString()
WITH_PROPERTIES = wrap_envelope(
    ManagedCursorInfo(cursorsLedgerId=-1, cursorProperties=[{"name": "a", "value": "b"}]).SerializeToString(),
    "zstd",
)


def change(new: bytes | None = PLAIN, topic: TopicName = TOPIC) -> Change:
    return Change(topic.cursor_path("sub"), 0, b"old", new)


def owned_bundles(store: Store, namespace: str) -> list[Bundle]:
    return bundles_named(store.children(owners_path(namespace)))


def guards(store: MemoryStore, **overrides: bool) -> Guards:
    return Guards.of(store, Overrides(**overrides), Readers())


@pytest.mark.parametrize("phase", ["PREPARATION", "COPYING", "COMPLETED"])
def test_nothing_is_written_during_or_after_a_migration(phase: str, make_run: MakeRun) -> None:
    store = MemoryStore()
    store.put(MIGRATION, json.dumps({"phase": phase, "targetUrl": "oxia://o:6648/p"}).encode(), ABSENT)
    with pytest.raises(GuardError, match=r"oxia://o:6648/p.*--allow-migration"):
        guards(store).check_migration()
    guards(store, migration=True).check_migration()
    store.put("/a", b"1", ABSENT)
    with pytest.raises(GuardError):
        make_run(store).apply(
            [(store.read("/a"), write(store.read("/a"), b"2"))], lambda seen: write(seen, b"2")
        )
    assert store.read("/a").value == b"1"


@pytest.mark.parametrize("flag", [b'{"phase":"NOT_STARTED"}', b'{"phase":"FAILED"}'])
def test_a_migration_that_is_not_running_is_ignored(flag: bytes) -> None:
    store = MemoryStore()
    store.put(MIGRATION, flag, ABSENT)
    guards(store).check_migration()


@pytest.mark.parametrize("flag", [b"", b"[]", b"{}", b"\xff"])
def test_an_unknown_migration_flag_is_refused(flag: bytes) -> None:
    store = MemoryStore()
    store.put(MIGRATION, flag, ABSENT)
    with pytest.raises(GuardError):
        guards(store).check_migration()


def test_a_migration_that_begins_during_a_run_stops_it(make_run: MakeRun) -> None:
    store = MemoryStore()
    for number in range(2000):
        store.put(f"/v{number:04}", b"1", ABSENT)

    def decisions() -> Iterator[Decided]:
        for at, seen in enumerate(list(store.scan("/"))):
            if at == 1000:
                store.put(MIGRATION, b'{"phase":"COPYING"}', ABSENT)
            yield seen, write(seen, b"2")

    run = make_run(store)
    with pytest.raises(GuardError):
        run.apply(decisions(), lambda seen: write(seen, b"2"))
    assert 0 < sum(record.value == b"2" for record in store.values.values()) == run.summary.rewritten < 1025


def test_all_writes_of_a_killed_broker_are_in_bundles_that_it_owned(
    capture: Callable[[str], Path],
) -> None:
    """The second capture is a later state of the first one, so the broker wrote what differs."""
    with SnapshotStore(f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}") as before:
        versions = {value.path: value.version for value in before.scan("/managed-ledgers")}
    topics = set()
    with SnapshotStore(f"snapshot:{capture('pulsar-4.2.4-killed') / 'metadata.ndjson'}") as store:
        for value in store.scan("/managed-ledgers"):
            place = split_managed_ledger_path(value.path)
            if place is not None and versions.get(value.path) != value.version:
                topics.add(place[0])
        owned = {topic.namespace_name: owned_bundles(store, topic.namespace_name) for topic in topics}
    names = [bundle.name for bundle in owned["public/default"]]
    assert names == ["0x80000000_0xc0000000", "0xc0000000_0xffffffff"]
    assert len(topics) > 20
    assert all(bundle_of(owned[topic.namespace_name], topic) for topic in topics)


def test_loaded_topics_are_refused_and_others_are_not() -> None:
    store = MemoryStore()
    store.put("/namespace/public/default/0x80000000_0xc0000000", b'{"nativeUrl":"pulsar://b1:6650"}', ABSENT)
    topics = [TopicName.parse(f"topic-{number}") for number in range(64)]
    bundles = owned_bundles(store, "public/default")
    loaded = {topic for topic in topics if bundle_of(bundles, topic)}
    assert 0 < len(loaded) < len(topics)
    refused = guards(store).refusals([change(topic=topic) for topic in topics])
    assert set(refused) == {topic.cursor_path("sub") for topic in loaded}
    assert all(
        "pulsar://b1:6650" in refusal.text and "--allow-loaded" in refusal.text
        for refusal in refused.values()
    )
    assert guards(store, loaded=True).refusals([change(topic=topic) for topic in topics]) == {}


def test_a_segment_may_be_loaded_if_any_bundle_of_its_namespace_is_owned() -> None:
    """Brokers hash the names of segments in a way of their own."""
    store, segment = MemoryStore(), TopicName.parse("segment://public/default/moved/0000-7fff-2")
    assert guards(store).refusals([change(topic=segment)]) == {}
    store.put("/namespace/public/default/0x80000000_0x80000001", b'{"nativeUrl":"pulsar://b1:6650"}', ABSENT)
    assert (
        "pulsar://b1:6650" in guards(store).refusals([change(topic=segment)])[segment.cursor_path("sub")].text
    )


def test_every_hash_belongs_to_one_bundle() -> None:
    store = MemoryStore()
    for name in ("0x00000000_0x7fffffff", "0x7fffffff_0xffffffff", "not a bundle"):
        store.put(f"/namespace/public/default/{name}", b"{}", ABSENT)
    low, high = owned_bundles(store, "public/default")
    for number, expected in ((0, low), (0x7FFFFFFE, low), (0x7FFFFFFF, high), (0xFFFFFFFF, high)):
        assert [bundle for bundle in (low, high) if bundle.holds(number)] == [expected]


def test_owners_are_checked_again_before_each_group(make_run: MakeRun) -> None:
    store = MemoryStore()
    for number in range(1500):
        store.put(TOPIC.cursor_path(f"sub-{number:04}"), b"old", ABSENT)

    def decisions() -> Iterator[Decided]:
        for at, seen in enumerate(list(store.scan("/"))):
            if at == 600:
                store.put("/namespace/public/default/0x00000000_0xffffffff", b"{}", ABSENT)
            yield seen, write(seen, PLAIN)

    tally = make_run(store).apply(decisions(), lambda seen: write(seen, PLAIN))
    assert (tally.rewritten, tally.skipped_for["loaded"]) == (512, 988)


def test_the_cached_check_may_accept_but_never_refuses() -> None:
    store, listed = MemoryStore(), list[str]()
    owner = "/namespace/public/default/0x00000000_0xffffffff"
    guard, other = guards(store), TopicName.parse("public/other/t")
    topics = guard.topics_of([change()])

    def children(paths: Sequence[str]) -> list[list[str]]:
        listed.extend(paths)
        return [store.children(path) for path in paths]

    assert guard.recall(topics, children) == {}
    seen = len(listed)
    assert guard.recall(topics, children) == {}
    assert len(listed) == seen == 3
    # The other namespace was not checked yet, so the first one is checked once more.
    assert guard.recall({"/other": other}, children) == {}
    assert len(listed) == 2 * seen
    store.put(owner, b"{}", ABSENT)
    assert guard.look(topics, children)[change().path].reason == "loaded"
    assert guard.recall(topics, children)[change().path].reason == "loaded"
    store.delete(owner, 0)
    assert guard.recall(topics, children) == {}
    store.put(MIGRATION, b'{"phase":"COPYING"}', ABSENT)
    assert guard.recall(topics, children) == {}
    for _ in range(2):
        with pytest.raises(GuardError, match="is being migrated"):
            guard.look(topics, children)
        with pytest.raises(GuardError, match="is being migrated"):
            guard.recall(topics, children)


def test_the_rest_of_a_group_is_left_to_a_broker_that_appears(make_run: MakeRun) -> None:
    class TakenStore(MemoryStore):
        def put(self, path: str, value: bytes, expected: int) -> int:
            if path.endswith("sub-0100"):
                super().put("/namespace/public/default/0x00000000_0xffffffff", b"{}", ABSENT)
            return super().put(path, value, expected)

    store = TakenStore()
    for number in range(300):
        MemoryStore.put(store, TOPIC.cursor_path(f"sub-{number:04}"), b"old", ABSENT)
    run = make_run(store)
    tally = run.apply(
        [(seen, write(seen, PLAIN)) for seen in store.scan("/")], lambda seen: write(seen, PLAIN)
    )
    assert (tally.rewritten, tally.skipped_for["loaded"], tally.conflicts) == (101, 199, 0)
    records = list(read_records(run.undo.path))
    assert [record.sent is None for record in records] == [False] * 101 + [True] * 155


def test_every_topic_may_be_loaded_if_the_load_manager_keeps_owners_elsewhere() -> None:
    store = MemoryStore()
    registration = {
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
    }
    store.put("/loadbalance/brokers/b1:8080", json.dumps(registration).encode(), ABSENT)
    guard = guards(store)
    assert guard.refusals([change()])[change().path].reason == "loaded"
    assert guards(store, loaded=True).refusals([change()]) == {}
    store.delete("/loadbalance/brokers/b1:8080", 0)
    assert guard.refusals([change()]) == {}


def test_every_topic_may_be_loaded_if_a_registration_cannot_be_read() -> None:
    store = MemoryStore()
    store.put("/loadbalance/brokers/b1:8080", b"\xff garbage", ABSENT)
    refusal = guards(store).refusals([change()])[change().path]
    assert refusal.reason == "loaded"
    assert "the registration of the broker b1:8080 can't be read" in refusal.text
    assert guards(store, loaded=True).refusals([change()]) == {}


def test_the_lock_of_a_database_replaces_the_owner_check() -> None:
    store = MemoryStore()
    store.locks_out_brokers = True
    store.put("/namespace/public/default/0x00000000_0xffffffff", b"{}", ABSENT)
    assert guards(store).refusals([change()]) == {}


def test_a_value_over_the_limit_is_refused() -> None:
    store = MemoryStore(max_value_size=100)
    big = Change("/admin/x", 0, b"old", bytes(101))
    assert guards(store).refusals([big])["/admin/x"].reason == "over-limit"
    store.max_value_size = 200
    assert guards(store).refusals([big]) == {}


@pytest.mark.parametrize("new", [WITH_PROPERTIES, WITH_PROPERTIES[:-3], b"", b"\xff"])
def test_values_that_some_broker_cannot_load_are_refused(new: bytes) -> None:
    store = MemoryStore()
    assert guards(store).refusals([change(new)])[change().path].reason == "unreadable"
    assert guards(store, unreadable=True).refusals([change(new)]) == {}


def test_the_readers_decide_what_is_unreadable() -> None:
    store = MemoryStore()
    for version, refused in (("4.0.7", False), ("4.2.4", True), ("3.0.7", False), ("2.8.2", True)):
        guard = Guards.of(store, Overrides(), Readers((version,)))
        assert bool(guard.refusals([change(WITH_PROPERTIES)])) is refused


def test_ephemeral_values_are_never_written(make_run: MakeRun) -> None:
    store = MemoryStore()
    store.put("/e", b"1", ABSENT)
    seen = store.read("/e")._replace(ephemeral=True)
    every = Overrides(migration=True, loaded=True, unreadable=True)
    tally = make_run(store, overrides=every).apply(
        [(seen, write(seen, b"2"))], lambda value: write(value, b"2")
    )
    assert tally.skipped_for["ephemeral"] == 1
    with pytest.raises(GuardError):
        make_run(store, name="b", strict=True).apply(
            [(seen, write(seen, b"2"))], lambda value: write(value, b"2")
        )
    assert store.read("/e").value == b"1"


def test_registered_brokers_are_the_readers() -> None:
    store = MemoryStore()
    store.put("/loadbalance/brokers/a:8080", b'{"brokerVersionString":"4.2.4"}', ABSENT)
    store.put("/loadbalance/brokers/b:8080", b'{"brokerVersion":"4.0.7"}', ABSENT)
    store.put("/loadbalance/brokers/c:8080", b"no JSON", ABSENT)
    assert registered_versions(store) == ("4.0.7", "4.2.4")


def test_another_store_is_recognised() -> None:
    def identified(instance: str | None, url: str) -> MemoryStore:
        store = MemoryStore(url)
        if instance:
            store.put("/ledgers/INSTANCEID", instance.encode(), ABSENT)
        return store

    first = read_identity(identified("one", "zk://user:secret@a:2181,b:2181/pulsar?auth=file:x"))
    assert first.document() == {"instance_id": "one", "url": "zk://***@a:2181,b:2181", "chroot": "pulsar"}
    same = read_identity(identified("one", "zk://c:2181/pulsar"))
    check_identity(first.document(), same, source="plan", allowed=False)
    for instance, url in (("two", "zk://a:2181/pulsar"), ("one", "zk://a:2181/other"), (None, "zk://a:2181")):
        other = read_identity(identified(instance, url))
        with pytest.raises(GuardError, match="--allow-other-store"):
            check_identity(first.document(), other, source="plan", allowed=False)
        check_identity(first.document(), other, source="plan", allowed=True)
    nameless = read_identity(identified(None, "dir:/x"))
    check_identity(nameless.document(), nameless, source="plan", allowed=False)


def test_each_release_has_its_verdict_and_evidence() -> None:
    def verdict(form: Form, version: str) -> Verdict:
        verdict, evidence = verdict_of(form, version)
        assert evidence
        assert (Readers((version,)).why_not(form) is None) is (verdict is Verdict.LOADS)
        return verdict

    for version in ("4.2.4", "5.0.0-M1", "2.8.2"):
        assert verdict(Form.CURSOR_WITH_PROPERTIES, version) is Verdict.CANNOT_LOAD, version
    # A release that fails shows nothing about the next one.
    unknown = ("4.2.5", "4.1.3", "4.2.0", "4.2.3", "2.10.5", "5.0.0", "6.0.0", "4.0.9")
    for version in (*unknown, "4.2.4-SNAPSHOT", "master"):
        assert verdict(Form.CURSOR_WITH_PROPERTIES, version) is Verdict.UNKNOWN, version
    for version in ("2.11.0", "3.0.7", "v3.3.1", "4.0.7", "4.0.7.1", "4.0.8", "4.1.0", "4.1.2"):
        assert verdict(Form.CURSOR_WITH_PROPERTIES, version) is Verdict.LOADS, version
    for version in ("2.11.0", "4.2.4", "4.2.5", "5.0.0-M1"):
        assert verdict(Form.CURSOR, version) is Verdict.LOADS, version
        assert verdict(Form.LEDGER, version) is Verdict.LOADS, version
    assert "not run" in verdict_of(Form.CURSOR_WITH_PROPERTIES, "4.0.8")[1]
    assert verdict(Form.LEDGER, "5.0.0") is Verdict.UNKNOWN
    assert verdict(Form.CURSOR, "2.8.2") is Verdict.CANNOT_LOAD
    assert verdict(Form.CURSOR, "2.10.5") is Verdict.LOADS
    assert verdict(Form.LEDGER, "2.8.2") is Verdict.LOADS
    assert all(row.evidence and row.first <= row.last for row in TABLE)
    for text in ("", "four", "4", "4.x", "4.2.x", "4.2.", "-1.2.3"):
        with pytest.raises(UsageError):
            parse_version(text)


def test_check_readable_names_the_cause_of_the_three_unavailable_topics(captured: MemoryStore) -> None:
    faults = list(Readability().documents(captured.scan("/managed-ledgers"), ["4.2.4"]))
    assert {(fault["topic"], fault["cursor"]) for fault in faults} == {
        ("persistent://public/default/compacted", "__compaction"),
        ("persistent://public/default/delayed-buckets", "later"),
        ("persistent://public/default/marks", "with-props"),
    }
    assert list(Readability().documents(captured.scan("/managed-ledgers"), ["4.0.7"])) == []
    old = list(Readability().documents(captured.scan("/managed-ledgers"), ["2.8.2"]))
    assert len(old) == 37
    broken = Versioned(TOPIC.cursor_path("sub"), b"\xff", 3)
    assert next(Readability().documents([broken], ["4.0.7"]))["form"] == "undecodable"
