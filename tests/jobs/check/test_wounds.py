"""Captures that brokers left are well, and wounds made on copies of them are found, each and in pairs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.check.catalogue import CODES
from pulsar_meta.jobs.check.codes import Severity
from tests.wounds import (
    WOUNDS,
    Disks,
    Wound,
    examined,
    healthy,
    of_cursors,
    of_entries,
    of_ledgers,
    of_rest,
    place_of,
    trials,
    wounded,
)
from tests.wounds.harmless import HARMLESS, a_copy_less
from tests.wounds.of_segments import OF_SEGMENTS, OF_SHADOWS
from tests.wounds.patient import NotHereError

Capture = Callable[[str], Path]
OF_COPIES = of_entries.WOUNDS | {
    one.__name__: one for one in (a_copy_less, of_rest.bookie_stopped, of_rest.bookie_unknown)
}
NAMES = (
    *("pulsar-2.8.2", "pulsar-3.0.7", "pulsar-4.0.7", "pulsar-4.2.4", "pulsar-4.2.4-killed"),
    *("pulsar-4.2.4-3bookies", "pulsar-5.0.0-M1"),
)


@pytest.mark.parametrize("name", NAMES)
def test_what_brokers_left_is_well(capture: Capture, name: str) -> None:
    folder = capture(name)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        for given in (None, source):
            found = examined(healthy(folder), given)
            # 4.2.4 wrote compressed cursors that it cannot load: of the killed one it is known who wrote it.
            # The cluster was stopped, and of two that register a schema at once one leaves its ledger behind.
            assert {one.code for one in found} <= {"record-unreadable", "bookie-unreachable", "orphan-ledger"}
            worst = Severity.WARNING if name.endswith("killed") else Severity.NOTE
            assert {one.severity for one in found} <= {worst, Severity.NOTE}


@pytest.mark.parametrize(
    ("name", "wounds", "count"),
    [
        ("pulsar-4.2.4", WOUNDS | HARMLESS, 110),
        ("pulsar-4.2.4-3bookies", OF_COPIES, 12),
        ("pulsar-4.2.4-killed", of_cursors.WOUNDS, 16),
        ("pulsar-5.0.0-M1-scalable", OF_SEGMENTS, 7),
        ("pulsar-4.2.4-shadows", OF_SHADOWS, 2),
    ],
)
def test_wounds_are_found_in_their_places_and_nothing_else(
    capture: Capture, name: str, wounds: dict[str, Wound], count: int
) -> None:
    folder = capture(name)
    urls = (f"bookie-disk:{folder}",)
    with open_entries(urls) as source:
        tried = list(trials(healthy(folder), 7, count, wounds, Disks(source, urls)))
    assert [(one.name, one.faults) for one in tried if one.faults] == []
    assert len(tried) > count / 2


def test_a_store_alone_is_looked_at_without_entries(capture: Capture) -> None:
    for name in ("pulsar-2.8.2", "pulsar-4.2.4"):
        tried = list(trials(healthy(capture(name)), 8, 16, of_ledgers.WOUNDS | HARMLESS))
        assert [(one.name, one.faults) for one in tried if one.faults] == []


def test_every_code_has_a_wound(capture: Capture) -> None:
    found = set[str]()
    for name, wounds in (
        ("pulsar-4.2.4-3bookies", WOUNDS),
        ("pulsar-4.2.4-killed", of_cursors.WOUNDS),
        ("pulsar-5.0.0-M1-scalable", OF_SEGMENTS),
        ("pulsar-4.2.4-shadows", OF_SHADOWS),
    ):
        folder = capture(name)
        store, urls = healthy(folder), (f"bookie-disk:{folder}",)
        with open_entries(urls) as source:
            for seed in range(3):
                for wound in wounds.values():
                    with suppress(NotHereError):
                        done = wounded(store, Random(seed), [wound], Disks(source, urls))
                        found |= {one.code for one in done.expected}
    assert found == set(CODES)


def test_one_topic_alone_says_the_same_of_it(capture: Capture) -> None:
    store = healthy(capture("pulsar-4.2.4"))
    topic = "persistent://public/default/plain"
    del store.values["/ledgers/00/0000/L0025"]
    everything = {place_of(one) for one in examined(store)} - {
        place_of(one) for one in examined(healthy(capture("pulsar-4.2.4")))
    }
    assert {place_of(one) for one in examined(store, None, topic)} == everything
    assert {place_of(one) for one in examined(store, None, "public/default")} >= everything
    assert examined(store, None, "public/zero") == []


@pytest.mark.parametrize("name", OF_SEGMENTS)
def test_one_scalable_topic_alone_says_the_same_of_it(capture: Capture, name: str) -> None:
    store = healthy(capture("pulsar-5.0.0-M1-scalable"))
    assert examined(store, None, "split") == []
    patient = wounded(store, Random(), [OF_SEGMENTS[name]])
    # Segments that no record names, and topics without one, are what only the whole store says.
    named = {one for one in patient.expected if one.code != "segment-without-topic"}
    assert {place_of(one) for one in examined(patient.store, None, "split")} == named
    assert examined(patient.store, None, "merged") == []
