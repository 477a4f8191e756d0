"""Values of a metadata store shown decoded, and on stderr what is wrong with some of them."""

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
from pulsar_meta.jobs.topics.segments import PlaceNames
from pulsar_meta.jobs.values.value_inputs import ValueInput, in_blocks

if TYPE_CHECKING:
    from pulsar_meta.codecs.documents.document_text import DocumentTexts

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
# Lines that are longer are not kept to be written together with others.
_LONG: Final = 1 << 16
OTHER_BYTES = "re-encoding gives other bytes (fields in another order or form), which mean the same"

NO_NAMES: Final[Mapping[str, PlaceNames]] = {}

# Adds to a value's document what lies elsewhere; returns why it cannot.
Complete = Callable[[ValueInput, Document], PulsarMetaError | None]


def nothing(value: ValueInput, document: Document) -> None:
    """Add nothing to a value's document."""


def emit_values(
    shell: Shell,
    values: Iterable[ValueInput],
    options: DecodeOptions,
    *,
    single: bool,
    complete: Complete = nothing,
    names: Mapping[str, PlaceNames] = NO_NAMES,
) -> None:
    """Write what values say, report what is wrong with some, and leave with the gravest exit code.

    `names` has by paths what documents say beside them: whose value it is.
    """
    faults = Faults(shell)
    view = Detail(document_lines, fields=FIELDS)
    documents = (_with_names(one, names) for one in _decoded(shell, values, options, faults, complete))
    shell.emit(documents, view, single=single)
    faults.end()


def emit_stored(shell: Shell, values: Iterable[ValueInput], options: DecodeOptions, *, single: bool) -> None:
    """Write what values say as they were stored, with nothing added; as `emit_values` does, but faster."""
    if not shell.speaks_json or shell.is_shown:
        emit_values(shell, values, options, single=single)
        return
    faults = Faults(shell)
    shell.emit_lines(_written(shell, values, options, faults), Detail(document_lines), single=single)
    faults.end()


def _written(
    shell: Shell, values: Iterable[ValueInput], options: DecodeOptions, faults: Faults
) -> Iterator[Document | Lines]:
    """Yield the JSON of values, of managed ledgers and cursors as text."""
    texts: DocumentTexts | None = None
    for block in in_blocks(values):
        if texts is None and any(_may_be_text(value, options) for value in block):
            # It loads protobuf, which values of other kinds do without.
            from pulsar_meta.codecs.documents.document_text import DocumentTexts

            texts = DocumentTexts(options)
        found = texts.of(block) if texts is not None else repeat(None, len(block))
        yield from _parts(shell, block, found, options, faults)


def _parts(
    shell: Shell,
    block: Sequence[ValueInput],
    texts: Iterable[str | None],
    options: DecodeOptions,
    faults: Faults,
) -> Iterator[Document | Lines]:
    """Yield texts where there are some, documents elsewhere; of NDJSON many lines at once."""
    lines: list[str] = []
    for value, text in zip(block, texts, strict=True):
        if text is not None and value.error is None:
            lines.append(text)
            if shell.format is Format.NDJSON and len(text) < _LONG:
                continue
        yield from _lines(lines)
        lines = []
        if text is None or value.error is not None:
            yield from _decoded(shell, (value,), options, faults, nothing)
    yield from _lines(lines)


def _lines(texts: Sequence[str]) -> Iterator[Lines]:
    if texts:
        yield Lines(harmless_json("\n".join(texts)) + "\n")


def _may_be_text(value: ValueInput, options: DecodeOptions) -> bool:
    if options.kind is not None:
        return options.kind in ENVELOPED
    return value.path is not None and value.path.startswith(MANAGED_LEDGERS)


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
