"""What geo-replication leaves in a topic: names of subscriptions and where they stood, ledgers of one topic.

Of replicated subscriptions a cluster writes into its topic where they are (an update), in the positions of
the other clusters; a copy of that comes to each of these. What the position is here, a snapshot before it
has: the same place of the topic in the positions of every cluster. A copied message names the ledger that it
was copied from. None of them has the name of the topic.

Sources: apache/pulsar PIP-33, PulsarMarkers.proto, ReplicatedSubscriptionsController.java,
ReplicatedSubscriptionsSnapshotBuilder.java, GeoPersistentReplicator.java; bytes of a 4.2.4.
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
    """The types of markers that replicated subscriptions leave (MarkerType of PulsarMarkers.proto)."""

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
# The property of a copied message with its position in the cluster that it is from.
SOURCE_POSITION: Final = "__MSG_PROP_REPL_SOURCE_POSITION"
# The property of the state of a subscription that is replicated.
REPLICATED: Final = "pulsar.replicated.subscription"
# Entries at the beginning and the end of a ledger that are looked at for copies, and markers that are.
LOOKED_AT: Final = 16
FIRST_MARKERS, LAST_MARKERS = 64, 2048
# Snapshots at the end of a ledger that are kept for updates in the next one.
SNAPSHOTS: Final = 16
# Subscriptions of which all ways are tried to tell whose ledger is whose.
MOST_TRIED: Final = 6

Places = Mapping[str, Position]


class Same(NamedTuple):
    """A place of the topic: `here`, and in other clusters."""

    here: Position
    clusters: Places


class Acked(NamedTuple):
    """Up to where a subscription had acknowledged at least: in other clusters, of a copy in this one, too.

    `here` where a snapshot of the same ledger says where that is.
    """

    subscription: str
    clusters: Places
    here: Position | None


class CopiedFrom(NamedTuple):
    """A ledger of another cluster from which messages were copied."""

    cluster: str
    ledger_id: int


@dataclass(frozen=True, slots=True)
class Replicated:
    """What a data ledger has of replication.

    `cluster` is what this cluster calls itself, `named` are ledgers of the topic itself, `acked` the newest
    update of each subscription, `snapshots` the last ones.
    """

    cluster: str | None = None
    named: frozenset[int] = frozenset()
    acked: tuple[Acked, ...] = ()
    snapshots: tuple[Same, ...] = ()
    copied_from: frozenset[CopiedFrom] = frozenset()


NOT_REPLICATED: Final = Replicated()


@dataclass(slots=True)
class Markers:
    """The markers of a ledger, taken one by one in its order."""

    cluster: str | None = None
    named: set[int] = field(default_factory=set)
    acked: dict[str, Acked] = field(default_factory=dict)
    snapshots: list[Same] = field(default_factory=list)

    def take(self, frame: Frame) -> None:
        """Take in a marker; DecodeError."""
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
                self.snapshots.append(Same(_position(marker.local_message_id), _places(marker)))
            case Marker.UPDATE:
                places = _places(marker)
                here = _here(places, self.snapshots) if own else None
                self.acked[marker.subscription_name] = Acked(marker.subscription_name, places, here)


def replicated(
    source: EntrySource, ledger_id: int, ends: Iterable[int], markers: Sequence[int]
) -> Replicated:
    """Return what a ledger has of replication, by the entries at its ends and those that are such markers.

    Of very many markers the first and the last are looked at. UnreachableError.
    """
    found = Markers()
    if len(markers) > FIRST_MARKERS + LAST_MARKERS:
        markers = [*markers[:FIRST_MARKERS], *markers[-LAST_MARKERS:]]
    for frame in _frames(source, ledger_id, markers):
        with suppress(DecodeError):
            found.take(frame)
    copied = {
        one
        for frame in _frames(source, ledger_id, ends, SOURCE_POSITION.encode())
        for one in _copied_from(frame)
    }
    if not (found.cluster or found.named or found.acked or copied):
        return NOT_REPLICATED
    return Replicated(
        found.cluster,
        frozenset(found.named),
        tuple(found.acked.values()),
        tuple(found.snapshots[-SNAPSHOTS:]),
        frozenset(copied),
    )


class Standing(NamedTuple):
    """A subscription that a topic's markers name: it had acknowledged up to there, or more (None: unknown).

    `ledger_id` has the marker, `why` says so in words.
    """

    subscription: str
    position: Position | None
    ledger_id: int
    why: str


def standings(ledgers: Mapping[int, Replicated], cluster: str) -> list[Standing]:
    """Return the replicated subscriptions of one topic, by its data ledgers; `cluster` is its own name."""
    found: dict[str, Standing] = {}
    earlier: tuple[Same, ...] = ()
    for ledger_id, one in sorted(ledgers.items()):
        own = one.cluster or cluster
        for acked in one.acked:
            position = acked.here or acked.clusters.get(own) or _here(acked.clusters, earlier)
            # The newest counts: a subscription can be set back.
            if position is not None or acked.subscription not in found:
                why = f"a marker in ledger {ledger_id} has it as a replicated subscription"
                found[acked.subscription] = Standing(acked.subscription, position, ledger_id, why)
        earlier = one.snapshots or earlier
    return list(found.values())


def whose(standing: Sequence[Standing], last: Mapping[int, Position]) -> dict[int, Standing]:
    """Return whose each ledger of a replicated subscription of a topic is, where only one way fits.

    `last` is where each ledger's cursor stood last. One that stands just where a marker moved one
    subscription is that one's; of the others each is past what the markers have of it.
    """
    known = [one for one in standing if one.position is not None]
    at = {ledger: [one for one in known if one.position == place] for ledger, place in last.items()}
    alone = {ledger: ones[0] for ledger, ones in at.items() if len(ones) == 1}
    moved = [one.subscription for one in alone.values()]
    found = {ledger: one for ledger, one in alone.items() if moved.count(one.subscription) == 1}
    left = {ledger: place for ledger, place in last.items() if ledger not in found}
    names = [one for one in standing if one.subscription not in moved]
    if not left or len(left) != len(names) or len(left) > MOST_TRIED:
        return found
    ways = [way for way in permutations(names) if all(map(_is_past, left.values(), way))]
    return found | dict(zip(left, ways[0], strict=True)) if len(ways) == 1 else found


def _is_past(place: Position, one: Standing) -> bool:
    return one.position is not None and place >= one.position


def _frames(
    source: EntrySource, ledger_id: int, entries: Iterable[int], having: bytes = b""
) -> Iterator[Frame]:
    """Yield the frames of entries that can be read and have some bytes in them."""
    for entry_id in entries:
        with suppress(DecodeError, NotFoundError):
            raw = source.read(ledger_id, entry_id)
            if having in bytes(raw.data):
                data = decode_bookie_entry(raw.data).data if raw.bookie else memoryview(raw.data)
                frame = decode_frame(data)
                if frame.checksum != "bad":
                    yield frame


def _copied_from(frame: Frame) -> Iterator[CopiedFrom]:
    """Yield the ledger of which an entry is a copy; what a message alone says of that counts for nothing."""
    cluster = frame.metadata.replicated_from
    positions = [one.value for one in frame.metadata.properties if one.key == SOURCE_POSITION]
    ledger = positions[-1].partition(":")[0] if positions else ""
    if cluster and ledger.isdecimal():
        yield CopiedFrom(cluster, int(ledger))


def _here(places: Places, snapshots: Sequence[Same]) -> Position | None:
    """Return where the place is here that a snapshot has in the other clusters."""
    return next((one.here for one in reversed(snapshots) if one.clusters == places), None)


def _places(marker: Snapshot | Update) -> dict[str, Position]:
    return {one.cluster: _position(one.message_id) for one in marker.clusters}


def _position(found: Any) -> Position:
    return Position(found.ledger_id, found.entry_id)
