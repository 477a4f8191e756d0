"""Commands that use everything the program can do with one capture of a real cluster.

Paths are relative to the directory that they are run in, which holds the capture under its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

# Options that let a rewriting command work on a copy: the capture's brokers are still registered in it.
BOLD = ("--allow-loaded", "--allow-unreadable", "--allow-migration")
FORMS = ("plain", "table", "json", "ndjson", "csv")
TEXTS = ("table", "json", "ndjson")
# Topics that no others are like.
TELLING = (
    *("orders", "marks", "with-properties", "terminated", "late-index", "compacted", "txn", "encrypted"),
    *("trimmed", "we ird:näme", "chunked", "last-words"),
)
# What differs from run to run: the seconds of --estimate, when an undo file was made, and by when --expired.
# Lines and CSV have the seconds third from last, before two counts.
SECONDS = (rb'("seconds": )[0-9.e-]+', rb"(?m)([\t,])[0-9.e-]+(?=[\t,]\d+[\t,]\d+\r?$)")
NOW = (rb'("time": )\d+',)
CREATED = (rb'("created": ?)("[^"]*"|\d+)',)


@dataclass(frozen=True)
class Command:
    """One run: its words, what it reads from stdin, and the files that it makes.

    `keep` is a file that takes stdout for later commands. `masks` are patterns of which only the first
    group is compared.
    """

    words: tuple[str, ...]
    stdin: bytes = b""
    stdin_file: str | None = None
    keep: str | None = None
    made: tuple[str, ...] = ()
    masks: tuple[bytes, ...] = ()
    columns: int = 140


@dataclass(frozen=True)
class Topic:
    """A topic of a capture: its name, subscriptions, and ledgers."""

    name: str
    cursors: tuple[str, ...]
    ledgers: tuple[int, ...]


def in_forms(words: Sequence[str], forms: Sequence[str], **more: Any) -> Iterator[Command]:
    """Yield the command in each form, its table at two widths."""
    for form in forms:
        asked = () if form == "plain" else ("-o", form)
        yield Command((*words, *asked), **more)
        if form == "table":
            yield Command((*words, *asked), columns=80, **more)


def topics_in(decoded: bytes) -> list[Topic]:
    """Return the topics of a capture from the ndjson that `decode --store` prints."""
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
    return [Topic(name, tuple(cursors.get(name, ())), tuple(found)) for name, found in ledgers.items()]


def help_pages(names: Sequence[str]) -> Iterator[Command]:
    """Yield every help page at three widths, and what is no command."""
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


def of_capture(name: str, rocksdb: bool, every: Sequence[Topic], wide: bool) -> Iterator[Command]:
    """Yield the commands over the capture `name`; about each topic if `wide` or none is telling."""
    telling = [topic for topic in every if topic.name.rpartition("/")[2] in TELLING]
    topics = every if wide or not telling else telling
    snapshot = ("--store", f"snapshot:{name}/metadata.ndjson")
    disk = ("--entries", f"bookie-disk:{name}")
    yield from over_values(name, snapshot, topics)
    yield from over_places(snapshot, topics, FORMS)
    if rocksdb:
        yield from over_places(("--store", f"rocksdb:{name}/rocksdb"), topics[:6], TEXTS)
    yield from over_disks(disk)
    yield from over_entries((*snapshot, *disk), disk, topics)
    yield from over_seeks((*snapshot, *disk), topics)
    yield from over_frames((*snapshot, *disk), topics)
    yield from over_plans(snapshot)
    yield from over_rewrites("dir:copy", disk, topics)
    if rocksdb:
        yield from over_rewrites("rocksdb:database", disk, topics)
    yield from over_mistakes(name, snapshot, disk)


def over_values(name: str, snapshot: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield decode and encode."""
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


def over_places(store: tuple[str, ...], topics: Sequence[Topic], forms: Sequence[str]) -> Iterator[Command]:
    """Yield what shows a store's places."""
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


def over_disks(disk: tuple[str, ...]) -> Iterator[Command]:
    """Yield what shows and checks entries without metadata."""
    for form in FORMS:
        yield from in_forms(("dump-entries", *disk), [form])
        yield from in_forms(("verify-entries", *disk), [form])
    yield from in_forms(("dump-entries", "--deep", *disk), ("plain", "ndjson"))
    yield from in_forms(("ledgers", *disk), FORMS)
    yield from in_forms(("ledgers", "--by-log", *disk), FORMS)


def over_entries(both: tuple[str, ...], disk: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield what shows and checks entries."""
    yield Command(("dump-entries", *both, "--deep", "--payload", "hash", "-o", "ndjson"))
    for form in FORMS:
        yield from in_forms(("verify-entries", *both), [form])
        yield from in_forms(("check-index", "--all", *both), [form])
    yield from in_forms(("check-index", "public/default", "--faulty", *both), TEXTS)
    yield from in_forms(("show-cursor", "public/default", *both), FORMS)
    for by in ("topic", "subscription", "log"):
        yield from in_forms(("disk", "--by", by, *both), FORMS)
    whose = [ledger for topic in topics for ledger in map(str, topic.ledgers[:1])]
    yield from in_forms(("whois", *whose, *both), FORMS)
    for topic in [*topics, Topic("parted", (), ())]:
        yield from in_forms(("dump-entries", topic.name, "-n", "30", *both), ("plain", "table", "csv"))
        yield from in_forms(("dump-entries", topic.name, "--deep", "--from", "-3", *both), ("plain", "json"))
        yield from in_forms(("verify-entries", topic.name, *both), ("plain", "json"))
        yield from in_forms(("check-index", topic.name, *both), ("plain", "json"))
        for ledger in topic.ledgers[:1]:
            one = ("dump-entries", str(ledger), *disk)
            yield from in_forms((*one, "--payload", "hex", "-n", "3"), ("plain", "json"))
            yield Command((*one, "--from", "1", "--to", "2", "-o", "csv"))
            yield from in_forms(("plan-batches", topic.name, "--keys", "region", *both), ("plain", "json"))
    for payload in ("text", "base64", "hash"):
        yield from in_forms(("dump-entries", "orders", "--payload", payload, "-n", "5", *both), FORMS)
    yield from in_forms(("dump-entries", "txn", "--transactions", *both), FORMS)
    for level in ("entry", "message", "any"):
        words = ("dump-entries", "with-properties", "--where", "region=eu or k", "--level", level)
        yield from in_forms((*words, *both), ("plain", "json"))
    yield from in_forms(("plan-batches", "orders", "--keys", "k", "--rebatch", *both), ("plain", "json"))
    yield Command(("plan-batches", "orders", "--keys", "k", "--as-proposed", *both, "-o", "json"))


def over_seeks(both: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield seeks."""
    for topic in topics:
        asked = [word for index in (0, 1, 25, 10**6) for word in ("--index", str(index))]
        yield Command(("seek", topic.name, *asked, "--readable", *both, "-o", "json"))
        yield from in_forms(("seek", topic.name, *asked, *both), ("plain", "json"))
        yield Command(("seek", topic.name, "--time", "2026-11-20T12:00:00Z", "--time", "0", *both))
        for cursor in topic.cursors[:1]:
            yield Command(("seek", topic.name, "--index", "20", "--cursor", cursor, *both, "-o", "json"))
    where = ("seek", "--namespace", "public/default", *both)
    yield from in_forms((*where, "--index", "10"), FORMS)
    yield from in_forms((*where, "--time", "0", "--exhaustive", "--clock", "publish"), FORMS)
    yield Command((*where, "--index", "3", "-o", "parquet", "--output", "seek.parquet"))
    yield Command((*where, "--expired", "7d", "-o", "json"), masks=NOW)
    yield Command((*where, "--index", "3", "--format", "{topic} {ledger_id}:{entry_id} {status}"))
    yield Command(("seek", "parted", "--index", "5", *both, "-o", "json"))
    yield Command(
        ("seek", "--index-file", "-", *both, "-o", "ndjson"), stdin=b"orders\t3\nplain\t0\nnone\t1\n"
    )


def over_frames(both: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield what makes and reads frames."""
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


def over_plans(snapshot: tuple[str, ...]) -> Iterator[Command]:
    """Yield estimates and dry runs."""
    for command in ("compress-cursors", "compress-ledgers"):
        yield from in_forms((command, "--estimate", *snapshot), FORMS, masks=SECONDS)
        yield from in_forms((command, "--estimate", "--by", "namespace", *snapshot), FORMS, masks=SECONDS)
        for codec in ("none", "lz4", "zlib", "zstd", "snappy"):
            words = (command, "--compression", codec, "--threshold", "64", "--dry-run", *snapshot)
            yield from in_forms(words, FORMS)
            yield from in_forms((*words, *BOLD, "--for-version", "4.0.7"), ("plain", "json"))
        yield from in_forms((command, "--compression", "zstd", "--dry-run", *snapshot), FORMS)
        yield Command((command, "--topic", "*/orders", "--dry-run", "-v", *snapshot, "-o", "ndjson"))
        yield Command((command, "--compression", "zstd", "--yes", *snapshot))


def over_rewrites(store: str, disk: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield rewriting commands over a copy, each with its undo, and the copy after each."""
    copy = ("--store", store)
    path = "/admin/policies/public/default"
    yield Command(("get", path, *copy, "-o", "json"), keep="policies.json")
    rewrites: list[tuple[str, ...]] = [
        ("compress-cursors", "--compression", "zstd", "--threshold", "64", "--yes"),
        ("compress-cursors", "--compression", "none", "--yes", "--min-gain", "5%"),
        ("compress-ledgers", "--compression", "lz4", "--threshold", "0", "--yes", "-o", "json"),
        ("build-index", "--all", "--yes", *disk),
        ("build-index", "public/default", "--yes", "-o", "ndjson", "--index-property", "mine", *disk),
        *over_properties(topics),
        ("put", path, "--file", "policies.json"),
        ("rm", path, "-o", "json"),
        ("put", "/admin/made/by/us", "--create", "--raw", "--file", "policies.json"),
    ]
    for number, words in enumerate(rewrites):
        yield from rewritten_and_undone(words, copy, f"undo-{store.partition(':')[0]}-{number}.ndjson")
    yield from over_written_plan(copy, f"undo-{store[:3]}-plan.ndjson")


def over_properties(topics: Sequence[Topic]) -> list[tuple[str, ...]]:
    """Return rewritings of the properties of the first topic that has a ledger, if there is one."""
    for topic in topics:
        for ledger in topic.ledgers[:1]:
            whose = (topic.name, str(ledger))
            return [("set-property", *whose, "a=b", "c=d"), ("unset-property", *whose, "a")]
    return []


def rewritten_and_undone(words: tuple[str, ...], copy: tuple[str, ...], undo: str) -> Iterator[Command]:
    """Yield one rewriting: its plan, itself twice, and its undoing by the file `undo`."""
    dry = [word for word in words if word != "--yes"]
    yield Command((*dry, "--dry-run", *BOLD, *copy), keep="plan.ndjson")
    yield from in_forms((*dry, "--dry-run", *BOLD, *copy), ("table", "csv"))
    yield Command((*dry, "--dry-run", *copy))
    yield Command((*words, *BOLD, *copy, "--undo-file", undo), made=(undo,), masks=CREATED)
    yield Command((*words, *BOLD, *copy, "--undo-file", undo), masks=CREATED)
    yield Command(("decode", *copy, "-o", "ndjson"))
    yield from in_forms(("undo", undo, "--dry-run", *BOLD, *copy), ("plain", "table", "json"))
    again = ("undo", undo, "--yes", *BOLD, *copy, "--undo-file", f"re{undo}")
    yield Command(again, made=(f"re{undo}",), masks=CREATED)
    yield Command(("undo", undo, "--yes", "--resume", *BOLD, *copy), masks=CREATED)
    yield Command(("decode", *copy, "-o", "ndjson"))


def over_written_plan(copy: tuple[str, ...], undo: str) -> Iterator[Command]:
    """Yield what carries out a plan from a file, and a rewriting that names its undo file itself."""
    words = ("compress-cursors", "--compression", "zlib", "--threshold", "10", "--dry-run", *BOLD, *copy)
    yield Command(words, keep="plan.ndjson")
    words = ("compress-cursors", "--plan", "plan.ndjson", "--yes", *BOLD, *copy)
    yield Command((*words, "-o", "json", "--undo-file", undo), made=(undo,), masks=CREATED)
    words = ("compress-cursors", "--compression", "none", "--yes", *BOLD, *copy)
    yield Command((*words, "--topic", "*/marks"))
    yield Command(("tree", *copy))


def over_mistakes(name: str, snapshot: tuple[str, ...], disk: tuple[str, ...]) -> Iterator[Command]:
    """Yield what goes wrong: things that are not there, half there, or not meant so."""
    both = (*snapshot, *disk)
    wrong = [
        *wrong_values(name, snapshot),
        *wrong_entries(name, both),
        *wrong_places(snapshot),
        *wrong_rewrites(name, snapshot, both),
        *wrong_lookups(),
    ]
    for words in wrong:
        yield from in_forms(words, ("plain", "json"))
    conf = b"loadManagerClassName=x\nlookup.rack=A\nlookupPropertyPrefix=lookup.\na=b\n"
    yield from in_forms(("lookup-properties", "-"), FORMS, stdin=conf)
    yield Command(("pack-entries",), stdin=b"nonsense\n")
    yield Command(("encode",), stdin=b"[1]")
    yield Command(("encode",), stdin=b'{"kind": "Json", "envelope": null, "value": {"a": 1}}')


def wrong_values(name: str, snapshot: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return values that are not there or cannot be written so."""
    return [
        ("decode", "nothing.bin"),
        ("decode", f"{name}/metadata.ndjson", "-o", "raw"),
        ("decode", *snapshot, "/none"),
        ("encode", "nothing.json"),
    ]


def wrong_entries(name: str, both: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return entries, positions and frames that are not there or are not meant so."""
    return [
        ("dump-entries", "no-topic", *both),
        ("dump-entries", "99999", *both),
        ("dump-entries", "orders", "--from", "x", *both),
        ("dump-entries", "orders", "--where", "a=(", *both),
        ("dump-entries", "--entries", "bookie-disk:nowhere"),
        ("dump-entries", "--entries", "nonsense"),
        ("dump-entries", "--entries", f"bookie-disk:{name}?index=scan", "-n", "40"),
        ("verify-entries", "no-topic", *both),
        ("check-index", "no-topic", *both),
        ("check-index", *both),
        ("seek", "no-topic", "--index", "1", *both),
        ("seek", "orders", *both),
        ("seek", "orders", "--index", "x", *both),
        ("seek", "orders", "--time", "yesterday", *both),
        ("seek", "orders", "--index", "1", "--after", "x", *both),
        ("plan-batches", "orders", "--keys", "", *both),
        ("strip-metadata", "nothing"),
        ("strip-metadata", f"{name}/metadata.ndjson"),
        ("attach-metadata", "frames"),
    ]


def wrong_places(snapshot: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return stores and places that are not there."""
    return [
        ("ls", "/none", *snapshot),
        ("ls", "--store", "snapshot:none"),
        ("ls", "--store", "rocksdb:none"),
        ("ls", "--store", "dir:none"),
        ("ls", "--store", "nonsense:x"),
        ("ls", "--store", "zk://127.0.0.1:1?timeout=0.2"),
        ("ls",),
        ("get", "/none", *snapshot),
        ("get", "topic", "none", *snapshot),
        ("get", "cursor", "orders", "none", *snapshot),
        ("get", "ledger", "999999", *snapshot),
        ("get", "ledger", "x", *snapshot),
        ("get", "nonsense", *snapshot),
        ("get", "broker", "none", *snapshot),
        ("properties", "none", *snapshot),
        ("check-readable", "--for-version", "x", *snapshot),
        ("brokers", "--match", "x", *snapshot),
        ("top", "/none", *snapshot),
        ("tree", "/none", *snapshot),
    ]


def wrong_rewrites(name: str, snapshot: tuple[str, ...], both: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return rewritings without what they need."""
    return [
        ("set-property", "orders", "1", "a=b", *snapshot),
        ("set-property", "orders", "x", "a", *snapshot),
        ("put", "/x", "--create", *snapshot),
        ("rm", "/x", *snapshot),
        ("undo", "nothing", *snapshot),
        ("undo", f"{name}/metadata.ndjson", *snapshot),
        ("compress-cursors", "--plan", "nothing", *snapshot),
        ("compress-cursors", "--plan", f"{name}/metadata.ndjson", *snapshot),
        ("compress-cursors", "--compression", "gzip", *snapshot),
        ("compress-cursors", "--min-gain", "x", "--dry-run", *snapshot),
        ("build-index", *both),
    ]


def wrong_lookups() -> list[tuple[str, ...]]:
    """Return brokers and files that cannot be asked."""
    return [
        ("lookup", "orders", "--service-url", "pulsar://127.0.0.1:1", "--timeout", "1"),
        ("lookup", "orders", "--service-url", "nonsense"),
        ("lookup-properties", "nothing"),
    ]
