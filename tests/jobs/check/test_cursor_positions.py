"""The exact ends of what `check` accepts as a position or an acknowledged range of a cursor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Versioned
from tests.damage import check_findings, healthy_store

# Its closed ledgers are 152 to 157 with 50 entries each; the last one is empty.
TOPIC = "persistent://public/default/fanout"
CURSOR = f"{TopicName.parse(TOPIC).path}/fan-000"
Run = tuple[int, int, int]


@pytest.fixture
def findings_of(capture: Callable[[str], Path]) -> Callable[..., dict[str, dict[str, Any]]]:
    """A function that writes a cursor and returns the evidence of each finding about it, by code."""
    store = healthy_store(capture("pulsar-4.2.4"))

    def check(mark: tuple[int, int], *runs: Run, last_active: int = 0) -> dict[str, dict[str, Any]]:
        info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=mark[0], markDeleteEntryId=mark[1])
        info.lastActive = last_active
        for ledger_id, first, last in runs:
            added = info.individualDeletedMessages.add()
            added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = ledger_id
            # The lower end is excluded.
            added.lowerEndpoint.entryId, added.upperEndpoint.entryId = first - 1, last
        store.values[CURSOR] = Versioned(CURSOR, info.SerializeToString(), 1)
        about = (finding for finding in check_findings(store) if finding.cursor == "fan-000")
        return {finding.code: dict(finding.evidence) for finding in about}

    return check


Check = Callable[..., dict[str, dict[str, Any]]]


@pytest.mark.parametrize("mark", [(152, -1), (152, 0), (152, 49), (157, 49)])
def test_every_entry_of_the_topic_is_a_position(findings_of: Check, mark: tuple[int, int]) -> None:
    assert findings_of(mark) == {}


@pytest.mark.parametrize(("mark", "before"), [((152, 50), 50), ((155, 50), 200)])
def test_the_entry_after_the_last_one_of_a_ledger_is_beyond_it(
    findings_of: Check, mark: tuple[int, int], before: int
) -> None:
    evidence = findings_of(mark)["cursor-beyond-end"]
    assert (evidence["entries"], evidence["entries_before"]) == (50, before)


def test_the_entry_after_the_last_one_of_the_topic_is_beyond_it(findings_of: Check) -> None:
    assert findings_of((157, 50))["cursor-beyond-end"]["end"] == [157, 49]


@pytest.mark.parametrize(
    ("runs", "faults"),
    [
        ([(152, 11, 49)], {}),
        ([(152, 12, 50)], {"beyond the end of a ledger": 1}),
        ([(152, 5, 10)], {"before the position": 1}),
        ([(152, 12, 20), (152, 21, 30)], {}),
        ([(152, 12, 20), (152, 20, 30)], {"overlapping": 1}),
        ([(158, 0, 3)], {"in a ledger that is not listed": 1}),
    ],
)
def test_acknowledged_ranges_are_after_the_position_and_inside_of_their_ledgers(
    findings_of: Check, runs: Sequence[Run], faults: dict[str, int]
) -> None:
    assert findings_of((152, 10), *runs).get("cursor-ranges", {}) == faults


@pytest.mark.parametrize(
    ("mark", "retained"),
    [
        ((155, 48), 12115 + 11138 + 15584),
        ((155, 49), 11138 + 15584),
        ((157, 48), 15584),
        ((157, 49), 0),
    ],
)
def test_an_idle_subscription_retains_the_ledgers_with_entries_after_its_position(
    findings_of: Check, mark: tuple[int, int], retained: int
) -> None:
    """The closed ledgers have 12115, 11138 and 15584 bytes from ledger 155 on."""
    assert findings_of(mark, last_active=1).get("cursor-idle", {}).get("bytes", 0) == retained
