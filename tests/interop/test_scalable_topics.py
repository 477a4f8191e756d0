"""Scalable topics beside a real Pulsar 5: names, lookups, and a capture made anew and judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName
from tests import capture_report
from tests.cli.program import pulsar_meta_here
from tests.seek_truth import compare_capture, read_truth
from tests.servers.jvm import Jvm
from tests.servers.pulsar import PulsarStandalone
from tests.servers.scalable import SETTINGS, VERSION, make

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
    assert [one["topic"] for one in found] == [
        one if "://" in one else f"segment://public/default/{name}/{one}" for one in segments
    ]
    assert {one["broker"] for one in found} == {pulsar.service_url}
    assert {one["scalable_topic"] for one in found} == {topic}
    active = {one["topic"] for one in found if one["segment_state"] == "ACTIVE"}
    assert active == {one["topic"] for one in found if one["topic"][-1] in leaves(name)}


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


def test_a_capture_made_anew_is_read_as_its_cluster_told_it(tmp_path: Path) -> None:
    make(tmp_path / CAPTURE)
    for folder in (tmp_path / CAPTURE, tmp_path / f"{CAPTURE}-running"):
        truth = read_truth(folder)
        messages, seek = capture_report.report_messages(folder, truth), compare_capture(folder)
        assert (messages.wrong, seek.wrong) == ([], [])
        assert (
            messages.stated
            == messages.same
            == sum(len(stated["messages"]) for stated in truth.values())
            > 1300
        )
        store, entries = f"snapshot:{folder / 'metadata.ndjson'}", f"bookie-disk:{folder / 'bookie0'}"
        done = pulsar_meta_here("verify-entries", "--all", "--store", store, "--entries", entries)
        assert done.returncode == 0, done.stdout
