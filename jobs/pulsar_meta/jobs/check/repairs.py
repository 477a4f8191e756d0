"""The commands that repair findings, filled in from the templates in the codes' files."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import TopicName, decode_name, ledger_of_path
from pulsar_meta.jobs.check.codes import Finding, Severity, code

PROGRAM: Final = "pulsar-meta"
_PARTITIONED: Final = "/admin/partitioned-topics/"
# Findings about a record of any kind: the kind of its path selects the command.
_OF_ANY_RECORD: Final = frozenset(("record-undecodable", "record-empty", "record-wrong-kind"))
_PLACEHOLDERS: Final = frozenset(("TOPIC", "LEDGER", "PARTITIONED", "CURSOR", "SCHEMA"))


def with_repair(finding: Finding) -> Finding:
    """Return the finding with the command that repairs it, if it has none yet and there is one."""
    # A broker handles a note without help, but an unfinished offload can be cleared away.
    needed = finding.severity is not Severity.NOTE or finding.code == "offload-unfinished"
    needed = needed and not finding.undecided
    words = _command(finding) if needed and finding.repair is None else None
    return finding if words is None else replace(finding, repair=shlex.join([PROGRAM, *words]))


def _command(finding: Finding) -> list[str] | None:
    """Fill the first template for which the finding has every placeholder."""
    templates: Iterable[str] = code(finding.code).repairs
    if finding.evidence.get("bookkeeper_deleted"):
        # The entries were only in tiered storage, so only the list can be corrected.
        templates = ["repair missing-ledger TOPIC LEDGER"]
    places = _places_by_path(finding) if finding.code in _OF_ANY_RECORD else _places(finding)
    for template in templates:
        words = template.split()
        if all(word in places for word in words if word in _PLACEHOLDERS):
            return [*(places.get(word, word) for word in words), *_options(finding)]
    return None


def _options(finding: Finding) -> list[str]:
    """Return the options that depend on the topic: a sealed segment never accepts messages again."""
    sealed = finding.code == "terminated-before-end" and (finding.topic or "").startswith("segment://")
    return ["--at-end"] if sealed else []


def _places(finding: Finding) -> Mapping[str, str]:
    topic = None if finding.topic is None else TopicName.parse(finding.topic)
    partitioned = None if topic is None else topic.partitioned
    places = {
        "TOPIC": finding.topic,
        "LEDGER": None if finding.ledger_id is None else str(finding.ledger_id),
        "PARTITIONED": None if partitioned is None else str(partitioned),
        "CURSOR": finding.cursor,
    }
    return {name: value for name, value in places.items() if value is not None}


def _places_by_path(finding: Finding) -> Mapping[str, str]:
    """Return the placeholders for the kind of record that the finding's path belongs to."""
    path = finding.path or ""
    ledger_id = ledger_of_path(path)
    if ledger_id is not None:
        # No topic misses a ledger that none refers to.
        return {} if finding.topic is None else {"LEDGER": str(ledger_id)}
    topic = TopicName.from_path(path)
    if topic is not None and finding.cursor is None:
        return {"TOPIC": str(topic)}
    if path.startswith(_PARTITIONED):
        return _partitioned(path)
    if finding.topic is not None and finding.cursor is not None:
        return {"TOPIC": finding.topic, "CURSOR": finding.cursor}
    return _schema(path) if path.startswith("/schemas/") else {}


def _schema(path: str) -> Mapping[str, str]:
    namespace, _, local = path.removeprefix("/schemas/").rpartition("/")
    try:
        return {"SCHEMA": f"persistent://{namespace}/{decode_name(local)}"}
    except DecodeError:
        return {}


def _partitioned(path: str) -> Mapping[str, str]:
    namespace, _, local = path.removeprefix(_PARTITIONED).rpartition("/persistent/")
    try:
        return {"PARTITIONED": f"persistent://{namespace}/{decode_name(local)}"} if namespace else {}
    except DecodeError:
        return {}
