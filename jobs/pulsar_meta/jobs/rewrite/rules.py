"""Rules of compress-cursors, compress-ledgers, put and rm, and estimates of their effect.

Pulsar compresses values above a threshold and leaves the rest plain (PIP-270). Changing its settings rewrites
nothing
(apache/pulsar#24391); these commands do. Settings of a broker.conf keep brokers from undoing the choice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, NotRequired, TypedDict

from pulsar_meta.codecs.compression import CODECS, DEFAULT_MAX_SIZE
from pulsar_meta.codecs.documents.document import (
    ORDER_LOST,
    DecodeOptions,
    decode_document,
    encode_document,
    rounded_note,
)
from pulsar_meta.codecs.documents.kinds import checked_kind
from pulsar_meta.codecs.documents.message_values import fits, fits_newer
from pulsar_meta.codecs.documents.value import JSON_KINDS
from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    GuardError,
    NotFoundError,
    UsageError,
    decoding,
    unreadable,
)
from pulsar_meta.codecs.java_properties import decode_properties, last_values
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.envelope import Envelope, managed_place, open_envelope, wrap_envelope
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.rewrite.decision import NOT_THERE, UNDECODABLE, Decision, Rule, keep, skip, write
from pulsar_meta.jobs.rewrite.readable import Form, Readers, Verdict, holds_properties
from pulsar_meta.jobs.topics.scope import Kind
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Versioned

# ServiceConfiguration's default of managed{Ledger,Cursor}InfoCompressionThresholdInBytes.
DEFAULT_THRESHOLD: Final = 16384

_gain_re = re.compile(r"^(\d+(?:\.\d+)?)(%?)$")


@dataclass(frozen=True, slots=True)
class MinGain:
    """What a rewriting has to save: bytes, or a share of the stored size (0 to 1)."""

    size: int = 1
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> MinGain:
        """Read `BYTES` or `PERCENT%`; UsageError for anything else."""
        match = _gain_re.match(text.strip())
        if match is None or (match[2] and float(match[1]) > 100):
            raise UsageError(f"--min-gain {text}: a number of bytes, or a percentage like 10%")
        if match[2]:
            return cls(share=float(match[1]) / 100)
        return cls(size=max(1, int(float(match[1]))))

    def met(self, before: int, after: int) -> bool:
        """Return whether a value of `before` bytes that becomes one of `after` saves enough."""
        return before - after >= max(self.size, self.share * before)


ANY_GAIN: Final = MinGain(size=-(2**62), share=-1e9)


class AnyReader(Readers):
    """Brokers of which nothing is asked."""

    def verdict(self, form: Form) -> tuple[Verdict, str]:
        """Return that they load every form."""
        return Verdict.LOADS, ""


ANY_READER: Final = AnyReader()


# With another codec, an unknown field of the envelope could become wrong.
UNKNOWN_FIELDS: Final = "unknown-fields"
LATER_RELEASE: Final = "its envelope has fields of a later release"


@dataclass(frozen=True, slots=True)
class Recompression:
    """Turns values of one kind into `codec` ("none" reverts), as far as that is safe and pays."""

    kind: Kind
    codec: str
    threshold: int = DEFAULT_THRESHOLD
    min_gain: MinGain = field(default_factory=MinGain)
    only_with_properties: bool = False
    readers: Readers = field(default_factory=Readers)
    max_size: int = DEFAULT_MAX_SIZE

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise UsageError(f"invalid --compression {self.codec}: choose one of {', '.join(CODECS)}")
        if self.threshold < 0:
            raise UsageError(f"--threshold {self.threshold}: a size in bytes, 0 or more")

    def __call__(self, seen: Versioned) -> Decision:
        """Decide about a value."""
        if seen.version == ABSENT:
            return skip(seen, "gone")
        try:
            envelope = open_envelope(seen.value, max_size=self.max_size)
            payload = seen.value if envelope is None else envelope.payload
            properties = self._properties(payload)
        except DecodeError as error:
            return skip(seen, UNDECODABLE, note=str(error))
        before = "none" if envelope is None else envelope.codec
        if self.only_with_properties and not properties:
            return keep(seen, "no-properties", before)
        reason = self._why_keep(envelope, payload, properties)
        if reason is None and envelope is not None and envelope.unknown:
            return skip(seen, UNKNOWN_FIELDS, before, note=LATER_RELEASE)
        if reason is None:
            return self._change(seen, before, payload)
        decision = keep(seen, reason, before)
        return decision._replace(unreadable=envelope is not None and self._is_unreadable(properties))

    def _properties(self, payload: bytes) -> bool:
        if self.kind == "ledger":
            parse_message(ManagedLedgerInfo, payload)
            return False
        return holds_properties(parse_message(ManagedCursorInfo, payload))

    def _why_keep(self, envelope: Envelope | None, payload: bytes, properties: bool) -> str | None:
        if self.codec == "none":
            return "already" if envelope is None else None
        if envelope is not None and envelope.codec == self.codec:
            return "already"
        if self._is_unreadable(properties):
            return "properties"
        if self.readers.why_not(Form.CURSOR if self.kind == "cursor" else Form.LEDGER):
            return "unreadable"
        return "threshold" if len(payload) <= self.threshold or not payload else None

    def _is_unreadable(self, properties: bool) -> bool:
        return properties and self.readers.why_not(Form.CURSOR_WITH_PROPERTIES) is not None

    def _change(self, seen: Versioned, before: str, payload: bytes) -> Decision:
        new = payload if self.codec == "none" else wrap_envelope(payload, self.codec)
        if self.codec != "none" and not self.min_gain.met(len(seen.value), len(new)):
            return keep(seen, "not-smaller", before)
        opened = open_envelope(new, max_size=max(self.max_size, len(payload)))
        if (new if opened is None else opened.payload) != payload:
            return skip(seen, UNDECODABLE, before, note=f"{self.codec} does not give back what it was given")
        return write(seen, new, before, self.codec, readable=True)


@dataclass(frozen=True, slots=True)
class WhereThere:
    """The rule for values that were listed by name, which reports missing ones."""

    rule: Rule

    def __call__(self, seen: Versioned) -> Decision:
        """Decide about a value."""
        if seen.version == ABSENT:
            return skip(seen, NOT_THERE, note="listed, but not there")
        return self.rule(seen)


@dataclass(frozen=True, slots=True)
class OfKind:
    """The rule for values in files, whose paths do not tell their kind: skips those of another kind."""

    kind: Kind
    rule: Rule

    def __call__(self, seen: Versioned) -> Decision:
        """Decide about a value."""
        try:
            envelope = open_envelope(seen.value)
        except DecodeError as error:
            return skip(seen, UNDECODABLE, note=str(error))
        payload, name = seen.value if envelope is None else envelope.payload, _MESSAGES[self.kind]
        if not (fits(name, payload) or fits_newer(name, payload)):
            return skip(seen, UNDECODABLE, note=f"this is no {name}")
        return self.rule(seen)


_MESSAGES: Final[dict[Kind, str]] = {"cursor": "ManagedCursorInfo", "ledger": "ManagedLedgerInfo"}


def recode(kind: Kind, seen: Versioned, codec: str) -> Decision:
    """Give a value the codec that a plan names, even if it grows.

    The guards decide whether brokers can load the result.
    """
    rule = Recompression(kind, codec, threshold=0, min_gain=ANY_GAIN, readers=ANY_READER)
    return rule(seen)._replace(readable=False)


def put_rule(value: bytes, expected: int) -> Rule:
    """Return the rule that replaces the version `expected` (ABSENT: creates) by `value`.

    Raises ConflictError for any other version. Keeps the value if it is the same already.
    """

    def decide(seen: Versioned) -> Decision:
        _check_version(seen, expected)
        if seen.version != ABSENT and seen.value == value:
            return keep(seen, "already")
        return write(seen, value)

    return decide


def put_document_rule(document: Document, expected: int) -> Rule:
    """Return the rule that replaces the version `expected` (ABSENT: creates) by what a document says.

    A value that says the same already stays byte for byte, and of JSON whatever is not edited. It raises as
    `put_rule`, and DecodeError for a document that cannot be stored, or of which it is not clear what is
    meant.
    """
    kind = checked_kind(str(document.get("kind")))
    if kind not in JSON_KINDS:
        # Report errors in the document before the store is read.
        encode_document(document, place="put ")

    def decide(seen: Versioned) -> Decision:
        _check_version(seen, expected)
        stored = None if seen.version == ABSENT else seen.value
        encoded = encode_document(document, place="put ", stored=stored)
        notes = [rounded_note(encoded.rounded)] if encoded.rounded else []
        if stored is not None and _again(stored, kind) == encoded.data:
            return keep(seen, "already")._replace(note="; ".join(notes) or None)
        if not encoded.order_kept:
            notes.append(ORDER_LOST)
        return put_rule(encoded.data, expected)(seen)._replace(note="; ".join(notes) or None)

    return decide


def _again(stored: bytes, kind: str) -> bytes | None:
    """Decode and encode a stored value, None if it is damaged."""
    options = DecodeOptions(kind, show_secrets=True)
    decoded = decode_document(stored, source="", options=options)
    return encode_document(decoded.document).data if decoded.error is None else None


def remove_rule(expected: int | None, children: list[str]) -> Rule:
    """Return the rule that deletes a value of the version `expected` (None: as read).

    Raises NotFoundError if there is no value, and GuardError if it has children.
    """

    def decide(seen: Versioned) -> Decision:
        if seen.version == ABSENT:
            raise NotFoundError("nothing there", source=seen.path)
        _check_version(seen, seen.version if expected is None else expected)
        if children:
            raise GuardError(f"has {len(children)} children; rm is never recursive", source=seen.path)
        return write(seen, None)

    return decide


def _check_version(seen: Versioned, expected: int) -> None:
    if seen.version == expected:
        return
    if expected == ABSENT:
        raise ConflictError("exists already", source=seen.path)
    here = "there is none" if seen.version == ABSENT else f"it is {seen.version}"
    raise ConflictError(f"version {expected} was expected, {here}", source=seen.path)


MAX_SIZE = 16 << 20
_NAMES: dict[Kind, str] = {"cursor": "managedCursorInfoCompression", "ledger": "managedLedgerInfoCompression"}


def read_broker_conf(path: Path, kind: Kind) -> tuple[str, int]:
    """Return (codec, threshold in bytes) that brokers with this configuration write `kind` with.

    NotFoundError for a file that cannot be read, DecodeError for a setting no broker starts with, and for a
    file without the setting: brokers then write plainly, but more likely it is the wrong file.
    """
    settings = read_settings(path)
    name = f"{_NAMES[kind]}Type"
    if name not in settings:
        raise DecodeError(f"has no {name}; to brokers that is --compression none", source=str(path))
    codec = settings.get(name, "").strip().lower() or "none"
    if codec not in CODECS:
        raise DecodeError(f"{name}={settings[name]}: expected one of {', '.join(CODECS)}", source=str(path))
    name = f"{_NAMES[kind]}ThresholdInBytes"
    threshold = settings.get(name, "").strip() or str(DEFAULT_THRESHOLD)
    if not threshold.isdecimal():
        raise DecodeError(f"{name}={threshold}: not a size in bytes", source=str(path))
    return codec, int(threshold)


def read_settings(path: Path) -> dict[str, str]:
    """Read a broker.conf. Raises NotFoundError, UnreachableError or DecodeError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise unreadable(error, str(path)) from error
    if len(data) > MAX_SIZE:
        raise DecodeError(f"over {MAX_SIZE} bytes: no broker.conf", source=str(path))
    with decoding(str(path)):
        return last_values(decode_properties(data))


By = Literal["tenant", "namespace"]


@dataclass(slots=True)
class _Row:
    values: int = 0
    rewritten: int = 0
    undecodable: int = 0
    under_threshold: int = 0
    unreadable: int = 0
    before: int = 0
    after: int = 0
    seconds: float = 0.0


class Estimate(TypedDict):
    """The effect of compressing with a codec; `seconds` is the time that it took."""

    tenant: NotRequired[str]
    namespace: NotRequired[str]
    codec: str
    values: int
    rewritten: int
    undecodable: int
    under_threshold: int
    unreadable: int
    bytes_before: int
    bytes_after: int
    ratio: float | None
    seconds: float


def estimate(values: Iterable[Versioned], rule: Recompression, by: By | None = None) -> Iterator[Estimate]:
    """Yield a document for each codec (and tenant or namespace), after one pass over the values.

    `rewritten` values would change; of those left alone `under_threshold` are no larger than the rule's
    threshold, and `unreadable` ones may not be loaded by brokers with that codec. Bytes are of all values as
    stored before and after; `seconds` is the time that packing took here.
    """
    rules = {codec: replace(rule, codec=codec) for codec in CODECS}
    rows: dict[tuple[str, str], _Row] = {}
    for value in values:
        group = _group(value, by)
        for codec, each in rules.items():
            _add(rows.setdefault((group, codec), _Row()), value, each)
    for (group, codec), row in sorted(rows.items(), key=lambda item: (item[0][0], CODECS.index(item[0][1]))):
        yield _document(group, codec, row, by)


def _group(value: Versioned, by: By | None) -> str:
    place = managed_place(value.path, value.value)
    if by is None or place is None:
        return ""
    return place[0].tenant if by == "tenant" else place[0].namespace_name


def _add(row: _Row, value: Versioned, rule: Recompression) -> None:
    begun = time.perf_counter()
    decision = rule(value)
    row.seconds += time.perf_counter() - begun
    row.values += 1
    row.rewritten += decision.action == "rewrite"
    row.undecodable += decision.action == "skip"
    row.under_threshold += decision.reason == "threshold"
    row.unreadable += decision.reason in ("properties", "unreadable")
    row.before += decision.size_before
    row.after += decision.size_after


def _document(group: str, codec: str, row: _Row, by: By | None) -> Estimate:
    document: Estimate = {
        "codec": codec,
        "values": row.values,
        "rewritten": row.rewritten,
        "undecodable": row.undecodable,
        "under_threshold": row.under_threshold,
        "unreadable": row.unreadable,
        "bytes_before": row.before,
        "bytes_after": row.after,
        "ratio": round(row.before / row.after, 2) if row.after else None,
        "seconds": round(row.seconds, 3),
    }
    if by is not None:
        document[by] = group
    return document
