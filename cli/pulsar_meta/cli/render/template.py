"""Lines formatted by a template of the user, such as `--format '{ledger_id}:{entry_id}\\t{index}'`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Final

from pulsar_meta.cli.render.tables import Detail
from pulsar_meta.cli.render.text import one_line
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document

NOTHING: Final = "-"
_ESCAPES: Final = {"t": "\t", "n": "\n", "\\": "\\"}
# Values for testing a template, by type; other types are numbers.
_EXAMPLES: Final[Mapping[str, object]] = {"string": "", "bool": True}


@dataclass(frozen=True, slots=True)
class Template:
    """A template, and the names of the fields in it."""

    text: str
    fields: frozenset[str]

    def line(self, document: Document) -> str:
        """Format a document as a line; `-` if it lacks a field of the template."""
        if any(name not in document for name in self.fields):
            return NOTHING
        values = {name: document[name] for name in self.fields}
        return self.text.format(
            **{name: one_line(value) if isinstance(value, str) else value for name, value in values.items()}
        )

    def view(self) -> Detail:
        """Return a view that formats documents by this template."""
        return Detail(self._lines)

    def _lines(self, document: Document) -> Iterator[str]:
        yield self.line(document)


def parse_template(text: str, types: Mapping[str, str]) -> Template:
    """Parse a template, in which `\\t`, `\\n` and `\\\\` are escapes.

    `types` has the types of the fields. Raises UsageError if the template is not valid or names another
    field.
    """
    text = re.sub(r"\\([tn\\])", lambda match: _ESCAPES[match[1]], text)
    try:
        parts = [(name, spec or "") for _, name, spec, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise UsageError(f"--format {text!r}: {error}") from error
    names = frozenset(name for name, _ in parts)
    unknown = sorted(names - frozenset(types))
    if unknown:
        raise UsageError(f"--format: no field {unknown[0]!r}: choose from {', '.join(sorted(types))}")
    if any(re.search(r"\d{4}|\{", spec) for _, spec in parts):
        raise UsageError(f"--format {text!r}: a width is a number up to 999")
    try:
        text.format(**{name: _EXAMPLES.get(kind, 0) for name, kind in types.items()})
    except (ValueError, LookupError) as error:
        raise UsageError(f"--format {text!r}: {error}") from error
    return Template(text, names)
