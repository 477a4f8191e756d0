"""Lines after a template of the user's: `--format '{ledger_id}:{entry_id}\\t{index}'`."""

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
# What a template is tried with, by type; else a number.
_EXAMPLES: Final[Mapping[str, object]] = {"string": "", "bool": True}


@dataclass(frozen=True, slots=True)
class Template:
    """A template and the fields that it names."""

    text: str
    fields: frozenset[str]

    def line(self, document: Document) -> str:
        """Return the line of a document, `-` where it lacks a field that the template names."""
        if any(name not in document for name in self.fields):
            return NOTHING
        values = {name: document[name] for name in self.fields}
        return self.text.format(
            **{name: one_line(value) if isinstance(value, str) else value for name, value in values.items()}
        )

    def view(self) -> Detail:
        """Return the view of documents as such lines."""
        return Detail(self._lines)

    def _lines(self, document: Document) -> Iterator[str]:
        yield self.line(document)


def parse_template(text: str, types: Mapping[str, str]) -> Template:
    """Return a template, `\\t`, `\\n` and `\\\\` in it understood.

    `types` has the fields that there are. UsageError for one that there is not, or for what is no template.
    """
    text = re.sub(r"\\([tn\\])", lambda match: _ESCAPES[match[1]], text)
    try:
        parts = [(name, spec or "") for _, name, spec, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise UsageError(f"--format {text!r}: {error}") from error
    names = frozenset(name for name, _ in parts)
    unknown = sorted(names - frozenset(types))
    if unknown:
        raise UsageError(f"--format: no field {unknown[0]!r}; there are {', '.join(sorted(types))}")
    if any(re.search(r"\d{4}|\{", spec) for _, spec in parts):
        raise UsageError(f"--format {text!r}: a width is a number up to 999")
    try:
        text.format(**{name: _EXAMPLES.get(kind, 0) for name, kind in types.items()})
    except (ValueError, LookupError) as error:
        raise UsageError(f"--format {text!r}: {error}") from error
    return Template(text, names)
