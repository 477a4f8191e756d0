"""`pulsar-meta decode`: what values say, from files, stdin, a snapshot or a store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated

import typer

from pulsar_meta.cli.inputs import STDIN, open_input
from pulsar_meta.cli.options import ShowPasswords, StoreUrl
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.values import emit_stored, place
from pulsar_meta.codecs.compression import DEFAULT_MAX_SIZE
from pulsar_meta.codecs.documents.document import DecodeOptions
from pulsar_meta.codecs.documents.kinds import ENVELOPED, KINDS, checked_kind, kind_of
from pulsar_meta.codecs.documents.value import JSON_KINDS
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.jobs.values.value_inputs import (
    InputForm,
    ValueInput,
    is_one_value,
    is_stored_path,
    values_of_files,
    values_of_store,
)

# What these are made of may look like a snapshot.
READ_AS_TEXT = (*JSON_KINDS, "Text", "Bytes")


def decode(
    shell: Shell,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|PREFIX",
            help="Files, directories, patterns, snapshots, - or nothing for stdin; or paths of a store.",
        ),
    ] = None,
    store: StoreUrl = None,
    kind: Annotated[
        str | None,
        typer.Option("--type", metavar="KIND", help=f"What the values are: {', '.join(KINDS)}."),
    ] = None,
    from_hex: Annotated[bool, typer.Option("--hex", help="The files hold hexadecimal digits.")] = False,
    from_base64: Annotated[bool, typer.Option("--base64", help="The files hold base64.")] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="With --hex or --base64: each line is a value of its own.")
    ] = False,
    max_size: Annotated[
        int, typer.Option("--max-size", min=1, metavar="BYTES", help="Unpack no value to more than this.")
    ] = DEFAULT_MAX_SIZE,
    show_passwords: ShowPasswords = False,
) -> None:
    """Show what values of a metadata store say: managed ledgers, cursors, ledger metadata, and the rest.

    The kind comes from --type, else from the path, else from the content; where several fit, give --type.
    With --type Json, Text or Bytes a file is one value, also where it looks like a snapshot. -o raw writes
    the bytes of one value, out of the envelope if it is in one. Broken values are reported and the others
    shown, with exit code 4; 3 where nothing lies at or below a path.

    Examples:
      pulsar-meta decode cursor.bin --type ManagedCursorInfo
      pulsar-meta decode - --hex --type ManagedLedgerInfo < value.hex
      pulsar-meta decode --store rocksdb:data/metadata /managed-ledgers -o json
    """
    options = DecodeOptions(kind and checked_kind(kind), max_size, show_passwords)
    snapshots = options.kind not in READ_AS_TEXT
    form = InputForm(_text_form(from_hex, from_base64, lines), lines, max_size, snapshots)
    inputs = inputs or ([] if store or sys.stdin.isatty() else [STDIN])
    store = store or _store_of_paths(shell, inputs)
    values = _open_inputs(shell, inputs, store, form)
    if shell.format is Format.RAW:
        shell.emit_bytes([_raw_bytes(list(islice(values, 2)), options)])
        return
    first = list(islice(values, 1))
    single = store is None and is_one_value(inputs, form, first)
    emit_stored(shell, chain(first, values), options, single=single)


def _store_of_paths(shell: Shell, inputs: list[str]) -> str | None:
    """Return the store of the environment or the profile where all inputs are paths of one and no files."""
    named = bool(inputs) and all(map(is_stored_path, inputs))
    return shell.settings.store if named else None


def _text_form(from_hex: bool, from_base64: bool, lines: bool) -> str:
    if from_hex and from_base64:
        raise UsageError("--hex and --base64 exclude each other")
    if lines and not (from_hex or from_base64):
        raise UsageError("--lines goes with --hex or --base64; the lines of a snapshot are recognised")
    return "hex" if from_hex else "base64" if from_base64 else "raw"


def _open_inputs(shell: Shell, inputs: list[str], store: str | None, form: InputForm) -> Iterator[ValueInput]:
    if store is None:
        if not inputs:
            raise UsageError("nothing to decode: name files, - for stdin, or --store URL")
        yield from values_of_files(inputs, form, open_input)
        return
    with shell.store(store) as opened:
        for prefix in inputs or ["/"]:
            yield from values_of_store(opened, prefix)


def _raw_bytes(values: list[ValueInput], options: DecodeOptions) -> bytes:
    """Return the bytes of the only value, out of its envelope where its kind may have one."""
    if len(values) != 1:
        raise UsageError("-o raw is for one value, there are several: -o ndjson shows them all")
    value = values[0]
    if value.error is not None:
        raise value.error
    kind = options.kind
    if kind is None and value.path is not None:
        kind = kind_of(value.data, path=value.path)
    if kind is not None and kind not in ENVELOPED:
        return value.data
    try:
        envelope = open_envelope(value.data, max_size=options.max_size)
    except DecodeError as error:
        raise error.within(place(value)) from error
    return value.data if envelope is None else envelope.payload
