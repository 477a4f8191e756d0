"""Commands over a whole capture: checks, subscriptions, exports, copies of the store, repairs, damaged disks.

Paths are as in `sample_commands`. Beside them there are `hurt`, the capture with flipped bytes in its entry
logs, and `empty`, a directory with nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote_plus

from sample_commands import BOLD, CREATED, FORMS, TEXTS, Command, Topic, in_forms

# When a snapshot was taken (which its checksum covers), and how old a copy is.
TAKEN = (
    *(rb'("taken": ?)"[^"]*"', rb'("crc32c_before": )\d+', rb"(changed since )[\dT:.-]+Z"),
    rb"()\d+ (seconds?|minutes?|hours?|days?) old",
)
# The page says when it was made.
MADE = (rb"()\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", *TAKEN)


def of_store(name: str, topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield the commands over the capture `name`, about a few of its topics one by one."""
    snapshot = ("--store", f"snapshot:{name}/metadata.ndjson")
    both = (*snapshot, "--entries", f"bookie-disk:{name}")
    plain = [topic for topic in topics if topic.ledgers]
    yield from over_checks(snapshot, both, plain)
    yield from over_subscriptions(both, plain)
    yield from over_exports(name, both, plain)
    yield from over_copies(name, snapshot, both)
    yield from over_rebuilds(name, snapshot)
    yield from over_repairs(("--store", "dir:copy"), both[2:], plain)
    yield from over_damage(snapshot, plain)
    yield from over_nothing(name)


def schemas(names: Sequence[str]) -> Iterator[Command]:
    """Yield the JSON Schemas of what commands print."""
    yield from in_forms(("schema",), FORMS)
    for name in (*names, "errors", "notes", "counts", "plan-file", "undo-file", "snapshot-file"):
        yield Command(("schema", name))


def over_checks(
    snapshot: tuple[str, ...], both: tuple[str, ...], topics: Sequence[Topic]
) -> Iterator[Command]:
    """Yield checks of the store, alone and with its entries."""
    for where in (snapshot, both):
        yield from in_forms(("check", *where), FORMS, masks=TAKEN)
        yield Command(("check", *where, "--severity", "error", "--strict"), masks=TAKEN)
        yield Command(("check", *where, "-o", "html"), masks=MADE)
    yield Command(("check", *snapshot, "-o", "openmetrics"), masks=(*TAKEN, rb"(check_time_seconds )\S+"))
    yield Command(("check", *snapshot, "--only", "record-unreadable", "-o", "json"), masks=TAKEN)
    for version in ("3.0.7", "4.0.7", "5.0.0"):
        yield from in_forms(("check", "--before-upgrade", version, *both), ("plain", "json"), masks=TAKEN)
    for topic in topics[:6]:
        yield from in_forms(("check", topic.name, *both), ("plain", "json"), masks=TAKEN)
    yield Command(("check", "public/default", "--all", *snapshot), masks=TAKEN)


def over_subscriptions(both: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield subscriptions one by one, and what makes their states readable for older releases."""
    for topic in topics[:12]:
        yield from in_forms(("show-cursor", topic.name, *both), ("plain", "json"))
        for cursor in topic.cursors[:2]:
            yield from in_forms(("show-cursor", topic.name, cursor, *both), TEXTS)
            yield Command(("show-cursor", topic.name, cursor, "--history", *both, "-o", "ndjson"))
            yield Command(("history", "cursor", topic.name, cursor, *both))
    words = ("convert-cursor", "--all", "--to", "ranges", *BOLD, "--store", "dir:copy", *both[2:])
    yield from in_forms((*words, "--dry-run"), FORMS)
    yield Command((*words, "--yes", "--every-state", "--undo-file", "undo-convert"), masks=CREATED)
    yield Command(("decode", "--store", "dir:copy", "-o", "ndjson"))
    yield Command(("undo", "undo-convert", "--yes", *BOLD, "--store", "dir:copy"), masks=CREATED)


def over_exports(name: str, both: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield exports, whose manifests sum up their files, and what a second run finds to do."""
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


def over_copies(name: str, snapshot: tuple[str, ...], both: tuple[str, ...]) -> Iterator[Command]:
    """Yield snapshots, differences and what is brought back."""
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
    yield from in_forms(("restore", *into, "--dry-run", *BOLD), FORMS)
    yield Command(("restore", *into, "--dry-run", "--topic", "*/orders", *both[2:], *BOLD))
    yield Command(("restore", *into, "--dry-run", "--stdin", *BOLD), stdin=b"orders\npublic/default/mar*\n")
    yield Command(("restore", *into, "--dry-run", "--stdin", *BOLD), stdin=b"public/none/*\n")
    undo = f"undo-restored-{name}"
    yield Command(("restore", *into, "--yes", *BOLD, "--undo-file", undo), made=(undo,), masks=CREATED)
    yield Command(("decode", "--store", f"dir:restored-{name}", "-o", "ndjson"))
    yield Command(("undo", undo, "--yes", *BOLD, *into[1:]), masks=CREATED)
    yield Command(("ls", *into[1:]))


def over_rebuilds(name: str, snapshot: tuple[str, ...]) -> Iterator[Command]:
    """Yield stores that are made again from disks, alone and with what an older store knew."""
    disk, found = ("--entries", f"bookie-disk:{name}"), f"found-{name}"
    yield Command(("rebuild", *disk, "--unnamed", "-o", "ndjson"), keep="names")
    yield Command(("rebuild", *disk, "--names", "names", "--output", found), made=(found,), masks=TAKEN)
    for form in FORMS:
        words = ("rebuild", *disk, "--with", snapshot[1], "--output", found, "-o", form)
        yield Command(words, made=(found,), masks=TAKEN)
    yield Command(("check", "--store", f"snapshot:{found}", *disk), masks=TAKEN)


def over_repairs(copy: tuple[str, ...], disk: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield wounds of a topic, what checks say of them, and their repairs, each with its undo."""
    for number, topic in enumerate(topics[:4]):
        undo, start = f"undo-repair-{number}", "/managed-ledgers/"
        tenant, namespace, local = topic.name.split("/", 2)
        record = f"{start}{tenant}/{namespace}/persistent/{quote_plus(local)}"
        wounds = [("rm", record), ("rm", ledger_path(topic.ledgers[0]))]
        repairs = [("topic-record", topic.name), ("ledger-metadata", topic.name)]
        for cursor in topic.cursors[:1]:
            wounds.append(("put", f"{record}/{quote_plus(cursor)}", "--raw", "--file", "garbage"))
            repairs.append(("cursor", topic.name, cursor))
        for wound, repair in zip(wounds, repairs, strict=True):
            yield Command((*wound, *BOLD, *copy, "--undo-file", undo), stdin=b"", made=(undo,), masks=CREATED)
            yield Command(("check", topic.name, *copy, *disk, "-o", "ndjson"), masks=TAKEN)
            words = ("repair", *repair, *BOLD, *copy, *disk)
            yield from in_forms((*words, "--dry-run"), FORMS)
            yield Command((*words, "--yes", "--undo-file", f"re{undo}"), made=(f"re{undo}",), masks=CREATED)
            yield Command(("decode", *copy, record, "-o", "ndjson"))
            yield Command(("undo", f"re{undo}", "--yes", *BOLD, *copy), masks=CREATED)
            yield Command(("undo", undo, "--yes", *BOLD, *copy), masks=CREATED)
        for what in ("compaction", "count", "offload", "termination", "schema"):
            yield Command(("repair", what, topic.name, "--dry-run", *BOLD, *copy, *disk))
        words = ("repair", "missing-ledger", topic.name, str(topic.ledgers[0]), "--dry-run", *BOLD, *copy)
        yield from in_forms((*words, *disk), TEXTS)
    yield Command(("repair", "partitions", "parted", "--dry-run", *BOLD, *copy))
    yield Command(("repair", "generator", "--dry-run", *BOLD, *copy, *disk))


def ledger_path(ledger: int) -> str:
    """Return where BookKeeper keeps the metadata of a ledger whose id is below 10^10."""
    digits = f"{ledger:010d}"
    return f"/ledgers/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


def over_damage(snapshot: tuple[str, ...], topics: Sequence[Topic]) -> Iterator[Command]:
    """Yield what reads a disk on which bytes were flipped."""
    disk = ("--entries", "bookie-disk:hurt")
    for form in FORMS:
        for command in ("dump-entries", "verify-entries", "ledgers"):
            yield from in_forms((command, *disk), [form])
        yield from in_forms(("verify-entries", "--all", *snapshot, *disk), [form])
        yield from in_forms(("dump-entries", "--all", "--deep", *snapshot, *disk), [form])
        yield from in_forms(("check-index", "--all", *snapshot, *disk), [form])
    for topic in topics[:8]:
        yield Command(("dump-entries", topic.name, *snapshot, *disk, "-o", "raw"))
        yield Command(("plan-batches", topic.name, "--keys", "region", *snapshot, *disk, "-o", "json"))
        yield Command(("seek", topic.name, "--index", "20", *snapshot, *disk, "-o", "json"))
    yield Command(("dump-entries", *disk, "-o", "parquet", "--output", "hurt.parquet"))
    yield Command(("check", *snapshot, *disk, "-o", "ndjson"), masks=TAKEN)


def over_nothing(name: str) -> Iterator[Command]:
    """Yield what meets a store that is empty, and patterns that fit nothing."""
    empty, copy = ("--store", "dir:empty"), ("--store", "dir:copy")
    yield Command(("bundle", "bundle-of-nothing.tar.gz", *empty))
    yield Command(("diff", "dir:empty", f"snapshot:{name}/metadata.ndjson"))
    yield Command(("disk", "--by", "topic", *empty, "--entries", f"bookie-disk:{name}"))
    yield Command(("restore", "dir:empty", *copy, "--dry-run", *BOLD))
    for command in ("check", "ls", "tree", "top", "brokers", "decode", "show-cursor public/default"):
        yield Command((*command.split(), *empty))
    for stdin in (b"public/none/*\n", b"orders\n", b"none\n", b""):
        words = ("compress-cursors", "--compression", "zstd", "--dry-run", "--stdin", *BOLD, *copy)
        yield Command(words, stdin=stdin)
