"""Commands that use every feature of the program on one capture of a real cluster.

Paths are relative to the directory in which the commands run. It contains the capture under its name.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

# Let commands write to a copy of the store, in which the capture's brokers are still registered.
ALLOW = ("--allow-loaded", "--allow-unreadable", "--allow-migration")
FORMS = ("plain", "table", "json", "ndjson", "csv")
TEXTS = ("table", "json", "ndjson")
# Topics with special features. For others, only captures in WIDE run commands per topic.
SPECIAL = (
    *("orders", "marks", "with-properties", "terminated", "late-index", "compacted", "txn", "encrypted"),
    *("trimmed", "we ird:näme", "chunked", "last-words"),
)
# Masks of values that differ in each run: the seconds of --estimate (in lines and CSV the third column from
# the right), the current time of --expired, and the time at which an undo file was created.
SECONDS = (rb'("seconds": )[0-9.e-]+', rb"(?m)([\t,])[0-9.e-]+(?=[\t,]\d+[\t,]\d+\r?$)")
NOW = (rb'("time": )\d+',)
CREATED = (rb'("created": ?)("[^"]*"|\d+)', rb'("sum": ?)"[0-9a-f]{32}"')


@dataclass(frozen=True)
class Command:
    """One run: its words, its stdin (or the file with it), and the files that it creates.

    `keep` is a file to which stdout is saved for later commands. `masks` are patterns of text that is not
    compared, except for the first group.
    """

    words: tuple[str, ...]
    stdin: bytes = b""
    stdin_file: str | None = None
    keep: str | None = None
    made: tuple[str, ...] = ()
    masks: tuple[bytes, ...] = ()
    columns: int = 140

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.words[0] if self.words else "(nothing)"


@dataclass(frozen=True)
class Topic:
    """A topic of a capture, with its subscriptions and ledgers."""

    name: str
    cursors: tuple[str, ...]
    ledgers: tuple[int, ...]


def in_forms(words: Sequence[str], forms: Sequence[str], **more: Any) -> Iterator[Command]:
    """Yield a command in each format; tables are printed in two widths."""
    for form in forms:
        output = () if form == "plain" else ("-o", form)
        yield Command((*words, *output), **more)
        if form == "table":
            yield Command((*words, *output), columns=80, **more)


def topics_in(decoded: bytes) -> list[Topic]:
    """Return the topics of a capture from the output of `decode --store -o ndjson`."""
    cursors: dict[str, list[str]] = {}
    ledgers: dict[str, list[int]] = {}
    for line in decoded.splitlines():
        document = json.loads(line)
        parts = (document.get("path") or "").strip("/").split("/")
        if parts[0] != "managed-ledgers" or parts[3:4] != ["persistent"] or not document["kind"]:
            continue
        name = f"{parts[1]}/{parts[2]}/{unquote_plus(parts[4])}" if len(parts) > 4 else ""
        if len(parts) == 5 and document["value"]:
            infos = document["value"].get("ledgerInfo", [])
            ledgers[name] = [int(info["ledgerId"]) for info in infos]
        elif len(parts) == 6:
            cursors.setdefault(name, []).append(unquote_plus(parts[5]))
    return [Topic(name, tuple(cursors.get(name, ())), tuple(ids)) for name, ids in ledgers.items()]


def help_pages(names: Sequence[str]) -> Iterator[Command]:
    """Yield every help page in three widths, and usage errors."""
    for columns in (60, 80, 140):
        for name in names:
            yield Command((name, "--help"), columns=columns)
        yield Command(("--help",), columns=columns)
    yield from (Command(()), Command(("--version",)), Command(("nonsense",)), Command(("-x",)))
    for name in names:
        yield Command((name,), stdin=b"")
        yield Command((name, "--no-such-option"))
        yield Command((name, "--no-such-option", "-o", "json"))
        yield Command((name, "--profile", "nobody", "-o", "nonsense"))


def metadata_commands(name: str, rocksdb: bool, topics: Sequence[Topic], wide: bool) -> Iterator[Command]:
    """Yield the commands for the capture `name`, on its special topics. If it has none or `wide`, on all."""
    special = [topic for topic in topics if topic.name.rpartition("/")[2] in SPECIAL]
    topics = topics if wide or not special else special
    snapshot = ("--store", f"snapshot:{name}/metadata.ndjson")
    disk = ("--entries", f"bookie-disk:{name}")
    yield from value_commands(name, snapshot, topics)
    yield from place_commands(snapshot, topics, FORMS)
    if rocksdb:
        yield from place_commands(("--store", f"rocksdb:{name}/rocksdb"), topics[:6], TEXTS)
    yield from disk_commands(disk)
    yield from entry_commands((*snapshot, *disk), disk, topics)
    yield from seek_commands((*snapshot, *disk), topics)
    yield from frame_commands((*snapshot, *disk), topics)
    yield from plan_commands(snapshot)
    yield from write_commands("dir:copy", disk, topics)
    if rocksdb:
        yield from write_commands("rocksdb:database", disk, topics)
    yield from wrong_commands(name, snapshot, disk)


def value_commands(name: str, snapshot: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield `decode` and `encode`."""
    yield from in_forms(("decode", *snapshot), FORMS)
    yield from in_forms(("decode", f"{name}/metadata.ndjson"), ("plain", "json"))
    yield Command(("decode", *snapshot, "--show-passwords", "-o", "json"), keep="decoded.json")
    yield Command(("decode", *snapshot, "--max-size", "100", "-o", "ndjson"))
    yield Command(("encode", "decoded.json"), keep="encoded.ndjson")
    yield Command(("decode", "encoded.ndjson", "-o", "ndjson"))
    yield Command(("encode", "decoded.json", "--compression", "zstd", "--threshold", "100"))
    yield Command(("encode",), stdin_file="decoded.json")
    yield Command(("encode", "decoded.json", "-o", "ndjson", "--output", "out.ndjson"), made=("out.ndjson",))
    for topic in topics[:8]:
        yield Command(("get", "topic", topic.name, *snapshot, "-o", "raw"), keep="value.bin")
        for kind in ("ManagedLedgerInfo", "ManagedCursorInfo", "Bytes", "Json", "LedgerMetadata", "Frame"):
            yield from in_forms(("decode", "value.bin", "--type", kind), ("plain", "json"))
        yield Command(("decode", "value.bin"))
        yield Command(("decode", "-", "--type", "ManagedLedgerInfo", "-o", "json"), stdin_file="value.bin")
        yield Command(("decode", "value.bin", "--type", "ManagedLedgerInfo", "-o", "raw"))
    yield Command(("decode", "-", "--hex", "--lines", "-o", "json"), stdin=b"0801\n4778\nzz\n")
    yield Command(("decode", "-", "--base64", "-o", "json"), stdin=b"CAE=\n")
    for kind in ("PositionInfo", "ManagedCursorInfo", "Cookie", "SchemaLocator", "BookieEntry", "Command"):
        yield from in_forms(("decode", "-", "--type", kind), ("plain", "json"), stdin=b"\x08\x01\x10\x02garb")


def place_commands(
    store: tuple[str, ...], topics: Sequence[Topic], forms: Sequence[str]
) -> Iterator[Command]:
    """Yield the commands that show the values of a store."""
    for where in ((), ("/managed-ledgers/public/default/persistent",), ("namespace", "public/default")):
        yield from in_forms(("ls", *where, *store), forms)
        yield from in_forms(("ls", "-l", *where, *store), forms)
        yield from in_forms(("tree", *where, *store), forms)
        yield from in_forms(("top", *where, *store), [form for form in forms if form != "csv"])
    yield from in_forms(("tree", "-d", "2", *store), ("plain", "json"))
    yield from in_forms(("top", "--raw-size", "-n", "5", *store), TEXTS)
    yield Command(("top", *store, "-o", "html"))
    yield from in_forms(("brokers", *store), forms)
    yield from in_forms(("brokers", "--match", "rack=A", *store), forms)
    for version in ("2.8.2", "3.0.7", "4.0.7", "4.1.0", "4.2.4", "5.0.0"):
        yield from in_forms(("check-readable", "--for-version", version, *store), forms)
    for topic in topics:
        name = topic.name
        yield from in_forms(("properties", name, *store), forms)
        yield from in_forms(("get", "topic", name, *store), ("plain", "table", "json"))
        yield from in_forms(("ls", "topic", name, *store), ("plain",))
        for cursor in topic.cursors[:3]:
            yield from in_forms(("get", "cursor", name, cursor, *store), ("plain", "table", "json", "raw"))
        for ledger in topic.ledgers[:1]:
            yield from in_forms(("get", "ledger", str(ledger), *store), ("plain", "table", "json", "raw"))
    yield from in_forms(("get", "topic", "parted", *store), ("plain", "json"))
    yield from in_forms(("ls", "topic", "parted", *store), ("plain", "json"))
    yield from in_forms(("properties", "parted", *store), ("plain", "json"))
    yield from in_forms(("get", "/admin/policies/public/default", *store), ("plain", "json", "raw"))


def disk_commands(disk: tuple[str, ...]) -> Iterator[Command]:
    """Yield the commands that show and check entries without metadata."""
    yield from in_forms(("dump-entries", *disk), FORMS)
    yield from in_forms(("verify-entries", *disk), FORMS)
    yield from in_forms(("dump-entries", "--deep", *disk), ("plain", "ndjson"))
    yield from in_forms(("ledgers", *disk), FORMS)
    yield from in_forms(("ledgers", "--by-log", *disk), FORMS)


def entry_commands(
    both: tuple[str, ...], disk: tuple[str, ...], topics: Sequence[Topic]
) -> Iterator[Command]:
    """Yield the commands that show and check entries."""
    yield Command(("dump-entries", *both, "--deep", "--payload", "hash", "-o", "ndjson"))
    yield from in_forms(("verify-entries", *both), FORMS)
    yield from in_forms(("check-index", "--all", *both), FORMS)
    yield from in_forms(("check-index", "public/default", "--faulty", *both), TEXTS)
    yield from in_forms(("show-cursor", "public/default", *both), FORMS)
    for by in ("topic", "subscription", "log"):
        yield from in_forms(("disk", "--by", by, *both), FORMS)
    ledgers = [str(topic.ledgers[0]) for topic in topics if topic.ledgers]
    yield from in_forms(("whois", *ledgers, *both), FORMS)
    for topic in [*topics, Topic("parted", (), ())]:
        yield from in_forms(("dump-entries", topic.name, "-n", "30", *both), ("plain", "table", "csv"))
        yield from in_forms(("dump-entries", topic.name, "--deep", "--from", "-3", *both), ("plain", "json"))
        yield from in_forms(("verify-entries", topic.name, *both), ("plain", "json"))
        yield from in_forms(("check-index", topic.name, *both), ("plain", "json"))
        for ledger in topic.ledgers[:1]:
            dump = ("dump-entries", str(ledger), *disk)
            yield from in_forms((*dump, "--payload", "hex", "-n", "3"), ("plain", "json"))
            yield Command((*dump, "--from", "1", "--to", "2", "-o", "csv"))
            yield from in_forms(("plan-batches", topic.name, "--keys", "region", *both), ("plain", "json"))
    for payload in ("text", "base64", "hash"):
        yield from in_forms(("dump-entries", "orders", "--payload", payload, "-n", "5", *both), FORMS)
    yield from in_forms(("dump-entries", "txn", "--transactions", *both), FORMS)
    for level in ("entry", "message", "any"):
        words = ("dump-entries", "with-properties", "--where", "region=eu or k", "--level", level)
        yield from in_forms((*words, *both), ("plain", "json"))
    yield from in_forms(("plan-batches", "orders", "--keys", "k", "--rebatch", *both), ("plain", "json"))
    yield Command(("plan-batches", "orders", "--keys", "k", "--as-proposed", *both, "-o", "json"))


def seek_commands(both: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield `seek`."""
    for topic in topics:
        indexes = [word for index in (0, 1, 25, 10**6) for word in ("--index", str(index))]
        yield Command(("seek", topic.name, *indexes, "--readable", *both, "-o", "json"))
        yield from in_forms(("seek", topic.name, *indexes, *both), ("plain", "json"))
        yield Command(("seek", topic.name, "--time", "2026-11-20T12:00:00Z", "--time", "0", *both))
        for cursor in topic.cursors[:1]:
            yield Command(("seek", topic.name, "--index", "20", "--cursor", cursor, *both, "-o", "json"))
    seek = ("seek", "--namespace", "public/default", *both)
    yield from in_forms((*seek, "--index", "10"), FORMS)
    yield from in_forms((*seek, "--time", "0", "--exhaustive", "--clock", "publish"), FORMS)
    yield Command((*seek, "--index", "3", "-o", "parquet", "--output", "seek.parquet"))
    yield Command((*seek, "--expired", "7d", "-o", "json"), masks=NOW)
    yield Command((*seek, "--index", "3", "--format", "{topic} {ledger_id}:{entry_id} {status}"))
    yield Command(("seek", "parted", "--index", "5", *both, "-o", "json"))
    yield Command(
        ("seek", "--index-file", "-", *both, "-o", "ndjson"), stdin=b"orders\t3\nplain\t0\nnone\t1\n"
    )


def frame_commands(both: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield the commands that write and read frames."""
    made = ("frames", "frames.idx")
    yield Command(("dump-entries", "orders", *both, "-o", "raw", "--output", "frames"), made=made)
    yield Command(("dump-entries", "plain", *both, "-o", "raw"))
    frames = ("--entries", "frames:frames")
    yield from in_forms(("dump-entries", *frames, "--deep"), FORMS)
    yield from in_forms(("verify-entries", *frames), FORMS)
    yield Command(("strip-metadata", "frames", "--output", "bare"), made=("bare", "bare.idx"))
    yield Command(("strip-metadata", "-"), stdin_file="frames")
    words = ("attach-metadata", "bare", "--start-index", "1000", "--timestamp")
    yield Command((*words, "publish-time", "--output", "again"), made=("again", "again.idx"))
    yield Command((*words, "1700000000000", "--interceptors", "index"))
    yield Command((*words, "1", "--replace"))
    messages = b'{"payload": "a", "properties": {"region": "eu"}}\n{"payload": "b", "key": "k"}\n' * 3
    pack = ("pack-entries", "--keys", "region", "--publish-time", "1700000000000")
    for codec in ("none", "lz4", "zlib", "zstd", "snappy"):
        yield Command((*pack, "--compression", codec), stdin=messages, keep="packed")
        yield Command(("dump-entries", "--entries", "frames:packed", "--deep", "-o", "ndjson"))
    yield Command((*pack, "--strategy", "by-properties", "--no-checksum"), stdin=messages)
    yield Command((*pack, "--batches-of-one"), stdin=b'{"payload": 1}\n')


def plan_commands(snapshot: tuple[str, ...]) -> Iterator[Command]:
    """Yield estimates and dry runs of compression."""
    for command in ("compress-cursors", "compress-ledgers"):
        yield from in_forms((command, "--estimate", *snapshot), FORMS, masks=SECONDS)
        yield from in_forms((command, "--estimate", "--by", "namespace", *snapshot), FORMS, masks=SECONDS)
        for codec in ("none", "lz4", "zlib", "zstd", "snappy"):
            words = (command, "--compression", codec, "--threshold", "64", "--dry-run", *snapshot)
            yield from in_forms(words, FORMS)
            yield from in_forms((*words, *ALLOW, "--for-version", "4.0.7"), ("plain", "json"))
        yield from in_forms((command, "--compression", "zstd", "--dry-run", *snapshot), FORMS)
        yield Command((command, "--topic", "*/orders", "--dry-run", "-v", *snapshot, "-o", "ndjson"))
        yield Command((command, "--compression", "zstd", "--yes", *snapshot))


def write_commands(store: str, disk: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield commands that write to a copy, each with its undo, and the contents of the copy after each."""
    copy = ("--store", store)
    path = "/admin/policies/public/default"
    yield Command(("get", path, *copy, "-o", "json"), keep="policies.json")
    rewrites: list[tuple[str, ...]] = [
        ("compress-cursors", "--compression", "zstd", "--threshold", "64", "--yes"),
        ("compress-cursors", "--compression", "none", "--yes", "--min-gain", "5%"),
        ("compress-ledgers", "--compression", "lz4", "--threshold", "0", "--yes", "-o", "json"),
        ("build-index", "--all", "--yes", *disk),
        ("build-index", "public/default", "--yes", "-o", "ndjson", "--index-property", "mine", *disk),
        *property_commands(topics),
        ("put", path, "--file", "policies.json"),
        ("rm", path, "-o", "json"),
        ("put", "/admin/made/by/us", "--create", "--raw", "--file", "policies.json"),
    ]
    for number, words in enumerate(rewrites):
        yield from with_undo(words, copy, f"undo-{store.partition(':')[0]}-{number}.ndjson")
    yield from plan_file_commands(copy, f"undo-{store[:3]}-plan.ndjson")


def property_commands(topics: Sequence[Topic]) -> list[tuple[str, ...]]:
    """Return commands that write properties of the first topic that has a ledger, if there is one."""
    for topic in topics:
        for ledger in topic.ledgers[:1]:
            ids = (topic.name, str(ledger))
            return [("set-property", *ids, "a=b", "c=d"), ("unset-property", *ids, "a")]
    return []


def with_undo(words: tuple[str, ...], copy: tuple[str, ...], undo: str) -> Iterator[Command]:
    """Yield a command's dry runs, the command twice, and its undo with the file `undo`."""
    dry = [word for word in words if word != "--yes"]
    yield Command((*dry, "--dry-run", *ALLOW, *copy), keep="plan.ndjson")
    yield from in_forms((*dry, "--dry-run", *ALLOW, *copy), ("table", "csv"))
    yield Command((*dry, "--dry-run", *copy))
    yield Command((*words, *ALLOW, *copy, "--undo-file", undo), made=(undo,), masks=CREATED)
    yield Command((*words, *ALLOW, *copy, "--undo-file", undo), masks=CREATED)
    yield Command(("decode", *copy, "-o", "ndjson"))
    yield from in_forms(("undo", undo, "--dry-run", *ALLOW, *copy), ("plain", "table", "json"))
    words = ("undo", undo, "--yes", *ALLOW, *copy, "--undo-file", f"re{undo}")
    yield Command(words, made=(f"re{undo}",), masks=CREATED)
    yield Command(("undo", undo, "--yes", "--resume", *ALLOW, *copy), masks=CREATED)
    yield Command(("decode", *copy, "-o", "ndjson"))


def plan_file_commands(copy: tuple[str, ...], undo: str) -> Iterator[Command]:
    """Yield a command that applies a plan file, and a command without --undo-file."""
    words = ("compress-cursors", "--compression", "zlib", "--threshold", "10", "--dry-run", *ALLOW, *copy)
    yield Command(words, keep="plan.ndjson")
    words = ("compress-cursors", "--plan", "plan.ndjson", "--yes", *ALLOW, *copy)
    yield Command((*words, "-o", "json", "--undo-file", undo), made=(undo,), masks=CREATED)
    words = ("compress-cursors", "--compression", "none", "--yes", *ALLOW, *copy)
    yield Command((*words, "--topic", "*/marks"))
    yield Command(("tree", *copy))


# Wrong names, options, files and addresses. STORE, DISK and NAME are replaced by those of the capture.
WRONG = """
decode nothing.bin
decode NAME/metadata.ndjson -o raw
decode STORE /none
encode nothing.json
dump-entries no-topic STORE DISK
dump-entries 99999 STORE DISK
dump-entries orders --from x STORE DISK
dump-entries orders --where 'a=(' STORE DISK
dump-entries --entries bookie-disk:nowhere
dump-entries --entries nonsense
dump-entries --entries bookie-disk:NAME?index=scan -n 40
verify-entries no-topic STORE DISK
check-index no-topic STORE DISK
check-index STORE DISK
seek no-topic --index 1 STORE DISK
seek orders STORE DISK
seek orders --index x STORE DISK
seek orders --time yesterday STORE DISK
seek orders --index 1 --after x STORE DISK
plan-batches orders --keys '' STORE DISK
strip-metadata nothing
strip-metadata NAME/metadata.ndjson
attach-metadata frames
ls /none STORE
ls --store snapshot:none
ls --store rocksdb:none
ls --store dir:none
ls --store nonsense:x
ls --store zk://127.0.0.1:1?timeout=0.2
ls
get /none STORE
get topic none STORE
get cursor orders none STORE
get ledger 999999 STORE
get ledger x STORE
get nonsense STORE
get broker none STORE
properties none STORE
check-readable --for-version x STORE
brokers --match x STORE
top /none STORE
tree /none STORE
set-property orders 1 a=b STORE
set-property orders x a STORE
put /x --create STORE
rm /x STORE
undo nothing STORE
undo NAME/metadata.ndjson STORE
compress-cursors --plan nothing STORE
compress-cursors --plan NAME/metadata.ndjson STORE
compress-cursors --compression gzip STORE
compress-cursors --min-gain x --dry-run STORE
build-index STORE DISK
lookup orders --service-url pulsar://127.0.0.1:1 --timeout 1
lookup orders --service-url nonsense
lookup-properties nothing
"""


def wrong_commands(name: str, snapshot: tuple[str, ...], disk: tuple[str, ...]) -> Iterator[Command]:
    """Yield commands with wrong arguments or wrong input."""
    options = {"STORE": snapshot, "DISK": disk}
    for line in WRONG.strip().splitlines():
        words = [
            part for word in shlex.split(line) for part in options.get(word, (word.replace("NAME", name),))
        ]
        yield from in_forms(words, ("plain", "json"))
    conf = b"loadManagerClassName=x\nlookup.rack=A\nlookupPropertyPrefix=lookup.\na=b\n"
    yield from in_forms(("lookup-properties", "-"), FORMS, stdin=conf)
    yield Command(("pack-entries",), stdin=b"nonsense\n")
    yield Command(("encode",), stdin=b"[1]")
    yield Command(("encode",), stdin=b'{"kind": "Json", "envelope": null, "value": {"a": 1}}')
