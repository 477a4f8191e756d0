"""Real clients write, our commands rewrite the stopped store, and the broker loses and repeats nothing.

One cluster a version: produce with the clients of Java, C++ and Go; acknowledge with holes; stop; write
every cursor and ledger in each codec and back; start after each; consume exactly what was left.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_plus

import pytest

from tests.servers.admin import AdminError
from tests.servers.clients import programs
from tests.servers.jvm import Jvm
from tests.servers.pulsar import PulsarStandalone, release
from tests.servers.restartable import skip_or_fail

pytestmark = pytest.mark.interop

PROGRAM = str(Path(sys.executable).with_name("pulsar-meta"))
JAVA = "tests.servers.clients.java"
PUBLIC = "persistent://public/default"
CODECS = ("lz4", "zlib", "zstd", "snappy")
JAVA_CODECS = ("none", *CODECS)
CPP_CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
GO_CODECS = ("NONE", "LZ4", "ZLib", "ZSTD")
PER_TOPIC = 60
SETTINGS = {
    "transactionCoordinatorEnabled": "true",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "4",
}

Message = dict[str, Any]


@dataclass
class Topic:
    """A topic, what is in it in reading order, and what each subscription has not acknowledged."""

    name: str
    total: int
    options: dict[str, str] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    left: dict[str, list[Message]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The topic in the URLs of the admin interface."""
        return f"persistent/public/default/{quote(self.name.removeprefix(f'{PUBLIC}/'), safe='')}"


@dataclass
class Cluster:
    """The standalone with its data, the clients' JVM and the topics that were written."""

    pulsar: PulsarStandalone
    java: Jvm
    topics: list[Topic]

    def run(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run pulsar-meta on the stopped store and return its output."""
        store = f"rocksdb:{self.pulsar.metadata_dir}"
        command = [PROGRAM, *arguments, "--store", store]
        environment = {"XDG_STATE_HOME": str(self.pulsar.directory / "state"), "PATH": "", "HOME": "/"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode in codes, (arguments, done.returncode, done.stderr)
        return done.stdout

    def ask(self, topic: Topic, what: str) -> Any:
        return self.pulsar.admin("GET", f"{topic.path}/{what}")


@pytest.fixture(scope="module")
def cluster(version: str) -> Iterator[Cluster]:
    with (
        PulsarStandalone(version, settings=SETTINGS) as pulsar,
        Jvm(version, heap="512m") as java,
    ):
        topics = [*java_topics(pulsar, java), *other_topics(pulsar)]
        for number, topic in enumerate(topics):
            acknowledge(pulsar, java, topic, number)
        java.call(f"{JAVA}:close")
        yield Cluster(pulsar, java, topics)


def java_topics(pulsar: PulsarStandalone, java: Jvm) -> Iterator[Topic]:
    keys = java.call(f"{JAVA}:make_keys", str(pulsar.directory))
    kinds: dict[str, dict[str, Any]] = {
        f"java-{codec}": {"compression": codec, "batch": 7} for codec in JAVA_CODECS
    }
    kinds |= {
        "java-single": {"compression": "zstd"},
        "java-chunked": {"chunk": 40},
        "java-encrypted": {"batch": 5, "compression": "lz4", "public_key": keys["public_key"]},
        "java we ird:näme": {"batch": 3},
    }
    for name, options in kinds.items():
        topic = Topic(f"{PUBLIC}/{name}", PER_TOPIC)
        if "public_key" in options:
            topic.options["private_key"] = keys["private_key"]
        keep(pulsar, topic)
        java.call(f"{JAVA}:produce", pulsar.service_url, topic.name, content(name), options)
        yield topic
    transactions = Topic(f"{PUBLIC}/java-transactions", 2 * PER_TOPIC)
    keep(pulsar, transactions)
    for how in ("commit", "abort", "commit"):
        options = {"batch": 4, "transaction": how}
        java.call(f"{JAVA}:produce", pulsar.service_url, transactions.name, content(how), options)
    yield transactions


def keep(pulsar: PulsarStandalone, topic: Topic) -> None:
    """Subscribe, since a broker trims what nobody has subscribed to when it begins another ledger."""
    pulsar.admin("PUT", topic.path)
    pulsar.admin("PUT", f"{topic.path}/subscription/untouched", {"ledgerId": -1, "entryId": -1})


def content(name: str) -> list[Message]:
    """Payloads of many sizes, some null, with keys, properties and event times."""
    source = random.Random(name)
    return [
        {
            "payload": None
            if number % 11 == 5 and "chunk" not in name
            else source.randbytes(source.randrange(120)),
            "key": f"k{number % 5}" if number % 3 else None,
            "properties": {"region": source.choice(["eu", "us"])} if number % 2 else {},
            "event_time": 1_700_000_000_000 + number if number % 4 == 0 else 0,
        }
        for number in range(PER_TOPIC)
    ]


def other_topics(pulsar: PulsarStandalone) -> Iterator[Topic]:
    for codec in CPP_CODECS:
        topic = Topic(f"{PUBLIC}/cpp-{codec.lower()}", PER_TOPIC)
        keep(pulsar, topic)
        programs.produce_cpp(pulsar.service_url, topic.name, codec, 6 if codec != "ZSTD" else 0, PER_TOPIC)
        yield topic
    skip_or_fail(programs.why_no_go())
    for codec in GO_CODECS:
        topic = Topic(f"{PUBLIC}/go-{codec.lower()}", PER_TOPIC)
        keep(pulsar, topic)
        programs.produce_go(pulsar.service_url, topic.name, codec, 6 if codec != "LZ4" else 0, PER_TOPIC)
        yield topic


def acknowledge(pulsar: PulsarStandalone, java: Jvm, topic: Topic, seed: int) -> None:
    """Four subscriptions: nothing, holes, everything before one entry, and one with properties.

    Whole entries: a standalone that was stopped and started gave single messages of a batch again.
    """
    topic.messages = topic.left["untouched"] = take(pulsar, java, topic, "untouched", [], {})
    entries: dict[tuple[int, int], list[int]] = {}
    for place, message in enumerate(topic.messages):
        entries.setdefault((message["ledger"], message["entry"]), []).append(place)
    source, groups = random.Random(seed), list(entries.values())
    last = source.choice(groups)[-1]
    patterns: dict[str, tuple[list[int], dict[str, Any]]] = {
        "holes": ([place for group in source.sample(groups, len(groups) // 2) for place in group], {}),
        "cumulative": ([last], {"cumulative": True}),
        "with properties": (groups[len(groups) // 2], {"properties": {"owner": "wörld", "empty": ""}}),
    }
    for subscription, (chosen, options) in patterns.items():
        assert take(pulsar, java, topic, subscription, chosen, options) == topic.messages
        gone = set(range(last + 1)) if options.get("cumulative") else set(chosen)
        topic.left[subscription] = [
            message for place, message in enumerate(topic.messages) if place not in gone
        ]


def take(
    pulsar: PulsarStandalone,
    java: Jvm,
    topic: Topic,
    subscription: str,
    places: list[int],
    options: dict[str, Any],
) -> list[Message]:
    """Receive everything, acknowledge the messages at `places`."""
    more = {**options, **topic.options}
    url = pulsar.service_url
    return java.call(f"{JAVA}:acknowledge", url, topic.name, subscription, topic.total, places, more)  # type: ignore[no-any-return]


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
    before = cursors(cluster)
    assert len(before) == 4 * len(cluster.topics)
    properties: dict[str, int] = {}
    for codec in (*CODECS, "none"):
        cluster.pulsar.stop()
        rewritten = rewrite(cluster, codec)
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
            url, options = cluster.pulsar.service_url, topic.options
            found = cluster.java.call(f"{JAVA}:drain", url, topic.name, subscription, len(left), options)
            assert found == left, (topic.name, subscription)
    cluster.java.call(f"{JAVA}:close")


def rewrite(cluster: Cluster, codec: str) -> dict[str, int]:
    """Write all cursors and ledgers in another form and then in `codec`; return how many that rewrote.

    What the broker wrote since it started is plain, and each codec is to start from there.
    """
    done = {}
    for command in ("compress-cursors", "compress-ledgers"):
        for chosen in ("zstd" if codec == "none" else "none", codec):
            threshold = ["--threshold", "0"] if chosen != "none" else []
            asked = [command, "--compression", chosen, *threshold, "--for-version", cluster.pulsar.version]
            summary = json.loads(cluster.run(*asked, "--yes", "-o", "json"))
            assert summary["conflicts"] == summary["undecodable"] == 0
            done[command] = summary["rewritten"]
    return done


def set_properties(cluster: Cluster) -> dict[str, int]:
    """Give the first ledger of some topics a property; return which ledger it was."""
    chosen = {}
    for topic in cluster.topics[::5]:
        ledger = topic.messages[0]["ledger"]
        cluster.run("set-property", topic.name, str(ledger), "checked=wörld €", "--yes")
        chosen[topic.name] = ledger
    return chosen


def check_properties(cluster: Cluster, chosen: dict[str, int]) -> None:
    for topic in cluster.topics:
        if topic.name in chosen:
            ledgers = cluster.ask(topic, "internalStats")["ledgers"]
            told = {ledger["ledgerId"]: ledger.get("properties") for ledger in ledgers}
            assert told[chosen[topic.name]] == {"checked": "wörld €"}


def test_the_broker_and_our_seek_agree_on_every_index(cluster: Cluster, tmp_path: Path) -> None:
    """PIP-415 came with 4.2; its documented errors: -1:-1 in a topic's first entry but for its last index."""
    if release(cluster.pulsar.version) < (4, 2):
        pytest.skip(f"Pulsar {cluster.pulsar.version} has no getMessageIdByIndex")
    if not cluster.pulsar.running:
        cluster.pulsar.start()
    asked = [(topic, index) for topic in cluster.topics for index in range(last_index(cluster, topic) + 2)]
    told = [broker_position(cluster, topic, index) for topic, index in asked]
    cluster.pulsar.stop()
    questions = tmp_path / "questions.ndjson"
    lines = [json.dumps({"topic": topic.name, "index": index}) for topic, index in asked]
    questions.write_text("\n".join(lines))
    entries = f"bookie-disk:{cluster.pulsar.bookie_dirs[0]}"
    arguments = ["--index-file", str(questions), "--entries", entries, "-o", "ndjson", "--engine", "local"]
    answers = [json.loads(line) for line in cluster.run("seek", *arguments, codes=(0, 3)).splitlines()]
    cluster.pulsar.start()
    agreed = 0
    for (topic, index), their, ours in zip(asked, told, answers, strict=True):
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
