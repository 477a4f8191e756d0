"""Every value of real brokers and bookies, decoded, encoded again and compared with the brokers' answers."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.documents.document import Decoded, decode_document, encode_document
from pulsar_meta.codecs.documents.value import JSON_KINDS, SCALABLE_KINDS, TRANSACTION_KINDS
from pulsar_meta.codecs.json_text import Document, dumps
from pulsar_meta.codecs.names import TopicName
from tests.nightly import mostly_at_night

CAPTURES = [
    "pulsar-2.8.2",
    "pulsar-3.0.7",
    "pulsar-4.0.7",
    "pulsar-4.2.4",
    "pulsar-4.2.4-3bookies",
    "pulsar-4.2.4-killed",
    "pulsar-5.0.0-M1",
]
# The truth files of these captures have another format.
SCALABLE = ["pulsar-5.0.0-M1-scalable", "pulsar-5.0.0-M1-scalable-running"]
Capture = Callable[[str], Path]

captures = pytest.mark.parametrize("name", CAPTURES)


def values(snapshot: Path) -> Iterator[tuple[str, int, bytes]]:
    with snapshot.open() as lines:
        for line in lines:
            record = json.loads(line)
            yield record["path"], record["version"], b64decode(record["value"])


def decoded(snapshot: Path) -> Iterator[tuple[bytes, Decoded]]:
    for path, version, data in values(snapshot):
        yield data, decode_document(data, source=snapshot.name, path=path, version=version)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("backend", "name"),
    mostly_at_night(
        product(("fast", "small"), CAPTURES + SCALABLE),
        *(("fast", name) for name in ("pulsar-2.8.2", "pulsar-4.2.4", "pulsar-5.0.0-M1", *SCALABLE)),
        ("small", "pulsar-4.2.4-3bookies"),
    ),
    indirect=["backend"],
)
def test_every_value_survives_a_round_trip(capture: Capture, name: str) -> None:
    kinds: Counter[str] = Counter()
    for snapshot in sorted(capture(name).glob("metadata*.ndjson")):
        for data, answer in decoded(snapshot):
            assert answer.error is None, (answer.document["path"], answer.error)
            assert answer.same_bytes, answer.document["path"]
            document = json.loads(dumps(answer.document))
            envelope = document["envelope"]
            encoded = encode_document(document)
            assert (encoded.path, encoded.version) == (document["path"], document["version"])
            if envelope is None:
                assert encoded.data == data
            else:
                # Compressors may produce different bytes, but the decompressed bytes must be equal.
                compressed = decode_document(encoded.data, source="again", path=document["path"])
                assert compressed.document["envelope"]["codec"] == envelope["codec"]
                assert (
                    encode_document(compressed.document, codec="none").data
                    == encode_document(document, codec="none").data
                )
            kinds[document["kind"]] += 1
            if document["kind"] in JSON_KINDS:
                # Pass the document through a program that has no integers and drops our fields.
                rounded = json.loads(dumps(answer.document), parse_int=float)
                rounded.pop("stored_text", None)
                rounded.pop("version")
                assert encode_document(rounded, stored=data).data == data
    assert kinds["ManagedLedgerInfo"] > 20
    assert kinds["ManagedCursorInfo"] > 20
    assert kinds["LedgerMetadata"] > 50
    assert kinds["Cookie"] >= 1
    assert kinds["SchemaLocator"] >= 1
    assert kinds["Json"] > 10
    assert kinds["Bytes"] == 0


def test_the_captures_contain_every_codec_and_broker_records(capture: Capture) -> None:
    codecs: set[str] = set()
    kinds: set[str] = set()
    for name in CAPTURES:
        for snapshot in capture(name).glob("metadata*.ndjson"):
            for _, answer in decoded(snapshot):
                kinds.add(answer.document["kind"])
                codecs.add((answer.document["envelope"] or {"codec": "plain"})["codec"])
    assert codecs == {"plain", "lz4", "zlib", "zstd", "snappy"}
    assert {"LocalBrokerData", "BookieServiceInfo"} <= kinds


def test_records_of_pulsar_5_are_recognized(capture: Capture) -> None:
    kinds: Counter[str] = Counter()
    for name in (CAPTURES[-1], *SCALABLE):
        for snapshot in capture(name).glob("metadata*.ndjson"):
            for _, answer in decoded(snapshot):
                path, kind = answer.document["path"], answer.document["kind"]
                if path.startswith(("/topics/", "/txn/")) and answer.document["value"]:
                    kinds[kind] += 1
                    assert answer.document["meaning"] or kind == "Text", path
    print(dict(kinds))
    assert set(kinds) - {"Text"} >= {*SCALABLE_KINDS, *TRANSACTION_KINDS, "Counter"} - {
        "ScalableSubscription",
        "ScalableConsumer",
    }


def final_documents(folder: Path) -> dict[str, Document]:
    return {answer.document["path"]: answer.document for _, answer in decoded(folder / "metadata.ndjson")}


def truth_of(folder: Path) -> dict[str, dict[str, Any]]:
    truth: dict[str, dict[str, Any]] = orjson.loads((folder / "truth.json").read_bytes())
    return truth.get("topics", truth)


def parse_ranges(text: str) -> list[tuple[int, int, int]]:
    """Parse `[(18:9..18:10],(21:-1..21:0]]` to (ledger, first, last) and join adjacent ranges."""
    matches = re.findall(r"\((\d+):(-?\d+)\.\.(\d+):(-?\d+)\]", text)
    assert all(low == high for low, _, high, _ in matches)
    return joined([(int(ledger), int(after) + 1, int(last)) for ledger, after, _, last in matches])


def joined(ranges: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    out: list[tuple[int, int, int]] = []
    for ledger, first, last in sorted(ranges):
        if out and out[-1][0] == ledger and out[-1][2] + 1 >= first:
            out[-1] = (ledger, out[-1][1], max(last, out[-1][2]))
        else:
            out.append((ledger, first, last))
    return out


def acked(meaning: dict[str, Any]) -> list[tuple[int, int, int]]:
    return joined(
        [
            (ledger["ledger_id"], first, last)
            for ledger in meaning.get("acked", ())
            for first, last in ledger["entries"]
        ]
    )


# Ledgers that the running broker had closed but whose record in the final store differs. The first was
# trimmed after the truth was recorded; the others were open when the broker was killed.
LATER = {"pulsar-3.0.7": {57}, "pulsar-4.2.4-killed": {354, 365}}


@captures
def test_ledgers_agree_with_the_brokers_statistics(capture: Capture, name: str) -> None:
    folder = capture(name)
    documents = final_documents(folder)
    topics = ledgers = properties = 0
    for topic, truth in truth_of(folder).items():
        info = truth.get("internal-info")
        if not isinstance(info, dict) or "ledgers" not in info:
            continue
        document = documents[TopicName.parse(topic).path]
        ours = {ledger["ledgerId"]: ledger for ledger in document["value"].get("ledgerInfo", ())}
        for listed in info["ledgers"]:
            number = listed["ledgerId"]
            if not listed.get("entries") or number in LATER.get(name, ()):
                continue
            # 2.8.2 reports no timestamp.
            fields = [field for field in ("entries", "size", "timestamp") if field in listed]
            assert {field: ours[number][field] for field in fields} == {f: listed[f] for f in fields}, topic
            ledgers += 1
        closed = {number for number, ledger in ours.items() if ledger.get("entries")}
        assert closed <= {listed["ledgerId"] for listed in info["ledgers"]}, topic
        later = closed - {listed["ledgerId"] for listed in info["ledgers"] if listed.get("entries")}
        # A broker keeps the index as a property, and updates it when it closes a ledger.
        if not later and name != "pulsar-4.2.4-killed":
            assert document["meaning"].get("properties", {}) == info.get("properties", {}), topic
            properties += 1
        topics += 1
    assert topics > 30
    assert ledgers > 40
    assert properties > 25 or name == "pulsar-4.2.4-killed"


@captures
def test_cursors_agree_with_the_brokers_statistics(capture: Capture, name: str) -> None:
    folder = capture(name)
    documents = final_documents(folder)
    compared = with_ranges = 0
    for topic, truth in truth_of(folder).items():
        stats = truth.get("internalStats")
        if not isinstance(stats, dict) or not stats.get("numberOfEntries"):
            continue
        for cursor, listed in stats["cursors"].items():
            document = documents.get(TopicName.parse(topic).cursor_path(_plain(cursor)))
            if document is None or document["meaning"]["state"] != "record":
                continue
            meaning = document["meaning"]
            assert meaning["mark_delete"] == listed["markDeletePosition"], (topic, cursor)
            assert acked(meaning) == parse_ranges(listed["individuallyDeletedMessages"]), (topic, cursor)
            assert meaning.get("properties", {}) == listed.get("properties", {}), (topic, cursor)
            compared += 1
            with_ranges += bool(acked(meaning))
    assert compared > 10
    assert with_ranges > 2


def _plain(cursor: str) -> str:
    from pulsar_meta.codecs.names import decode_name

    return decode_name(cursor)


def test_ledger_properties_agree_with_the_brokers_statistics(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    document = final_documents(folder)["/managed-ledgers/public/default/persistent/orders"]
    listed = truth_of(folder)["persistent://public/default/orders"]["internalStats"]["ledgers"]
    ours = {item["ledger_id"]: item["properties"] for item in document["meaning"]["ledgers"]}
    assert ours == {item["ledgerId"]: item["properties"] for item in listed if item.get("properties")}
    assert ours[21] == {"b": "zwei €"}


def test_a_cursor_with_a_cursor_ledger_is_called_a_snapshot(capture: Capture) -> None:
    notes = [
        answer.document["meaning"]
        for _, answer in decoded(capture("pulsar-4.2.4-killed") / "metadata.ndjson")
        if answer.document["kind"] == "ManagedCursorInfo"
        and int(answer.document["value"]["cursorsLedgerId"]) != -1
    ]
    assert notes
    assert all("only a snapshot" in meaning["note"] and meaning["snapshot_only"] for meaning in notes)


def test_entries_of_a_real_bookie_survive_a_round_trip(capture: Capture) -> None:
    from pulsar_meta.entries.sources import open_entries

    kinds: Counter[str] = Counter()
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4')}/bookie0"]) as source:
        for ledger in source.ledgers():
            for number in list(source.entry_ids(ledger))[:3]:
                stored = bytes(source.read(ledger, number).data)
                answer = decode_document(stored, source="entry")
                assert answer.document["kind"] == "BookieEntry"
                assert answer.same_bytes
                assert answer.document["value"]["ledger_id"] == ledger
                assert encode_document(json.loads(dumps(answer.document))).data == stored
                if "frame" not in answer.document["meaning"]:
                    continue
                frame = decode_document(b64decode(answer.document["value"]["data"]), source="frame")
                assert frame.same_bytes
                kinds[frame.document["kind"]] += 1
    assert kinds.keys() == {"Frame"}
    assert kinds["Frame"] > 300
