"""`ls`, `get`, `tree`, `browse`, `put` and `rm`: read one store, or change one value in it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.cursor_states import CursorStates
from pulsar_meta.cli.errors import Parts
from pulsar_meta.cli.inputs import read_input
from pulsar_meta.cli.options import (
    EntriesUrls,
    OptionalPlace,
    OtherStores,
    PlaceArgument,
    ShowSecrets,
    StoreUrl,
)
from pulsar_meta.cli.render.tables import Detail, Format, View
from pulsar_meta.cli.repairing import Confirm, confirm_losses
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.cli.values import emit_values
from pulsar_meta.codecs.documents.document import DecodeOptions
from pulsar_meta.codecs.documents.kinds import checked_kind
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import Document, read_json
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.entries.entry_sources import EntriesOnDemand
from pulsar_meta.jobs.repair.losses import NOTHING, Losses, change_losses, removal_losses
from pulsar_meta.jobs.rewrite.rules import current, put_document_rule, put_rule, remove_rule
from pulsar_meta.jobs.rewrite.run import rewrite_one
from pulsar_meta.jobs.values.places import one_path_of, path_of, paths_of, places_below, places_listed
from pulsar_meta.jobs.values.store_tree import list_children, walk
from pulsar_meta.jobs.values.value_inputs import named_values, value_at
from pulsar_meta.stores.base import ABSENT

# What lies at a path, by the names that commands take.
NAMES = ("topic", "scalable_topic", "cursor")


def ls(
    shell: Shell,
    where: OptionalPlace = None,
    store: StoreUrl = None,
    details: Annotated[
        bool, typer.Option("--long", "-l", help="Read each value: size, version, time, whether ephemeral.")
    ] = False,
) -> None:
    """List what lies directly below a path.

    Examples:
      pulsar-meta ls /managed-ledgers/public/default --store zk://zk1:2181
      pulsar-meta ls topic public/default/orders -l --store rocksdb:data/metadata
    """
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, (where or [])[1:2])
        paths = places_listed(opened, where or ["/"])
        label = _label(where or ["/"], len(paths))
        view = (
            View(
                [label, "size (bytes)", "version", "modified", "ephemeral"],
                partial(_long, label),
                frozenset({"size (bytes)", "version"}),
                fields=(
                    "path",
                    "name",
                    "decoded",
                    "size",
                    "version",
                    "modified",
                    "ephemeral",
                    *NAMES,
                ),
            )
            if details
            else View(
                [label],
                lambda document: [document.get(label) or document["name"]],
                fields=("path", "name", "decoded", *NAMES),
            )
        )
        found = Parts(shell, (list_children(opened, path, details=details) for path in paths))
        shell.emit(found, view)
    found.check()


def get(
    shell: Shell,
    where: PlaceArgument,
    store: StoreUrl = None,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="KIND", help="What it is, where the path does not say.")
    ] = None,
    entries: EntriesUrls = None,
    show_secrets: ShowSecrets = False,
) -> None:
    """Show one value, decoded; its bytes with -o raw.

    Of a partitioned topic those of all partitions, of a scalable topic those of all segments; the list of its
    segments is at /topics/TENANT/NAMESPACE/NAME.

    The state of a cursor that is in use lies in a ledger of its own: it is shown where --entries has that.

    Examples:
      pulsar-meta get topic public/default/orders --store zk://zk1:2181
      pulsar-meta get cursor public/default/orders my-subscription -o json
      pulsar-meta get cursor orders audit --store zk://zk1:2181 --entries bookie:
      pulsar-meta get ledger 123 -o raw > ledger-123.bin
    """
    options = DecodeOptions(kind and checked_kind(kind), show_secrets=show_secrets)
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, where[1:2])
        values = [value_at(opened, path) for path in paths_of(opened, where)]
        if shell.format is not Format.RAW:
            names = named_values(opened, values)
            urls = entries or shell.settings.entries
            with EntriesOnDemand(urls, opened) as held:
                states = CursorStates(opened, (lambda: held.source) if urls else None, shell.warn)
                single = len(values) == 1
                return emit_values(shell, values, options, single=single, complete=states.add, names=names)
    if len(values) > 1:
        raise UsageError("-o raw is for one value: name a partition or a segment")
    if values[0].error is not None:
        raise values[0].error
    return shell.emit_bytes([values[0].data])


def tree(
    shell: Shell,
    where: OptionalPlace = None,
    store: StoreUrl = None,
    depth: Annotated[
        int | None,
        typer.Option("--depth", "-d", min=0, help="No deeper than this; asks only for what it shows."),
    ] = None,
) -> None:
    """Show everything below a path as a tree, with sizes.

    Examples:
      pulsar-meta tree /managed-ledgers/public --store snapshot:all.ndjson -d 3
    """
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, (where or [])[1:2])
        found = Parts(shell, (walk(opened, path, depth) for path in places_below(opened, where or ["/"])))
        shell.emit(found, TREE)
    found.check()


def _label(where: list[str], count: int) -> str:
    """Return which name of the children is shown: that which commands take, after what was asked for."""
    if where[0] == "namespace":
        return "topic"
    # Of several partitions each has children of the same names.
    return "path" if count > 1 else "cursor" if where[0] == "topic" else "name"


def _long(label: str, document: Document) -> list[str]:
    name = document.get(label) or document["name"]
    if "size" not in document:
        return [name, "-", "-", "-", "-"]
    modified = iso_time(document["modified"]) if "modified" in document else "-"
    ephemeral = "ephemeral" if document["ephemeral"] else "-"
    return [name, str(document["size"]), str(document["version"]), modified, ephemeral]


def _branch(document: Document) -> Iterable[str]:
    size = f"  {document['size']} bytes" if document.get("size") else ""
    decoded = f"  ({document['decoded']})" if "decoded" in document else ""
    label = document["path"] if document["depth"] == 0 else document["name"]
    yield "  " * document["depth"] + label + decoded + size


TREE = Detail(_branch, fields=("path", "name", "decoded", "depth", "size", "version", "ephemeral", *NAMES))


def browse(
    shell: Shell,
    where: OptionalPlace = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    show_secrets: ShowSecrets = False,
) -> None:
    """Look around in a store on one screen: a tree at the left, what lies at a place of it at the right.

    The right side has the value, decoded; of a topic the ledgers on a line of time, the subscriptions with
    what they have acknowledged as strips, and with --entries the entries, page by page; and what check finds,
    which is marked in the tree, too. Keys are at the bottom, and 80 by 24 characters are enough. Nothing is
    changed; sums, searches and checks go over the store only when they are asked for, and Escape stops them.

    Examples:
      pulsar-meta browse --store zk://zk1:2181 --entries bookie:
      pulsar-meta browse topic orders --store rocksdb:data/metadata
    """
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("browse is for a terminal: in a pipe or a script take ls, get, tree, check")
    url, urls = shell.store_url(store), tuple(entries or shell.settings.entries)
    from pulsar_meta.cli.browse.app import Browser
    from pulsar_meta.cli.browse.tree import Places

    browser = Browser(Places(url, urls, show_secrets), where or ())
    browser.run()
    ended = browser.end()
    if browser.fault is not None:
        raise browser.fault
    if not ended:
        # A server that does not answer holds a thread: Python would wait for its libraries.
        sys.stdout.flush()
        os._exit(Exit.OK)


Places = Annotated[list[str], typer.Argument(help="/a/path, topic NAME, cursor TOPIC NAME, ledger ID …")]
VersionOption = Annotated[int | None, typer.Option("--version", help="The version that was read.")]


def put(
    shell: Shell,
    where: Places,
    writing: WriteOptions,
    store: StoreUrl = None,
    file: Annotated[Path | None, typer.Option("--file", help="The new value. Default: stdin.")] = None,
    version: VersionOption = None,
    create: Annotated[bool, typer.Option("--create", help="Write only if there is nothing yet.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Bytes as they are, also where they look like JSON.")
    ] = False,
    confirm: Confirm = None,
    other_stores: OtherStores = None,
) -> None:
    """Write one value: the JSON of decode (with the version in it), or bytes with --version.

    If the new value makes data unreachable, the command says how much and asks for the topic's full name
    (--confirm): a ledger that leaves a list, entries that a cursor passes, acknowledgements, schema versions.

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
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        others = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
        path = one_path_of(opened, where)
        seen = current(opened, path)
        new = rule(seen).new
        losses = NOTHING if new is None else change_losses(opened, seen, new, others)
        _confirm(shell, losses, confirm, writing)
        write(shell, opened, rewrite_one("put", opened, path, rule), writing)


def _confirm(shell: Shell, losses: Losses, confirm: str | None, writing: WriteOptions) -> None:
    """Print what becomes unreachable, and ask for its name."""
    for text in losses.texts:
        shell.warn(text)
    confirm_losses(losses.confirm, confirm, writing)


def rm(
    shell: Shell,
    where: Places,
    writing: WriteOptions,
    store: StoreUrl = None,
    version: VersionOption = None,
    confirm: Confirm = None,
    other_stores: OtherStores = None,
) -> None:
    """Remove one value, but no values below it.

    Removing the record of a topic, subscription, schema or ledger makes data unreachable. The command says
    how much, and asks for the topic's full name (--confirm). For a ledger it reads every record that may
    name it, also those of other clusters in the same BookKeeper.

    Examples:
      pulsar-meta rm /admin/policies/old/ns --store zk://zk1:2181 --version 3
      pulsar-meta rm ledger 4711 --dry-run
    """
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        others = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
        path = one_path_of(opened, where)
        children = opened.children(path)
        losses = NOTHING if children else removal_losses(opened, current(opened, path), others)
        _confirm(shell, losses, confirm, writing)
        write(shell, opened, rewrite_one("rm", opened, path, remove_rule(version, children)), writing)


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
