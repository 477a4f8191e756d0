"""BookKeeper's LedgerMetadataSerDe and DigestManager and ours make the same of values and entries."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry, encode_bookie_entry
from pulsar_meta.codecs.metadata.ledger_metadata import (
    Cookie,
    LedgerMetadata,
    decode_cookie,
    decode_ledger_metadata,
    encode_cookie,
    encode_ledger_metadata,
)
from pulsar_meta.codecs.names import ledger_of_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.proto.DataFormats_pb2 import CookieFormat, LedgerMetadataFormat
from pulsar_meta.stores.registry import open_store
from tests.interop.generated import SEED, mutations, text
from tests.servers.jvm import Jvm
from tests.servers.pulsar import release
from tests.servers.versions import size

pytestmark = pytest.mark.interop

MODULE = "tests.interop.oracle.bookkeeper"
CAPTURES = (
    "pulsar-2.8.2",
    "pulsar-3.0.7",
    "pulsar-4.0.7",
    "pulsar-4.2.4",
    "pulsar-4.2.4-3bookies",
    "pulsar-5.0.0-M1",
)
DIGESTS: tuple[DigestType, ...] = ("CRC32C", "CRC32", "HMAC", "DUMMY")


@cache
def stored_ledgers(capture: Callable[[str], Path]) -> list[bytes]:
    found: set[bytes] = set()
    for name in CAPTURES:
        for snapshot in capture(name).glob("metadata*.ndjson"):
            with open_store(f"snapshot:{snapshot}") as store:
                found |= {
                    value.value for value in store.scan("/ledgers") if ledger_of_path(value.path) is not None
                }
    return sorted(found)


def generated_ledger(source: random.Random, form: int) -> LedgerMetadata:
    """Metadata as a client may write it: quorums that fit, ensembles in order, the last entry if closed."""
    ensemble = source.randrange(1, 8)
    write = source.randint(1, ensemble)
    metadata = LedgerMetadataFormat(quorumSize=write, ensembleSize=ensemble, length=0)
    metadata.state = source.choice(LedgerMetadataFormat.State.values())  # type: ignore[assignment]
    if metadata.state == LedgerMetadataFormat.CLOSED:
        metadata.lastEntryId, metadata.length = source.randrange(-1, 2**40), source.randrange(2**62)
    for first in sorted({0, *(source.randrange(2**40) for _ in range(source.randrange(3)))}):
        bookies = [f"bookie-{source.randrange(10**6)}.example:3181" for _ in range(ensemble)]
        metadata.segment.add(firstEntryId=first, ensembleMember=bookies)
    if form > 1:
        metadata.ackQuorumSize = source.randint(1, write)
        metadata.digestType = source.choice(LedgerMetadataFormat.DigestType.values())  # type: ignore[assignment]
        metadata.password = source.randbytes(source.randrange(20))
        metadata.ctime = source.randrange(2**41)
        for key in sorted({text(source) for _ in range(source.randrange(3))}):
            metadata.customMetadata.add(key=key, value=source.randbytes(source.randrange(30)))
    return LedgerMetadata(form, metadata)


def described(ledger: LedgerMetadata) -> dict[str, Any]:
    """What BookKeeper's getters say of it."""
    metadata = ledger.metadata
    state = LedgerMetadataFormat.State.Name(metadata.state)
    has_password = metadata.HasField("password")
    digest = LedgerMetadataFormat.DigestType.Name(metadata.digestType) if has_password else None
    return {
        "format_version": ledger.format_version,
        "ensemble": metadata.ensembleSize,
        "write": metadata.quorumSize,
        "ack": metadata.ackQuorumSize if metadata.HasField("ackQuorumSize") else metadata.quorumSize,
        "state": state,
        # BookKeeper takes the length of a closed ledger only.
        "length": metadata.length if state == "CLOSED" else 0,
        "last": metadata.lastEntryId if state == "CLOSED" else -1,
        "ensembles": {part.firstEntryId: list(part.ensembleMember) for part in metadata.segment},
        "custom": {item.key: item.value for item in metadata.customMetadata},
        "digest": {"HMAC": "MAC"}.get(digest, digest) if digest else None,
        "password": metadata.password if has_password else None,
    }


def compare(values: list[bytes], oracle: Jvm) -> None:
    for value, their in zip(values, oracle.call(f"{MODULE}:parse_ledgers", values), strict=True):
        assert isinstance(their, dict), (value, their)
        again, ours = their.pop("again"), decode_ledger_metadata(value)
        assert their == described(ours), value
        # Java writes custom metadata in the order of a hash map, hence no comparison of bytes.
        assert described(decode_ledger_metadata(again)) == described(ours)


def test_captured_ledgers_are_read_alike(oracle: Jvm, capture: Callable[[str], Path]) -> None:
    values = stored_ledgers(capture)
    assert len(values) > 500
    compare(values, oracle)
    assert [encode_ledger_metadata(decode_ledger_metadata(value)) for value in values] == values


@pytest.mark.parametrize("form", [1, 2, 3])
def test_bookkeeper_reads_the_ledgers_that_we_write(form: int, oracle: Jvm) -> None:
    source = random.Random(SEED + form)
    ledgers = [generated_ledger(source, form) for _ in range(size(2000, 20_000))]
    if form == 2 and release(oracle.version) >= (5, 0):
        # BookKeeper 4.18 reads letters beyond the first 65 536 as question marks in the text form.
        ledgers = [ledger for ledger in ledgers if "🚀" not in "".join(described(ledger)["custom"])]
    compare([encode_ledger_metadata(ledger) for ledger in ledgers], oracle)


@pytest.mark.parametrize("layout", [3, 4, 5])
def test_bookkeeper_reads_the_cookies_that_we_write(layout: int, oracle: Jvm) -> None:
    source = random.Random(SEED + layout)
    names = ["bookieHost", "journalDir", "ledgerDirs", "instanceId", "indexDirs"]
    names = names[: 3 if layout == 3 else 4 if release(oracle.version) < (3, 0) else 5]

    def path() -> str:
        path = f"/{text(source)}\t"
        if layout == 3:
            return path.replace("\n", " ")
        # As above: BookKeeper 4.18 reads question marks.
        return path.replace("🚀", "") if release(oracle.version) >= (5, 0) else path

    cookies = [
        Cookie(layout, CookieFormat(**{name: path() for name in names})) for _ in range(size(200, 2000))
    ]
    ours = [encode_cookie(cookie) for cookie in cookies]
    assert [decode_cookie(value) for value in ours] == cookies
    # BookKeeper writes every cookie with the layout that it knows itself.
    theirs = oracle.call(f"{MODULE}:parse_cookies", ours)
    assert [value.partition(b"\n")[2] for value in theirs] == [value.partition(b"\n")[2] for value in ours]


@pytest.mark.parametrize("form", [1, 2, 3])
def test_damaged_ledgers_that_both_read_say_the_same(form: int, oracle: Jvm) -> None:
    source = random.Random(SEED + form)
    whole = [encode_ledger_metadata(generated_ledger(source, form)) for _ in range(200)]
    damaged = list(mutations(whole, size(2000, 20_000)))
    for value, their in zip(damaged, oracle.call(f"{MODULE}:parse_ledgers", damaged), strict=True):
        try:
            ours = decode_ledger_metadata(value)
        except DecodeError:
            continue
        # A key that is no UTF-8 comes as bytes.
        texts = all(isinstance(item.key, str) for item in ours.metadata.customMetadata)
        if isinstance(their, dict) and texts and encode_ledger_metadata(ours) == value:
            their.pop("again")
            assert their == described(ours), value


@pytest.mark.parametrize("kind", DIGESTS)
@pytest.mark.parametrize("password", [b"", b"secret \xff"])
def test_digests_are_made_alike(kind: DigestType, password: bytes, oracle: Jvm) -> None:
    source = random.Random(SEED)
    entries = []
    for _ in range(size(1000, 20_000)):
        ledger, entry, length = (source.randrange(2**40) for _ in range(3))
        entries.append((ledger, entry, entry - 1, length, source.randbytes(source.randrange(200))))
    ours = [encode_bookie_entry(*entry, digest_type=kind, password=password) for entry in entries]
    assert oracle.call(f"{MODULE}:digest", kind, password, entries) == ours


@pytest.mark.parametrize("kind", DIGESTS)
def test_digests_are_checked_alike(kind: DigestType, oracle: Jvm) -> None:
    source, given = random.Random(SEED), []
    for _ in range(size(1000, 20_000)):
        ledger, entry = source.randrange(2**40), source.randrange(2**40)
        body = source.randbytes(source.randrange(200))
        whole = bytearray(encode_bookie_entry(ledger, entry, entry - 1, 99, body, digest_type=kind))
        if source.random() < 0.5:
            whole[source.randrange(16, len(whole))] ^= 1 << source.randrange(8)
        given.append((ledger, entry, bytes(whole)))
    theirs = oracle.call(f"{MODULE}:verify", kind, b"", given)
    for (_, _, data), their in zip(given, theirs, strict=True):
        ours = decode_bookie_entry(data, kind, password=b"")
        assert (ours.digest in ("ok", "absent")) == isinstance(their, bytes), (data.hex(), their)
        if isinstance(their, bytes):
            assert bytes(ours.data) == their


def test_captured_entries_have_the_digests_that_bookkeeper_expects(
    oracle: Jvm, capture: Callable[[str], Path]
) -> None:
    """Compacted ledgers are written with CRC32, all others with CRC32C."""
    given: dict[DigestType, list[tuple[int, int, bytes]]] = {"CRC32C": [], "CRC32": []}
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        for ledger in source.ledgers():
            for entry in source.read_many(ledger):
                found = decode_bookie_entry(entry.data)
                assert found.digest == "ok"
                given[found.digest_type].append((ledger, entry.entry_id, bytes(entry.data)))
    assert len(given["CRC32C"]) > 2000
    assert given["CRC32"]
    for kind, entries in given.items():
        ours = [bytes(decode_bookie_entry(data, kind).data) for _, _, data in entries]
        assert oracle.call(f"{MODULE}:verify", kind, b"", entries) == ours
