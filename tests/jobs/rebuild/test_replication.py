"""What replication left on the disks of two clusters of 4.2.4: names of subscriptions, ledgers of a topic."""

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
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.rebuild.evidence import DataClues, Rebuilt
from pulsar_meta.jobs.rebuild.groups import group_ledgers
from pulsar_meta.jobs.rebuild.kinds import plain, read_plain
from pulsar_meta.jobs.rebuild.names import GivenNames, Named
from pulsar_meta.jobs.rebuild.old_store import OldStore
from pulsar_meta.jobs.rebuild.rebuilt import Known, rebuilt_values, scan_disks
from pulsar_meta.jobs.rebuild.replication import Acked, Markers, Replicated, Same, Standing, standings, whose
from pulsar_meta.jobs.rebuild.scan import LedgerScan, Scanned, scan_here
from pulsar_meta.jobs.topics.topic import Position, parse_position
from pulsar_meta.jobs.values.places import IDGEN
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata
from pulsar_meta.proto.ReplicatedSubscriptions_pb2 import Snapshot, SnapshotRequest, SnapshotResponse

Cluster = tuple[str, Path, dict[str, Any]]


@pytest.fixture(scope="module", params=["west", "east"])
def cluster(request: pytest.FixtureRequest, capture: Callable[[str], Path]) -> Cluster:
    """The name of a cluster, its disk, and what its broker said by topic."""
    folder = capture("replicated-4.2.4")
    return (
        request.param,
        folder / request.param,
        orjson.loads((folder / "truth.json").read_bytes())[request.param],
    )


def rebuilt(cluster: Cluster, *, lost: bool = False, **known: Any) -> dict[tuple[str | None, str], Rebuilt]:
    """Return the subscriptions that are made, topics named; `lost`: no ledger of a replicated one is left."""
    name, folder, truth = cluster
    ledgers = {
        one: Named(TopicName.parse(topic), "") for topic, said in truth.items() for one in said["ledgers"]
    }
    with open_entries([f"bookie-disk:{folder}"]) as source:
        here = scan_here(source, print, password=b"", lost=())

        def scanned(ids: Iterable[int]) -> Iterator[LedgerScan]:
            yield from (
                one for one in here(ids) if not (lost and getattr(one.clues, "replicated", None) is True)
            )

        given = Known(given=GivenNames(ledgers), cluster=name, **known)
        made = list(rebuilt_values(source, print, given, scanned))
    return {(one.facts.get("topic"), one.facts["cursor"] or ""): one for one in made if "cursor" in one.facts}


def true(cluster: Cluster) -> dict[tuple[str | None, str], tuple[Position, int]]:
    return {
        (topic, name.replace("%2F", "/")): (parse_position(one["position"]), one["ledger"])
        for topic, said in cluster[2].items()
        for name, one in said["cursors"].items()
    }


def test_ledgers_of_subscriptions_get_their_names(cluster: Cluster) -> None:
    made, stated = rebuilt(cluster), true(cluster)
    named = {key: one for key, one in made.items() if not key[1].startswith("recovered-")}
    # Nothing says which cursor is the replicator's, or that of a subscription that is not replicated.
    assert {key for key in stated if key[1] != "plain" and ".repl." not in key[1]} == named.keys()
    for key, one in named.items():
        assert (one.facts["position"], one.facts["cursor_ledger"]) == (
            "{}:{}".format(*stated[key][0]),
            stated[key][1],
        )
        assert one.certainty == ("certain" if key[1] == "pulsar.dedup" else "likely")


def test_subscriptions_without_a_ledger_begin_where_markers_have_them(cluster: Cluster) -> None:
    made, stated = rebuilt(cluster, lost=True), true(cluster)
    found = {key: one for key, one in made.items() if "replicated subscription" in one.evidence[0]}
    assert {key[1] for key in found} == {"billing/a", "audit", "ship"}
    for key, one in found.items():
        record = decode_cursor(one.value or b"")
        position = Position(record.markDeleteLedgerId, record.markDeleteEntryId)
        # Nothing is passed over, and only what is in this ledger or the one before comes again.
        ledgers, true_one = cluster[2][str(key[0])]["ledgers"], stated[key][0]
        at = ledgers.index(true_one.ledger_id)
        assert position.ledger_id in ledgers[max(at - 1, 0) : at + 1]
        assert position <= true_one
        assert [(held.name, held.value) for held in record.properties] == [
            ("pulsar.replicated.subscription", 1)
        ]
        assert one.certainty == "likely"


def test_what_an_older_store_had_let_go_of_stays_away(cluster: Cluster) -> None:
    topics = {TopicName.parse(topic): ManagedLedgerInfo() for topic in cluster[2]}
    old = OldStore(topics=topics, counters={IDGEN: 1000})
    made = rebuilt(cluster, lost=True, old=old)
    assert not [key for key in made if key[1] in ("billing/a", "audit", "ship")]


def test_ledgers_are_one_topics_by_markers_and_copies_alone(cluster: Cluster) -> None:
    name, folder, _ = cluster
    with open_entries([f"bookie-disk:{folder}"]) as source:
        scanned = scan_disks(source, print, Known(cluster=name))
    data = {at: DataClues(at) for at in scanned.said(DataClues)}
    mentions = [mention for mention in scanned.mentions() if mention.kind == "data"]
    assert {mention.says.partition(" in ")[0] for mention in mentions} >= {"a marker"}
    groups = [set(group.ledgers) for group in group_ledgers(data, mentions, {})]
    whole = [set(group.ledgers) for group in group_ledgers(scanned.said(DataClues), scanned.mentions(), {})]
    assert all(any(group <= topic for topic in whole) for group in groups)
    assert [group for group in groups if len(group) > 1]


def test_a_cluster_that_calls_itself_otherwise(cluster: Cluster) -> None:
    name, folder, _ = cluster
    with (
        open_entries([f"bookie-disk:{folder}"]) as source,
        pytest.raises(UsageError, match=f"--cluster {name}"),
    ):
        list(rebuilt_values(source, print, Known()))


def standing(**names: int | None) -> list[Standing]:
    return [
        Standing(name, None if entry is None else Position(1, entry), 1, "") for name, entry in names.items()
    ]


@pytest.mark.parametrize(
    ("names", "last", "found"),
    [
        (standing(a=5), {9: 7}, {9: "a"}),
        (standing(a=5), {9: 4}, {}),
        (standing(a=None), {9: 7}, {}),
        # Two fit both, but for one that stands just where it was moved.
        (standing(a=5, b=6), {9: 7, 10: 8}, {}),
        (standing(a=5, b=6), {9: 5, 10: 8}, {9: "a", 10: "b"}),
        (standing(a=5, b=6), {9: 5, 10: 6}, {9: "a", 10: "b"}),
        (standing(a=3, b=6), {9: 4, 10: 8}, {9: "a", 10: "b"}),
        # Where both were moved to one place, and where an older ledger of one is there, too.
        (standing(a=5, b=5), {9: 5, 10: 8}, {}),
        (standing(a=5, b=6), {9: 5, 10: 8, 11: 9}, {9: "a"}),
        (standing(a=5), {9: 5, 10: 5}, {}),
        (standing(a=5), {9: 6, 10: 8}, {}),
    ],
)
def test_whose_a_ledger_is(names: list[Standing], last: dict[int, int], found: dict[int, str]) -> None:
    places = {ledger: Position(1, entry) for ledger, entry in last.items()}
    assert {at: one.subscription for at, one in whose(names, places).items()} == found


def test_the_newest_marker_counts() -> None:
    """Also where a subscription was set back; one whose snapshot is not here counts for nothing."""
    here, there = Position(1, 7), {"east": Position(4, 4)}
    ledgers = {
        1: Replicated(acked=(Acked("a", {}, here), Acked("b", {}, None))),
        2: Replicated(acked=(Acked("a", {"west": Position(1, 3)}, None),), snapshots=(Same(here, there),)),
        3: Replicated(acked=(Acked("a", {"east": Position(9, 9)}, None), Acked("c", there, None))),
    }
    found = {
        standing.subscription: (standing.position, standing.ledger_id)
        for standing in standings(ledgers, "west")
    }
    assert found == {"a": (Position(1, 3), 2), "b": (None, 1), "c": (here, 3)}


def test_a_marker_that_says_nothing() -> None:
    found, metadata = Markers(), MessageMetadata(producer_name="m", sequence_id=0, publish_time=1)
    for number, marker in (
        (10, SnapshotRequest(snapshot_id="x")),
        (11, SnapshotResponse(snapshot_id="x")),
        (12, Snapshot(snapshot_id="x")),
    ):
        metadata.marker_type = number
        found.take(Frame(None, "ok", metadata, memoryview(marker.SerializeToString())))
    assert found == Markers()
    with pytest.raises(DecodeError):
        found.take(Frame(None, "ok", metadata, memoryview(b"\xff")))


def test_scans_of_both_are_kept_and_read_back(cluster: Cluster) -> None:
    with open_entries([f"bookie-disk:{cluster[1]}"]) as source:
        scans = list(scan_here(source, print, password=b"", lost=())(source.ledgers()))
    back = [read_plain(LedgerScan, json.loads(json.dumps(plain(scan)))) for scan in scans]
    assert back == scans
    assert Scanned.of(back, b"").said(DataClues) == Scanned.of(scans, b"").said(DataClues)
