"""Values of a metadata store shown decoded, and on stderr what is wrong with some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.render.tables import Detail
from pulsar_meta.cli.render.values import document_lines
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.documents.document import Decoded, DecodeOptions, decode_document
from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.topics.segments import PlaceNames
from pulsar_meta.jobs.values.value_inputs import ValueInput

# The columns of CSV.
FIELDS = (
    "source",
    "path",
    "version",
    "kind",
    "envelope.codec",
    "envelope.stored_size",
    "envelope.raw_size",
    "topic",
    "scalable_topic",
    "cursor",
    "value",
)
OTHER_BYTES = "re-encoding gives other bytes (fields in another order or form), which mean the same"

NO_NAMES: Final[Mapping[str, PlaceNames]] = {}

# Adds to a value's document what lies elsewhere; returns why it cannot.
Complete = Callable[[ValueInput, Document], PulsarMetaError | None]


def emit_values(
    shell: Shell,
    values: Iterable[ValueInput],
    options: DecodeOptions,
    *,
    single: bool,
    complete: Complete = lambda value, document: None,
    names: Mapping[str, PlaceNames] = NO_NAMES,
) -> None:
    """Write what values say, report what is wrong with some, and leave with the gravest exit code.

    `names` has by paths what documents say beside them: whose value it is.
    """
    faults = Faults(shell)
    documents = _decoded(shell, values, options, faults, complete)
    documents = (_with_names(document, names) for document in documents)
    shell.emit(documents, Detail(document_lines, fields=FIELDS), single=single)
    faults.end()


def _with_names(document: Document, names: Mapping[str, PlaceNames]) -> Document:
    """Return a document with the names of its value behind its path."""
    found = names.get(document.get("path", ""))
    if not found:
        return document
    return {**{name: document[name] for name in ("source", "path")}, **found, **document}


def _decoded(
    shell: Shell,
    values: Iterable[ValueInput],
    options: DecodeOptions,
    faults: Faults,
    complete: Complete,
) -> Iterator[Document]:
    for value in values:
        if value.error is not None:
            faults(value.error)
            continue
        decoded = decode_document(
            value.data, source=value.source, path=value.path, version=value.version, options=options
        )
        _report_on(shell, value, decoded, faults)
        error = complete(value, decoded.document)
        if error is not None:
            faults(error)
        if decoded.document["value"] is not None or shell.speaks_json:
            yield decoded.document


def _report_on(shell: Shell, value: ValueInput, decoded: Decoded, faults: Faults) -> None:
    """Report on stderr what is wrong with a value, and where its bytes would not come back the same."""
    where = place(value)
    if decoded.error is not None:
        faults(decoded.error.within(where))
    elif not decoded.same_bytes:
        shell.warn(f"{where}: {OTHER_BYTES}")


def place(value: ValueInput) -> str:
    """Return where a value was found, for a message."""
    return " ".join(part for part in (value.source, value.path) if part)
