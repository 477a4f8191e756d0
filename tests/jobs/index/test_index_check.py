"""Right and wrong indexes in generated topics and in real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata import ledger_metadata
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.protobuf.parse import Field
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.index.check import IndexReport, check_indexes
from pulsar_meta.jobs.index.properties import (
    EMPTY,
    MISSING,
    NO_INDEX,
    UNREADABLE,
    IndexBuild,
    first_index,
    properties_of,
)
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.jobs.topics.topic import read_topic, topic_of
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store

TOPIC = TopicName.parse("made")
# An entry: (first index, last index), None without an index, b"…" for an invalid frame.
Entry = tuple[int, int] | bytes | None


def frame(entry: Entry) -> bytes:
    if isinstance(entry, bytes):
        return entry
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    if entry is None:
        return encode_frame(metadata, b"x")
    if entry[0] != entry[1]:
        metadata.num_messages_in_batch = entry[1] - entry[0] + 1
    return encode_frame(
        metadata, b"x", broker_metadata=BrokerEntryMetadata(broker_timestamp=1, index=entry[1])
    )


Made = Callable[..., tuple[Store, EntrySource]]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """A function that creates a topic from {ledger: entries}; entries are {id: entry} or a list."""
    opened: list[EntrySource] = []

    def make(
        ledgers: dict[int, Sequence[Entry] | dict[int, Entry]],
        counts: dict[int, int] | None = None,
        properties: dict[int, list[str]] | None = None,
        still_open: int | None = None,
    ) -> tuple[Store, EntrySource]:
        info, lines, data = ManagedLedgerInfo(), [], b""
        for ledger, entries in ledgers.items():
            numbered = entries if isinstance(entries, dict) else dict(enumerate(entries))
            row = info.ledgerInfo.add(ledgerId=ledger)
            if ledger != still_open:
                row.entries, row.timestamp = (counts or {}).get(ledger, len(numbered)), 1000
            for value in (properties or {}).get(ledger, []):
                row.properties.add(key="first-index", value=value)
            for entry_id, entry in numbered.items():
                lines.append(json.dumps({"ledger": ledger, "entry": entry_id}))
                data += len(frame(entry)).to_bytes(4, "big") + frame(entry)
        file = tmp_path / "made.frames"
        file.write_bytes(data)
        file.with_name("made.frames.idx").write_text("\n".join(lines))
        store = MemoryStore()
        store.put(TOPIC.path, info.SerializeToString(), ABSENT)
        opened.append(open_entries([f"frames:{file}"]))
        return store, opened[-1]

    yield make
    for source in opened:
        source.close()


def build_of(store: Store, source: EntrySource, key: str = "first-index") -> IndexBuild:
    return IndexBuild(key, lambda ids: [first_index(source, id_) for id_ in ids], ShadowSources(store))


def checked(store: Store, source: EntrySource) -> list[IndexReport]:
    return list(check_indexes(source, map(topic_of, chosen_topics(store, [str(TOPIC)])), "first-index"))


def faults(document: Document) -> dict[str, Any]:
    names = ("gaps", "overlaps", "steps_back", "without_index", "unreadable", "missing")
    problems = {name: document[name] for name in names if document[name]}
    if document["property"] not in ("absent", "right", "unchecked"):
        problems["property"] = document["property"]
    assert document["ok"] == (not problems)
    return problems


RIGHT = [(0, 4), (5, 5), (6, 9)]


def test_consecutive_indexes_are_right(made: Made) -> None:
    documents = checked(*made({1: RIGHT, 2: [], 5: [(10, 10)], 7: []}, still_open=7))
    assert [faults(document) for document in documents] == [{}, {}, {}, {}]
    assert [(document.get("first_index"), document.get("last_index")) for document in documents] == [
        (0, 9), (None, None), (10, 10), (None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "kind", "count"),
    [((12, 12), "gap", "gaps"), ((8, 11), "overlap", "overlaps"), ((0, 0), "step-back", "steps_back")],
)
def test_gaps_and_overlaps_are_found_within_and_between_ledgers(
    made: Made, entry: Entry, kind: str, count: str
) -> None:
    (within,) = checked(*made({1: [*RIGHT, entry]}))
    before, between = checked(*made({1: RIGHT, 2: [entry]}))
    for document, entry_id in ((within, 3), (between, 0)):
        assert faults(document) == {count: 1}
        (fault,) = document["faults"]
        assert isinstance(entry, tuple)
        assert fault == {
            "fault": kind, "entry_id": entry_id, "expected": 10,
            "first_index": entry[0], "last_index": entry[1],
        }  # fmt: skip
    assert faults(before) == {}


def test_entries_without_index_and_corrupt_ones_are_counted(made: Made) -> None:
    first, second = checked(*made({1: [None, None, (0, 2), b"\xff" * 20, (9, 9)], 2: [(20, 20)]}))
    assert faults(first) == {"without_index": 2, "unreadable": 1}
    assert [(fault["fault"], fault["entry_id"]) for fault in first["faults"]] == [
        ("no-index", 0), ("no-index", 1), ("unreadable", 3),
    ]  # fmt: skip
    # After an entry that can't be read, a jump is not a gap, because the entry's indexes are unknown.
    assert faults(second) == {}


def test_missing_entries_and_ledgers_are_counted(made: Made) -> None:
    documents = checked(*made({1: {0: (0, 0), 3: (3, 3)}, 2: [], 3: [(9, 9)]}, counts={1: 5, 2: 4}))
    assert [faults(document) for document in documents] == [{"missing": 3}, {"missing": 4}, {}]


@pytest.mark.parametrize(
    ("values", "truth"),
    [
        (["5"], "right"), (["05"], "right"), (["4"], "false"), (["-5"], "no-number"), (["x"], "no-number"),
        (["٥"], "no-number"), (["5", "5"], "doubled"), ([], "absent"), (["9" * 5000], "no-number"),
    ],
)  # fmt: skip
def test_a_property_is_compared_with_the_entries(made: Made, values: list[str], truth: str) -> None:
    (document,) = checked(*made({1: [(5, 9)]}, properties={1: values}))
    assert document["property"] == truth
    assert document["ok"] == (truth in ("right", "absent"))


def test_a_property_is_unchecked_if_the_entries_cannot_be_read(made: Made) -> None:
    documents = checked(
        *made(
            {1: {1: (6, 6)}, 2: [b"??"], 3: [None], 4: []},
            properties={ledger: ["5"] for ledger in range(1, 5)},
        )
    )
    assert [document["property"] for document in documents] == [
        "unchecked",
        "unchecked",
        "false",
        "unchecked",
    ]


def test_all_faults_are_counted_and_only_some_listed(made: Made) -> None:
    entries = [(at * 2, at * 2) for at in range(100)]
    (document,) = checked(*made({1: entries}))
    assert faults(document) == {"gaps": 99}
    assert len(document["faults"]) == 10


def test_the_indexes_of_a_real_cluster_have_the_known_faults(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4")
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        topics = list(map(topic_of, chosen_topics(store, [], everything=True)))
        with open_entries([f"bookie-disk:{folder / 'bookie0'}"]) as source:
            problems = {
                (check["topic"].rpartition("/")[2], check["ledger_id"]): faults(check)
                for check in check_indexes(source, topics, "first-index")
                if not check["ok"]
            }
    # The capture has 2000 as the property of a ledger that begins with 1634, on purpose.
    assert problems == {
        ("late-index", 6): {"without_index": 16},
        ("orders", 22): {"property": "false"},
        ("plain-old", 10): {"without_index": 50},
        ("plain-old", 11): {"without_index": 50},
        ("plain-old", 12): {"without_index": 20},
    }
    assert len(topics) > 40


def test_build_writes_the_first_index_of_each_ledger_once(made: Made) -> None:
    ledgers: dict[int, Any] = {
        1: RIGHT,
        2: [None, (10, 10)],
        3: [b"??"],
        4: [(11, 12)],
        5: [],
        6: [],
        7: {1: (13, 13)},
    }
    store, source = made(ledgers, counts={7: 2}, properties={4: ["7"]}, still_open=6)
    build = build_of(store, source)
    ((seen, decision),) = build.decided(chosen_topics(store, [str(TOPIC)]))
    assert (decision.action, build.undone) == (
        "rewrite", {NO_INDEX: 1, UNREADABLE: 1, EMPTY: 1, MISSING: 1},
    )  # fmt: skip
    assert decision.new is not None
    store.put(TOPIC.path, decision.new, seen.version)
    written = {row["ledger_id"]: row["properties"] for row in properties_of(read_topic(store, TOPIC))}
    assert written == {1: {"first-index": "0"}, 2: {}, 3: {}, 4: {"first-index": "7"}, 5: {}, 6: {}, 7: {}}
    again = build_of(store, source)
    ((_, decision),) = again.decided(chosen_topics(store, [str(TOPIC)]))
    assert decision.action == "keep"


def test_ledgers_without_an_index_are_counted_in_a_second_pass_too(made: Made) -> None:
    """The first pass is the plan that the operator confirms, and the second pass writes."""
    store, source = made({1: [None], 2: [b"??"], 3: {}}, counts={3: 2}, properties={1: ["7"], 2: ["8"]})
    build = replace(build_of(store, source), repair=True)
    for _ in range(2):
        assert len(list(build.decided(chosen_topics(store, [str(TOPIC)])))) == 1
        assert (build.undone, build.unchecked) == ({MISSING: 1}, {UNREADABLE: 1})


def test_repair_corrects_every_false_property(made: Made) -> None:
    ledgers: dict[int, Any] = {number: [(number, number)] for number in (1, 2, 3, 4)}
    ledgers |= {5: [None], 6: [(6, 6)]}
    values = {1: ["7"], 2: ["2", "2"], 3: ["x"], 4: ["004"], 5: ["5"], 6: ["6"]}
    store, source = made(ledgers, properties=values)
    topic = read_topic(store, TOPIC)

    def truths() -> list[str]:
        return [
            check["property"] for check in check_indexes(source, [read_topic(store, TOPIC)], "first-index")
        ]

    assert truths() == ["false", "doubled", "no-number", "right", "false", "right"]
    build = replace(build_of(store, source), repair=True)
    ((seen, decision),) = build.decided(chosen_topics(store, [str(TOPIC)]))
    assert decision.new is not None
    store.put(TOPIC.path, decision.new, seen.version)
    assert truths() == ["right", "right", "right", "right", "absent", "right"]
    # A right property keeps its bytes.
    assert read_topic(store, TOPIC).ledgers[3] == topic.ledgers[3]
    assert (build.undone, build.unchecked) == ({}, {})


def test_a_ledger_trimmed_meanwhile_is_left_out(made: Made) -> None:
    store, source = made({1: RIGHT, 2: [(10, 10)]})
    build = build_of(store, source, "k")
    list(build.decided(chosen_topics(store, [str(TOPIC)])))
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=2, entries=1, timestamp=1)
    info.ledgerInfo.add(ledgerId=9)
    store.put(TOPIC.path, info.SerializeToString(), store.read(TOPIC.path).version)
    decision = build.decide(store.read(TOPIC.path))
    assert decision.new is not None
    info.ledgerInfo[0].properties.add(key="k", value="10")
    assert ManagedLedgerInfo.FromString(decision.new) == info


def test_topics_are_chosen_by_name_or_namespace(capture: Callable[[str], Path]) -> None:
    with open_store(f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}") as store:
        everything = [topic.path for topic in chosen_topics(store, [], everything=True)]
        namespace = [topic.path for topic in chosen_topics(store, ["public/default"])]
        parted = [topic.path for topic in chosen_topics(store, ["parted", "public/default/parted"])]
        assert {path for path in everything if path.startswith("/managed-ledgers/public/default/")} == set(
            namespace
        )
        assert len(parted) == 3
        for names in (["nowhere"], ["no/where"], ["orders", "nowhere"]):
            with pytest.raises(NotFoundError, match="no topic no"):
                list(chosen_topics(store, names))
        with pytest.raises(UsageError, match="--all"):
            list(chosen_topics(store, []))
        with pytest.raises(UsageError, match="--all"):
            list(chosen_topics(store, ["orders"], everything=True))


def test_build_index_parses_the_record_as_often_for_many_ledgers_as_for_few(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, parsed = ledger_metadata._ledgers, []

    def counting(payload: bytes) -> list[Field]:
        parsed.append(payload)
        return parse(payload)

    monkeypatch.setattr(ledger_metadata, "_ledgers", counting)
    counts = []
    for ledgers in (2, 60):
        store, source = made({number: [(number, number)] for number in range(1, ledgers + 1)})
        (decided,) = build_of(store, source).decided(chosen_topics(store, [str(TOPIC)]))
        assert decided[1].action == "rewrite"
        counts.append(len(parsed))
        parsed.clear()
    assert counts[0] == counts[1]
