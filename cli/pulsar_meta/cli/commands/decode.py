"""`decode`, `encode` and `schema`: convert values to documents and back, and describe the documents."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated, Any, TypedDict

import typer

from pulsar_meta.cli.options import Codec, ShowSecrets, StoreUrl, TextOptions
from pulsar_meta.cli.render.tables import Format, View
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.streams import STDIN, open_input, read_lines, read_text
from pulsar_meta.cli.values import emit_stored, place
from pulsar_meta.codecs.compression import DEFAULT_MAX_SIZE
from pulsar_meta.codecs.documents.document import (
    ORDER_LOST,
    DecodeOptions,
    Encoded,
    encode_document,
    rounded_note,
)
from pulsar_meta.codecs.documents.kinds import ENVELOPED, KINDS, checked_kind, kind_of
from pulsar_meta.codecs.documents.value import JSON_KINDS
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import read_json_sequence
from pulsar_meta.codecs.text_bytes import TextForm
from pulsar_meta.jobs.values.value_inputs import (
    InputForm,
    ValueInput,
    is_one_value,
    is_stored_path,
    values_of_files,
    values_of_store,
)

# Files of these kinds may look like a snapshot.
READ_AS_TEXT = (*JSON_KINDS, "Text", "Bytes")


def decode(
    shell: Shell,
    text: TextOptions,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|PREFIX",
            help="Files, directories, globs, snapshots, or paths of a store. Default: stdin.",
        ),
    ] = None,
    store: StoreUrl = None,
    kind: Annotated[
        str | None,
        typer.Option("--type", metavar="KIND", help=f"Kind of the values: {', '.join(KINDS)}."),
    ] = None,
    stdin_names: Annotated[
        bool, typer.Option("--stdin-names", help="Read the names of files from stdin, one per line.")
    ] = False,
    lines: Annotated[
        bool,
        typer.Option("--lines", help="With --hex, --base64 or --escaped, decode each line as a value."),
    ] = False,
    max_size: Annotated[
        int, typer.Option("--max-size", min=1, metavar="BYTES", help="Largest uncompressed value.")
    ] = DEFAULT_MAX_SIZE,
    show_secrets: ShowSecrets = False,
) -> None:
    """Decode metadata values from files or from a store.

    Use it for bytes that you copied from a store, or to see all values below a path. The kind of a value
    comes from --type, else from the path, else from the content; if several kinds fit, add --type. Many files
    are decoded much faster by one command, with FILE arguments or --stdin-names, than by a loop. With
    --type Json, Text or Bytes, a file is one value even if it looks like a snapshot. -o raw writes the bytes
    of one value, uncompressed. If a value is corrupt, it is reported, the others are shown, and the exit code
    is 4. The exit code is 3 if a path has no values.

    Examples:
      pulsar-meta decode cursor.bin --type ManagedCursorInfo
      pulsar-meta decode - --hex --type ManagedLedgerInfo < value.hex
      pulsar-meta decode --store rocksdb:data/metadata /managed-ledgers -o json
      find values -name '*.bin' | pulsar-meta decode --stdin-names -o ndjson
    """
    options = DecodeOptions(kind and checked_kind(kind), max_size, show_secrets)
    snapshots = options.kind not in READ_AS_TEXT
    form = InputForm(_text_form(text, lines), lines, max_size, snapshots)
    reads_stdin = not (inputs or store or stdin_names)
    if stdin_names and (inputs or store):
        raise UsageError("--stdin-names can't be combined with FILE arguments or --store")
    inputs = [STDIN] if reads_stdin and not sys.stdin.isatty() else inputs or []
    store = store or _store_of_paths(shell, inputs)
    values = values_of_files(_listed_names(), form, open_input) if stdin_names else None
    values = values or _open_inputs(shell, inputs, store, form)
    if shell.format is Format.RAW:
        shell.emit_bytes([_raw_bytes(list(islice(values, 2)), options)])
        return
    first = list(islice(values, 1))
    if reads_stdin and first and not first[0].data and not first[0].error:
        raise UsageError(
            "stdin is empty: add files, paths of a store such as /managed-ledgers, or --store URL"
        )
    single = store is None and not stdin_names and is_one_value(inputs, form, first)
    emit_stored(shell, chain(first, values), options, single=single)


def _listed_names() -> Iterator[str]:
    """Yield the names on stdin. `-`, which would be stdin itself, is the file of that name."""
    for line in read_lines(STDIN):
        if name := line.rstrip("\r\n"):
            yield f"./{name}" if name == STDIN else name


def _store_of_paths(shell: Shell, inputs: list[str]) -> str | None:
    """Return the configured store if all inputs are paths in a store instead of files."""
    return shell.settings.store if inputs and all(map(is_stored_path, inputs)) else None


def _text_form(text: TextOptions, lines: bool) -> TextForm | None:
    if lines and text.form is None:
        raise UsageError("--lines needs --hex, --base64 or --escaped (snapshots don't need --lines)")
    return text.form


def _open_inputs(shell: Shell, inputs: list[str], store: str | None, form: InputForm) -> Iterator[ValueInput]:
    if store is None:
        if not inputs:
            raise UsageError("nothing to decode: add files, - for stdin, or --store URL")
        yield from values_of_files(inputs, form, open_input)
        return
    with shell.store(store) as opened:
        for prefix in inputs or ["/"]:
            yield from values_of_store(opened, prefix)


def _raw_bytes(values: list[ValueInput], options: DecodeOptions) -> bytes:
    """Return the uncompressed bytes of the only value. Raises UsageError if there are several."""
    if len(values) != 1:
        raise UsageError("-o raw prints one value, but there are several: use -o ndjson")
    value = values[0]
    if value.error is not None:
        raise value.error
    kind = options.kind
    if kind is None and value.path is not None:
        kind = kind_of(value.data, path=value.path)
    if kind is not None and kind not in ENVELOPED:
        return value.data
    # Imported late, because it imports protobuf, which is slow.
    from pulsar_meta.codecs.metadata.envelope import open_envelope

    try:
        envelope = open_envelope(value.data, max_size=options.max_size)
    except DecodeError as error:
        raise error.within(place(value)) from error
    return value.data if envelope is None else envelope.payload


def encode(
    shell: Shell,
    file: Annotated[
        str | None, typer.Argument(help="JSON of decode: document, list or NDJSON. Default: stdin.")
    ] = None,
    compression: Annotated[
        Codec | None,
        typer.Option("--compression", help="Codec; none writes no envelope. Default: the document's codec."),
    ] = None,
    threshold: Annotated[
        int | None,
        typer.Option("--threshold", min=0, metavar="BYTES", help="Compress only larger values."),
    ] = None,
) -> None:
    """Encode the JSON of decode as bytes, or as a snapshot.

    Use it after you edited the output of decode, or to change a value's codec. Several values are written as
    lines of a snapshot; with -o ndjson, a single value as well.

    Examples:
      pulsar-meta decode cursor.bin -o json | pulsar-meta encode > again.bin
      pulsar-meta encode cursor.json --compression zstd --output cursor.bin
    """
    if shell.output_format not in (None, Format.RAW, Format.NDJSON):
        raise UsageError(f"invalid -o {shell.output_format}: choose raw or ndjson (lines of a snapshot)")
    source = file or STDIN
    if file in (None, STDIN) and sys.stdin.isatty():
        raise UsageError("nothing to encode: add a file with the JSON of decode, or pipe it to stdin")
    documents = _documents(read_text(file, source), source)
    encoded = _encoded(shell, documents, source, compression, threshold)
    first = list(islice(encoded, 2))
    if not first:
        raise UsageError("nothing to encode: the input has no documents", source=source)
    if shell.output_format is Format.RAW and len(first) > 1:
        raise UsageError("-o raw writes one value, but there are several: use -o ndjson to write a snapshot")
    if shell.output_format is Format.NDJSON or len(first) > 1:
        _emit_snapshot(shell, chain(first, encoded))
    else:
        shell.emit_bytes([first[0].data])


def _documents(text: str, source: str) -> Iterator[object]:
    """Yield the documents in JSON text: a document, a list, or NDJSON."""
    for part in read_json_sequence(text, source=source):
        yield from part if isinstance(part, list) else [part]


def _encoded(
    shell: Shell, documents: Iterator[object], source: str, compression: Codec | None, threshold: int | None
) -> Iterator[Encoded]:
    warned: set[str] = set()
    for at, document in enumerate(documents):
        place = f"{source}: document {at + 1}"
        try:
            encoded = encode_document(document, codec=compression, threshold=threshold)
        except DecodeError as error:
            raise DecodeError(error.message.removeprefix("document: "), source=place) from error
        if not encoded.order_kept:
            shell.warn(f"{place}: {ORDER_LOST}")
        if encoded.rounded:
            shell.warn(f"{place}: {rounded_note(encoded.rounded)}")
        if compression not in (None, Codec.NONE):
            _warn_of_uncompressed(shell, document, warned)
        yield encoded


def _warn_of_uncompressed(shell: Shell, document: Any, warned: set[str]) -> None:
    """Warn once per kind that it stays uncompressed, because brokers can't read it compressed."""
    kind = checked_kind(document["kind"])
    if kind not in ENVELOPED and kind not in warned:
        warned.add(kind)
        shell.warn(f"{kind} stays uncompressed, because brokers can't read it compressed")


def _emit_snapshot(shell: Shell, encoded: Iterator[Encoded]) -> None:
    with shell.text_out() as out:
        for at, value in enumerate(encoded):
            if value.path is None:
                raise UsageError(f"document {at + 1} has no path, which every line of a snapshot needs")
            line = {
                "path": value.path,
                "version": value.version,
                "value": base64.b64encode(value.data).decode(),
            }
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


class SchemaName(TypedDict):
    """The name of a schema, and a description of the documents that it is for."""

    name: str
    of: str


def schema(
    shell: Shell,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A command, or another name in the list.")
    ] = None,
) -> None:
    """Print the JSON Schema of a command's JSON output.

    Use it to validate output, or to generate types for your program. Without a name, lists the schemas. A
    schema accepts one document or a list. A release may add fields; existing fields keep their names and
    types until the next major version.

    Examples:
      pulsar-meta schema check > check.json
      pulsar-meta check -o json | check-jsonschema --schemafile check.json -
    """
    # Imported late, because `decode` does not need it.
    from pulsar_meta.cli.schemas import NAMES, description_of, schema_of

    if name is None:
        names: list[SchemaName] = [{"name": each, "of": description_of(each)} for each in NAMES]
        shell.emit(names, VIEW)
        return
    if name not in NAMES:
        raise NotFoundError(f"no schema {name!r}: list the schemas with pulsar-meta schema")
    with shell.text_out() as out:
        out.write(json.dumps(schema_of(name), indent=2) + "\n")


VIEW = View(["name", "of"], lambda row: [row["name"], row["of"]], fields=("name", "of"))
