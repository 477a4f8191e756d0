"""Answers of `seek` as lines for scripts."""

from __future__ import annotations

from string import Formatter
from typing import Final

from pulsar_meta.cli.output import Document
from pulsar_meta.codecs.errors import UsageError

POSITION: Final = "{ledger_id}:{entry_id}:{batch_index}"
NOTHING: Final = "-"
FIELDS: Final = frozenset(
    {
        "topic", "index", "time", "status", "ledger_id", "entry_id", "batch_index", "first_index",
        "last_index", "broker_timestamp", "publish_time", "clock", "oldest_expired", "entries_read", "reason",
    }
)  # fmt: skip


def parse_template(template: str) -> frozenset[str]:
    """Return the fields that a template names; UsageError for one that answers do not have."""
    try:
        names = frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)
    except ValueError as error:
        raise UsageError(f"--format {template!r}: {error}") from error
    unknown = sorted(names - FIELDS)
    if unknown:
        raise UsageError(f"--format: no field {unknown[0]!r}; there are {', '.join(sorted(FIELDS))}")
    try:
        template.format(**dict.fromkeys(FIELDS, 0))
    except (ValueError, LookupError) as error:
        raise UsageError(f"--format {template!r}: {error}") from error
    return names


def line_of(answer: Document, template: str = POSITION, fields: frozenset[str] | None = None) -> str:
    """Return the answer as a line, `-` where it lacks a field that the template names."""
    wanted = parse_template(template) if fields is None else fields
    if any(name not in answer for name in wanted):
        return NOTHING
    return template.format(**answer)
