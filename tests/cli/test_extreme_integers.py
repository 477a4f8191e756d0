"""Integers at the ends of their ranges, in any field of a value, end no command with an unforeseen error."""

from __future__ import annotations

import json
import os
import re
import shutil
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pulsar_meta.codecs.documents.kinds import kind_of
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.protobuf.parse import write_varint
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.SchemaStorageFormat_pb2 import IndexEntry, PositionInfo, SchemaLocator
from tests.cli.program import environment, pulsar_meta_here
from tests.servers.limits import must_end

FILES: Final = Path(__file__).parents[2] / "fixtures" / "release-0.1"
EXTREMES: Final = (0, -1, 2**63 - 1, -(2**63), 2**64 - 1)
# Bits of the integer types, and whether they have a sign.
INTEGERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
}
DEEPEST: Final = 3
# The changed values that are tried of each value. All of them take half an hour.
COUNT: Final = int(os.environ.get("EXTREME_INTEGERS", "4"))
# The commands that read a changed value.
COMMANDS: Final = 4
Place = tuple[Any, ...]


def fields_of(descriptor: Any, depth: int = 0) -> Iterator[Place]:
    """Yield the names that lead to each integer field, whether or not it is set."""
    for field in descriptor.fields:
        if field.message_type is not None and depth < DEEPEST:
            yield from ((field.name, *rest) for rest in fields_of(field.message_type, depth + 1))
        elif field.cpp_type in INTEGERS:
            yield (field.name,)


def set_field(message: Any, place: Place, number: int) -> None:
    """Set the field at `place`, in the last element of each list."""
    name, *rest = place
    held = getattr(message, name)
    if rest:
        if hasattr(held, "add"):
            held = held[-1] if held else held.add()
        set_field(held, tuple(rest), number)
        return
    bits, signed = INTEGERS[message.DESCRIPTOR.fields_by_name[name].cpp_type]
    number %= 1 << bits
    number -= (1 << bits) if signed and number >> (bits - 1) else 0
    if hasattr(held, "append"):
        held.append(number)
    else:
        setattr(message, name, number)


def leaves_of(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the places of integers in a JSON document, also of those in strings."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves_of(part, (*place, key))
    elif type(value) is int or (isinstance(value, str) and re.fullmatch(r"-?\d+", value)):
        yield place


def set_leaf(document: Any, place: Place, number: int) -> Any:
    """Return a copy of a document with `number` at `place`, as a string if there was one."""
    if not place:
        return number
    copy = json.loads(json.dumps(document))
    *parents, last = place
    inner = copy
    for key in parents:
        inner = inner[key]
    inner[last] = str(number) if isinstance(inner[last], str) else number
    return copy


def with_extremes(kind: str, value: bytes) -> Iterator[tuple[Place, int, bytes]]:
    """Yield a value with each extreme in each integer field: the place, the number and the bytes."""
    if kind in MESSAGES:
        for place in fields_of(decoded(kind, value).DESCRIPTOR):
            for number in EXTREMES:
                message = decoded(kind, value)
                set_field(message, place, number)
                yield place, number, encoded(kind, message)
        return
    document = json.loads(value)
    for place in leaves_of(document):
        for number in EXTREMES:
            yield place, number, json.dumps(set_leaf(document, place, number)).encode()


MESSAGES: Final = ("ManagedLedgerInfo", "ManagedCursorInfo", "LedgerMetadata", "SchemaLocator")


def decoded(kind: str, value: bytes) -> Message:
    """Return the message in a value."""
    match kind:
        case "ManagedLedgerInfo":
            return decode_managed_ledger(value)
        case "ManagedCursorInfo":
            return decode_cursor(value)
        case "LedgerMetadata":
            return decode_ledger_metadata(value).metadata
        case _:
            return SchemaLocator.FromString(value)


def encoded(kind: str, message: Any) -> bytes:
    """Return the value of a message, which may lack required fields."""
    body: bytes = message.SerializePartialToString()
    if kind != "LedgerMetadata":
        return body
    return b"BookieMetadataFormatVersion\t3\n" + write_varint(len(body)) + body


class Store:
    """A `dir:` store with the values of an early release, in which one value is replaced at a time."""

    def __init__(self, root: Path) -> None:
        self.root, self.env = root, environment(root / "state")
        self.values = {
            stored["path"]: b64decode(stored["value"])
            for stored in map(json.loads, (FILES / "before.ndjson").read_text().splitlines())
        }
        self.values |= MORE
        for path, value in self.values.items():
            self.put(path, value)
        shutil.copy(FILES / "frames", root / "frames")
        shutil.copy(FILES / "frames.idx", root / "frames.idx")

    def put(self, path: str, value: bytes) -> None:
        """Store a value."""
        folder = self.root / f"store{path}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".value").write_bytes(value)

    def run(self, *words: str) -> None:
        """Run a command. Raises AssertionError if it ends with an unforeseen error."""
        with must_end(120):
            done = pulsar_meta_here(*words, env=self.env, folder=self.root)
        messages = done.stderr.decode()
        assert done.returncode in range(8), (words, done.returncode, messages[-2000:], self.report())
        assert "Traceback" not in messages, (words, messages[-2000:])

    def report(self) -> str:
        """Return the end of the report of an unforeseen error."""
        files = sorted((self.root / "state" / "pulsar-meta").glob("unforeseen-*"))
        return files[-1].read_text()[-3000:] if files else ""


TOPIC: Final = "/managed-ledgers/public/default/persistent/orders"
CURSOR: Final = f"{TOPIC}/batch-idx"
HOLES: Final = "/managed-ledgers/public/default/persistent/marks/holes"
BROKER: Final = "/loadbalance/brokers/h:1"
PARTED: Final = "/admin/partitioned-topics/public/default/persistent/parted"
SCHEMA: Final = "/schemas/public/default/orders"
VERSION: Final = IndexEntry(version=0, position=PositionInfo(ledgerId=5, entryId=0), hash=b"x")
# Values that the snapshot doesn't have.
MORE: Final = {
    "/ledgers/00/0000/L0018": encoded(
        "LedgerMetadata",
        LedgerMetadataFormat(
            quorumSize=1, ensembleSize=1, length=100, lastEntryId=49, state=LedgerMetadataFormat.CLOSED,
            segment=[LedgerMetadataFormat.Segment(ensembleMember=["b:3181"], firstEntryId=0)],
            digestType=LedgerMetadataFormat.CRC32C, password=b"", ackQuorumSize=1, ctime=1795251408388,
            customMetadata=[LedgerMetadataFormat.cMetadataMapEntry(key="component", value=b"managed-ledger")],
        ),
    ),
    SCHEMA: SchemaLocator(info=VERSION, index=[VERSION]).SerializeToString(),
    BROKER: json.dumps({
        "webServiceUrl": "http://h:1", "pulsarServiceUrl": "pulsar://h:2", "brokerVersionString": "4.2.4",
        "startTimestamp": 1795251408388, "properties": {"a": "1"}, "protocols": {}, "advertisedListeners": {},
    }).encode(),
}  # fmt: skip
STORE: Final = ("--store", "dir:store")
FRAMES: Final = ("--entries", "frames:frames")
# Commands that read every value.
EVERYWHERE: Final = (
    ("decode", "{path}"),
    ("get", "{path}", "-o", "json"),
    ("get", "{path}"),
    ("check",),
    ("check", "-o", "json", *FRAMES),
    ("top",),
    ("tree", "/"),
    ("snapshot", "copy.ndjson", "--overwrite"),
    ("bundle", "--output", "bundle.zip"),
)
OF_TOPIC: Final = (
    ("properties", "orders"),
    ("show-cursor", "orders"),
    ("show-cursor", "orders", "batch-idx", "-o", "json"),
    ("show-cursor", "marks", "holes"),
    ("seek", "orders", "--time", "2026-08-20", *FRAMES),
    ("seek", "orders", "--index", "7", *FRAMES),
    ("check-index", "orders", *FRAMES),
    ("repair", "count", "orders", "--dry-run"),
    ("convert-cursor", "orders", "batch-idx", "--dry-run"),
    ("compress-cursors", "--compression", "zstd", "--threshold", "0", "--dry-run"),
    ("check", "--before-upgrade", "5.0.0-M1"),
)
OF_BROKER: Final = (("brokers",), ("brokers", "-o", "json"))
VALUES: Final = {
    TOPIC: OF_TOPIC,
    CURSOR: OF_TOPIC,
    HOLES: OF_TOPIC,
    "/ledgers/00/0000/L0018": OF_TOPIC,
    SCHEMA: (("schema", "orders"),),
    PARTED: (("properties", "parted"), ("show-cursor", "parted")),
    "/admin/policies/public/default": (),
    "/admin/local-policies/public/default": (),
    BROKER: OF_BROKER,
}


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Add a note to an error of the block."""
    try:
        yield
    except AssertionError as error:
        error.add_note(note)
        raise


@pytest.mark.parametrize("path", VALUES)
def test_an_extreme_integer_in_a_value_is_no_unforeseen_error(path: str, tmp_path: Path) -> None:
    store, rng = Store(tmp_path), Random(path)
    value = store.values[path]
    cases = list(with_extremes(kind_of(value, path=path), value))
    for place, number, changed in rng.sample(cases, min(COUNT, len(cases))):
        store.put(path, changed)
        for command in rng.sample(EVERYWHERE + VALUES[path], COMMANDS):
            with noted(f"{path}: {number} at {place}"):
                store.run(*(word.format(path=path) for word in command), *STORE)


# The record that made `check` end with 70.
def test_more_partitions_than_an_int_can_count_are_no_number(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(PARTED, b'{"partitions": 18446744073709551615}')
    done = pulsar_meta_here("check", "-o", "json", *STORE, env=store.env, folder=store.root)
    assert done.returncode == 1, done.stderr
    codes = {found["code"] for found in json.loads(done.stdout) if found.get("path") == PARTED}
    assert codes == {"record-undecodable"}


def test_an_extreme_integer_in_a_manifest_is_no_unforeseen_error(tmp_path: Path) -> None:
    store, rng = Store(tmp_path), Random(1)
    export = ("export", "orders", "--to", "out", "-o", "ndjson", *FRAMES, *STORE)
    store.run(*export)
    manifest = tmp_path / "out" / "_manifest.jsonl"
    lines = manifest.read_bytes().splitlines()
    assert len(lines) > 1
    cases = [(at, *case) for at, line in enumerate(lines) for case in with_extremes("Json", line)]
    for at, place, number, changed in rng.sample(cases, min(4 * COUNT, len(cases))):
        manifest.write_bytes(b"\n".join([*lines[:at], changed, *lines[at + 1 :], b""]))
        with noted(f"line {at + 1}: {number} at {place}"):
            store.run(*export)
