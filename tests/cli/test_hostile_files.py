"""Every file that is read, hostile: one line on stderr, a documented exit code, little time and memory."""

from __future__ import annotations

import json
import resource
import shutil
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.program import environment, pulsar_meta_here

FILES = Path(__file__).parents[2] / "fixtures" / "release-0.1"
CODES = range(8)
# Seconds, and KiB by which the process may grow in one run.
SECONDS, MEMORY = 30, 200 << 10
DEEP = 100_000

# Nesting, and numbers that are none, too large or too long, as JSON.
NUMBERS = (
    "100000000",
    *("1e999", "-1e999", "NaN", "Infinity", "-0", "1.5", "1e400", "0.1e-999"),
    *("9" * 5000, "-" + "9" * 5000, str(2**63), str(-(2**63) - 1), str(2**64), str(10**30)),
    *("true", "null", '""', '"x"', "[]", "{}", '"' + "9" * 5000 + '"', '"1e9"', '"\\ud800"', '"\\u0000"'),
)
TEXTS = (
    *("[" * DEEP, '{"a":' * DEEP, "[" * 500 + "]" * 500, '{"a":' * 300 + "1" + "}" * 300),
    *("", "\n", "\r\n", "{", "}", "[]", "{}", '"', "nan", "1", "\\", "\x00", "\ufeff{}", "\ud800", "[1,]"),
    *("9" * 5000, '{"a": 1, "a": 2}', "{" + '"a":1,' * 1000 + '"b":2}'),
)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class Place:
    """A directory with a store, and each kind of file that is read; the program run in it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "work"
        shutil.copytree(FILES, self.root)
        self.env = environment(root / "state")
        for line in (FILES / "before.ndjson").read_text().splitlines():
            held = json.loads(line)
            self.hold(held["path"], b64decode(held["value"]))

    def hold(self, path: str, value: bytes) -> None:
        folder = self.root / f"store{path}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".value").write_bytes(value)

    def check(self, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> None:
        """Run a command; AssertionError unless it ended as every command has to end."""
        begun = time.monotonic()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        done = pulsar_meta_here(*words, env=self.env | (env or {}), stdin=stdin, folder=self.root)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        talk = done.stderr.decode()
        assert done.returncode in CODES, (words, done.returncode, talk[-2000:])
        assert "Traceback" not in talk, (words, talk[-2000:])
        errors = [line for line in talk.splitlines() if line.startswith("pulsar-meta: ")]
        assert len(max(talk.splitlines(), key=len, default="")) < 3000, (words, talk[:3000])
        assert done.returncode in (0, 1, 3) or errors, (words, done.returncode, talk)
        assert time.monotonic() - begun < SECONDS, words
        assert grown < MEMORY, (words, grown)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("hostile"))


Reader = Callable[[Place, bytes], None]
STORE, SNAPSHOT = ("--store", "dir:store"), ("--store", "snapshot:before.ndjson")


def _file(name: str, *words: str) -> Reader:
    """Return what runs a command over a file with the given bytes."""

    def read(place: Place, content: bytes) -> None:
        (place.root / name).write_bytes(content)
        place.check(*words)

    return read


def _value(path: str, *words: str) -> Reader:
    """Return what runs a command over a store that has the given bytes at `path`."""

    def read(place: Place, content: bytes) -> None:
        place.hold(path, content)
        try:
            place.check(*words, *STORE)
        finally:
            (place.root / f"store{path}" / ".value").unlink()

    return read


def _stdin(*words: str) -> Reader:
    return lambda place, content: place.check(*words, stdin=content)


def _config(place: Place, content: bytes) -> None:
    (place.root / "hostile.toml").write_bytes(content)
    place.check("ls", env={"PULSAR_META_CONFIG": str(place.root / "hostile.toml")})


def _index(place: Place, content: bytes) -> None:
    shutil.copy(FILES / "frames", place.root / "hostile.frames")
    (place.root / "hostile.frames.idx").write_bytes(content)
    place.check("dump-entries", "--entries", "frames:hostile.frames")


COMPRESS = ("compress-cursors", "--compression", "zstd", "--threshold", "0")
PARTED = "/admin/partitioned-topics/public/default/persistent/hostile"
READERS: dict[str, Reader] = {
    "plan": _file("hostile", *COMPRESS[:1], "--plan", "hostile", "--yes", *STORE),
    "undo": _file("hostile", "undo", "hostile", "--yes", *STORE),
    "undo dry": _file("hostile", "undo", "hostile", "--dry-run", *STORE),
    "resume": _file("hostile", *COMPRESS, "--yes", "--resume", "--undo-file", "hostile", *STORE),
    "snapshot scan": _file("hostile", "decode", "--store", "snapshot:hostile"),
    "snapshot read": _file("hostile", "get", "/a", "--store", "snapshot:hostile"),
    "snapshot ls": _file("hostile", "ls", "--store", "snapshot:hostile"),
    "snapshot file": _file("hostile.ndjson", "decode", "hostile.ndjson"),
    "encode": _stdin("encode"),
    "put": _stdin("put", "/admin/x", "--create", "--dry-run", *STORE),
    "pack": _stdin("pack-entries"),
    "index file": _stdin("seek", "--index-file", "-", *SNAPSHOT, "--entries", "frames:frames"),
    "config": _config,
    "frames.idx": _index,
    "frames": _file("hostile", "dump-entries", "--entries", "frames:hostile"),
    "strip": _stdin("strip-metadata", "-"),
    "client.conf": _file("hostile", "lookup", "t", "--client-conf", "hostile", "--timeout", "0.1"),
    "broker.conf": _file("hostile", "lookup-properties", "hostile"),
    "from conf": _file("hostile", "compress-cursors", "--from-conf", "hostile", "--dry-run", *STORE),
    "decode json": _stdin("decode", "-", "--type", "Json"),
    "decode broker": _stdin("decode", "-", "--type", "BrokerLookupData"),
    "partitions": _value(PARTED, "properties", "hostile"),
    "partitions get": _value(PARTED, "get", "topic", "hostile"),
    "partitions index": _value(PARTED, "check-index", "hostile", "--entries", "frames:frames"),
    "partitions all": _value(PARTED, "check-index", "public/default", "--entries", "frames:frames"),
    "partitions build": _value(PARTED, "build-index", "hostile", "--dry-run", "--entries", "frames:frames"),
    "partitions seek": _value(PARTED, "seek", "hostile", "--index", "1", "--entries", "frames:frames"),
    "broker": _value("/loadbalance/brokers/h:1", "brokers"),
    "broker match": _value("/loadbalance/brokers/h:1", "brokers", "--match", "a=b"),
    "broker guard": _value("/loadbalance/brokers/h:1", *COMPRESS, "--dry-run"),
    "owner guard": _value("/namespace/public/default/0x00000000_0xffffffff", *COMPRESS, "--dry-run"),
    "migration": _value("/pulsar/migration-coordinator/migration", *COMPRESS, "--dry-run"),
    "policies": _value("/admin/local-policies/public/default", *COMPRESS, "--dry-run"),
    "ledger": _value("/ledgers/00/0000/L0001", "get", "ledger", "1"),
    "topic": _value("/managed-ledgers/public/default/persistent/hostile", "get", "topic", "hostile"),
    "topics": _value("/managed-ledgers/public/default/persistent/hostile", "top"),
    "instance": _value("/ledgers/INSTANCEID", *COMPRESS, "--dry-run"),
}

# What a reader expects, so that a hostile value stands where it is looked at.
HEADS: dict[str, str] = {
    "plan": (FILES / "plan.ndjson").read_text(),
    "undo": (FILES / "undo-compress.ndjson").read_text(),
    "undo dry": (FILES / "undo-compress.ndjson").read_text(),
    "resume": (FILES / "undo-half.ndjson").read_text(),
    "snapshot scan": (FILES / "before.ndjson").read_text(),
    "snapshot read": (FILES / "before.ndjson").read_text(),
    "encode": json.dumps(json.loads((FILES / "documents.json").read_text())[4]),
    "put": json.dumps(json.loads((FILES / "documents.json").read_text())[4]),
    "pack": '{"payload": "x", "properties": {"a": "b"}, "key": "k", "event_time": 1, "sequence_id": 2}',
    "index file": '{"topic": "orders", "index": 1}\n{"topic": "orders", "time": 2}',
    "frames.idx": (FILES / "frames.idx").read_text(),
    "partitions": '{"partitions": 3, "properties": {}}',
    "broker": '{"webServiceUrl": "http://h:1", "pulsarServiceUrl": "pulsar://h:2",'
    ' "brokerVersionString": "4.2.4", "startTimestamp": 1, "properties": {"a": "b"},'
    ' "protocols": {}, "advertisedListeners": {}}',
    "owner guard": '{"nativeUrl": "pulsar://h:1", "httpUrl": "http://h:2", "disabled": false}',
    "policies": '{"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}',
    "migration": '{"phase": "COMPLETED", "targetUrl": "oxia://h:1"}',
}
SAME_AS = ("partitions get", "partitions index", "partitions all", "partitions build", "partitions seek")
HEADS |= dict.fromkeys(SAME_AS, HEADS["partitions"])
HEADS |= dict.fromkeys(("broker match", "broker guard", "decode broker", "decode json"), HEADS["broker"])


@pytest.mark.parametrize("reader", READERS)
def test_texts_that_are_nothing(place: Place, reader: str) -> None:
    for text in TEXTS:
        READERS[reader](place, encoded(text))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of everything in a document, containers too."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from leaves(part, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], text: str) -> str:
    """Return a document as JSON with `text` as it stands at `path`."""
    mark = "@@here@@"
    if not path:
        return text
    copy = json.loads(json.dumps(document))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = mark
    return json.dumps(copy).replace(f'"{mark}"', text, 1)


def hostile_lines(head: str, line: int, path: int, text: str) -> str:
    """Return `head` with one value of one of its lines replaced by `text`."""
    lines = head.splitlines()
    at = line % len(lines)
    document = json.loads(lines[at])
    paths = list(leaves(document))
    lines[at] = replaced(document, paths[path % len(paths)], text)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("reader", HEADS)
def test_each_value_hostile(place: Place, reader: str) -> None:
    """Places of the first and the last line, and every hostile number."""
    head = HEADS[reader]
    lines = head.splitlines()
    for line in sorted({0, len(lines) - 1}):
        places = list(leaves(json.loads(lines[line])))
        for at in range(max(min(len(places), 40), len(NUMBERS))):
            text = NUMBERS[at % len(NUMBERS)] if at % 7 else "[" * 2000 + "]" * 2000
            READERS[reader](place, encoded(hostile_lines(head, line, at, text)))


@pytest.mark.parametrize("reader", HEADS)
@settings(
    max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
@given(line=st.integers(0, 50), at=st.integers(0, 500), text=st.sampled_from([*NUMBERS, *TEXTS]))
def test_any_value_hostile(place: Place, reader: str, line: int, at: int, text: str) -> None:
    READERS[reader](place, encoded(hostile_lines(HEADS[reader], line, at, text)))


CONF = (
    "serviceUrl=%s",
    "lookup.%s=1",
    "managedCursorInfoCompressionThresholdInBytes=%s",
    "authParams=%s",
    "%s",
)


@pytest.mark.parametrize("reader", ["client.conf", "broker.conf", "from conf"])
def test_hostile_settings(place: Place, reader: str) -> None:
    for line in CONF:
        for text in (*NUMBERS, "\\", "\\u12", "\\uZZZZ", "=" * 5000, "%00", "pulsar://[", "a\x1b[2Jb"):
            READERS[reader](place, encoded(line % text if "%" in line else line))


@pytest.mark.parametrize("reader", ["snapshot scan", "snapshot read", "snapshot ls", "snapshot file"])
def test_a_snapshot_that_unpacks_to_much(place: Place, reader: str) -> None:
    import zstandard

    value = b64encode(b"\0" * (16 << 20)).decode()
    line = json.dumps({"path": "/a", "version": 1, "value": value}).encode() + b"\n"
    READERS[reader](place, zstandard.compress(line))


@pytest.mark.parametrize("reader", ["partitions", "partitions get", "partitions seek"])
def test_a_million_partitions(place: Place, reader: str) -> None:
    READERS[reader](place, b'{"partitions": 1000000}')
