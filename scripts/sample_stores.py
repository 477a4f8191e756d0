"""Commands on a complete capture: checks, subscriptions, exports, copies, repairs and damaged disks.

Paths are those of `sample_commands`, and also `hurt`, the capture with flipped bytes in its entry logs, and
`empty`, an empty directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote_plus

from sample_commands import ALLOW, CREATED, FORMS, TEXTS, Command, Topic, in_forms

# The time at which a snapshot was taken, its checksum (which covers the time), and the age of a copy.
TAKEN = (
    *(rb'("taken": ?)"[^"]*"', rb'("crc32c_(?:before|header)": )\d+', rb"(change[ds] since )[\dT:.-]+Z"),
    rb"()\d+ (seconds?|minutes?|hours?|days?) old",
)
# The time at which a page was made.
MADE = (rb"()\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", *TAKEN)


def store_commands(name: str, topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield the commands for the capture `name` and a few of its topics."""
    snapshot = ("--store", f"snapshot:{name}/metadata.ndjson")
    both = (*snapshot, "--entries", f"bookie-disk:{name}")
    plain = [topic for topic in topics if topic.ledgers]
    yield from check_commands(snapshot, both, plain)
    yield from subscription_commands(both, plain)
    yield from export_commands(name, both, plain)
    yield from copy_commands(name, snapshot, both)
    yield from rebuild_commands(name, snapshot)
    yield from repair_commands(("--store", "dir:copy"), both[2:], plain)
    yield from damage_commands(snapshot, plain)
    yield from empty_commands(name)


def schemas(names: Sequence[str]) -> Iterator[Command]:
    """Yield the JSON Schemas of documents and files."""
    yield from in_forms(("schema",), FORMS)
    for name in (*names, "errors", "notes", "counts", "plan-file", "undo-file", "snapshot-file"):
        yield Command(("schema", name))


def check_commands(
    snapshot: tuple[str, ...], both: tuple[str, ...], topics: Sequence[Topic]
) -> Iterator[Command]:
    """Yield checks of the store, with and without its entries."""
    for sources in (snapshot, both):
        yield from in_forms(("check", *sources), FORMS, masks=TAKEN)
        yield Command(("check", *sources, "--severity", "error", "--strict"), masks=TAKEN)
        yield Command(("check", *sources, "-o", "html"), masks=MADE)
    yield Command(("check", *snapshot, "-o", "openmetrics"), masks=(*TAKEN, rb"(check_time_seconds )\S+"))
    yield Command(("check", *snapshot, "--only", "record-unreadable", "-o", "json"), masks=TAKEN)
    for version in ("3.0.7", "4.0.7", "5.0.0"):
        yield from in_forms(("check", "--before-upgrade", version, *both), ("plain", "json"), masks=TAKEN)
    for topic in topics[:6]:
        yield from in_forms(("check", topic.name, *both), ("plain", "json"), masks=TAKEN)
    yield Command(("check", "public/default", "--all", *snapshot), masks=TAKEN)


def subscription_commands(both: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield commands on single subscriptions, and the conversion of their states for older releases."""
    for topic in topics[:12]:
        yield from in_forms(("show-cursor", topic.name, *both), ("plain", "json"))
        for cursor in topic.cursors[:2]:
            yield from in_forms(("show-cursor", topic.name, cursor, *both), TEXTS)
            yield Command(("show-cursor", topic.name, cursor, "--history", *both, "-o", "ndjson"))
            yield Command(("history", "cursor", topic.name, cursor, *both))
    words = ("convert-cursor", "--all", "--to", "ranges", *ALLOW, "--store", "dir:copy", *both[2:])
    yield from in_forms((*words, "--dry-run"), FORMS)
    yield Command((*words, "--yes", "--every-state", "--undo-file", "undo-convert"), masks=CREATED)
    yield Command(("decode", "--store", "dir:copy", "-o", "ndjson"))
    yield Command(("undo", "undo-convert", "--yes", *ALLOW, "--store", "dir:copy"), masks=CREATED)


def export_commands(name: str, both: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield exports, each run twice, whose manifests have checksums of their files."""
    names = [topic.name for topic in topics[:12]]
    for form in ("ndjson", "csv", "parquet"):
        to = f"exported-{form}-{name}"
        words = ("export", *names, "--to", to, "-o", form, *both)
        yield Command(words, made=(f"{to}/_manifest.jsonl",))
        yield Command(words, made=(f"{to}/_manifest.jsonl",))
    for number, more in enumerate((("--readable",), ("--compacted",), ("--where", "region=eu or k"))):
        to = f"exported-{number}-{name}"
        words = ("export", "--all", "--to", to, "-o", "ndjson", *more, *both)
        yield Command(words, made=(f"{to}/_manifest.jsonl",))


def copy_commands(name: str, snapshot: tuple[str, ...], both: tuple[str, ...]) -> Iterator[Command]:
    """Yield snapshots, comparisons and restores."""
    copy, packed = f"copy-{name}.ndjson", f"copy-{name}.ndjson.zst"
    yield Command(("snapshot", copy, *snapshot), made=(copy,), masks=TAKEN)
    yield Command(("snapshot", packed, "--redact", *snapshot, "-o", "json"), masks=TAKEN)
    for file in (copy, packed):
        yield Command(("decode", "--store", f"snapshot:{file}", "-o", "ndjson"))
        yield from in_forms(("diff", f"snapshot:{file}", f"snapshot:{name}/metadata.ndjson"), TEXTS)
    yield from in_forms(("diff", "dir:copy", f"snapshot:{copy}", "--versions"), FORMS)
    yield Command(("tree", "--store", f"snapshot:{copy}"))
    yield Command(("bundle", f"bundle-{name}.tar.gz", *snapshot, "-o", "json"), masks=TAKEN)
    into = (f"snapshot:{copy}", "--store", f"dir:restored-{name}")
    yield from in_forms(("restore", *into, "--dry-run", *ALLOW), FORMS)
    yield Command(("restore", *into, "--dry-run", "--topic", "*/orders", *both[2:], *ALLOW))
    yield Command(("restore", *into, "--dry-run", "--stdin", *ALLOW), stdin=b"orders\npublic/default/mar*\n")
    yield Command(("restore", *into, "--dry-run", "--stdin", *ALLOW), stdin=b"public/none/*\n")
    undo = f"undo-restored-{name}"
    yield Command(("restore", *into, "--yes", *ALLOW, "--undo-file", undo), made=(undo,), masks=CREATED)
    yield Command(("decode", "--store", f"dir:restored-{name}", "-o", "ndjson"))
    yield Command(("undo", undo, "--yes", *ALLOW, *into[1:]), masks=CREATED)
    yield Command(("ls", *into[1:]))


def rebuild_commands(name: str, snapshot: tuple[str, ...]) -> Iterator[Command]:
    """Yield rebuilds of the store from disks, with and without an older store."""
    disk, output = ("--entries", f"bookie-disk:{name}"), f"found-{name}"
    yield Command(("rebuild", *disk, "--unnamed", "-o", "ndjson"), keep="names")
    yield Command(("rebuild", *disk, "--names", "names", "--output", output), made=(output,), masks=TAKEN)
    for form in FORMS:
        words = ("rebuild", *disk, "--with", snapshot[1], "--output", output, "-o", form)
        yield Command(words, made=(output,), masks=TAKEN)
    yield Command(("check", "--store", f"snapshot:{output}", *disk), masks=TAKEN)


def repair_commands(
    copy: tuple[str, ...], disk: tuple[str, ...], topics: Sequence[Topic]
) -> Iterator[Command]:
    """Yield damage to topics, checks of it, and its repairs, each with its undo."""
    for number, topic in enumerate(topics[:4]):
        undo, start = f"undo-repair-{number}", "/managed-ledgers/"
        tenant, namespace, local = topic.name.split("/", 2)
        record = f"{start}{tenant}/{namespace}/persistent/{quote_plus(local)}"
        confirm = ("--confirm", f"persistent://{topic.name}")
        damage: list[tuple[str, ...]] = [
            ("rm", record, *confirm),
            ("rm", ledger_path(topic.ledgers[0]), *confirm),
        ]
        repairs: list[tuple[str, ...]] = [("topic-record", topic.name), ("ledger-metadata", topic.name)]
        for cursor in topic.cursors[:1]:
            damage.append(("put", f"{record}/{quote_plus(cursor)}", "--raw", "--file", "garbage", *confirm))
            repairs.append(("cursor", topic.name, cursor))
        for words, repair in zip(damage, repairs, strict=True):
            yield Command((*words, *ALLOW, *copy, "--undo-file", undo), made=(undo,), masks=CREATED)
            yield Command(("check", topic.name, *copy, *disk, "-o", "ndjson"), masks=TAKEN)
            fix = ("repair", *repair, *ALLOW, *copy, *disk)
            yield from in_forms((*fix, "--dry-run"), FORMS)
            yield Command((*fix, "--yes", "--undo-file", f"re{undo}"), made=(f"re{undo}",), masks=CREATED)
            yield Command(("decode", *copy, record, "-o", "ndjson"))
            yield Command(("undo", f"re{undo}", "--yes", *ALLOW, *copy), masks=CREATED)
            yield Command(("undo", undo, "--yes", *ALLOW, *copy), masks=CREATED)
        for verb in ("compaction", "count", "offload", "termination", "schema"):
            yield Command(("repair", verb, topic.name, "--dry-run", *ALLOW, *copy, *disk))
        words = ("repair", "missing-ledger", topic.name, str(topic.ledgers[0]), "--dry-run")
        yield from in_forms((*words, *ALLOW, *copy, *disk), TEXTS)
    yield Command(("repair", "partitions", "parted", "--dry-run", *ALLOW, *copy))
    yield Command(("repair", "generator", "--dry-run", *ALLOW, *copy, *disk))


def ledger_path(ledger: int) -> str:
    """Return the path of a ledger's metadata in BookKeeper, for ids below 10^10."""
    digits = f"{ledger:010d}"
    return f"/ledgers/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


def damage_commands(snapshot: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield commands that read a disk with flipped bytes."""
    disk = ("--entries", "bookie-disk:hurt")
    for command in ("dump-entries", "verify-entries", "ledgers"):
        yield from in_forms((command, *disk), FORMS)
    for command in ("verify-entries --all", "dump-entries --all --deep", "check-index --all"):
        yield from in_forms((*command.split(), *snapshot, *disk), FORMS)
    for topic in topics[:8]:
        yield Command(("dump-entries", topic.name, *snapshot, *disk, "-o", "raw"))
        yield Command(("plan-batches", topic.name, "--keys", "region", *snapshot, *disk, "-o", "json"))
        yield Command(("seek", topic.name, "--index", "20", *snapshot, *disk, "-o", "json"))
    yield Command(("dump-entries", *disk, "-o", "parquet", "--output", "hurt.parquet"))
    yield Command(("check", *snapshot, *disk, "-o", "ndjson"), masks=TAKEN)


def empty_commands(name: str) -> Iterator[Command]:
    """Yield commands on an empty store, and patterns without a match."""
    empty, copy = ("--store", "dir:empty"), ("--store", "dir:copy")
    yield Command(("bundle", "bundle-of-nothing.tar.gz", *empty))
    yield Command(("diff", "dir:empty", f"snapshot:{name}/metadata.ndjson"))
    yield Command(("disk", "--by", "topic", *empty, "--entries", f"bookie-disk:{name}"))
    yield Command(("restore", "dir:empty", *copy, "--dry-run", *ALLOW))
    for command in ("check", "ls", "tree", "top", "brokers", "decode", "show-cursor public/default"):
        yield Command((*command.split(), *empty))
    for stdin in (b"public/none/*\n", b"orders\n", b"none\n", b""):
        words = ("compress-cursors", "--compression", "zstd", "--dry-run", "--stdin", *ALLOW, *copy)
        yield Command(words, stdin=stdin)
