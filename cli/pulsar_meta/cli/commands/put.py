"""`put` and `rm`: one value, with the version that was read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.inputs import read_input
from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import read_json
from pulsar_meta.jobs.rewrite.rules import put_document_rule, put_rule, remove_rule
from pulsar_meta.jobs.rewrite.run import rewrite_one
from pulsar_meta.jobs.values.places import one_path_of, path_of
from pulsar_meta.stores.base import ABSENT

Where = Annotated[list[str], typer.Argument(help="/a/path, topic NAME, cursor TOPIC NAME, ledger ID …")]
VersionOption = Annotated[int | None, typer.Option("--version", help="The version that was read.")]


def put(
    shell: Shell,
    where: Where,
    writing: WriteOptions,
    store: StoreUrl = None,
    file: Annotated[Path | None, typer.Option("--file", help="The new value. Default: stdin.")] = None,
    version: VersionOption = None,
    create: Annotated[bool, typer.Option("--create", help="Write only if there is nothing yet.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Bytes as they are, also where they look like JSON.")
    ] = False,
) -> None:
    """Write one value: the JSON of decode (with the version in it), or bytes with --version.

    Examples:
      pulsar-meta put topic public/default/orders --file orders.json
      pulsar-meta put /admin/flags/x --version 3 --raw < value
    """
    # What is no place at all is refused before stdin is waited for.
    path_of(where)
    data = read_input(file)
    if not data and file is None and not raw:
        raise UsageError("nothing came on stdin; an empty value is written with --raw")
    document = None if raw else _document(data)
    held = None if document is None else _version(document)
    expected = ABSENT if create else version if version is not None else held
    if expected is None:
        raise UsageError("which version is it to replace? --version V, as read; --create for a new one")
    rule = put_rule(data, expected) if document is None else put_document_rule(document, expected)
    with open_for_writing(shell, store, writing) as opened:
        path = one_path_of(opened, where)
        write(shell, opened, rewrite_one("put", opened, path, rule), writing)


def rm(
    shell: Shell,
    where: Where,
    writing: WriteOptions,
    store: StoreUrl = None,
    version: VersionOption = None,
) -> None:
    """Remove one value; never what lies below it.

    Examples:
      pulsar-meta rm /admin/policies/old/ns --store zk://zk1:2181 --version 3
    """
    with open_for_writing(shell, store, writing) as opened:
        path = one_path_of(opened, where)
        rule = remove_rule(version, opened.children(path))
        write(shell, opened, rewrite_one("rm", opened, path, rule), writing)


def _version(document: dict[str, object]) -> int | None:
    """Return the version in a document, None where there is none."""
    version = document.get("version")
    # Beyond 2^53 it is a string of digits.
    if version is not None and not re.fullmatch(r"-?\d{1,19}", str(version)):
        raise UsageError("the document's version is no number")
    return None if version is None else int(str(version))


def _document(data: bytes) -> dict[str, object] | None:
    """Return the document that `decode` wrote, None where the bytes are anything else."""
    if not data.lstrip().startswith((b"{", b"[")):
        return None
    try:
        document = read_json(data, literal=True)
    except DecodeError:
        return None
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    return document if isinstance(document, dict) and {"kind", "value"} <= set(document) else None
