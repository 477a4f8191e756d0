"""The text that is made of values in blocks equals the text of each value's document."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pulsar_meta.cli.render.text import harmless_json, json_line
from pulsar_meta.codecs.columns.managed import cursor_texts
from pulsar_meta.codecs.documents import document_text
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.documents.document_text import DocumentTexts
from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo

TOPIC = "/managed-ledgers/public/default/persistent/orders"
SECRETS = ("token", "kept", "jaas.config", "", "na\xefve\u2028")


@dataclass(frozen=True)
class Stored:
    """A value and its origin."""

    data: bytes
    path: str | None
    version: int | None = 3
    source: str = 'a "store"'


def number(chance: random.Random) -> int:
    """Return a number of random size, often an edge case."""
    edges = (0, -1, 1, 127, 128, 2**53 - 1, 2**53, -(2**53), 2**63 - 1, -(2**63))
    return chance.choice(edges) if chance.random() < 0.2 else chance.randrange(2 ** chance.randrange(1, 40))


def cursor(chance: random.Random) -> bytes:
    """Build a cursor as a broker writes it, or with something unusual."""
    odd = chance.random() < 0.5
    info = ManagedCursorInfo(cursorsLedgerId=chance.choice((-1, 7)))

    def pick() -> int:
        return number(chance) if odd else chance.randrange(2**40)

    for name in ("markDeleteLedgerId", "markDeleteEntryId", "lastActive"):
        if chance.random() < 0.7:
            setattr(info, name, pick())
    ledger, entry = 5, -1
    for _ in range(chance.choice((0, 0, 1, 3, 70))):
        ledger += chance.random() < 0.1
        entry += chance.randrange(1, 300)
        added = info.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId, added.lowerEndpoint.entryId = ledger, entry
        entry += chance.randrange(1, 300)
        added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = ledger, entry
        if odd and chance.random() < 0.2:
            added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = pick(), pick()
    if odd:
        for _ in range(chance.randrange(3)):
            info.properties.add(name=chance.choice(SECRETS), value=pick())
            info.cursorProperties.add(name=chance.choice(SECRETS), value=chance.choice(SECRETS))
        if chance.random() < 0.2:
            batch = info.batchedEntryDeletionIndexInfo.add(deleteSet=[-1, 2**62, 0])
            batch.position.ledgerId, batch.position.entryId = 5, 8
    return broken(info.SerializeToString(), chance) if odd else info.SerializeToString()


def ledgers(chance: random.Random) -> bytes:
    """Build a topic's record, in which some fields of its ledgers are absent."""
    info = ManagedLedgerInfo()
    for at in range(chance.randrange(4)):
        closed = info.ledgerInfo.add(ledgerId=10 * at, entries=at, size=number(chance))
        closed.timestamp = number(chance)
    for _ in range(chance.randrange(3)):
        ledger = info.ledgerInfo.add(ledgerId=number(chance))
        for name in ("entries", "size", "timestamp"):
            if chance.random() < 0.7:
                setattr(ledger, name, number(chance))
        if chance.random() < 0.3:
            ledger.properties.add(key=chance.choice(SECRETS), value=chance.choice(SECRETS))
            ledger.offloadContext.complete = chance.random() < 0.5
            ledger.offloadContext.uidMsb = number(chance)
            driver = ledger.offloadContext.driverMetadata
            driver.name = "S3"
            driver.properties.add(key=chance.choice(SECRETS), value="v")
    if chance.random() < 0.3:
        info.properties.add(key=chance.choice(SECRETS), value=chance.choice(SECRETS))
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = number(chance), number(chance)
    return broken(info.SerializeToString(), chance) if chance.random() < 0.4 else info.SerializeToString()


def broken(data: bytes, chance: random.Random) -> bytes:
    """Damage bytes, add an unknown field or invalid UTF-8, or wrap them in an envelope."""
    at = chance.randrange(len(data) + 1)
    forms: tuple[Callable[[], bytes], ...] = (
        lambda: data[:at],
        lambda: data + b"\x98\x06\x07",
        lambda: data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :],
        lambda: data.replace(b"kept", b"k\xff\xfet"),
        lambda: wrap_envelope(data, chance.choice(("zstd", "lz4", "none")), unknown=b"\x98\x06\x07"),
        lambda: wrap_envelope(data, "zlib"),
        lambda: data.replace(b"\x10\x05", b"\x10\x85\x00"),
    )
    return chance.choice(forms)()


def values(seed: int, count: int) -> list[Stored]:
    """Build the records of topics and their cursors."""
    chance = random.Random(seed)
    stored = []
    for at in range(count):
        path = TOPIC if at % 9 == 0 else f"{TOPIC}/sub-{at}%2F"
        data = ledgers(chance) if at % 9 == 0 else cursor(chance)
        stored.append(Stored(data, path, chance.choice((None, 0, 2**60, -(2**53)))))
    return stored


def expected(value: Stored, options: DecodeOptions) -> str:
    """Return the text of the value's document."""
    place: dict[str, Any] = {"source": value.source, "path": value.path, "version": value.version}
    return json_line(decode_document(value.data, options=options, **place).document)


@pytest.mark.parametrize("secrets", [True, False])
@pytest.mark.parametrize("blocks", [True, False])
def test_text_equals_that_of_the_document(
    blocks: bool, secrets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any record, in blocks and one at a time, with and without secrets."""
    monkeypatch.setattr(document_text, "_BLOCK", 1 if blocks else 10**6)
    monkeypatch.setattr(document_text, "_BLOCK_BYTES", 1 if blocks else 10**9)
    options = DecodeOptions(show_secrets=secrets)
    texts = DocumentTexts(options)
    made = 0
    for seed in range(12):
        block = values(seed, 60)
        for value, text in zip(block, texts.of(block), strict=True):
            if text is not None:
                made += 1
                assert harmless_json(text) == expected(value, options)
    assert made > 400


def test_most_cursors_are_written_from_columns() -> None:
    """Positions and ranges don't need the codec for a single record; damaged records do."""
    chance = random.Random(1)
    intact = []
    for at in range(50):
        info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=3, markDeleteEntryId=at)
        for hole in range(at):
            added = info.individualDeletedMessages.add()
            added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = 3 + hole // 20
            added.lowerEndpoint.entryId = 1000 * hole
            added.upperEndpoint.entryId = 1000 * hole + chance.randrange(1, 999)
        intact.append(info.SerializeToString())
    assert None not in cursor_texts(intact)
    assert (
        cursor_texts([b"", b"\x08", b"\x80", b"\x08\x80\x00", intact[3] + b"\x08\x01", intact[9][:-1]])
        == [None] * 6
    )


@pytest.mark.parametrize("extra", ["", "open", "closed", "terminated", "property", "offloaded"])
def test_large_records_are_written_from_columns(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns write the closed ledgers, and the codec writes the rest."""
    info = ManagedLedgerInfo()
    for at in range(40):
        ledger = info.ledgerInfo.add(ledgerId=3 * at, entries=2**52, size=at, timestamp=(at * 7) % 40 - 5)
    if extra in ("open", "closed", "offloaded"):
        ledger = info.ledgerInfo.add(ledgerId=999)
    if extra == "closed":
        ledger.entries = 4
    if extra == "offloaded":
        ledger.offloadContext.complete = True
    if extra == "terminated":
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = 117, 3
    if extra == "property":
        info.properties.add(key="token", value="secret")
    value = Stored(info.SerializeToString(), TOPIC)
    monkeypatch.setattr(document_text, "_BLOCK_BYTES", 1)
    texts = DocumentTexts(DecodeOptions())
    assert (texts._large_ledger_text(value.data) is None) == (extra == "offloaded")
    assert list(texts.of([value])) == [expected(value, DecodeOptions())]


def test_a_block_is_decompressed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decompressed records can be a thousand times larger than their envelopes."""
    opened: list[bytes] = []
    monkeypatch.setattr(document_text, "_PART_BYTES", 100_000)
    compressed = wrap_envelope(b"\x0a\x02\x08\x01" * 20_000, "zstd")
    texts = DocumentTexts(DecodeOptions())
    unpack = texts._opened

    def noted(data: bytes, path: str | None) -> Any:
        opened.append(data)
        return unpack(data, path)

    monkeypatch.setattr(texts, "_opened", noted)
    made = texts.of([Stored(compressed, TOPIC)] * 20)
    assert next(made) is not None
    assert len(opened) == 2
    assert sum(text is not None for text in made) == 19


def test_a_kind_named_with_type_needs_no_path() -> None:
    data = ManagedCursorInfo(cursorsLedgerId=4).SerializeToString()
    value = Stored(data, None, None)
    options = DecodeOptions("ManagedCursorInfo")
    assert list(DocumentTexts(options).of([value])) == [expected(value, options)]
    assert list(DocumentTexts(DecodeOptions("PositionInfo")).of([value])) == [None]
    assert list(DocumentTexts(DecodeOptions()).of([value, Stored(b"{}", "/admin/policies/x")])) == [
        None,
        None,
    ]
