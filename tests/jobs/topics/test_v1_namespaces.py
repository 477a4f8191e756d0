"""V1 namespaces that are named like a domain, for which only the record shows what a path is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.documents.document import decode_document
from pulsar_meta.codecs.metadata.envelope import managed_place, wrap_envelope
from pulsar_meta.codecs.names import TopicName, split_managed_ledger_path
from pulsar_meta.jobs.rewrite.readable import Readability
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.jobs.topics.topic import topics_in
from pulsar_meta.jobs.values.store_tree import list_children, walk
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from tests.cli.program import pulsar_meta_here

ROOT = "/managed-ledgers/prop/standalone"
# Protobuf encoding of -1.
NONE = "ffffffffffffffffff01"
# Records that Pulsar 4.0.7 wrote for the V1 namespaces prop/standalone/persistent and prop/standalone/plain,
# and for the topic `persistent` of the namespace prop/standalone, which it then could not load.
RECORDS = {
    f"{ROOT}/{path}": value.format(NONE, NONE)
    for path, value in {
        "persistent/persistent": "0a04080e20001a0b0a05696e64657812022d31",
        "persistent/persistent/deep": "0a04080320001a0b0a05696e64657812022d31",
        "persistent/persistent/deep/s": "08{}100318{}3082aef389a034",
        "persistent/persistent/persistent": "0a04080520001a0b0a05696e64657812022d31",
        "persistent/persistent/persistent/s": "08{}100518{}30b0aef389a034",
        "plain/persistent/persistent": "0a04080920001a0b0a05696e64657812022d31",
        "plain/persistent/persistent/s": "08{}100918{}30c2aff389a034",
    }.items()
}
TOPICS = {
    "persistent://prop/standalone/persistent",
    "persistent://prop/standalone/persistent/deep",
    "persistent://prop/standalone/persistent/persistent",
    "persistent://prop/standalone/plain/persistent",
}
DEEP = f"{ROOT}/persistent/persistent/deep"
CURSOR = bytes.fromhex(RECORDS[f"{DEEP}/s"])


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    for path, value in RECORDS.items():
        made.put(path, bytes.fromhex(value), ABSENT)
    return made


def test_topics_and_cursors_are_distinguished(store: MemoryStore) -> None:
    assert {topic.name for topic in topics_in(store, Scope())} == TOPICS
    cursors = {record.path.removeprefix(ROOT) for record in select(store, Scope(), "cursor")}
    assert cursors == {path.removeprefix(ROOT) for path in RECORDS if path.endswith("/s")}
    readability = Readability()
    assert list(readability.documents(store.scan("/"), ["4.2.4"])) == []
    assert (readability.topics, readability.cursors) == (4, 3)


def test_each_record_is_decoded_as_its_kind(store: MemoryStore) -> None:
    for record in store.scan("/"):
        decoded = decode_document(record.value, source="s", path=record.path)
        kind = "ManagedCursorInfo" if record.path.endswith("/s") else "ManagedLedgerInfo"
        assert (decoded.error, decoded.document["kind"]) == (None, kind)
    for name in TOPICS:
        assert TopicName.parse(name).path in RECORDS


def test_the_children_of_a_namespace_are_topics(store: MemoryStore) -> None:
    listed = {
        document["name"]: document for document in list_children(store, f"{ROOT}/persistent/persistent")
    }
    assert listed["deep"]["topic"] == "persistent://prop/standalone/persistent/deep"
    assert "cursor" not in listed["deep"]
    # Walk the tree as a whole and level by level.
    for depth in (None, 9):
        walked = {node["path"]: node for node in walk(store, ROOT, depth)}
        assert {
            node["topic"] for node in walked.values() if "cursor" not in node and "topic" in node
        } == TOPICS
        assert (walked[f"{DEEP}/s"]["topic"], walked[f"{DEEP}/s"]["cursor"]) == (walked[DEEP]["topic"], "s")


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (DEEP, b"", ("persistent://prop/standalone/persistent/deep", None)),
        (DEEP, wrap_envelope(bytes.fromhex(RECORDS[DEEP]), "zstd"), ("…/persistent/deep", None)),
        (DEEP, CURSOR, ("persistent://prop/standalone/persistent", "deep")),
        (DEEP, wrap_envelope(CURSOR, "lz4"), ("persistent://prop/standalone/persistent", "deep")),
        (f"{ROOT}/persistent/persistent", b"", None),
        (f"{ROOT}/segment/persistent/x", b"", ("persistent://prop/standalone/segment/x", None)),
        (f"{ROOT}/segment/persistent/x/c", CURSOR, ("persistent://prop/standalone/segment/x", "c")),
        (f"{ROOT}/segment/persistent/0000-ffff-0", b"", ("segment://…/persistent/0000-ffff-0", None)),
        (f"{ROOT}/topic/persistent/x", b"", ("persistent://prop/standalone/topic/x", None)),
    ],
)
def test_the_topic_of_a_record_is_determined(
    path: str, value: bytes, place: tuple[str, str | None] | None
) -> None:
    owner: Any = managed_place(path, value)
    if place is None or owner is None:
        assert owner is place
        return
    assert str(owner[0]).endswith(place[0].partition("…")[2] or place[0])
    assert owner[1] == place[1]


def test_a_path_alone_is_read_as_a_v2_name() -> None:
    place = split_managed_ledger_path(DEEP)
    assert place is not None
    assert (str(place[0]), place[1]) == ("persistent://prop/standalone/persistent", "deep")


def test_commands_use_the_record(tmp_path: Path) -> None:
    for path, value in RECORDS.items():
        folder = tmp_path / "store" / path.removeprefix("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".value").write_bytes(bytes.fromhex(value))
    where = ("--store", f"dir:{tmp_path / 'store'}", "-o", "json")
    shown = json.loads(pulsar_meta_here("properties", "--all", *where).stdout)
    assert {row["topic"] for row in shown} == TOPICS
    got = json.loads(pulsar_meta_here("get", DEEP, *where).stdout)
    assert (got["kind"], got["meaning"]["ledger_count"]) == ("ManagedLedgerInfo", 1)
