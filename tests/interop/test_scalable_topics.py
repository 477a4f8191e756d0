"""Scalable topics beside a real Pulsar 5: names, lookups, and a capture made anew and judged."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName
from tests import capture_report
from tests.cli.program import pulsar_meta_here
from tests.seek_truth import compare_capture, read_truth
from tests.servers.capture import write_metadata
from tests.servers.jvm import Jvm
from tests.servers.metadata import dump
from tests.servers.pulsar import PulsarStandalone
from tests.servers.scalable import SETTINGS, VERSION, Driver, make

pytestmark = pytest.mark.interop

CAPTURE = "pulsar-5.0.0-M1-scalable"


@pytest.fixture(scope="module")
def pulsar(capture: Callable[[str], Path]) -> Iterator[PulsarStandalone]:
    with PulsarStandalone(VERSION, data=capture(CAPTURE), settings=SETTINGS) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "segments"),
    [
        ("moved", ["persistent://public/default/moved", "0000-ffff-1", "0000-7fff-2", "8000-ffff-3"]),
        ("split", ["0000-ffff-0", "0000-7fff-1", "8000-ffff-2", "8000-bfff-3", "c000-ffff-4"]),
        ("od%20d:n%C3%A4me", ["0000-ffff-0", "0000-7fff-1", "8000-ffff-2"]),
    ],
)
def test_each_segment_is_looked_up(pulsar: PulsarStandalone, name: str, segments: list[str]) -> None:
    topic = f"topic://public/default/{name}"
    done = pulsar_meta_here("lookup", topic, "--service-url", pulsar.service_url, "-o", "ndjson")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, b"")
    assert [answer["topic"] for answer in found] == [
        segment if "://" in segment else f"segment://public/default/{name}/{segment}" for segment in segments
    ]
    assert {answer["broker"] for answer in found} == {pulsar.service_url}
    assert {answer["scalable_topic"] for answer in found} == {topic}
    active = {answer["topic"] for answer in found if answer["segment_state"] == "ACTIVE"}
    assert active == {answer["topic"] for answer in found if answer["topic"][-1] in leaves(name)}


def leaves(name: str) -> str:
    return {"moved": "23", "split": "134"}.get(name, "12")


def test_a_scalable_topic_that_is_not_there_is_not_found(pulsar: PulsarStandalone) -> None:
    done = pulsar_meta_here("lookup", "topic://public/default/nix", "--service-url", pulsar.service_url)
    assert done.returncode == 3
    assert b"TopicNotFound" in done.stderr


def test_names_lead_to_the_same_places_as_in_pulsar() -> None:
    locals_ = ["t", "od%20d:näme", "we ird.n.ä~me*", "a.b-c_d=e", "a+b", "é🚀"]
    topics = [f"segment://ten.ant/na_me/{local}/0000-7fff-12" for local in locals_]
    scalable = [f"topic://ten.ant/na_me/{local}" for local in locals_]
    with Jvm(VERSION, heap="256m") as jvm:
        paths = jvm.call("tests.interop.oracle.names:persistence_paths", topics)
        assert jvm.call("tests.interop.oracle.names:full_names", topics + scalable) == topics + scalable
        records = jvm.call("tests.interop.oracle.names:scalable_paths", scalable)
    for topic, path in zip(topics, paths, strict=True):
        assert TopicName.parse(topic).path == f"{MANAGED_LEDGERS}/{path}"
        assert TopicName.from_path(f"{MANAGED_LEDGERS}/{path}") == TopicName.parse(topic)
    assert [TopicName.parse(name).path for name in scalable] == records


def test_short_names_are_the_brokers(pulsar: PulsarStandalone) -> None:
    def looked_up(name: str) -> tuple[int, list[str], bytes]:
        done = pulsar_meta_here("lookup", name, "--service-url", pulsar.service_url, "-o", "ndjson")
        found = [json.loads(line) for line in done.stdout.splitlines()]
        return done.returncode, [answer["topic"] for answer in found], done.stdout + done.stderr

    for name in ("moved", "parted", "public/default/created", "split"):
        code, topics, _ = looked_up(name)
        assert (code, topics) == (0, looked_up(f"topic://public/default/{name.rpartition('/')[2]}")[1])
    code, _, said = looked_up("both")
    assert (code, b"two topics have this name" in said) == (2, True)
    for part in ("persistent://public/default/moved", "persistent://public/default/parted-partition-1"):
        code, topics, said = looked_up(part)
        assert (code, topics, b"is only the sealed old part of" in said) == (0, [part], True)
    code, topics, said = looked_up("persistent://public/default/both")
    assert (code, len(topics), b"sealed" in said) == (0, 1, False)
    code, topics, said = looked_up("nix")
    assert (code, topics) == (0, ["persistent://public/default/nix"])
    assert b"the topic persistent://public/default/nix doesn't exist yet" in said
    # Nothing was made by asking.
    assert not [
        one for one in pulsar.admin("GET", "persistent/public/default") if "nix" in one or "split" in one
    ]


def test_what_a_broker_has_pruned_is_gone(tmp_path: Path) -> None:
    """Sealed segments that every subscription has consumed: 5.0.0-M1 removes them, and nothing is amiss."""
    name, settings = "public/pruned/orders", {**SETTINGS, "managedLedgerMaxEntriesPerLedger": "4"}
    with PulsarStandalone(VERSION, settings=settings) as running, Jvm(VERSION, heap="1g") as java:
        running.admin("PUT", "namespaces/public/pruned", {})
        nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        running.admin("POST", "namespaces/public/pruned/retention", nothing)
        driver = Driver(running, java)
        driver.create(name, 1)
        driver.consume(name, "all", "queue", 0)
        driver.produce(name, 40, batch=4)
        driver.admin("splitSegment", name, 0)
        driver.produce(name, 40, batch=4)
        driver.consume(name, "all", "queue", 60, acknowledge=list(range(60)))
        running.call("tests.servers.inside_v5:prune", f"topic://{name}")
        record = running.call("tests.servers.inside_v5:records")[f"topic://{name}"]
        java.call("tests.servers.clients.java_v5:close")
        running.stop()
        running.save_data(tmp_path)
        write_metadata(tmp_path / "metadata.ndjson", dump(running))
    assert list(record["segments"]) == ["1", "2"]
    where = ["--store", f"snapshot:{tmp_path / 'metadata.ndjson'}"]
    where += ["--entries", f"bookie-disk:{tmp_path / 'bookie0'}", "-o", "ndjson"]
    left = list(record["segments"].values())
    shown = pulsar_meta_here("dump-entries", "public/pruned/orders", "--deep", *where)
    messages = [
        (one["topic"], one["ledger_id"], one["entry_id"], message.get("batch_index", -1))
        for one in map(json.loads, shown.stdout.splitlines())
        for message in one["messages"]
    ]
    sent = [(one["segment"], one["l"], one["e"], one["b"]) for one in driver.sent[f"topic://{name}"]]
    assert shown.returncode == 0
    assert messages
    assert set(messages) <= {(record["segments"].get(str(number)), *place) for number, *place in sent}
    assert {topic for topic, *_ in messages} <= set(left)
    for words in (["check", name], ["verify-entries", name], ["check-index", name], ["show-cursor", name]):
        done = pulsar_meta_here(*words, *where)
        assert done.returncode == 0, done.stdout + done.stderr
        assert {json.loads(line)["topic"] for line in done.stdout.splitlines()} <= set(left)
    gone = pulsar_meta_here("properties", f"segment://{name}/0000-ffff-0", *where[:2])
    assert gone.returncode == 3


def exported(folder: Path, out: Path) -> dict[tuple[str, int, int, int], str]:
    """Return the messages that `export` writes of a capture's topics: by their places digests of payloads."""
    where = [
        "--store",
        f"snapshot:{folder / 'metadata.ndjson'}",
        "--entries",
        f"bookie-disk:{folder / 'bookie0'}",
    ]
    done = pulsar_meta_here("export", "public/default", "--readable", "--to", out, *where, "-o", "ndjson")
    assert done.returncode == 0, done.stderr.decode()
    rows = [
        json.loads(line) for file in out.rglob("name=*/**/*.ndjson") for line in file.read_text().splitlines()
    ]
    return {
        (
            row["topic"],
            row["ledger_id"],
            row["entry_id"],
            -1 if row["batch_index"] is None else row["batch_index"],
        ): hashlib.sha256(base64.b64decode(row["payload"])).hexdigest()[:16]
        for row in rows
    }


def test_a_capture_made_anew_is_read_as_its_cluster_told_it(tmp_path: Path) -> None:
    make(tmp_path / CAPTURE)
    for folder in (tmp_path / CAPTURE, tmp_path / f"{CAPTURE}-running"):
        truth = read_truth(folder)
        messages, seek = capture_report.report_messages(folder, truth), compare_capture(folder)
        assert (messages.wrong, seek.wrong) == ([], [])
        assert (
            messages.total
            == messages.same
            == sum(len(stated["messages"]) for stated in truth.values())
            > 1300
        )
        store, entries = f"snapshot:{folder / 'metadata.ndjson'}", f"bookie-disk:{folder / 'bookie0'}"
        done = pulsar_meta_here("verify-entries", "--all", "--store", store, "--entries", entries)
        assert done.returncode == 0, done.stdout
        rows = exported(folder, tmp_path / f"exported-{folder.name}")
        said = {
            (topic, one["l"], one["e"], one["b"]): one["sha"]
            for topic, stated in truth.items()
            for one in stated["messages"]
            if "//public/default/" in topic
        }
        assert {place: rows.get(place) for place in said} == said
        # What nobody could read is not exported either.
        assert {topic for topic, *_ in rows} <= {topic for topic, *_ in said}
        assert len([place for place in rows if place[0] in truth]) == len(said) > 1300
