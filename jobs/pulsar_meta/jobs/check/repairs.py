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
    # What a broker copes with needs no repair.
    if finding.repair is not None or finding.severity is Severity.NOTE:
        return finding
    words = _words(finding)
    return finding if words is None else replace(finding, repair=shlex.join([PROGRAM, "repair", *words]))


def _words(finding: Finding) -> list[str] | None:
    if finding.code in _OF_RECORDS:
        return _of_record(finding)
    template = REPAIRS.get(finding.code)
    if finding.evidence.get("bookkeeper_deleted"):
        # What was in tiered storage alone is nowhere.
        template = "missing-ledger TOPIC LEDGER"
    if template is None:
        return None
    known = {
        "TOPIC": finding.topic,
        "LEDGER": None if finding.ledger_id is None else str(finding.ledger_id),
        "PARTITIONED": _base(finding.topic),
        "CURSOR": finding.cursor,
    }
    words = [known.get(word, word) for word in template.split()]
    return None if None in words else [word for word in words if word is not None]


# By code, what follows on `repair`; words in capitals stand for the places of the finding.
REPAIRS: Final[Mapping[str, str]] = {
    "ledger-without-metadata": "ledger-metadata LEDGER",
    "bookie-unknown": "ledger-metadata LEDGER --again",
    "topic-record-lost": "topic-record TOPIC",
    "ledger-not-listed": "topic-record TOPIC",
    "ledger-counts-zero": "count TOPIC LEDGER",
    "ledger-end-low": "count TOPIC LEDGER",
    "ledger-end-high": "count TOPIC LEDGER",
    "ledger-without-entries": "missing-ledger TOPIC LEDGER",
    "entry-missing": "missing-ledger TOPIC LEDGER --only-absent",
    "ledger-in-two-topics": "missing-ledger TOPIC LEDGER",
    "partition-without-parent": "partitions PARTITIONED",
    "partition-beyond-count": "partitions PARTITIONED",
    "ledger-id-ahead": "generator",
    "cursor-ledger-missing": "cursor TOPIC CURSOR",
    "cursor-ledger-unreadable": "cursor TOPIC CURSOR",
    "cursor-ledger-foreign": "cursor TOPIC CURSOR",
    # Where it is to stand only a person knows.
    "cursor-beyond-end": "cursor TOPIC CURSOR --position LEDGER:ENTRY",
    "compaction-pointer-lost": "compaction TOPIC",
    "compaction-ledger-missing": "compaction TOPIC --drop",
    "schema-ledger-missing": "schema TOPIC",
    "offload-object-missing": "offload TOPIC LEDGER",
}
# Records of every kind.
_OF_RECORDS: Final = ("record-undecodable", "record-empty", "record-wrong-kind")


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
    return None if ledger_id is None or finding.topic is None else ["ledger-metadata", str(ledger_id)]


def _of_topic(path: str, finding: Finding) -> list[str] | None:
    topic = TopicName.from_path(path)
    return None if topic is None or finding.cursor is not None else ["topic-record", str(topic)]


def _of_partitioned(path: str, finding: Finding) -> list[str] | None:
    if not path.startswith(_PARTITIONED):
        return None
    namespace, _, rest = path.removeprefix(_PARTITIONED).rpartition("/persistent/")
    try:
        return ["partitions", f"persistent://{namespace}/{decode_name(rest)}"] if namespace else None
    except DecodeError:
        return None


def _of_cursor(path: str, finding: Finding) -> list[str] | None:
    if finding.topic is None or finding.cursor is None:
        return None
    return ["cursor", finding.topic, finding.cursor]


RECORDS: Final[tuple[Callable[[str, Finding], list[str] | None], ...]] = (
    _of_ledger,
    _of_topic,
    _of_partitioned,
    _of_cursor,
)
