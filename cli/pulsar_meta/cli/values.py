"""Print values of a metadata store as documents, and report the values that can't be decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.render.tables import Detail, Format, Lines
from pulsar_meta.cli.render.text import harmless_json
from pulsar_meta.cli.render.values import document_lines
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.documents.document import Decoded, DecodeOptions, decode_document
from pulsar_meta.codecs.documents.kinds import ENVELOPED
from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import MANAGED_LEDGERS
from pulsar_meta.jobs.values.value_inputs import ValueInput, in_blocks

if TYPE_CHECKING:
    from pulsar_meta.codecs.documents.document_text import DocumentTexts
    from pulsar_meta.jobs.topics.related import PlaceNames

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
# Longer lines are written at once instead of being joined with others.
_LONG: Final = 1 << 16
OTHER_BYTES = "re-encoding would change the bytes (order or form of fields) but not the meaning"

NO_NAMES: Final[Mapping[str, PlaceNames]] = {}

# Adds information from other places to a value's document; returns an error if it can't.
Complete = Callable[[ValueInput, Document], PulsarMetaError | None]


def add_nothing(value: ValueInput, document: Document) -> None:
    """Add nothing to a value's document."""


def emit_values(
    shell: Shell,
    values: Iterable[ValueInput],
    options: DecodeOptions,
    *,
    single: bool,
    complete: Complete = add_nothing,
    names: Mapping[str, PlaceNames] = NO_NAMES,
) -> None:
    """Write values as documents and report broken ones. Raises typer.Exit with the highest exit code.

    `names` maps the paths of values to the names of their topic and cursor, which are added to the documents.
    """
    faults = Faults(shell)
    view = Detail(document_lines, fields=FIELDS)
    decoded = _decoded(shell, values, options, faults, complete)
    documents = (_with_names(document, names) for document in decoded)
    shell.emit(documents, view, single=single)
    faults.finish()


def emit_stored(shell: Shell, values: Iterable[ValueInput], options: DecodeOptions, *, single: bool) -> None:
    """Do the same as `emit_values`, but faster and without additions to the documents."""
    if not shell.is_json or shell.is_on_terminal:
        emit_values(shell, values, options, single=single)
        return
    faults = Faults(shell)
    shell.emit_lines(_written(shell, values, options, faults), Detail(document_lines), single=single)
    faults.finish()


def _written(
    shell: Shell, values: Iterable[ValueInput], options: DecodeOptions, faults: Faults
) -> Iterator[Document | Lines]:
    """Yield values as JSON documents; managed ledgers and cursors as rendered lines."""
    texts: DocumentTexts | None = None
    for block in in_blocks(values):
        if texts is None and any(_may_be_text(value, options) for value in block):
            # Imported late, because it loads protobuf, which values of other kinds don't need.
            from pulsar_meta.codecs.documents.document_text import DocumentTexts

            texts = DocumentTexts(options)
        rendered = texts.of(block) if texts is not None else repeat(None, len(block))
        yield from _parts(shell, block, rendered, options, faults)


def _parts(
    shell: Shell,
    block: Sequence[ValueInput],
    texts: Iterable[str | None],
    options: DecodeOptions,
    faults: Faults,
) -> Iterator[Document | Lines]:
    """Yield rendered values as lines, many at once for NDJSON, and the other values as documents."""
    lines: list[str] = []
    for value, text in zip(block, texts, strict=True):
        if text is not None and value.error is None:
            lines.append(text)
            if shell.format is Format.NDJSON and len(text) < _LONG:
                continue
        yield from _lines(lines)
        lines = []
        if text is None or value.error is not None:
            yield from _decoded(shell, (value,), options, faults, add_nothing)
    yield from _lines(lines)


def _lines(texts: Sequence[str]) -> Iterator[Lines]:
    if texts:
        yield Lines(harmless_json("\n".join(texts)) + "\n")


def _may_be_text(value: ValueInput, options: DecodeOptions) -> bool:
    if options.kind is not None:
        return options.kind in ENVELOPED
    return value.path is not None and value.path.startswith(MANAGED_LEDGERS)


def _with_names(document: Document, names: Mapping[str, PlaceNames]) -> Document:
    """Insert the names of a value after its path."""
    place_names = names.get(document.get("path", ""))
    if not place_names:
        return document
    return {**{name: document[name] for name in ("source", "path")}, **place_names, **document}


def _decoded(
    shell: Shell,
    values: Iterable[ValueInput],
    options: DecodeOptions,
    faults: Faults,
    complete: Complete,
) -> Iterator[Document]:
    for value in values:
        if value.error is not None:
            faults.report(value.error)
            continue
        decoded = decode_document(
            value.data, source=value.source, path=value.path, version=value.version, options=options
        )
        _report_on(shell, value, decoded, faults)
        error = complete(value, decoded.document)
        if error is not None:
            faults.report(error)
        if decoded.document["value"] is not None or shell.is_json:
            yield decoded.document


def _report_on(shell: Shell, value: ValueInput, decoded: Decoded, faults: Faults) -> None:
    """Report a value that can't be decoded, or whose bytes would change if it was encoded again."""
    location = place(value)
    if decoded.error is not None:
        faults.report(decoded.error.within(location))
    elif not decoded.same_bytes:
        shell.warn(f"{location}: {OTHER_BYTES}")


def place(value: ValueInput) -> str:
    """Return the source and path of a value, for messages."""
    return " ".join(part for part in (value.source, value.path) if part)
