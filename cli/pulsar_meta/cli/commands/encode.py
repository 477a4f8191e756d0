"""`pulsar-meta encode`: the JSON of `decode` back into bytes."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import typer

from pulsar_meta.cli.inputs import STDIN, read_text
from pulsar_meta.cli.options import Codec
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.documents.document import ORDER_LOST, Encoded, encode_document, rounded_note
from pulsar_meta.codecs.documents.kinds import ENVELOPED, checked_kind
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import read_json_sequence


def encode(
    shell: Shell,
    file: Annotated[
        str | None, typer.Argument(help="JSON of decode: a document, a list, or NDJSON. Default: stdin.")
    ] = None,
    compression: Annotated[
        Codec | None,
        typer.Option(
            "--compression", help="Compress with this codec; none: no envelope. Default: the document's."
        ),
    ] = None,
    threshold: Annotated[
        int | None,
        typer.Option("--threshold", min=0, metavar="BYTES", help="Compress only what is larger than this."),
    ] = None,
) -> None:
    """Turn the JSON of decode back into bytes; several values come out as lines of a snapshot.

    -o ndjson writes the line of a snapshot for a single value, too.

    Examples:
      pulsar-meta decode cursor.bin -o json | pulsar-meta encode > again.bin
      pulsar-meta encode cursor.json --compression zstd --output cursor.bin
    """
    if shell.output_format not in (None, Format.RAW, Format.NDJSON):
        raise UsageError(f"-o {shell.output_format}: there are bytes (raw) or lines of a snapshot (ndjson)")
    source = file or STDIN
    if file in (None, STDIN) and sys.stdin.isatty():
        raise UsageError("nothing to encode: name a file with the JSON of decode, or pipe it in")
    documents = _documents(read_text(file, source), source)
    encoded = _encoded(shell, documents, source, compression, threshold)
    first = list(_first_two(encoded))
    if not first:
        raise UsageError("nothing to encode: no document in the input", source=source)
    if shell.output_format is Format.RAW and len(first) > 1:
        raise UsageError("-o raw is for one value, there are several: -o ndjson makes a snapshot of them")
    if shell.output_format is Format.NDJSON or len(first) > 1:
        _emit_snapshot(shell, chain(first, encoded))
    else:
        shell.emit_bytes([first[0].data])


def _documents(text: str, source: str) -> Iterator[object]:
    """Yield the documents in JSON text: one, a list of them, or one after the other (NDJSON)."""
    for found in read_json_sequence(text, source=source, literal=True):
        yield from found if isinstance(found, list) else [found]


def _encoded(
    shell: Shell, documents: Iterator[object], source: str, compression: Codec | None, threshold: int | None
) -> Iterator[Encoded]:
    bare: set[str] = set()
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
            _warn_of_bare(shell, document, bare)
        yield encoded


def _warn_of_bare(shell: Shell, document: Any, warned: set[str]) -> None:
    """Warn once of each kind that brokers never compress that it was not compressed."""
    kind = checked_kind(document["kind"])
    if kind not in ENVELOPED and kind not in warned:
        warned.add(kind)
        shell.warn(f"{kind}: no broker reads a compressed one, it stays as it is")


def _first_two(encoded: Iterator[Encoded]) -> Iterator[Encoded]:
    for _ in range(2):
        found = next(encoded, None)
        if found is None:
            return
        yield found


def _emit_snapshot(shell: Shell, encoded: Iterator[Encoded]) -> None:
    with shell.text_out() as out:
        for at, value in enumerate(encoded):
            if value.path is None:
                raise UsageError(
                    f"document {at + 1} has no path: several values come out as lines of a snapshot"
                )
            line = {
                "path": value.path,
                "version": value.version,
                "value": base64.b64encode(value.data).decode(),
            }
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
