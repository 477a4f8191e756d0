"""Traces of geo-replication in a topic: names and positions of subscriptions, ledgers of the same topic.

If a subscription is replicated, each cluster writes updates of its mark-delete position into the topic, as
positions in the other clusters, and those clusters receive a copy. A snapshot marker lists the same place of
the topic as a position in every cluster, so it translates an update into a local position. A replicated
message has a property with the ledger of the other cluster that it came from. None of these contains the
topic's name.

Sources: apache/pulsar PIP-33, PulsarMarkers.proto, ReplicatedSubscriptionsController.java,
ReplicatedSubscriptionsSnapshotBuilder.java, GeoPersistentReplicator.java; bytes written by Pulsar 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import permutations
from typing import Any, Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import Frame, decode_frame
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.ReplicatedSubscriptions_pb2 import Snapshot, SnapshotRequest, SnapshotResponse, Update


class Marker(IntEnum):
    """The types of markers that replicated subscriptions write (MarkerType of PulsarMarkers.proto)."""

    REQUEST = 10
    RESPONSE = 11
    SNAPSHOT = 12
    UPDATE = 13


MARKERS: Final[Mapping[int, type[Any]]] = {
    Marker.REQUEST: SnapshotRequest,
    Marker.RESPONSE: SnapshotResponse,
    Marker.SNAPSHOT: Snapshot,
    Marker.UPDATE: Update,
}
# The property of a replicated message with its position in the cluster of origin.
SOURCE_POSITION: Final = "__MSG_PROP_REPL_SOURCE_POSITION"
# The cursor property of a replicated subscription.
REPLICATED: Final = "pulsar.replicated.subscription"
# Entries at each end of a ledger that are searched for replicated messages, and markers that are read.
SAMPLED_ENTRIES: Final = 16
FIRST_MARKERS, LAST_MARKERS = 64, 2048
# Snapshots at the end of a ledger that are kept, because updates in the next ledger may refer to them.
SNAPSHOTS: Final = 16
# With more subscriptions than this, the possible assignments of ledgers are not tried.
MAX_TRIED: Final = 6

ClusterPositions = Mapping[str, Position]


class ClusterSnapshot(NamedTuple):
    """One place of the topic as a position in this cluster (`here`) and in the other clusters."""

    here: Position
    clusters: ClusterPositions


class SubscriptionUpdate(NamedTuple):
    """A lower bound of a subscription's mark-delete position, per cluster.

    A copy from another cluster includes the position in this cluster. `here` is the local position, if a
    snapshot in the same ledger gives it.
    """

    subscription: str
    clusters: ClusterPositions
    here: Position | None


class CopiedFrom(NamedTuple):
    """A ledger of another cluster from which messages were replicated."""

    cluster: str
    ledger_id: int


@dataclass(frozen=True, slots=True)
class Replicated:
    """The traces of geo-replication in one data ledger.

    `cluster` is this cluster's name, `named` are ledgers of the same topic, `acked` has the newest update of
    each subscription, `snapshots` the last snapshots.
    """

    cluster: str | None = None
    named: frozenset[int] = frozenset()
    acked: tuple[SubscriptionUpdate, ...] = ()
    snapshots: tuple[ClusterSnapshot, ...] = ()
    copied_from: frozenset[CopiedFrom] = frozenset()


NOT_REPLICATED: Final = Replicated()


@dataclass(slots=True)
class Markers:
    """Collects the replication markers of one ledger, in ledger order."""

    cluster: str | None = None
    named: set[int] = field(default_factory=set)
    acked: dict[str, SubscriptionUpdate] = field(default_factory=dict)
    snapshots: list[ClusterSnapshot] = field(default_factory=list)

    def take(self, frame: Frame) -> None:
        """Add a marker. Raises DecodeError."""
        metadata = frame.metadata
        own = not metadata.replicated_from
        marker = parse_message(MARKERS[metadata.marker_type], frame.payload)
        match metadata.marker_type:
            case Marker.REQUEST if own:
                self.cluster = marker.source_cluster or self.cluster
            case Marker.RESPONSE if own and marker.HasField("cluster"):
                self.cluster = marker.cluster.cluster
                self.named.add(marker.cluster.message_id.ledger_id)
            case Marker.SNAPSHOT if own and marker.HasField("local_message_id"):
                self.named.add(marker.local_message_id.ledger_id)
                self.snapshots.append(ClusterSnapshot(_position(marker.local_message_id), _places(marker)))
            case Marker.UPDATE:
                places = _places(marker)
                here = _here(places, self.snapshots) if own else None
                name = marker.subscription_name
                self.acked[name] = SubscriptionUpdate(name, places, here)


def replication_clues(
    source: EntrySource, ledger_id: int, ends: Iterable[int], markers: Sequence[int]
) -> Replicated:
    """Find the traces of geo-replication in a ledger.

    `ends` are the entries to search for replicated messages, `markers` the entries with replication markers.
    If there are very many markers, only the first and last ones are read. Raises UnreachableError.
    """
    collected = Markers()
    if len(markers) > FIRST_MARKERS + LAST_MARKERS:
        markers = [*markers[:FIRST_MARKERS], *markers[-LAST_MARKERS:]]
    for frame in _frames(source, ledger_id, markers):
        with suppress(DecodeError):
            collected.take(frame)
    copied = {
        origin
        for frame in _frames(source, ledger_id, ends, SOURCE_POSITION.encode())
        for origin in _copied_from(frame)
    }
    if not (collected.cluster or collected.named or collected.acked or copied):
        return NOT_REPLICATED
    return Replicated(
        collected.cluster,
        frozenset(collected.named),
        tuple(collected.acked.values()),
        tuple(collected.snapshots[-SNAPSHOTS:]),
        frozenset(copied),
    )


class ReplicatedSubscription(NamedTuple):
    """A subscription that markers in a topic name, and a lower bound of its position (None if unknown).

    `ledger_id` contains the marker, and `why` is the evidence as text.
    """

    subscription: str
    position: Position | None
    ledger_id: int
    why: str


def replicated_subscriptions(ledgers: Mapping[int, Replicated], cluster: str) -> list[ReplicatedSubscription]:
    """List the replicated subscriptions of one topic.

    `ledgers` has the clues of its data ledgers, `cluster` is the cluster's name if no marker gives it.
    """
    subscriptions: dict[str, ReplicatedSubscription] = {}
    earlier: tuple[ClusterSnapshot, ...] = ()
    for ledger_id, clues in sorted(ledgers.items()):
        own = clues.cluster or cluster
        for acked in clues.acked:
            position = acked.here or acked.clusters.get(own) or _here(acked.clusters, earlier)
            # The newest update counts, because a subscription can be reset to an earlier position.
            if position is not None or acked.subscription not in subscriptions:
                why = f"a marker in ledger {ledger_id} names this replicated subscription"
                name = acked.subscription
                subscriptions[name] = ReplicatedSubscription(name, position, ledger_id, why)
        earlier = clues.snapshots or earlier
    return list(subscriptions.values())


def assign_by_position(
    subscriptions: Sequence[ReplicatedSubscription], last: Mapping[int, Position]
) -> dict[int, ReplicatedSubscription]:
    """Assign cursor ledgers of one topic to its replicated subscriptions, if there is only one way to do so.

    `last` has the last position of each cursor ledger. A ledger whose last position equals the position in
    one subscription's marker belongs to that subscription. The others must be at or past their marker.
    """
    candidates = {
        ledger: [item for item in subscriptions if item.position == position]
        for ledger, position in last.items()
    }
    exact = {ledger: items[0] for ledger, items in candidates.items() if len(items) == 1}
    matched = [item.subscription for item in exact.values()]
    assigned = {ledger: item for ledger, item in exact.items() if matched.count(item.subscription) == 1}
    unassigned = {ledger: position for ledger, position in last.items() if ledger not in assigned}
    names = [item for item in subscriptions if item.subscription not in matched]
    if not unassigned or len(unassigned) != len(names) or len(unassigned) > MAX_TRIED:
        return assigned
    fitting = [order for order in permutations(names) if all(map(_is_past, unassigned.values(), order))]
    return assigned | dict(zip(unassigned, fitting[0], strict=True)) if len(fitting) == 1 else assigned


def _is_past(place: Position, subscription: ReplicatedSubscription) -> bool:
    return subscription.position is not None and place >= subscription.position


def _frames(
    source: EntrySource, ledger_id: int, entries: Iterable[int], having: bytes = b""
) -> Iterator[Frame]:
    """Yield the frames of readable entries that contain the bytes `having`."""
    for entry_id in entries:
        with suppress(DecodeError, NotFoundError):
            raw = source.read(ledger_id, entry_id)
            if having in bytes(raw.data):
                data = decode_bookie_entry(raw.data).data if raw.bookie else memoryview(raw.data)
                frame = decode_frame(data)
                if frame.checksum != "bad":
                    yield frame


def _copied_from(frame: Frame) -> Iterator[CopiedFrom]:
    """Yield the ledger that an entry was copied from.

    The property alone is no proof, because clients can set it; the entry must have `replicated_from` too.
    """
    cluster = frame.metadata.replicated_from
    positions = [prop.value for prop in frame.metadata.properties if prop.key == SOURCE_POSITION]
    ledger = positions[-1].partition(":")[0] if positions else ""
    if cluster and ledger.isdecimal():
        yield CopiedFrom(cluster, int(ledger))


def _here(places: ClusterPositions, snapshots: Sequence[ClusterSnapshot]) -> Position | None:
    """Translate a place in the other clusters into a local position, by the newest snapshot that matches."""
    return next((snapshot.here for snapshot in reversed(snapshots) if snapshot.clusters == places), None)


def _places(marker: Snapshot | Update) -> dict[str, Position]:
    return {cluster.cluster: _position(cluster.message_id) for cluster in marker.clusters}


def _position(message_id: Any) -> Position:
    return Position(message_id.ledger_id, message_id.entry_id)
