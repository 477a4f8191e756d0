"""What a subcommand of `repair` returns: changed values, what was read, what is lost; and shared helpers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rewrite.apply import Batches
from pulsar_meta.jobs.rewrite.decision import Decided, by_rule, keep, skip, write
from pulsar_meta.jobs.rewrite.plan import leave_moved
from pulsar_meta.jobs.rewrite.readable import Readers, packed_again
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.topics.placement import placement
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.topic import Ledger, read_record, topic_of
from pulsar_meta.stores.base import ABSENT, Store, Versioned


def length_to(source: EntrySource, ledger_id: int, entry_id: int) -> int | None:
    """Return the length of a ledger up to the end of an entry, None if the entry can't be read."""
    try:
        return decode_bookie_entry(source.read(ledger_id, entry_id).data, password=b"").length
    except (NotFoundError, DecodeError):
        return None


def all_here(source: EntrySource, ledger: Ledger, entries: int) -> bool:
    """Return True if the given disks must have the first `entries` entries of a ledger and those after them.

    Live bookies don't count as disks, because reading from them depends on the metadata in doubt.
    """
    disks = all(part.bookies is not None for part in source.parts)
    segments = () if ledger.bookkeeper is None else ledger.bookkeeper.segments
    behind = max((len(segment.members) for segment in segments), default=1)
    return disks and not placement(ledger, source).elsewhere(0, entries + behind)


# The brokers are unknown.
ANY: Final = Readers()


def own_record(store: Store, name: TopicName) -> Versioned:
    """Return a topic's record.

    Raises NotFoundError, DecodeError if the record is damaged, and UsageError for a shadow topic, because it
    lists the ledgers of its source.
    """
    record = read_record(store, name)
    source = ShadowSources(store).of(name, topic_of(record).properties)
    if source is not None:
        raise UsageError(f"{name} is the shadow of {source}, whose ledgers it reads: repair that one")
    return record


def packed(seen: Versioned, payload: bytes, readers: Readers) -> bytes:
    """Compress a record as before, or not at all if one of the releases could not load it."""
    return packed_again(seen.path, payload, _codec_of(seen), readers)[0]


def _codec_of(seen: Versioned) -> str:
    """Return the codec of a record, "none" if it is not compressed or damaged."""
    with suppress(DecodeError):
        envelope = open_envelope(seen.value)
        return "none" if envelope is None else envelope.codec
    return "none"


# The reason for leaving a value alone if the right value is unknown.
UNDECIDED: Final = "undecided"


@dataclass(frozen=True, slots=True)
class Repair:
    """The changes that a subcommand of `repair` would make.

    `decided` has the values as they were read, in writing order. `checked` counts the things that were
    read, and `not_checked` maps the others to reasons. `said` explains the changes, and `losses` lists the
    data that becomes unreachable. `confirm` is the name that the operator has to type first, None if
    nothing is lost. `counters` is as in a Rewrite.
    """

    verb: str
    decided: tuple[Decided, ...]
    checked: Mapping[str, int] = field(default_factory=dict)
    not_checked: Mapping[str, str] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    confirm: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)

    def rewrite(self) -> Rewrite:
        """Convert the repair for `jobs/rewrite/run`."""

        def decided(batches: Batches) -> Generator[Decided]:
            yield from self.decided

        return Rewrite(
            f"repair-{self.verb}", decided, by_rule(leave_moved), with_new=True, counters=self.counters
        )


def becoming(seen: Versioned, value: bytes) -> Decided:
    """Decide to write `value`, or to keep the current value if it is the same."""
    same = seen.version != ABSENT and seen.value == value
    return seen, keep(seen, "already") if same else write(seen, value)


def undecided(seen: Versioned, why: str) -> Decided:
    """Decide to leave a value alone because the right one is unknown."""
    return seen, skip(seen, UNDECIDED, note=why)


def removed(seen: Versioned) -> Decided:
    """Decide to remove a value, if there is one."""
    return seen, keep(seen, "already") if seen.version == ABSENT else write(seen, None)
