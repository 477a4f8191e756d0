"""Hostile content in files causes one-line errors with documented exit codes, in bounded time and memory."""

from __future__ import annotations

import json
import shutil
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.program import environment, pulsar_meta_here
from tests.servers.limits import must_end

FILES = Path(__file__).parents[2] / "fixtures" / "release-0.1"
CODES = range(8)
# The processor time in seconds of a run, and the KiB by which the process may grow, its output included.
SECONDS, MEMORY = 30, 256 << 10
DEEP = 100_000
RESET_PEAK = Path("/proc/self/clear_refs")

# Values that are no numbers, and numbers that are too large or too long for JSON readers.
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


@contextmanager
def memory() -> Iterator[list[int]]:
    """Yield a list that gets the KiB by which the block raised the process's memory at its peak.

    The peak so far, which other tests may have raised, is reset before. Only Linux can do this.
    """
    grown: list[int] = []
    if not RESET_PEAK.exists():
        yield grown
        return
    RESET_PEAK.write_text("5")
    before = peak()
    yield grown
    grown.append(peak() - before)


def peak() -> int:
    """Return the peak of the process's memory in KiB."""
    status = (RESET_PEAK.parent / "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


class Place:
    """A directory with a store and each kind of file that is read, in which the program runs."""

    def __init__(self, root: Path) -> None:
        self.root = root / "work"
        shutil.copytree(FILES, self.root)
        self.env = environment(root / "state")
        for line in (FILES / "before.ndjson").read_text().splitlines():
            stored = json.loads(line)
            self.put(stored["path"], b64decode(stored["value"]))

    def put(self, path: str, value: bytes) -> None:
        folder = self.root / f"store{path}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".value").write_bytes(value)

    def check(self, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> None:
        """Run a command; raise AssertionError unless it ends as every command must."""
        begun = time.process_time()
        with must_end(300), memory() as used:
            done = pulsar_meta_here(*words, env=self.env | (env or {}), stdin=stdin, folder=self.root)
        messages = done.stderr.decode()
        assert done.returncode in CODES, (words, done.returncode, messages[-2000:])
        assert "Traceback" not in messages, (words, messages[-2000:])
        errors = [line for line in messages.splitlines() if line.startswith("pulsar-meta: ")]
        assert len(max(messages.splitlines(), key=len, default="")) < 3000, (words, messages[:3000])
        assert done.returncode in (0, 1, 3) or errors, (words, done.returncode, messages)
        assert time.process_time() - begun < SECONDS, words
        assert sum(used) < MEMORY, (words, used)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("hostile"))


Reader = Callable[[Place, bytes], None]
STORE, SNAPSHOT = ("--store", "dir:store"), ("--store", "snapshot:before.ndjson")


def _file(name: str, *words: str) -> Reader:
    """Return a function that runs a command on a file with the given content."""

    def read(place: Place, content: bytes) -> None:
        (place.root / name).write_bytes(content)
        place.check(*words)

    return read


def _value(path: str, *words: str) -> Reader:
    """Return a function that runs a command on a store with the given content at `path`."""

    def read(place: Place, content: bytes) -> None:
        place.put(path, content)
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

# Valid content for each reader, in which a test replaces one value by a hostile one.
VALID: dict[str, str] = {
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
VALID |= dict.fromkeys(SAME_AS, VALID["partitions"])
VALID |= dict.fromkeys(("broker match", "broker guard", "decode broker", "decode json"), VALID["broker"])


@pytest.mark.parametrize("reader", READERS)
def test_hostile_texts_are_refused(place: Place, reader: str) -> None:
    for text in TEXTS:
        READERS[reader](place, encoded(text))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in a document, including containers."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from leaves(part, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], text: str) -> str:
    """Return a document as JSON in which the value at `path` is replaced by the literal `text`."""
    mark = "@@here@@"
    if not path:
        return text
    copy = json.loads(json.dumps(document))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = mark
    return json.dumps(copy).replace(f'"{mark}"', text, 1)


def hostile_lines(valid: str, line: int, path: int, text: str) -> str:
    """Replace one value in one line of `valid` by `text`."""
    lines = valid.splitlines()
    at = line % len(lines)
    document = json.loads(lines[at])
    paths = list(leaves(document))
    lines[at] = replaced(document, paths[path % len(paths)], text)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("reader", VALID)
def test_a_hostile_value_at_each_place_is_refused(place: Place, reader: str) -> None:
    """Tests the places of the first and the last line, and every hostile number."""
    valid = VALID[reader]
    lines = valid.splitlines()
    for line in sorted({0, len(lines) - 1}):
        places = list(leaves(json.loads(lines[line])))
        for at in range(max(min(len(places), 40), len(NUMBERS))):
            text = NUMBERS[at % len(NUMBERS)] if at % 7 else "[" * 2000 + "]" * 2000
            READERS[reader](place, encoded(hostile_lines(valid, line, at, text)))


@pytest.mark.parametrize("reader", VALID)
@settings(
    max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
@given(line=st.integers(0, 50), at=st.integers(0, 500), text=st.sampled_from([*NUMBERS, *TEXTS]))
def test_a_hostile_value_anywhere_is_refused(
    place: Place, reader: str, line: int, at: int, text: str
) -> None:
    READERS[reader](place, encoded(hostile_lines(VALID[reader], line, at, text)))


CONF = (
    "serviceUrl=%s",
    "lookup.%s=1",
    "managedCursorInfoCompressionThresholdInBytes=%s",
    "authParams=%s",
    "%s",
)


@pytest.mark.parametrize("reader", ["client.conf", "broker.conf", "from conf"])
def test_hostile_settings_are_refused(place: Place, reader: str) -> None:
    for line in CONF:
        for text in (*NUMBERS, "\\", "\\u12", "\\uZZZZ", "=" * 5000, "%00", "pulsar://[", "a\x1b[2Jb"):
            READERS[reader](place, encoded(line % text if "%" in line else line))


@pytest.mark.parametrize("reader", ["snapshot scan", "snapshot read", "snapshot ls", "snapshot file"])
def test_a_snapshot_that_decompresses_to_much_is_refused(place: Place, reader: str) -> None:
    import zstandard

    value = b64encode(b"\0" * (16 << 20)).decode()
    line = json.dumps({"path": "/a", "version": 1, "value": value}).encode() + b"\n"
    READERS[reader](place, zstandard.compress(line))


@pytest.mark.parametrize("reader", ["partitions", "partitions get", "partitions seek"])
def test_a_million_partitions_are_bounded(place: Place, reader: str) -> None:
    READERS[reader](place, b'{"partitions": 1000000}')
