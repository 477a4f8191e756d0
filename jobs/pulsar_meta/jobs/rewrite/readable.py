"""Which releases of Pulsar can load a value, with the evidence for each release.

If two tested releases load a form, those between them are assumed to load it too (4.1.3, 4.2.0 to 4.2.3,
4.2.5 and
5.0.0 were not run, because their jars do not resolve). A failure says nothing about the next or the previous
release.
Releases outside the tested ones get a verdict of their own, which does not allow a write: a value that a
broker can't
load takes its topic away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.acks import ack_form
from pulsar_meta.codecs.metadata.envelope import (
    STATE_IN_RECORD,
    decode_cursor,
    decode_managed_ledger,
    is_enveloped,
    managed_place,
    stored_form,
)
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.cursors import state_of
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Store, Versioned

_version_re = re.compile(r"^v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9})(?:([-.+]).*)?|([-+]).*)?$")


class Form(StrEnum):
    """Forms of stored values that not every release loads, or not whole."""

    LEDGER = "compressed-ledger"
    CURSOR = "compressed-cursor"
    CURSOR_WITH_PROPERTIES = "compressed-cursor-with-properties"
    BIT_SETS = "bit-sets-in-cursor-ledger"
    LEDGER_PROPERTIES = "ledger-properties"
    SEGMENTED_SNAPSHOTS = "segmented-transaction-snapshots"
    BATCHED_LOG = "batched-transaction-log"
    BUCKETS = "delayed-delivery-buckets"
    SHADOW = "shadow-topic"
    SCALABLE = "scalable-topic"
    TRANSACTION_RECORDS = "transactions-in-the-store"
    V1_NAME = "v1-topic-name"
    BOOKKEEPER_3 = "ledger-metadata-3"
    ROCKSDB_6 = "rocksdb-tables-6"


class Verdict(StrEnum):
    """The verdict on a release and a form."""

    LOADS = "loads"
    CANNOT_LOAD = "cannot-load"
    UNKNOWN = "unknown"


# Major, minor and patch; then 0 for what comes before that release (a milestone, a candidate), else 1.
Version = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Row:
    """Whether the releases from `first` to `last` load a form, and how that is known."""

    form: Form
    first: Version
    last: Version
    verdict: Verdict
    evidence: str


def parse_version(text: str) -> Version:
    """Convert a release to numbers in the order of releases. Raises UsageError if it is invalid.

    What follows a dash makes it an earlier one (5.0.0-M1 before 5.0.0); a vendor's fourth number does not.
    """
    match = _version_re.match(text.strip())
    if match is None:
        raise UsageError(f"invalid Pulsar version {text!r}: write it like 4.0.7 or 5.0.0-M1")
    return int(match[1]), int(match[2]), int(match[3] or 0), 0 if "-" in (match[4], match[5]) else 1


_V: Final = parse_version
_START: Final = _V("0.0.0-0")
_BITS_CAME: Final = "apache/pulsar#9292 came with 3.0.10, 3.3.5 and 4.0.0"
_WITHOUT_BITS: Final = (
    f"{_BITS_CAME}: 3.0.7 loaded the topic without the individual acknowledgements, so their"
    " messages are redelivered"
)
# Read and not run: what fails in 4.2.4 came with apache/pulsar#25336 of March 2026, which reads cursors with
# LightProto; its MetaStoreImpl.parseManagedCursorInfo frees the bytes that strings are read from later.
_OLD_READER: Final = "of 2025, before apache/pulsar#25336 changed the reader in March 2026 (read, not run)"
_NEWEST: Final = _V("5.0.0-M1")
_NOT_RUN: Final = "(read, not run)"


def _came_with(form: Form, release: str, evidence: str) -> tuple[Row, Row]:
    """Return that a form is known from a release on, and to none before."""
    first = _V(f"{release}-0")
    before = (first[0], first[1] - 1, 99, 1) if first[1] else (first[0] - 1, 99, 99, 1)
    return (
        Row(form, _START, before, Verdict.CANNOT_LOAD, evidence),
        Row(form, first, _NEWEST, Verdict.LOADS, evidence),
    )


TABLE: Final = (
    Row(
        Form.LEDGER,
        _START,
        _V("2.7.3"),
        Verdict.CANNOT_LOAD,
        "releases before 2.7.4, 2.8.1 and 2.9.0 read no compressed ledger list (apache/pulsar#11490)",
    ),
    Row(Form.LEDGER, _V("2.7.4"), _V("2.7.99"), Verdict.LOADS, "apache/pulsar#11490, 2.7.4"),
    Row(Form.LEDGER, _V("2.8.0"), _V("2.8.0"), Verdict.CANNOT_LOAD, "apache/pulsar#11490 came with 2.8.1"),
    Row(
        Form.LEDGER,
        _V("2.8.1"),
        _V("5.0.0-M1"),
        Verdict.LOADS,
        "2.8.2, 3.0.7, 4.0.7, 4.2.4, 5.0.0-M1 loaded them",
    ),
    Row(
        Form.CURSOR,
        _START,
        _V("2.9.1"),
        Verdict.CANNOT_LOAD,
        "MetaStoreImpl of 2.8.2 and 2.9.1 has no reader for it",
    ),
    Row(
        Form.CURSOR,
        _V("2.10.5"),
        _V("2.10.99"),
        Verdict.LOADS,
        "MetaStoreImpl of 2.10.5 has the reader (read, not run)",
    ),
    Row(
        Form.CURSOR,
        _V("2.11.0"),
        _V("5.0.0-M1"),
        Verdict.LOADS,
        "2.11.0, 3.0.7, 4.0.7, 4.2.4, 5.0.0-M1 loaded them",
    ),
    Row(
        Form.CURSOR_WITH_PROPERTIES,
        _START,
        _V("2.9.1"),
        Verdict.CANNOT_LOAD,
        "2.8.2 and 2.9.1 read no compressed cursor",
    ),
    Row(
        Form.CURSOR_WITH_PROPERTIES,
        _V("2.11.0"),
        _V("4.0.7"),
        Verdict.LOADS,
        "2.11.0, 3.0.7 and 4.0.7 loaded them",
    ),
    Row(Form.CURSOR_WITH_PROPERTIES, _V("4.0.8"), _V("4.0.8"), Verdict.LOADS, _OLD_READER),
    Row(Form.CURSOR_WITH_PROPERTIES, _V("4.1.0"), _V("4.1.2"), Verdict.LOADS, _OLD_READER),
    Row(
        Form.CURSOR_WITH_PROPERTIES,
        _V("4.2.4"),
        _V("4.2.4"),
        Verdict.CANNOT_LOAD,
        "a 4.2.4 broker failed with IllegalReferenceCountException: refCnt: 0",
    ),
    Row(
        Form.CURSOR_WITH_PROPERTIES,
        _V("5.0.0-M1"),
        _V("5.0.0-M1"),
        Verdict.CANNOT_LOAD,
        "a 5.0.0-M1 broker failed with IllegalReferenceCountException: refCnt: 0",
    ),
    *(
        Row(Form.BIT_SETS, first, last, Verdict.CANNOT_LOAD, _WITHOUT_BITS)
        for first, last in ((_START, _V("3.0.9")), (_V("3.1.0-0"), _V("3.3.4")))
    ),
    Row(Form.BIT_SETS, _V("3.0.10"), _V("3.0.99"), Verdict.LOADS, f"{_BITS_CAME} (read, not run)"),
    Row(Form.BIT_SETS, _V("3.3.5"), _V("3.3.99"), Verdict.LOADS, f"{_BITS_CAME} (read, not run)"),
    Row(Form.BIT_SETS, _V("4.0.0"), _V("5.0.0-M1"), Verdict.LOADS, "4.0.7 and 4.2.4 loaded them"),
    # What earlier releases make of them when they write the record nobody tried: no row, unknown.
    Row(Form.LEDGER_PROPERTIES, _V("4.2.0"), _NEWEST, Verdict.LOADS, "4.2.4 and 5.0.0-M1 kept them"),
    *_came_with(
        Form.SEGMENTED_SNAPSHOTS,
        "3.0.0",
        f"PIP-196 came with 3.0.0: 2.11.0 has no class for them, 3.0.7 has {_NOT_RUN}",
    ),
    *_came_with(Form.BATCHED_LOG, "2.11.0", f"PIP-160, apache/pulsar#16617, came with 2.11.0 {_NOT_RUN}"),
    *_came_with(
        Form.BUCKETS, "3.0.0", f"PIP-195 came with 3.0.0: 2.11.0 has no class for them, 3.0.7 has {_NOT_RUN}"
    ),
    *_came_with(
        Form.SHADOW, "3.0.0", f"PIP-180: 2.11.0 has no class for shadows, 3.0.7 has; 4.2.4 ran {_NOT_RUN}"
    ),
    *_came_with(Form.SCALABLE, "5.0.0", f"PIP-460: 5.0.0-M1 ran them, 4.2.4 has no such domain {_NOT_RUN}"),
    *_came_with(
        Form.TRANSACTION_RECORDS,
        "5.0.0",
        f"5.0.0-M1 keeps them below /txn, 4.2.4 reads logs and markers only {_NOT_RUN}",
    ),
    Row(Form.V1_NAME, _START, _V("4.99.99"), Verdict.LOADS, "4.0.7 served them"),
    Row(
        Form.V1_NAME,
        _V("5.0.0-0"),
        _V("99.99.99"),
        Verdict.CANNOT_LOAD,
        "5.0.0-M1: V1 topic names (with cluster component) are no longer supported (PIP-457)",
    ),
    *_came_with(
        Form.BOOKKEEPER_3, "2.4.0", f"BookKeeper 4.9 brought it, which came with Pulsar 2.4.0 {_NOT_RUN}"
    ),
    Row(
        Form.ROCKSDB_6,
        _START,
        _V("4.99.99"),
        Verdict.CANNOT_LOAD,
        "rocksdbjni 7.9.2 of 4.2.4 refused to open a database that 5.0.0-M1 had written",
    ),
    Row(Form.ROCKSDB_6, _NEWEST, _NEWEST, Verdict.LOADS, "5.0.0-M1 wrote them"),
)
# Between them releases were run; of those beyond nothing is known.
TRIED: Final = (_V("2.8.2"), _NEWEST)


def is_release(text: str) -> bool:
    """Return whether a text names a release; a broker may register any."""
    return _version_re.match(text.strip()) is not None


def tested_failures(form: Form) -> list[str]:
    """Return the single releases that were run and failed to load `form`, oldest first."""
    rows = (row for row in TABLE if row.form is form and row.verdict is Verdict.CANNOT_LOAD)
    return [version_text(row.first) for row in rows if row.first == row.last]


def version_text(version: Version) -> str:
    """Return the text of a version, as brokers register it."""
    return ".".join(map(str, version[:3])) + ("" if version[3] else "-M1")


def verdict_of(form: Form, version: str) -> tuple[Verdict, str]:
    """Return whether a broker of that release loads `form`, and how that is known.

    Of what names no release (a broker may register any text) nothing is known.
    """
    if not is_release(version):
        return Verdict.UNKNOWN, f"{version!r} is no release"
    number = parse_version(version)
    for row in TABLE:
        if row.form is form and row.first <= number <= row.last:
            return row.verdict, row.evidence
    return Verdict.UNKNOWN, f"not tested with Pulsar {version}"


BROKERS = "/loadbalance/brokers"


@dataclass(frozen=True, slots=True)
class Readers:
    """The releases that will read the values. Empty if none is given and no broker is registered."""

    versions: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: Store, versions: Sequence[str] = ()) -> Readers:
        """Use these releases, or those of the registered brokers. Raises UsageError for an invalid one."""
        for version in versions:
            parse_version(version)
        return cls(tuple(versions) or registered_versions(store))

    def why_not(self, form: Form) -> str | None:
        """Return the reason against writing `form` for these releases, None if there is none."""
        verdict, why = self.verdict(form)
        return None if verdict is Verdict.LOADS else why

    def verdict(self, form: Form) -> tuple[Verdict, str]:
        """Return the verdict on `form` for the release that is worst for it, with a sentence.

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
    """Return True if a cursor has properties of its position or of the subscription."""
    return bool(cursor.properties or cursor.cursorProperties)


def form_of(path: str, value: bytes) -> Form | None:
    """Name the form of a stored value that not every release reads, None for all others.

    Raises DecodeError if the record of a topic or cursor can't be decoded.
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
    """Compress a record for `path`; return it and its codec, which is the old one or "none".

    It is not compressed if a release that will read it could not load it.
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
        # An unreadable registration does not tell the release, and neither does the parent.
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
    """The number of values that were checked, and of those that may be unreadable.

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
