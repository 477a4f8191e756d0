"""Answers of `seek` as scripts take them: lines, rows, columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import Formatter
from typing import Final

from pulsar_meta.cli.output import Detail, Document, Format, View, one_line
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError

POSITION: Final = "{ledger_id}:{entry_id}:{batch_index}"
NOTHING: Final = "-"
# The fields of an answer and, for Parquet, their types.
TYPES: Final = {
    "cluster": "string", "topic": "string", "index": "int64", "time": "int64", "status": "string",
    "ledger_id": "int64", "entry_id": "int64", "batch_index": "int32", "first_index": "int64",
    "last_index": "int64", "broker_timestamp": "int64", "publish_time": "int64", "clock": "string",
    "oldest_expired": "bool", "entries_read": "int64", "reason": "string",
}  # fmt: skip
FIELDS: Final = frozenset(TYPES)
# What a template is tried with, by type; else a number.
_EXAMPLES: Final[dict[str, object]] = {"string": "", "bool": True}
COLUMNS: Final = (
    "topic", "index", "time", "status", "ledger_id", "entry_id", "batch_index", "first_index", "last_index",
    "broker_timestamp", "publish_time", "entries_read", "reason",
)  # fmt: skip


def check_format(shell: Shell, template: str | None) -> None:
    """Raise UsageError for a template that makes no sense, or that another form of output contradicts."""
    if template is None:
        return
    parse_template(template)
    if shell.output_format not in (None, Format.PLAIN):
        raise UsageError("--format is a form of output by itself: leave -o out")


def show(shell: Shell, answers: Iterable[Document], template: str | None, prefix: tuple[str, ...]) -> None:
    """Write the answers in the form asked for.

    A plain line begins with the fields of `prefix`: what the command line leaves open about the answer.
    """
    if template is not None:
        fields = parse_template(template)
        shell.emit(answers, Detail(lambda answer: [line_of(answer, template, fields)]))
    elif shell.format is Format.PLAIN:
        fields = parse_template(POSITION)
        shell.emit(
            answers,
            Detail(lambda answer: ["\t".join([*_cells(answer, prefix), line_of(answer, POSITION, fields)])]),
        )
    elif shell.format is Format.TABLE:
        from pulsar_meta.cli.seek_table import table_view

        found = list(answers)
        shell.emit(found, table_view(found))
    else:
        columns = ("cluster",) * ("cluster" in prefix) + COLUMNS
        shell.emit(
            answers,
            View(columns, lambda answer: [str(answer.get(name, "")) for name in columns], types=TYPES),
        )


def _cells(answer: Document, fields: tuple[str, ...]) -> list[str]:
    return [one_line(str(answer.get(field, ""))) for field in fields]


def parse_template(template: str) -> frozenset[str]:
    """Return the fields that a template names; UsageError for one that answers do not have."""
    try:
        parts = [(name, spec or "") for _, name, spec, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise UsageError(f"--format {template!r}: {error}") from error
    names = frozenset(name for name, _ in parts)
    unknown = sorted(names - FIELDS)
    if unknown:
        raise UsageError(f"--format: no field {unknown[0]!r}; there are {', '.join(sorted(FIELDS))}")
    if any(re.search(r"\d{4}|\{", spec) for _, spec in parts):
        raise UsageError(f"--format {template!r}: a width is a number up to 999")
    try:
        template.format(**{name: _EXAMPLES.get(kind, 0) for name, kind in TYPES.items()})
    except (ValueError, LookupError) as error:
        raise UsageError(f"--format {template!r}: {error}") from error
    return names


def line_of(answer: Document, template: str = POSITION, fields: frozenset[str] | None = None) -> str:
    """Return the answer as a line, `-` where it lacks a field that the template names."""
    wanted = parse_template(template) if fields is None else fields
    if any(name not in answer for name in wanted):
        return NOTHING
    return template.format(
        **{name: one_line(told) if isinstance(told, str) else told for name, told in answer.items()}
    )
