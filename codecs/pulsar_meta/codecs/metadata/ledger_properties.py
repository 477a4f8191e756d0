"""Properties of single ledgers (PIP-404): edits of the serialized ManagedLedgerInfo that touch nothing else.

Pulsar rebuilds a ledger's list of properties through a java.util.HashMap at each change, and so do we, so
that a record that it wrote becomes what it would have written. What its rebuilding would lose stays:
unknown fields, double keys other than the edited one, the order of the ledgers (Pulsar writes those in
the order of another HashMap, which differs between versions of Java and says nothing to its reader).
Source: apache/pulsar ManagedLedgerImpl.asyncAddLedgerProperty, asyncRemoveLedgerProperty; PIP-404.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.java_hash import HASH_MAP_CAPACITY, grown_capacity, hash_map_order
from pulsar_meta.codecs.protobuf.wire_fields import (
    BYTES,
    VARINT,
    Field,
    bytes_field,
    read_varint,
    split_fields,
)

LEDGER_INFO = 1
LEDGER_ID = 1
LEDGER_PROPERTIES = 6
KEY = 1
VALUE = 2


@dataclass(frozen=True, slots=True)
class Edit:
    """One call of Pulsar's API: the key gets the value, or is removed where `value` is None."""

    key: str
    value: str | None


def ledger_ids(payload: bytes) -> list[int]:
    """Return the ids of the ledgers in a serialized ManagedLedgerInfo, in their order."""
    return [_ledger_id(payload[field.content : field.end]) for field in _ledgers(payload)]


def edit_properties(payload: bytes, edits: Mapping[int, Iterable[Edit]]) -> bytes:
    """Return a serialized ManagedLedgerInfo with the edits made, by ledger id, in their order.

    The very same bytes where nothing changes. NotFoundError for a ledger that is not in it, DecodeError
    where the bytes are no ManagedLedgerInfo or hold a ledger twice.
    """
    missing = set(edits) - set(ledger_ids(payload))
    if missing:
        raise NotFoundError(f"no ledger {', '.join(map(str, sorted(missing)))} in this topic")
    pieces, at, done = [], 0, set()
    for field in _ledgers(payload):
        info = payload[field.content : field.end]
        ledger = _ledger_id(info)
        if ledger in done:
            raise DecodeError(f"ledger {ledger} stands in the list twice", offset=field.start)
        if ledger in edits:
            done.add(ledger)
            edited = _edit_ledger(info, edits[ledger])
            pieces += [payload[at : field.start], bytes_field(LEDGER_INFO, edited)]
            if edited == info:
                pieces[-1] = payload[field.start : field.end]
            at = field.end
    return b"".join([*pieces, payload[at:]])


def _ledgers(payload: bytes) -> list[Field]:
    return [f for f in split_fields(payload) if f.number == LEDGER_INFO and f.wire_type == BYTES]


def _ledger_id(info: bytes) -> int:
    ledger = None
    for field in split_fields(info):
        if field.number == LEDGER_ID and field.wire_type == VARINT:
            # The last one counts, as in every protobuf reader.
            ledger, _ = read_varint(info, field.content)
    if ledger is None:
        raise DecodeError("a LedgerInfo without ledgerId")
    return ledger - 2**64 if ledger >= 2**63 else ledger


def _edit_ledger(info: bytes, edits: Iterable[Edit]) -> bytes:
    fields = split_fields(info)
    held = [f for f in fields if f.number == LEDGER_PROPERTIES and f.wire_type == BYTES]
    before = [(_key(info[f.content : f.end]), info[f.start : f.end]) for f in held]
    after = before
    for edit in edits:
        after = _apply(after, edit)
    if sorted(after) == sorted(before):
        return info
    # Where the first one stood, else after the last field that Pulsar writes before them.
    at = held[0].start if held else max(f.end for f in fields if f.number < LEDGER_PROPERTIES)
    others = [(f.start, info[f.start : f.end]) for f in fields if f not in held]
    first = [piece for start, piece in others if start < at]
    last = [piece for start, piece in others if start >= at]
    return b"".join([*first, *(entry for _, entry in after), *last])


def _apply(properties: list[tuple[str, bytes]], edit: Edit) -> list[tuple[str, bytes]]:
    keys = list(dict.fromkeys(key for key, _ in properties))
    if edit.value is None and edit.key not in keys:
        return properties
    if edit.key not in keys:
        keys.append(edit.key)
    capacity = grown_capacity(HASH_MAP_CAPACITY, len(keys))
    by_key: dict[str, list[bytes]] = {key: [] for key in keys}
    for key, entry in properties:
        by_key[key].append(entry)
    by_key[edit.key] = [] if edit.value is None else [_property(edit, by_key[edit.key])]
    return [(key, entry) for key in hash_map_order(keys, capacity) for entry in by_key[key]]


def _property(edit: Edit, held: list[bytes]) -> bytes:
    content = bytes_field(KEY, edit.key.encode()) + bytes_field(VALUE, str(edit.value).encode())
    entry = bytes_field(LEDGER_PROPERTIES, content)
    # The same value again is no change, also where another writer laid the fields out differently.
    same = [kept for kept in held if _value(kept) == edit.value]
    return same[0] if len(held) == 1 and same else entry


def _key(content: bytes) -> str:
    return _text(content, KEY)


def _value(entry: bytes) -> str:
    (field,) = split_fields(entry)
    return _text(entry[field.content : field.end], VALUE)


def _text(content: bytes, number: int) -> str:
    texts = [
        content[f.content : f.end]
        for f in split_fields(content)
        if f.number == number and f.wire_type == BYTES
    ]
    if not texts:
        raise DecodeError(f"a ledger's property without its {'key' if number == KEY else 'value'}")
    try:
        return texts[-1].decode()
    except UnicodeDecodeError as error:
        raise DecodeError("a ledger's property is not UTF-8") from error
