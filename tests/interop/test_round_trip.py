"""Real clients write, our commands rewrite the stopped store, and the broker loses and repeats nothing.

One cluster a version: produce with the clients of Java, C++ and Go; acknowledge with holes, single messages
of batches too; kill or stop; write every cursor and ledger in each codec and back; start after each;
consume exactly what was left.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote_plus

import pytest

from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.envelope import decode_position_info
from pulsar_meta.codecs.metadata.managed_meaning import PositionMeaning, position_meaning
from pulsar_meta.entries.sources import open_entries
from tests.interop.round_trip import (
    CODECS,
    JAVA,
    SETTINGS,
    Cluster,
    Message,
    Topic,
    java_topics,
    other_topics,
)
from tests.servers.admin import AdminError
from tests.servers.jvm import Jvm
from tests.servers.pulsar import PulsarStandalone, release

pytestmark = pytest.mark.interop

PARTS_OF_BATCHES = "parts of batches"
# Of the topics, the first ones that a broker loads after its start.
FORGOTTEN_AT_MOST = 2
BASE = "/managed-ledgers/public/default/persistent"
Unacknowledged = dict[str, set[int]]
Properties = dict[str, dict[int, dict[str, str]]]


@pytest.fixture(scope="module")
def cluster(version: str) -> Iterator[Cluster]:
    with (
        PulsarStandalone(version, settings=SETTINGS) as pulsar,
        Jvm(version, heap="512m") as java,
    ):
        cluster = Cluster(pulsar, java, [*java_topics(pulsar, java), *other_topics(pulsar)])
        for number, topic in enumerate(cluster.topics):
            acknowledge(cluster, topic, number)
        java.call(f"{JAVA}:close")
        yield cluster


def acknowledge(cluster: Cluster, topic: Topic, seed: int) -> None:
    """Subscriptions that acknowledged nothing, holes, everything before one entry, parts of batches."""
    topic.messages = topic.left["untouched"] = cluster.take(topic, "untouched", [], {})
    source, groups = random.Random(seed), topic.entries()
    last = source.choice(groups)[-1]
    patterns: dict[str, tuple[list[int], dict[str, Any]]] = {
        "holes": ([place for group in source.sample(groups, len(groups) // 2) for place in group], {}),
        "cumulative": ([last], {"cumulative": True}),
        "with properties": (groups[len(groups) // 2], {"properties": {"owner": "wörld", "empty": ""}}),
    }
    if any(len(group) > 1 for group in groups):
        patterns[PARTS_OF_BATCHES] = (parts_of_batches(groups, source), {})
    for subscription, (chosen, options) in patterns.items():
        assert cluster.take(topic, subscription, chosen, options) == topic.messages
        gone = set(range(last + 1)) if options.get("cumulative") else set(chosen)
        topic.left[subscription] = [
            message for place, message in enumerate(topic.messages) if place not in gone
        ]


def parts_of_batches(groups: list[list[int]], source: random.Random) -> list[int]:
    """Return places in every batch but one, and that whole one at last.

    Pulsar writes parts only when it writes a whole entry behind a gap (apache/pulsar#26498).
    """
    whole = groups[len(groups) // 2]
    batches = [group for group in groups if len(group) > 1 and group is not whole]
    chosen = [place for group in batches for place in source.sample(group, source.randrange(1, len(group)))]
    return chosen + whole


def with_parts(cluster: Cluster) -> list[Topic]:
    return [topic for topic in cluster.topics if PARTS_OF_BATCHES in topic.left]


def still_open(topic: Topic) -> Unacknowledged:
    """Return the batches that are acknowledged in parts: position and the batch indexes that are left."""
    sizes = {place: len(group) for group in topic.entries() for place in group}
    left: dict[str, set[int]] = {}
    for message in topic.left[PARTS_OF_BATCHES]:
        left.setdefault(f"{message['ledger']}:{message['entry']}", set()).add(message["batch"])
    whole = {f"{m['ledger']}:{m['entry']}": sizes[place] for place, m in enumerate(topic.messages)}
    return {position: indexes for position, indexes in left.items() if len(indexes) < whole[position]}


def told_open(meaning: Document) -> Unacknowledged:
    """Return the same as `decode` tells it."""
    return {
        batch["position"]: {index for first, last in batch["unacked"] for index in range(first, last + 1)}
        for batch in meaning.get("batches", [])
    }


def records(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What `decode` says of the cursors that acknowledged parts of batches, by topic."""
    lines = cluster.run("decode", BASE, "-o", "ndjson")
    documents = {document["path"]: document for document in map(json.loads, lines.splitlines())}
    cursor = quote_plus(PARTS_OF_BATCHES)
    return {
        topic.name: documents[f"{BASE}/{quote_plus(topic.name.rpartition('/')[2])}/{cursor}"]
        for topic in with_parts(cluster)
    }


def cursor_ledger_state(cluster: Cluster, ledger_id: int) -> PositionMeaning:
    """The meaning of the last entry of a cursor's ledger."""
    with open_entries([cluster.entries_url]) as source:
        *_, last = source.read_many(ledger_id)
        return position_meaning(decode_position_info(decode_bookie_entry(last.data).data))


def test_parts_of_batches_survive_a_kill_in_the_cursor_ledger(cluster: Cluster) -> None:
    """The state is in the cursor's ledger, and the record that we rewrite points there."""
    cluster.pulsar.kill()
    assert len(with_parts(cluster)) > 10
    before = records(cluster)
    for topic in with_parts(cluster):
        meaning = before[topic.name]["meaning"]
        assert meaning["state"] == "cursor-ledger"
        assert told_open(cursor_ledger_state(cluster, meaning["cursor_ledger"])) == still_open(topic)
    cluster.rewrite("snappy")
    assert values(records(cluster)) == values(before)
    cluster.pulsar.start()
    forgotten = [topic for topic in with_parts(cluster) if is_forgotten(cluster, topic)]
    cluster.java.call(f"{JAVA}:close")
    assert len(forgotten) <= FORGOTTEN_AT_MOST, [topic.name for topic in forgotten]
    for topic in forgotten:
        del topic.left[PARTS_OF_BATCHES]


def is_forgotten(cluster: Cluster, topic: Topic) -> bool:
    """Return whether whole batches come again where exactly the rest of them should.

    Where loading a topic takes a busy broker too long it closes and loads it once more, and a cursor that was
    closed forgets the parts: the defect of the next test.
    """
    left = topic.left[PARTS_OF_BATCHES]
    found = cluster.drain(topic, PARTS_OF_BATCHES, len(left))
    if found == left:
        return False
    assert found == with_whole_batches(topic), topic.name
    return True


def test_parts_of_batches_are_in_the_records_of_a_stopped_broker(cluster: Cluster) -> None:
    """All of them, before and after rewriting; a broker that loads such a record leaves them unread.

    So whole batches come again after a stop, and its next stop writes the record without them:
    apache/pulsar#20585, mended after 4.2.4 by #26474.
    """
    if not cluster.pulsar.running:
        cluster.pulsar.start()
    cluster.pulsar.stop()
    before = records(cluster)
    for topic in with_parts(cluster):
        assert before[topic.name]["meaning"]["state"] == "record"
        assert told_open(before[topic.name]["meaning"]) == still_open(topic), topic.name
    for codec in (*CODECS, "none"):
        cluster.rewrite(codec)
        assert values(records(cluster)) == values(before)
    cluster.pulsar.start()
    for topic in with_parts(cluster):
        topic.left[PARTS_OF_BATCHES] = with_whole_batches(topic)
        found = cluster.drain(topic, PARTS_OF_BATCHES, len(topic.left[PARTS_OF_BATCHES]))
        assert found == topic.left[PARTS_OF_BATCHES], "the defect is gone, or there is another: say so"
    cluster.java.call(f"{JAVA}:close")
    cluster.pulsar.stop()
    after = records(cluster)
    assert all(told_open(after[topic.name]["meaning"]) == {} for topic in with_parts(cluster))


def with_whole_batches(topic: Topic) -> list[Message]:
    """Return the messages of every entry that is not acknowledged as a whole."""
    again = {(message["ledger"], message["entry"]) for message in topic.left[PARTS_OF_BATCHES]}
    return [message for message in topic.messages if (message["ledger"], message["entry"]) in again]


def values(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: (document["value"], document["meaning"]) for name, document in documents.items()}


def cursors(cluster: Cluster) -> dict[str, Any]:
    """What the broker says of every subscription: messages behind its mark-delete position, holes.

    Until 4.1 it tells their names as they are stored.
    """
    return {
        f"{topic.name} {name}": (
            behind(topic, cursor["markDeletePosition"]),
            cursor["individuallyDeletedMessages"],
        )
        for topic in cluster.topics
        for name, cursor in cluster.ask(topic, "internalStats")["cursors"].items()
        if unquote_plus(name) in topic.left
    }


def behind(topic: Topic, mark_delete: str) -> int:
    """Count messages; a broker that loads a topic may tell the end of a ledger as the start of the next."""
    position = tuple(map(int, mark_delete.split(":")))
    return sum((message["ledger"], message["entry"]) > position for message in topic.messages)


def test_a_broker_keeps_every_acknowledgement_through_our_rewriting(cluster: Cluster) -> None:
    if not cluster.pulsar.running:
        cluster.pulsar.start()
    before = cursors(cluster)
    assert len(before) == sum(len(topic.left) for topic in cluster.topics)
    properties: Properties = {}
    for codec in (*CODECS, "none"):
        cluster.pulsar.stop()
        rewritten = cluster.rewrite(codec)
        # What would not get smaller is left alone, and most of these values are small.
        assert rewritten["compress-cursors"] > 3, (codec, rewritten)
        assert rewritten["compress-ledgers"] > 3, (codec, rewritten)
        if release(cluster.pulsar.version) >= (4, 2):
            properties = properties or set_properties(cluster)
        cluster.pulsar.start()
        assert cursors(cluster) == before, codec
        check_properties(cluster, properties)
    for topic in cluster.topics:
        for subscription, left in topic.left.items():
            if subscription == PARTS_OF_BATCHES:
                # Two tests of its own: a stop alone makes brokers forget these.
                continue
            assert cluster.drain(topic, subscription, len(left)) == left, (topic.name, subscription)
    cluster.java.call(f"{JAVA}:close")


def set_properties(cluster: Cluster) -> Properties:
    """Give the first ledger of every topic a property and build the index of all; return what is there then.

    But for the last ledger of a topic, whose properties released brokers drop (apache/pulsar#26509).
    """
    for topic in cluster.topics:
        ledger = topic.messages[0]["ledger"]
        cluster.run("set-property", topic.name, str(ledger), "checked=wörld €", "--yes")
    build = ["build-index", "public/default", "--entries", cluster.entries_url, "--yes", "-o", "json"]
    summary = json.loads(cluster.run(*build))
    # What transactions write beside the topics has indexes too.
    assert summary["rewritten"] >= len(cluster.topics), summary
    cluster.run("check-index", "public/default", "--entries", cluster.entries_url, "--engine", "local")
    return {topic.name: stored_properties(cluster, topic) for topic in cluster.topics}


def stored_properties(cluster: Cluster, topic: Topic) -> dict[int, dict[str, str]]:
    path = f"{BASE}/{quote_plus(topic.name.rpartition('/')[2])}"
    documents = map(json.loads, cluster.run("decode", path, "-o", "ndjson").splitlines())
    (value,) = [document["value"] for document in documents if document["path"] == path]
    found = {
        int(ledger["ledgerId"]): {pair["key"]: pair["value"] for pair in ledger["properties"]}
        for ledger in value["ledgerInfo"][:-1]
    }
    assert found[topic.messages[0]["ledger"]] == {"checked": "wörld €", "first-index": "0"}, topic.name
    return found


def check_properties(cluster: Cluster, chosen: Properties) -> None:
    for topic in cluster.topics:
        if topic.name in chosen:
            ledgers = cluster.ask(topic, "internalStats")["ledgers"]
            stated = {ledger["ledgerId"]: ledger.get("properties") for ledger in ledgers}
            assert {ledger: stated[ledger] for ledger in chosen[topic.name]} == chosen[topic.name]


def test_the_broker_and_our_seek_agree_on_every_index(cluster: Cluster, tmp_path: Path) -> None:
    """PIP-415 came with 4.2; its documented errors: -1:-1 in a topic's first entry but for its last index."""
    if release(cluster.pulsar.version) < (4, 2):
        pytest.skip(f"Pulsar {cluster.pulsar.version} has no getMessageIdByIndex")
    if not cluster.pulsar.running:
        cluster.pulsar.start()
    asked = [(topic, index) for topic in cluster.topics for index in range(last_index(cluster, topic) + 2)]
    stated = [broker_position(cluster, topic, index) for topic, index in asked]
    cluster.pulsar.stop()
    questions = tmp_path / "questions.ndjson"
    lines = [json.dumps({"topic": topic.name, "index": index}) for topic, index in asked]
    questions.write_text("\n".join(lines))
    arguments = [
        "--index-file",
        str(questions),
        "--entries",
        cluster.entries_url,
        "-o",
        "ndjson",
        "--engine",
        "local",
    ]
    answers = [json.loads(line) for line in cluster.run("seek", *arguments, codes=(0, 3)).splitlines()]
    cluster.pulsar.start()
    agreed = 0
    for (topic, index), their, ours in zip(asked, stated, answers, strict=True):
        position = (ours.get("ledger_id"), ours.get("entry_id")) if ours["status"] == "found" else None
        first = topic.messages[0]["ledger"], 0
        if their == (-1, -1):
            assert position == first, (topic.name, index, ours)
        else:
            assert position == their, (topic.name, index, ours)
            agreed += 1
    assert agreed > len(asked) / 2


def last_index(cluster: Cluster, topic: Topic) -> int:
    return int(cluster.ask(topic, "internal-info")["properties"]["index"])


def broker_position(cluster: Cluster, topic: Topic, index: int) -> tuple[int, int] | None:
    try:
        answer = cluster.ask(topic, f"getMessageIdByIndex?index={index}")
    except AdminError as error:
        if error.status != 404:
            raise
        return None
    return answer["ledgerId"], answer["entryId"]
