"""How near a subscription is to what brokers write down of it: beyond that they keep it in memory alone.

Source: apache/pulsar ServiceConfiguration (managedLedgerMax…ToPersist…), ManagedCursorImpl
(buildIndividualDeletedMessageRanges, buildBatchEntryDeletionIndexInfoList, shouldPersistUnackRangesToLedger).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.jobs.cursors.subscriptions import Subscription
from pulsar_meta.jobs.rewrite.broker_conf import read_settings
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo

RANGES: Final = "managedLedgerMaxUnackedRangesToPersist"
RANGES_IN_RECORD: Final = "managedLedgerMaxUnackedRangesToPersistInMetadataStore"
# Older releases know the setting by this name, and where it is positive it counts.
RANGES_IN_ZOOKEEPER: Final = "managedLedgerMaxUnackedRangesToPersistInZooKeeper"
BATCHES: Final = "managedLedgerMaxBatchDeletedIndexToPersist"
# Of the broker.conf of 2.8 to 4.2.
DEFAULTS: Final = {RANGES: 10_000, RANGES_IN_RECORD: 1000, BATCHES: 10_000}
BEYOND: Final = {
    RANGES: "what is acknowledged beyond is consumed again after a restart",
    RANGES_IN_RECORD: "with more the state stays in the cursor's ledger when the topic is closed",
    BATCHES: "batches beyond are consumed again whole after a restart",
}


# `from` is no name of Python's. Its origin: `default`, or the path of a broker.conf.
UsedLimit = TypedDict("UsedLimit", {"setting": str, "limit": int, "from": str, "used": int, "beyond": str})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits by their settings, and where each comes from: `default`, or a file's path."""

    values: dict[str, tuple[int, str]]

    @classmethod
    def of(cls, conf: Path | None) -> Limits:
        """Return those of a broker.conf, defaults for what it does not say; DecodeError for no number."""
        values = {name: (value, "default") for name, value in DEFAULTS.items()}
        if conf is not None:
            settings = read_settings(conf)
            old = settings.get(RANGES_IN_ZOOKEEPER, "").strip()
            if old.isascii() and old.isdecimal() and int(old) > 0:
                settings[RANGES_IN_RECORD] = old
            for name in DEFAULTS:
                if name in settings:
                    values[name] = _number(settings[name], name, str(conf)), str(conf)
        return cls(values)

    def of_subscription(self, subscription: Subscription) -> list[UsedLimit]:
        """Return how much of each limit is used; nothing where the state is not known."""
        state = subscription.found.state
        return [] if state is None else self.used_by(state)

    def used_by(self, state: PositionInfo | ManagedCursorInfo) -> list[UsedLimit]:
        """Return how much of each limit the state of a cursor uses."""
        acks = acks_of(state)
        by_bits = isinstance(state, PositionInfo) and not len(state.individualDeletedMessages)
        used = {
            # Of bit sets the bits are counted, not the ranges.
            RANGES: acks.entry_count if by_bits else acks.range_count,
            RANGES_IN_RECORD: acks.range_count,
            BATCHES: len(state.batchedEntryDeletionIndexInfo),
        }
        return [
            {"setting": name, "limit": limit, "from": origin, "used": used[name], "beyond": BEYOND[name]}
            for name, (limit, origin) in self.values.items()
        ]


def _number(text: str, name: str, source: str) -> int:
    word = text.strip()
    if not (word.isascii() and word.isdecimal()):
        raise DecodeError(f"{name}={text}: not a number", source=source)
    return int(word)
