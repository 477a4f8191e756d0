"""Which command repairs what was found, where there is one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import TopicName, decode_name, ledger_of_path
from pulsar_meta.jobs.check.codes import Finding, Severity

PROGRAM: Final = "pulsar-meta"
_PARTITIONED: Final = "/admin/partitioned-topics/"


def with_repair(finding: Finding) -> Finding:
    """Return a finding with the command that repairs it, where it has none and there is one."""
    # What a broker copes with needs no repair; what it left half done can be cleared away.
    needed = finding.severity is not Severity.NOTE or finding.code == "offload-unfinished"
    words = _words(finding) if needed and finding.repair is None else None
    return finding if words is None else replace(finding, repair=shlex.join([PROGRAM, *words]))


def _words(finding: Finding) -> list[str] | None:
    if finding.code in OF_RECORDS:
        return _of_record(finding)
    template = REPAIRS.get(finding.code)
    if finding.code in PACKED:
        template = PACKED[finding.code][finding.cursor is not None]
    if finding.evidence.get("bookkeeper_deleted"):
        # What was in tiered storage alone is nowhere.
        template = "repair missing-ledger TOPIC LEDGER"
    if template is None:
        return None
    known = {
        "TOPIC": finding.topic,
        "LEDGER": None if finding.ledger_id is None else str(finding.ledger_id),
        "PARTITIONED": _base(finding.topic),
        "CURSOR": finding.cursor,
    }
    words = [known.get(word, word) for word in template.split()]
    if finding.code == "terminated-before-end" and (finding.topic or "").startswith("segment://"):
        # A segment that was sealed never takes messages again.
        words.append("--at-end")
    return None if None in words else [word for word in words if word is not None]


# By code, what follows on `pulsar-meta`; words in capitals stand for the places of the finding.
REPAIRS: Final[Mapping[str, str]] = {
    "ledger-without-metadata": "repair ledger-metadata LEDGER",
    "bookie-unknown": "repair ledger-metadata LEDGER --again",
    "topic-record-lost": "repair topic-record TOPIC",
    "ledger-not-listed": "repair topic-record TOPIC",
    "ledger-counts-zero": "repair count TOPIC LEDGER",
    "ledger-end-low": "repair count TOPIC LEDGER",
    "ledger-end-high": "repair count TOPIC LEDGER",
    "ledger-end-differs": "repair count TOPIC LEDGER",
    "ledger-without-entries": "repair missing-ledger TOPIC LEDGER",
    "entry-missing": "repair missing-ledger TOPIC LEDGER --only-absent",
    "ledger-in-two-topics": "repair missing-ledger TOPIC LEDGER",
    "ledger-foreign": "repair missing-ledger TOPIC LEDGER",
    "terminated-before-end": "repair termination TOPIC",
    "partition-without-parent": "repair partitions PARTITIONED",
    "partition-beyond-count": "repair partitions PARTITIONED",
    "ledger-id-ahead": "repair generator",
    "cursor-ledger-missing": "repair cursor TOPIC CURSOR",
    "cursor-ledger-unreadable": "repair cursor TOPIC CURSOR",
    "cursor-ledger-foreign": "repair cursor TOPIC CURSOR",
    # Where it is to stand only a person knows.
    "cursor-beyond-end": "repair cursor TOPIC CURSOR --position LEDGER:ENTRY",
    "compaction-pointer-lost": "repair compaction TOPIC",
    "compaction-ledger-missing": "repair compaction TOPIC --drop",
    "schema-ledger-missing": "repair schema TOPIC",
    "offload-object-missing": "repair offload TOPIC LEDGER",
    "offload-unfinished": "repair offload TOPIC LEDGER",
}
# The same for the record of a topic, and for that of a cursor.
PACKED: Final[Mapping[str, tuple[str, str]]] = {
    "record-near-limit": (
        "compress-ledgers --topic TOPIC --compression zstd",
        "compress-cursors --topic TOPIC --cursor CURSOR --compression zstd",
    ),
    "record-unreadable": (
        "compress-ledgers --topic TOPIC --compression none",
        "compress-cursors --topic TOPIC --cursor CURSOR --compression none",
    ),
}
# Records of every kind.
OF_RECORDS: Final = ("record-undecodable", "record-empty", "record-wrong-kind")
_COPES: Final = "none is needed, the broker copes"
_BOOKKEEPER: Final = "copying entries is BookKeeper's own work (`bookkeeper shell recover`)"
_NEVER: Final = "pulsar-meta deletes nothing from bookies"
_RECORD: Final = (
    "what the record said is nowhere else: `history` of a ZooKeeper, or a `snapshot`, may have it"
)
# Why there is no command for the others.
WITHOUT: Final[Mapping[str, str]] = {
    "leftover": "brokers delete what belongs together (`pulsar-admin`)",
    "shadow-without-source": "whether the source was deleted only a person knows; where its ledgers are left"
    " it is a finding of its own (`topic-record-lost`), with a command",
    "shadow-lists-deleted-ledgers": "a broker writes that list anew when the shadow is created again",
    "ledger-open-behind": _COPES,
    "ledger-duplicate": _COPES,
    "ledger-unordered": _COPES,
    "ledger-under-replicated": _BOOKKEEPER,
    "ledger-below-ack-quorum": _BOOKKEEPER,
    "cursor-in-vanished-ledger": _COPES,
    "cursor-ranges": _COPES,
    "cursor-without-topic": "whether it is the topic that is missing only a person knows; `rm` removes a"
    " cursor's record",
    "cursor-idle": "whose subscription it is only a person knows (`pulsar-admin topics unsubscribe`)",
    "bucket-ledger-missing": _COPES,
    "segments-with-hole": _RECORD,
    "segments-overlap": _RECORD,
    "segment-unlinked": _RECORD,
    "segment-not-terminated": "only a broker terminates a segment that it may have loaded",
    "segment-without-managed-ledger": _RECORD,
    "segment-without-topic": "whether its messages are wanted only a person knows",
    "orphan-ledger": _NEVER,
    "orphan-bucket": _NEVER,
    "bookie-unreachable": "the bookie has to be started",
    "cookie-differs": "which of the two is right only a person knows; `put /ledgers/cookies/BOOKIE VERSION"
    " --version V` writes that of the disk",
    "offload-object-orphan": "another cluster may keep its ledgers in the same storage",
    "schema-version-missing": "only brokers register schemas",
    "system-topic-unreadable": "that of the other finding about the topic",
}


def _base(topic: str | None) -> str | None:
    name = None if topic is None else TopicName.parse(topic).partitioned
    return None if name is None else str(name)


def _of_record(finding: Finding) -> list[str] | None:
    """Return what repairs a record that cannot be read, by its path."""
    path = finding.path or ""
    for repair in RECORDS:
        words = repair(path, finding)
        if words is not None:
            return words
    return None


def _of_ledger(path: str, finding: Finding) -> list[str] | None:
    ledger_id = ledger_of_path(path)
    # What nobody names nobody misses.
    return (
        None if ledger_id is None or finding.topic is None else ["repair", "ledger-metadata", str(ledger_id)]
    )


def _of_topic(path: str, finding: Finding) -> list[str] | None:
    topic = TopicName.from_path(path)
    return None if topic is None or finding.cursor is not None else ["repair", "topic-record", str(topic)]


def _of_partitioned(path: str, finding: Finding) -> list[str] | None:
    if not path.startswith(_PARTITIONED):
        return None
    namespace, _, rest = path.removeprefix(_PARTITIONED).rpartition("/persistent/")
    try:
        return (
            ["repair", "partitions", f"persistent://{namespace}/{decode_name(rest)}"] if namespace else None
        )
    except DecodeError:
        return None


def _of_cursor(path: str, finding: Finding) -> list[str] | None:
    if finding.topic is None or finding.cursor is None:
        return None
    return ["repair", "cursor", finding.topic, finding.cursor]


def _of_schema(path: str, finding: Finding) -> list[str] | None:
    # Without it a broker registers the schema anew.
    return ["rm", path] if path.startswith("/schemas/") else None


RECORDS: Final[tuple[Callable[[str, Finding], list[str] | None], ...]] = (
    _of_ledger,
    _of_topic,
    _of_partitioned,
    _of_cursor,
    _of_schema,
)
