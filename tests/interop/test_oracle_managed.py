"""Pulsar's MetaStoreImpl and ours make the same of the values of managed ledgers and cursors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from google.protobuf.message import Message

from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.envelope import (
    decode_cursor,
    decode_managed_ledger,
    open_envelope,
    stored_form,
    wrap_envelope,
)
from pulsar_meta.codecs.names import split_managed_ledger_path
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo, PositionInfo
from pulsar_meta.stores.registry import open_store
from tests.interop.generated import messages, mutations
from tests.servers.jvm import Jvm
from tests.servers.pulsar import release
from tests.servers.versions import size

pytestmark = pytest.mark.interop

Kind = type[ManagedLedgerInfo] | type[ManagedCursorInfo]
DECODERS: dict[str, Callable[[bytes], Message]] = {
    "ManagedLedgerInfo": decode_managed_ledger,
    "ManagedCursorInfo": decode_cursor,
}
KINDS = sorted(DECODERS)
CAPTURES = (
    "pulsar-2.8.2",
    "pulsar-3.0.7",
    "pulsar-4.0.7",
    "pulsar-4.2.4",
    "pulsar-4.2.4-3bookies",
    "pulsar-5.0.0-M1",
)
MODULE = "tests.interop.oracle.managed"


def decoded(kind: str, value: bytes) -> Message | None:
    try:
        return DECODERS[kind](value)
    except DecodeError:
        return None


def known_bytes(message: Message | None) -> bytes | None:
    """The fields that we know. LightProto (4.2 on) forgets all others, Java protobuf sorts them."""
    if message is None:
        return None
    message.DiscardUnknownFields()
    return message.SerializeToString()


def is_whole(value: bytes, message: Message) -> bool:
    """Whether we know every field and write back what we read.

    LightProto remembers the size that a nested message had with its unknown fields and then writes it
    without them, so that what it writes is damaged.
    """
    return known_bytes(message) == value


def plain(kind: str, their: bytes) -> bytes | None:
    """The known fields of what they wrote again."""
    return known_bytes(decoded(kind, their))


@cache
def stored_values(capture: Callable[[str], Path]) -> dict[str, list[bytes]]:
    """Every value of a managed ledger or cursor in any step of any capture."""
    found: dict[str, set[bytes]] = {kind: set() for kind in KINDS}
    for name in CAPTURES:
        for snapshot in capture(name).glob("metadata*.ndjson"):
            with open_store(f"snapshot:{snapshot}") as store:
                for value in store.scan("/managed-ledgers"):
                    place = split_managed_ledger_path(value.path)
                    if place is not None and (value.value or place[1] is None):
                        found[KINDS[1] if place[1] is None else KINDS[0]].add(value.value)
    return {kind: sorted(values) for kind, values in found.items()}


@cache
def payloads(kind: str, count: int) -> list[bytes]:
    message = ManagedLedgerInfo if kind == "ManagedLedgerInfo" else ManagedCursorInfo
    return [value.SerializeToString() for value in messages(message, count)]


def skip_before_pip_146(kind: str, oracle: Jvm) -> None:
    if kind == "ManagedCursorInfo" and not oracle.call(f"{MODULE}:knows_compressed_cursors"):
        pytest.skip(f"Pulsar {oracle.version} has no compressed cursors (PIP-146 came with 2.9)")


def compare_reading(kind: str, values: list[bytes], oracle: Jvm) -> None:
    theirs = oracle.call(f"{MODULE}:parse_values", kind, values)
    for value, their in zip(values, theirs, strict=True):
        ours = known_bytes(decoded(kind, value))
        if lazily_broken(kind, value, oracle.version):
            assert isinstance(their, str) or their != ours, "the defect of compressed cursors is gone: say so"
        else:
            assert ours == (None if isinstance(their, str) else plain(kind, their)), (value.hex(), their)


def lazily_broken(kind: str, value: bytes, version: str) -> bool:
    """Whether the version cannot read this: compressed cursors with properties, from 4.2 on.

    LightProto reads strings when they are asked for, from a buffer that is released after decompression.
    """
    if kind != "ManagedCursorInfo" or release(version) < (4, 2) or open_envelope(value) is None:
        return False
    cursor = decode_cursor(value)
    return bool(cursor.properties or cursor.cursorProperties)


@pytest.mark.parametrize("kind", KINDS)
def test_captured_values_are_read_alike(kind: str, oracle: Jvm, capture: Callable[[str], Path]) -> None:
    skip_before_pip_146(kind, oracle)
    values = stored_values(capture)[kind]
    assert len(values) > 400
    compare_reading(kind, values, oracle)


@pytest.mark.parametrize("kind", KINDS)
def test_generated_values_are_read_alike(kind: str, oracle: Jvm) -> None:
    skip_before_pip_146(kind, oracle)
    compare_reading(kind, payloads(kind, size(5000, 20_000)), oracle)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS)
def test_pulsar_reads_what_we_seal(kind: str, codec: str, oracle: Jvm) -> None:
    skip_before_pip_146(kind, oracle)
    values = [wrap_envelope(payload, codec) for payload in payloads(kind, size(2000, 20_000))]
    if codec == "none" and release(oracle.version) < (2, 9):
        theirs = oracle.call(f"{MODULE}:parse_values", kind, values)
        assert all(isinstance(their, str) for their in theirs), "2.8 reads an envelope without codec: say so"
    else:
        compare_reading(kind, values, oracle)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS)
def test_we_read_what_pulsar_compresses(kind: str, codec: str, oracle: Jvm) -> None:
    skip_before_pip_146(kind, oracle)
    # Before 3.1, which brought the threshold, even the empty message gets an envelope; ours never does.
    given = [payload for payload in payloads(kind, size(2000, 20_000)) if payload]
    stored = oracle.call(f"{MODULE}:store_values", kind, codec, 0, given)
    for payload, value in zip(given, stored, strict=True):
        assert isinstance(value, bytes), value
        message = decoded(kind, value)
        assert message is not None
        assert message.SerializeToString() == payload
        envelope, our_envelope = open_envelope(value), open_envelope(stored_form(payload, codec, threshold=0))
        assert (envelope and (envelope.codec, envelope.raw_size)) == (
            our_envelope and (our_envelope.codec, our_envelope.raw_size)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_threshold_is_compared_alike(kind: str, oracle: Jvm) -> None:
    if not oracle.call(f"{MODULE}:knows_thresholds"):
        pytest.skip(f"Pulsar {oracle.version} has no thresholds (PIP-270 came with 3.1)")
    given = sorted(payloads(kind, 300), key=len)
    for threshold in {len(payload) + more for payload in given[::20] for more in (-1, 0, 1)}:
        if threshold >= 0:
            stored = oracle.call(f"{MODULE}:store_values", kind, "zstd", threshold, given)
            ours = [stored_form(payload, "zstd", threshold=threshold) for payload in given]
            assert [open_envelope(value) is None for value in stored] == [
                open_envelope(value) is None for value in ours
            ]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_values_that_are_still_whole_are_read_alike(kind: str, oracle: Jvm) -> None:
    """Damage makes three kinds of values; the third is where Pulsar differs even from itself.

    Whole messages (we write back what we read): Pulsar reads the same. Broken ones: we refuse them;
    LightProto may read past a cut or a bad wire type. Ill-formed ones that parse: a varint of more than
    64 bits, a tag of more than 32, a singular message twice (protobuf merges, LightProto keeps the last).
    """
    skip_before_pip_146(kind, oracle)
    damaged = list(mutations(payloads(kind, 500), size(5000, 20_000)))
    theirs = oracle.call(f"{MODULE}:parse_values", kind, damaged)
    whole = 0
    for value, their in zip(damaged, theirs, strict=True):
        message = decoded(kind, value)
        if message is not None and is_whole(value, message):
            assert isinstance(their, bytes), (value.hex(), their)
            assert plain(kind, their) == known_bytes(message), value.hex()
            whole += 1
    assert whole > len(damaged) / 20


def test_position_infos_are_read_alike(oracle: Jvm) -> None:
    values = [value.SerializeToString() for value in messages(PositionInfo, size(5000, 20_000))]
    theirs = oracle.call(f"{MODULE}:reserialize", "PositionInfo", values)
    for value, their in zip(values, theirs, strict=True):
        assert their == value
