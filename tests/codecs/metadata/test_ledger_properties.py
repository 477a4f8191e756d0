from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.metadata.ledger_metadata import (
    Edit,
    edit_properties,
    grown_capacity,
    hash_map_order,
    ledger_ids,
    string_hash,
)
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.protobuf.parse import bytes_field, read_varint, split_fields, write_varint
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.snapshot import SnapshotStore

ORDERS = TopicName.parse("public/default/orders").path


@pytest.fixture
def orders(capture: Callable[[str], Path]) -> bytes:
    """An uncompressed topic record with ledger properties, written by Pulsar 4.2.4."""
    with SnapshotStore(f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}") as store:
        return store.read(ORDERS).value


def test_removing_and_setting_properties_restores_pulsars_bytes(orders: bytes) -> None:
    written = {18: ("first-index", "0"), 21: ("b", "zwei €"), 22: ("first-index", "2000")}
    bare = edit_properties(orders, {ledger: [Edit(key, None)] for ledger, (key, _) in written.items()})
    parsed = ManagedLedgerInfo.FromString(bare)
    assert not any(info.properties for info in parsed.ledgerInfo)
    assert parsed.SerializeToString() == bare
    assert [info.ledgerId for info in parsed.ledgerInfo] == ledger_ids(orders) == [18, 21, 22, 23, 242, 334]
    restored = edit_properties(bare, {ledger: [Edit(*pair)] for ledger, pair in written.items()})
    assert restored == orders


def test_edits_without_effect_keep_the_bytes(orders: bytes) -> None:
    assert edit_properties(orders, {18: [Edit("first-index", "0"), Edit("nope", None)], 334: []}) == orders


def test_an_unknown_ledger_is_not_found(orders: bytes) -> None:
    with pytest.raises(NotFoundError, match="19, 20"):
        edit_properties(orders, {18: [Edit("a", "b")], 19: [], 20: [Edit("a", "b")]})


def test_unknown_fields_duplicate_keys_and_order_are_kept() -> None:
    duplicate = bytes_field(6, bytes_field(1, b"k") + bytes_field(2, b"1"))
    duplicate += bytes_field(6, bytes_field(1, b"k") + bytes_field(2, b"2") + bytes_field(9, b"more"))
    unknown = bytes_field(77, b"unknown in the middle")
    info = bytes_field(1, b"\x08\x05" + unknown + b"\x10\x07" + duplicate + b"\x20\x00")
    other = bytes_field(1, b"\x10\x01" + unknown + b"\x08\x03")
    payload = other + bytes_field(99, b"in front") + info + unknown
    added = edit_properties(payload, {5: [Edit("new", "x")]})
    assert added.startswith(other + bytes_field(99, b"in front"))
    assert added.endswith(unknown)
    assert unknown + b"\x10\x07" in added
    assert duplicate in added
    assert edit_properties(added, {5: [Edit("new", None)]}) == payload
    replaced = edit_properties(payload, {5: [Edit("k", "3")]})
    assert replaced == payload.replace(info, bytes_field(1, b"\x08\x05" + unknown + b"\x10\x07" + bytes_field(
        6, bytes_field(1, b"k") + bytes_field(2, b"3")) + b"\x20\x00"))  # fmt: skip


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        b"\x0a\x05\x08",
        bytes_field(1, b""),
        bytes_field(1, b"\x10\x01"),
        bytes_field(1, b"\x08\x05\x0b"),
        bytes_field(1, b"\x08\x05" + bytes_field(6, b"")),
        bytes_field(1, b"\x08\x05" + bytes_field(6, bytes_field(1, b"k"))),
        bytes_field(1, b"\x08\x05" + bytes_field(6, bytes_field(1, b"\xff") + bytes_field(2, b""))),
        bytes_field(1, b"\x08\x05") * 2,
        b"\x00\x00",
    ],
)
def test_bytes_that_are_no_ledger_list_are_a_decode_error(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        edit_properties(payload, {5: [Edit("k", "v")]})


texts = st.text(max_size=12)


@settings(deadline=None)
@given(st.dictionaries(texts, texts, max_size=30), st.lists(st.tuples(texts, st.none() | texts), max_size=12))
def test_edits_equal_those_of_a_map(properties: dict[str, str], edits: list[tuple[str, str | None]]) -> None:
    info = ManagedLedgerInfo()
    for ledger in (7, -(2**63), 2**63 - 1):
        added = info.ledgerInfo.add(ledgerId=ledger, entries=3, timestamp=0)
        for key, value in properties.items():
            added.properties.add(key=key, value=value)
    edited = ManagedLedgerInfo.FromString(
        edit_properties(info.SerializeToString(), {7: [Edit(*edit) for edit in edits]})
    )
    expected = dict(properties)
    for edited_key, edited_value in edits:
        if edited_value is None:
            expected.pop(edited_key, None)
        else:
            expected[edited_key] = edited_value
    assert {item.key: item.value for item in edited.ledgerInfo[0].properties} == expected
    assert len(edited.ledgerInfo[0].properties) == len(expected)
    assert edited.ledgerInfo[1:] == info.ledgerInfo[1:]


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_edited_or_a_decode_error(payload: bytes) -> None:
    try:
        ids = ledger_ids(payload)
        edit_properties(payload, {ledger: [Edit("k", "v")] for ledger in ids})
    except DecodeError:
        return


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_varints_survive_a_round_trip(number: int) -> None:
    data = write_varint(number)
    assert read_varint(data, 0) == (number, len(data))
    assert split_fields(b"\x08" + data)[0].end == len(data) + 1


def test_hashes_and_map_order_equal_javas() -> None:
    # From the documentation of String.hashCode and from a JVM. "Aa" and "BB" collide.
    assert string_hash("") == 0
    assert string_hash("Aa") == string_hash("BB") == 2112
    assert string_hash("hello") == 99162322
    assert [grown_capacity(16, count) for count in (0, 12, 13, 24, 25)] == [16, 16, 32, 32, 64]
    assert hash_map_order(["b", "a", "first-index"], 16) == ["a", "b", "first-index"]
