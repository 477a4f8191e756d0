"""Whether the brokers at hand can load a value that is about to be written, or that lies in a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.acks import ack_form
from pulsar_meta.codecs.metadata.cursor import STATE_IN_RECORD, decode_cursor
from pulsar_meta.codecs.metadata.envelope import is_enveloped, stored_form
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rewrite.releases import Form, Verdict, parse_version, verdict_of
from pulsar_meta.jobs.topics.cursors import state_of
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Store, Versioned

BROKERS = "/loadbalance/brokers"


@dataclass(frozen=True, slots=True)
class Readers:
    """The releases that will read what is written; none: nobody said, and no broker is registered."""

    versions: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: Store, versions: Sequence[str] = ()) -> Readers:
        """Return these releases (UsageError for what is none), else those of the registered brokers."""
        for version in versions:
            parse_version(version)
        return cls(tuple(versions) or registered_versions(store))

    def why_not(self, form: Form) -> str | None:
        """Return why `form` must not be written for them; where nobody is known, the form decides."""
        verdict, why = self.verdict(form)
        return None if verdict is Verdict.LOADS else why

    def verdict(self, form: Form) -> tuple[Verdict, str]:
        """Return what is known of `form` and the release that is worst for it, in a sentence.

        Without any release: whether all that were ever tried load it.
        """
        if not self.versions:
            some = form is Form.CURSOR_WITH_PROPERTIES
            return (Verdict.UNKNOWN, "some releases cannot load it") if some else (Verdict.LOADS, "")
        unknown = None
        for version in self.versions:
            verdict, evidence = verdict_of(form, version)
            if verdict is Verdict.CANNOT_LOAD:
                return verdict, f"Pulsar {version} cannot load it: {evidence}"
            if verdict is Verdict.UNKNOWN:
                unknown = evidence
        return (Verdict.LOADS, "") if unknown is None else (Verdict.UNKNOWN, unknown)


def holds_properties(cursor: ManagedCursorInfo) -> bool:
    """Return whether a cursor has properties of either kind: of its position, or of the subscription."""
    return bool(cursor.properties or cursor.cursorProperties)


def form_of(path: str, value: bytes) -> Form | None:
    """Name the form of a stored value that not every release reads, None for all others.

    DecodeError where the record of a topic or a cursor cannot be decoded.
    """
    place = managed_place(path, value)
    if place is None:
        return None
    if place[1] is None:
        decode_managed_ledger(value)
        return Form.LEDGER if is_enveloped(value) else None
    cursor = decode_cursor(value)
    if not is_enveloped(value):
        return None
    return Form.CURSOR_WITH_PROPERTIES if holds_properties(cursor) else Form.CURSOR


def packed_again(path: str, payload: bytes, codec: str, readers: Readers) -> tuple[bytes, str]:
    """Return a record to be written at `path`, and its codec: the one it had, or "none".

    Plain where a release that will read it cannot load it so.
    """
    packed = stored_form(payload, codec)
    form = form_of(path, packed)
    if form is not None and readers.why_not(form) is not None:
        return payload, "none"
    return packed, codec


def registered_versions(store: Store) -> tuple[str, ...]:
    """Return the releases of the brokers that are registered in the store."""
    found = set()
    for record in store.scan(BROKERS):
        # One that nobody can read says nothing of its release, nor does the parent.
        with suppress(DecodeError):
            value = read_json_object(record.value)
            version = value.get("brokerVersion") or value.get("brokerVersionString")
            if isinstance(version, str) and version:
                found.add(version)
    return tuple(sorted(found))


class FormVerdict(TypedDict):
    """The form of a record that a release may not load, and why."""

    form: str
    verdict: str
    reason: str


class UnreadableRecord(FormVerdict):
    """A record that a release could not load, or of which that is not known."""

    path: str
    version: int
    topic: str
    cursor: NotRequired[str]


@dataclass(slots=True)
class Readability:
    """What was looked at in a store, and of how much it is not known whether it can be loaded.

    `source` has the ledgers of cursors; `in_ledgers` counts those whose state there was not seen.
    """

    source: EntrySource | None = None
    topics: int = 0
    cursors: int = 0
    unknown: int = 0
    faults: int = 0
    in_ledgers: int = 0

    def documents(self, values: Iterable[Versioned], versions: Sequence[str]) -> Iterator[UnreadableRecord]:
        """Yield a document for each record of a topic or cursor that one of these releases may not load."""
        readers = Readers(tuple(versions))
        for value in values:
            place = managed_place(value.path, value.value)
            if place is None:
                continue
            topic, cursor = place
            if cursor is None:
                self.topics += 1
            else:
                self.cursors += 1
            found = _verdict(value, readers) or (cursor and self._verdict_of_ledger(value, readers))
            if found:
                self.unknown += found["verdict"] == Verdict.UNKNOWN
                self.faults += found["verdict"] != Verdict.UNKNOWN
                record: UnreadableRecord = {
                    "path": value.path,
                    "version": value.version,
                    "topic": str(topic),
                    **found,
                }
                if cursor is not None:
                    record["cursor"] = cursor
                yield record

    def _verdict_of_ledger(self, value: Versioned, readers: Readers) -> FormVerdict | None:
        """Return what is wrong with a cursor's state in its ledger, for releases that know no bit sets."""
        verdict, why = readers.verdict(Form.BIT_SETS)
        record = decode_cursor(value.value)
        if verdict is Verdict.LOADS or record.cursorsLedgerId == STATE_IN_RECORD:
            return None
        found = state_of(record, self.source)
        if found.state is None or found.fault is not None:
            self.in_ledgers += 1
            return None
        if ack_form(found.state) != "bitset":
            return None
        return {"form": str(Form.BIT_SETS), "verdict": str(verdict), "reason": why}


def _verdict(value: Versioned, readers: Readers) -> FormVerdict | None:
    try:
        form = form_of(value.path, value.value)
    except DecodeError as error:
        return {"form": "undecodable", "verdict": str(Verdict.CANNOT_LOAD), "reason": str(error)}
    if form is None:
        return None
    verdict, why = readers.verdict(form)
    if verdict is Verdict.LOADS:
        return None
    return {"form": str(form), "verdict": str(verdict), "reason": why}
