"""Findings of `check` as tables, with repair commands that can be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.render.tables import View
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.check.codes import FindingDocument

COPIES = ("snapshot:", "zk-files:")
FIELDS = (
    "code", "severity", "topic", "cursor", "ledger_id", "path", "message", "evidence", "repair",
    "scalable_topic",
)  # fmt: skip


def given_places(store: str | None, entries: Iterable[str] | None) -> tuple[list[str], list[str]]:
    """Return the --store and --entries options of this command line for use in repair commands.

    The URL of a copy is left out, because a repair has to change the original.
    """
    where = [] if store is None or store.startswith(COPIES) else ["--store", redact(store)]
    return where, [word for url in entries or () for word in ("--entries", redact(url))]


def with_places(document: FindingDocument, store: list[str], entries: list[str]) -> FindingDocument:
    """Return the finding with the given store and entries in its repair command."""
    if "repair" not in document:
        return document
    words = shlex.split(document["repair"])
    reads_entries = words[1] == "repair" and words[2] != "partitions"
    return {**document, "repair": shlex.join([*words, *store, *(entries if reads_entries else ())])}


def _row(finding: Document) -> list[str]:
    place = finding.get("topic") or finding.get("path") or ""
    ledger = finding.get("ledger_id")
    return [
        finding["severity"],
        finding["code"],
        place,
        finding.get("cursor", ""),
        "" if ledger is None else str(ledger),
        finding["message"],
        finding.get("repair", ""),
    ]


VIEW = View(
    ["severity", "code", "where", "cursor", "ledger", "what", "repair"],
    _row,
    frozenset({"ledger"}),
    fields=FIELDS,
    title="Findings",
)
