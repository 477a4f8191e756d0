"""Subscription names and ledgers of topics that replication leaves on the disks of two 4.2.4 clusters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.frame import Frame
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.rebuild.evidence import DataClues, Rebuilt
from pulsar_meta.jobs.rebuild.groups import group_ledgers
from pulsar_meta.jobs.rebuild.kinds import from_plain, to_plain
from pulsar_meta.jobs.rebuild.names import GivenNames, Named
from pulsar_meta.jobs.rebuild.old_store import OldStore
from pulsar_meta.jobs.rebuild.rebuilt import Known, rebuilt_values, scan_disks
from pulsar_meta.jobs.rebuild.replication import (
    ClusterSnapshot,
    Markers,
    Replicated,
    ReplicatedSubscription,
    SubscriptionUpdate,
    assign_by_position,
    replicated_subscriptions,
)
from pulsar_meta.jobs.rebuild.scan import LedgerScan, ScanResult, local_scanner
from pulsar_meta.jobs.topics.topic import Position, parse_position
from pulsar_meta.jobs.values.places import IDGEN
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata
from pulsar_meta.proto.ReplicatedSubscriptions_pb2 import Snapshot, SnapshotRequest, SnapshotResponse

Cluster = tuple[str, Path, dict[str, Any]]


@pytest.fixture(scope="module", params=["west", "east"])
def cluster(request: pytest.FixtureRequest, capture: Callable[[str], Path]) -> Cluster:
    """The name of a cluster, its folder, and what its broker reported about each topic."""
    folder = capture("replicated-4.2.4")
    return (
        request.param,
        folder / request.param,
        orjson.loads((folder / "truth.json").read_bytes())[request.param],
    )


def rebuilt(cluster: Cluster, *, lost: bool = False, **known: Any) -> dict[tuple[str | None, str], Rebuilt]:
    """Rebuild the subscriptions of named topics; `lost` leaves out the ledgers of replicated ones."""
    name, folder, truth = cluster
    ledgers = {
        ledger_id: Named(TopicName.parse(topic), "")
        for topic, facts in truth.items()
        for ledger_id in facts["ledgers"]
    }
    with open_entries([f"bookie-disk:{folder}"]) as source:
        here = local_scanner(source, print, password=b"", lost=())

        def scanned(ids: Iterable[int]) -> Iterator[LedgerScan]:
            yield from (
                scan for scan in here(ids) if not (lost and getattr(scan.clues, "replicated", None) is True)
            )

        given = Known(given=GivenNames(ledgers), cluster=name, **known)
        made = list(rebuilt_values(source, print, given, scanned))
    return {
        (value.facts.get("topic"), value.facts["cursor"] or ""): value
        for value in made
        if "cursor" in value.facts
    }


def true(cluster: Cluster) -> dict[tuple[str | None, str], tuple[Position, int]]:
    return {
        (topic, name.replace("%2F", "/")): (parse_position(cursor["position"]), cursor["ledger"])
        for topic, facts in cluster[2].items()
        for name, cursor in facts["cursors"].items()
    }


def test_markers_name_the_ledgers_of_replicated_subscriptions(cluster: Cluster) -> None:
    made, expected = rebuilt(cluster), true(cluster)
    named = {key: value for key, value in made.items() if not key[1].startswith("recovered-")}
    # No marker names the replicator's cursor or a subscription that is not replicated.
    assert {key for key in expected if key[1] != "plain" and ".repl." not in key[1]} == named.keys()
    for key, value in named.items():
        assert (value.facts["position"], value.facts["cursor_ledger"]) == (
            "{}:{}".format(*expected[key][0]),
            expected[key][1],
        )
        assert value.certainty == ("certain" if key[1] == "pulsar.dedup" else "likely")


def test_subscriptions_without_a_ledger_start_where_markers_have_them(cluster: Cluster) -> None:
    made, expected = rebuilt(cluster, lost=True), true(cluster)
    restored = {key: value for key, value in made.items() if "replicated subscription" in value.evidence[0]}
    assert {key[1] for key in restored} == {"billing/a", "audit", "ship"}
    for key, value in restored.items():
        record = decode_cursor(value.value or b"")
        position = Position(record.markDeleteLedgerId, record.markDeleteEntryId)
        # No message is skipped, and only messages of this ledger or the one before are redelivered.
        ledgers, true_position = cluster[2][str(key[0])]["ledgers"], expected[key][0]
        at = ledgers.index(true_position.ledger_id)
        assert position.ledger_id in ledgers[max(at - 1, 0) : at + 1]
        assert position <= true_position
        assert [(prop.name, prop.value) for prop in record.properties] == [
            ("pulsar.replicated.subscription", 1)
        ]
        assert value.certainty == "likely"


def test_subscriptions_missing_from_an_older_store_stay_away(cluster: Cluster) -> None:
    topics = {TopicName.parse(topic): ManagedLedgerInfo() for topic in cluster[2]}
    old = OldStore(topics=topics, counters={IDGEN: 1000})
    made = rebuilt(cluster, lost=True, old=old)
    assert not [key for key in made if key[1] in ("billing/a", "audit", "ship")]


def test_markers_and_copies_alone_join_ledgers_of_a_topic(cluster: Cluster) -> None:
    name, folder, _ = cluster
    with open_entries([f"bookie-disk:{folder}"]) as source:
        scanned = scan_disks(source, print, Known(cluster=name))
    data = {at: DataClues(at) for at in scanned.clues_of(DataClues)}
    mentions = [mention for mention in scanned.mentions() if mention.kind == "data"]
    assert {mention.reason.partition(" in ")[0] for mention in mentions} >= {"a marker"}
    groups = [set(group.ledgers) for group in group_ledgers(data, mentions, {})]
    expected = [
        set(group.ledgers) for group in group_ledgers(scanned.clues_of(DataClues), scanned.mentions(), {})
    ]
    assert all(any(group <= topic for topic in expected) for group in groups)
    assert [group for group in groups if len(group) > 1]


def test_another_cluster_name_is_refused(cluster: Cluster) -> None:
    name, folder, _ = cluster
    with (
        open_entries([f"bookie-disk:{folder}"]) as source,
        pytest.raises(UsageError, match=f"--cluster {name}"),
    ):
        list(rebuilt_values(source, print, Known()))


def standing(**names: int | None) -> list[ReplicatedSubscription]:
    return [
        ReplicatedSubscription(name, None if entry is None else Position(1, entry), 1, "")
        for name, entry in names.items()
    ]


@pytest.mark.parametrize(
    ("names", "last", "expected"),
    [
        (standing(a=5), {9: 7}, {9: "a"}),
        (standing(a=5), {9: 4}, {}),
        (standing(a=None), {9: 7}, {}),
        # Both fit two of them, but one is exactly where it was moved to.
        (standing(a=5, b=6), {9: 7, 10: 8}, {}),
        (standing(a=5, b=6), {9: 5, 10: 8}, {9: "a", 10: "b"}),
        (standing(a=5, b=6), {9: 5, 10: 6}, {9: "a", 10: "b"}),
        (standing(a=3, b=6), {9: 4, 10: 8}, {9: "a", 10: "b"}),
        # Both were moved to the same place, and an older ledger of one of them is there too.
        (standing(a=5, b=5), {9: 5, 10: 8}, {}),
        (standing(a=5, b=6), {9: 5, 10: 8, 11: 9}, {9: "a"}),
        (standing(a=5), {9: 5, 10: 5}, {}),
        (standing(a=5), {9: 6, 10: 8}, {}),
    ],
)
def test_ledgers_are_assigned_to_subscriptions(
    names: list[ReplicatedSubscription], last: dict[int, int], expected: dict[int, str]
) -> None:
    places = {ledger: Position(1, entry) for ledger, entry in last.items()}
    assert {at: owner.subscription for at, owner in assign_by_position(names, places).items()} == expected


def test_the_newest_marker_counts() -> None:
    """It counts even if it moved a subscription back. A marker whose snapshot is missing does not count."""
    here, there = Position(1, 7), {"east": Position(4, 4)}
    ledgers = {
        1: Replicated(acked=(SubscriptionUpdate("a", {}, here), SubscriptionUpdate("b", {}, None))),
        2: Replicated(
            acked=(SubscriptionUpdate("a", {"west": Position(1, 3)}, None),),
            snapshots=(ClusterSnapshot(here, there),),
        ),
        3: Replicated(
            acked=(
                SubscriptionUpdate("a", {"east": Position(9, 9)}, None),
                SubscriptionUpdate("c", there, None),
            )
        ),
    }
    result = {
        standing.subscription: (standing.position, standing.ledger_id)
        for standing in replicated_subscriptions(ledgers, "west")
    }
    assert result == {"a": (Position(1, 3), 2), "b": (None, 1), "c": (here, 3)}


def test_markers_without_positions_are_ignored_and_corrupt_ones_refused() -> None:
    markers, metadata = Markers(), MessageMetadata(producer_name="m", sequence_id=0, publish_time=1)
    for number, marker in (
        (10, SnapshotRequest(snapshot_id="x")),
        (11, SnapshotResponse(snapshot_id="x")),
        (12, Snapshot(snapshot_id="x")),
    ):
        metadata.marker_type = number
        markers.take(Frame(None, "ok", metadata, memoryview(marker.SerializeToString())))
    assert markers == Markers()
    with pytest.raises(DecodeError):
        markers.take(Frame(None, "ok", metadata, memoryview(b"\xff")))


def test_scans_survive_a_round_trip_through_json(cluster: Cluster) -> None:
    with open_entries([f"bookie-disk:{cluster[1]}"]) as source:
        scans = list(local_scanner(source, print, password=b"", lost=())(source.ledgers()))
    back = [from_plain(LedgerScan, json.loads(json.dumps(to_plain(scan)))) for scan in scans]
    assert back == scans
    assert ScanResult.of(back, b"").clues_of(DataClues) == ScanResult.of(scans, b"").clues_of(DataClues)
