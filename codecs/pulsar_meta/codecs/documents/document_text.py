"""Documents of managed ledgers and cursors as JSON text at once, for stores with many, or large ones.

The text is what `dumps` writes of `decode_document`'s answer, which is what everything else goes through:
what is broken, has unknown fields or fields in another order, and values of other kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from json.encoder import encode_basestring as quoted
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import EncodeError, Message

from pulsar_meta.codecs.documents.document import DecodeOptions, envelope_document
from pulsar_meta.codecs.documents.kinds import ENVELOPED
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER, dumps
from pulsar_meta.codecs.metadata.acks import acks_of_ends, range_ends
from pulsar_meta.codecs.metadata.envelope import is_enveloped, open_envelope
from pulsar_meta.codecs.metadata.managed_meaning import cursor_meaning, managed_ledger_meaning
from pulsar_meta.codecs.metadata.managed_place import ManagedPlaces
from pulsar_meta.codecs.protobuf.to_json_text import rows_text, writer_of
from pulsar_meta.codecs.secrets import redact
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo

M = TypeVar("M", bound=Message)

_LEDGER, _CURSOR = ENVELOPED
# From so many records on, or bytes of them, they are taken apart together; up to the second number of bytes.
_BLOCK: Final = 64
_BLOCK_BYTES, _LARGEST = 1 << 20, 1 << 26
_PART_BYTES: Final = 1 << 22
_MAY_HOLD_SECRETS: Final = frozenset({"properties", "cursor_properties", "ledgers"})
_RANGES: Final = "individualDeletedMessages"
_RANGE: Final = (
    '{"lowerEndpoint": {"ledgerId": %s, "entryId": %s}, "upperEndpoint": {"ledgerId": %s, "entryId": %s}}'
)


class StoredValue(Protocol):
    """The bytes of a value and where they are from."""

    @property
    def data(self) -> bytes:
        """The bytes."""

    @property
    def source(self) -> str:
        """The file or the store."""

    @property
    def path(self) -> str | None:
        """The path in the store."""

    @property
    def version(self) -> int | None:
        """The version in the store."""


class _Opened(NamedTuple):
    """A record out of its envelope, and the JSON of that."""

    kind: str
    payload: bytes
    envelope: str = "null"


class DocumentTexts:
    """Writes the documents of values that come in the order of a scan."""

    def __init__(self, options: DecodeOptions) -> None:
        """Write what `decode_document` answers under these options."""
        self._options = options
        self._places = ManagedPlaces()
        self._hide = hide = not options.show_secrets
        self._ledger = writer_of(ManagedLedgerInfo.DESCRIPTOR, hide=hide)
        self._cursor = writer_of(ManagedCursorInfo.DESCRIPTOR, _RANGES, hide=hide)
        self._source, self._source_text = "", '""'

    def of(self, values: Iterable[StoredValue]) -> Iterator[str | None]:
        """Yield the texts of values' documents, None where only `decode_document` has it.

        Of what is unpacked no more is held than of one value, or some megabytes.
        """
        part: list[tuple[StoredValue, _Opened | None]] = []
        held = 0
        for value in values:
            opened = self._opened(value.data, value.path)
            part.append((value, opened))
            held += len(opened.payload) if opened is not None else 0
            if held >= _PART_BYTES:
                yield from self._texts(part)
                part, held = [], 0
        yield from self._texts(part)

    def _texts(self, part: Sequence[tuple[StoredValue, _Opened | None]]) -> Iterator[str | None]:
        cursors = [one.payload for _, one in part if one is not None and one.kind == _CURSOR]
        bodies: Iterator[str | None] = repeat(None)
        if _is_block(cursors):
            # Loads what a few values do not need.
            from pulsar_meta.codecs.columns.cursors import cursor_texts

            bodies = iter(cursor_texts(cursors))
        for value, one in part:
            body = next(bodies) if one is not None and one.kind == _CURSOR else None
            yield None if one is None else self._document(value, one, body)

    def _document(self, value: StoredValue, opened: _Opened, body: str | None) -> str | None:
        body = body or self._body(opened)
        if body is None:
            return None
        source, path, version = value.source, value.path, value.version
        if source != self._source:
            self._source, self._source_text = source, quoted(source)
        place = self._source_text if path is None else f'{self._source_text}, "path": {quoted(path)}'
        if version is not None:
            place += f', "version": {version if abs(version) <= MAX_SAFE_INTEGER else dumps(version)}'
        return f'{{"source": {place}, "kind": "{opened.kind}", "envelope": {opened.envelope}, {body}}}'

    def _kind(self, data: bytes, path: str | None) -> str | None:
        named = self._options.kind
        if named is not None:
            return named if named in ENVELOPED else None
        place = self._places.of(path, data) if path is not None else None
        return None if place is None else _LEDGER if place[1] is None else _CURSOR

    def _opened(self, data: bytes, path: str | None) -> _Opened | None:
        kind = self._kind(data, path)
        if kind is None or not is_enveloped(data):
            return None if kind is None else _Opened(kind, data)
        try:
            envelope = open_envelope(data, max_size=self._options.max_size)
        except DecodeError:
            return None
        assert envelope is not None
        return _Opened(kind, envelope.payload, dumps(envelope_document(envelope)))

    def _body(self, opened: _Opened) -> str | None:
        """Return what a record says and means, None where it is not whole and as protobuf writes it."""
        try:
            return (
                self._cursor_text(opened.payload)
                if opened.kind == _CURSOR
                else self._ledger_text(opened.payload)
            )
        except (ProtobufError, EncodeError, TypeError, OverflowError):
            return None

    def _cursor_text(self, payload: bytes) -> str | None:
        record = _whole(ManagedCursorInfo, payload)
        if record is None:
            return None
        ends = range_ends(record.individualDeletedMessages)
        if ends and not -MAX_SAFE_INTEGER <= min(ends) <= max(ends) <= MAX_SAFE_INTEGER:
            return None
        meaning: Any = cursor_meaning(record, acks=acks_of_ends(ends))
        value = self._cursor(record, rows_text(_RANGE, 4, ends))
        return f'"value": {value}, "meaning": {{{self._meaning_text(meaning)}}}'

    def _ledger_text(self, payload: bytes) -> str | None:
        large = self._large_ledger_text(payload) if len(payload) >= _BLOCK_BYTES else None
        record = None if large else _whole(ManagedLedgerInfo, payload)
        if record is None:
            return large
        meaning: Any = managed_ledger_meaning(record)
        value = self._ledger(record, "")
        return f'"value": {value}, "meaning": {{{self._meaning_text(meaning)}}}'

    def _large_ledger_text(self, payload: bytes) -> str | None:
        """Return the text of a record of many closed ledgers with an open one behind them, or without."""
        from pulsar_meta.codecs.columns.ledgers import leading_ledgers

        found = leading_ledgers(payload) if len(payload) <= _LARGEST else None
        rest = None if found is None else _whole(ManagedLedgerInfo, payload[found.end :])
        if found is None or rest is None or len(rest.ledgerInfo) > 1:
            return None
        ends = found.ends
        last = ends.ledgerInfo[-1].ledgerId
        if any(ledger.ledgerId <= last or ledger.HasField("offloadContext") for ledger in rest.ledgerInfo):
            return None
        ends.MergeFrom(rest)
        meaning: Any = managed_ledger_meaning(ends)
        meaning["ledger_count"] = found.count + len(rest.ledgerInfo)
        meaning["entries"] = found.entries + sum(ledger.entries for ledger in rest.ledgerInfo)
        meaning["size"] = found.size + sum(ledger.size for ledger in rest.ledgerInfo)
        behind = self._ledger(rest, "")
        between = ", " if rest.ledgerInfo else "]" if behind == "{}" else "], "
        begins = '{"ledgerInfo": [' if rest.ledgerInfo else "{"
        value = f'{{"ledgerInfo": [{found.text}{between}{behind.removeprefix(begins)}'
        return f'"value": {value}, "meaning": {{{self._meaning_text(meaning)}}}'

    def _meaning_text(self, meaning: dict[str, Any]) -> str:
        members = []
        for name, one in meaning.items():
            if type(one) is str:
                text = quoted(one)
            elif type(one) is int and abs(one) <= MAX_SAFE_INTEGER:
                text = str(one)
            elif name == "acked":
                text = f"[{', '.join(map(_acked_text, one))}]"
            else:
                text = dumps(redact(one) if self._hide and name in _MAY_HOLD_SECRETS else one)
            members.append(f'"{name}": {text}')
        return ", ".join(members)


def _is_block(payloads: Sequence[bytes]) -> bool:
    size = sum(map(len, payloads))
    return (len(payloads) >= _BLOCK or size >= _BLOCK_BYTES) and size <= _LARGEST


def _whole(kind: type[M], payload: bytes) -> M | None:
    """Return the message that these very bytes are, None where there is more, less or another order."""
    message = kind.FromString(payload)
    message.DiscardUnknownFields()
    return message if message.SerializeToString() == payload else None


def _acked_text(acked: dict[str, Any]) -> str:
    entries = str(acked["entries"]).replace("(", "[").replace(")", "]")
    return f'{{"ledger_id": {acked["ledger_id"]}, "entries": {entries}}}'
