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
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, by_rule, keep, skip, write
from pulsar_meta.jobs.rewrite.plan import leave_moved
from pulsar_meta.jobs.rewrite.readable import Readers, packed_again
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.topics.placement import placement
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.jobs.topics.topic import Ledger, read_record, topic_of
from pulsar_meta.stores.base import ABSENT, Store, Versioned


def length_to(source: EntrySource, ledger_id: int, entry_id: int) -> int | None:
    """Return how many bytes of data a ledger has to the end of an entry; None where that is not here."""
    try:
        return decode_bookie_entry(source.read(ledger_id, entry_id).data, password=b"").length
    except (NotFoundError, DecodeError):
        return None


def all_here(source: EntrySource, ledger: Ledger, entries: int) -> bool:
    """Return whether so many entries of a ledger, and those behind them, have to be on these disks.

    Live bookies are no disks: they are asked by the metadata that is in doubt.
    """
    disks = all(part.bookies is not None for part in source.parts)
    segments = () if ledger.bookkeeper is None else ledger.bookkeeper.segments
    behind = max((len(segment.members) for segment in segments), default=1)
    return disks and not placement(ledger, source).elsewhere(0, entries + behind)


# Brokers of which nothing is known.
ANY: Final = Readers()


def own_record(store: Store, name: TopicName) -> Versioned:
    """Return the record of a topic that has ledgers of its own.

    NotFoundError, DecodeError where it is broken, UsageError for a shadow: its ledgers are its source's.
    """
    record = read_record(store, name)
    source = ShadowSources(store).of(name, topic_of(record).properties)
    if source is not None:
        raise UsageError(f"{name} is the shadow of {source}, whose ledgers it reads: repair that one")
    return record


def packed(seen: Versioned, payload: bytes, readers: Readers) -> bytes:
    """Return a record in the codec that it had, plain where a release that will read it cannot load it so."""
    return packed_again(seen.path, payload, _codec_of(seen), readers)[0]


def _codec_of(seen: Versioned) -> str:
    """Return the codec of a record, "none" where it has none or is broken."""
    with suppress(DecodeError):
        envelope = open_envelope(seen.value)
        return "none" if envelope is None else envelope.codec
    return "none"


# The reason to leave a value as it is because what is at hand does not say what it should be.
UNDECIDED: Final = "undecided"


@dataclass(frozen=True, slots=True)
class Repair:
    """What the verb would do to a store, decided from what was read.

    `decided` are the values in the order in which they are written, each as it was read. `checked` counts
    what was looked at, `not_checked` says what was not and why. `said` are sentences about what was found out
    and decided, `losses` about what is given up by it. `confirm`: what a person has to write out before it is
    done, None for repairs that endanger nothing. `counters` as in a Rewrite.
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
        """Return what the one write path takes."""

        def decided(batches: Batches) -> Generator[Decided]:
            yield from self.decided

        return Rewrite(
            f"repair-{self.verb}", decided, by_rule(leave_moved), with_new=True, counters=self.counters
        )


def becoming(seen: Versioned, value: bytes, *, note: str | None = None) -> Decided:
    """Return the decision that a value becomes `value`, or stays where it is that already.

    `note` is what a person should read of it.
    """
    same = seen.version != ABSENT and seen.value == value
    decision: Decision = keep(seen, "already") if same else write(seen, value)
    return seen, decision._replace(note=note)


def undecided(seen: Versioned, why: str) -> Decided:
    """Return the decision to leave a value, since what is at hand does not say what it should be."""
    return seen, skip(seen, UNDECIDED, note=why)


def removed(seen: Versioned) -> Decided:
    """Return the decision that a value goes; nothing where it is not there."""
    return seen, keep(seen, "already") if seen.version == ABSENT else write(seen, None)
