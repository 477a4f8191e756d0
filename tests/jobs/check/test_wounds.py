"""Captures that brokers left are well, and wounds made on copies of them are found, each and in pairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.check.catalogue import CODES
from pulsar_meta.jobs.check.codes import Severity
from tests.wounds import WOUNDS, examined, healthy, place_of, trials

Capture = Callable[[str], Path]
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


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-2.8.2"])
def test_wounds_are_found_in_their_places_and_nothing_else(capture: Capture, name: str) -> None:
    wrong = [(wound, faults) for wound, faults in trials(healthy(capture(name)), 7, 60) if faults]
    assert wrong == []


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


def test_every_wound_is_of_a_code_of_the_catalogue(capture: Capture) -> None:
    store = healthy(capture("pulsar-4.2.4"))
    found = {one.code for one in examined(store)}
    assert found <= set(CODES)
    assert len(WOUNDS) >= 19
