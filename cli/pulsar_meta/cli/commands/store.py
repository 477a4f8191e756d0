"""`ls`, `get`, `tree`, `browse`, `put` and `rm`: read a store, or change one value in it."""

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
from pulsar_meta.cli.options import (
    EntriesUrls,
    OptionalPlace,
    OtherStores,
    PlaceArgument,
    ShowSecrets,
    StoreUrl,
    TextOptions,
)
from pulsar_meta.cli.render.tables import Detail, Format, View
from pulsar_meta.cli.repairing import Confirm, confirm_losses
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.cli.streams import input_name, read_input
from pulsar_meta.cli.values import emit_values
from pulsar_meta.codecs.documents.document import DecodeOptions
from pulsar_meta.codecs.documents.kinds import checked_kind
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import Document, read_json
from pulsar_meta.codecs.text_bytes import TextForm, text_to_bytes
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.entries.entry_sources import EntriesOnDemand
from pulsar_meta.jobs.repair.losses import NOTHING, Losses, change_losses, removal_losses
from pulsar_meta.jobs.rewrite.rules import put_document_rule, put_rule, remove_rule
from pulsar_meta.jobs.rewrite.run import rewrite_one
from pulsar_meta.jobs.values.places import one_path_of, path_of, paths_of, places_below, places_listed
from pulsar_meta.jobs.values.store_tree import list_children, walk
from pulsar_meta.jobs.values.value_inputs import named_values, value_at
from pulsar_meta.stores.base import ABSENT, current

# Fields with the name of the object at a path, which commands accept as a place.
NAMES = ("topic", "scalable_topic", "cursor")


def ls(
    shell: Shell,
    where: OptionalPlace = None,
    store: StoreUrl = None,
    details: Annotated[
        bool, typer.Option("--long", "-l", help="Also show size, version and time, and which are ephemeral.")
    ] = False,
) -> None:
    """List the values directly below a path.

    Use it to look for a path or a name; tree shows all levels at once.

    Examples:
      pulsar-meta ls /managed-ledgers/public/default --store zk://zk1:2181
      pulsar-meta ls topic public/default/orders -l --store rocksdb:data/metadata
    """
    places = where or ["/"]
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, places[1:2])
        paths = places_listed(opened, places)
        parts = Parts(shell, (list_children(opened, path, details=details) for path in paths))
        shell.emit(parts, _list_view(_label(places, len(paths)), details=details))
    parts.check()


def _list_view(label: str, *, details: bool) -> View:
    """Return the view of `ls`, which shows the field `label` as the name of a value."""
    if not details:
        return View(
            [label],
            lambda document: [document.get(label) or document["name"]],
            fields=("path", "name", "decoded", *NAMES),
        )
    return View(
        [label, "size (bytes)", "version", "modified", "ephemeral"],
        partial(_long, label),
        frozenset({"size (bytes)", "version"}),
        fields=("path", "name", "decoded", "size", "version", "modified", "ephemeral", *NAMES),
    )


def get(
    shell: Shell,
    where: PlaceArgument,
    store: StoreUrl = None,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="KIND", help="Kind of value, if the path does not tell.")
    ] = None,
    entries: EntriesUrls = None,
    show_secrets: ShowSecrets = False,
) -> None:
    """Show a value, decoded or as raw bytes.

    Use it to read the record of a topic, subscription, ledger or policy. The name of a partitioned topic
    shows all its partitions, and that of a scalable topic all its segments; the list of segments is at
    /topics/TENANT/NAMESPACE/NAME. While a subscription is in use, its state is in a ledger of the cursor: add
    --entries to show it.

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
            with EntriesOnDemand(urls, opened) as on_demand:
                states = CursorStates(opened, (lambda: on_demand.source) if urls else None, shell.warn)
                single = len(values) == 1
                return emit_values(shell, values, options, single=single, complete=states.add, names=names)
    if len(values) > 1:
        raise UsageError("-o raw prints one value: choose a partition or a segment")
    if values[0].error is not None:
        raise values[0].error
    return shell.emit_bytes([values[0].data])


def tree(
    shell: Shell,
    where: OptionalPlace = None,
    store: StoreUrl = None,
    depth: Annotated[
        int | None,
        typer.Option("--depth", "-d", min=0, help="Number of levels. Fewer levels need fewer requests."),
    ] = None,
) -> None:
    """Show all values below a path as a tree with sizes.

    Use it to see the structure of a store, or which part of it is large.

    Examples:
      pulsar-meta tree /managed-ledgers/public --store snapshot:all.ndjson -d 3
      pulsar-meta tree topic orders --store zk://zk1:2181 -o ndjson
    """
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, (where or [])[1:2])
        parts = Parts(shell, (walk(opened, path, depth) for path in places_below(opened, where or ["/"])))
        shell.emit(parts, TREE)
    parts.check()


def _label(where: list[str], count: int) -> str:
    """Return the field with the children's names, as commands accept them."""
    if where[0] == "namespace":
        return "topic"
    # The children of different partitions have the same names.
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
    """Browse a store on one screen, with values and findings.

    Use it to explore a store interactively. The tree is on the left. On the right is the decoded value; for
    a topic also a time line of its ledgers, the acknowledgements of its subscriptions, and with --entries its
    entries. Findings of check are marked in the tree. The bottom line lists the keys, and 80 by 24 characters
    are enough. Browse changes nothing. It scans the store only when you request a sum, search or check, and
    Escape stops the scan.

    Examples:
      pulsar-meta browse --store zk://zk1:2181 --entries bookie:
      pulsar-meta browse topic orders --store rocksdb:data/metadata
    """
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("browse needs a terminal: in a script, use ls, get, tree or check")
    url, urls = shell.store_url(store), tuple(entries or shell.settings.entries)
    from pulsar_meta.cli.browse.app import Browser
    from pulsar_meta.cli.browse.tree import Places

    browser = Browser(Places(url, urls, show_secrets), where or ())
    browser.run()
    ended = browser.end()
    if browser.fault is not None:
        raise browser.fault
    if not ended:
        # Otherwise Python waits for a thread that waits for a server.
        sys.stdout.flush()
        os._exit(Exit.OK)


Places = Annotated[list[str], typer.Argument(help="/a/path, topic NAME, cursor TOPIC NAME, ledger ID …")]
VersionOption = Annotated[int | None, typer.Option("--version", help="Version to replace, as get shows it.")]


def put(
    shell: Shell,
    where: Places,
    text: TextOptions,
    writing: WriteOptions,
    store: StoreUrl = None,
    file: Annotated[Path | None, typer.Option("--file", help="The new value. Default: stdin.")] = None,
    version: VersionOption = None,
    create: Annotated[bool, typer.Option("--create", help="Write only if there is no value.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the bytes unchanged, even if they look like JSON.")
    ] = False,
    confirm: Confirm = None,
    other_stores: OtherStores = None,
) -> None:
    """Write one value, from the JSON of get or from bytes.

    Use it to edit a value: save the output of get, change it, and put it back. JSON contains the version to
    replace; bytes need --version. If the new value makes data unreachable, the command prints how much, and
    asks for the topic's full name (--confirm): a ledger that leaves a list, entries that a cursor passes,
    acknowledgements, schema versions. --hex, --base64 and --escaped take bytes that another tool printed.

    Examples:
      pulsar-meta put topic public/default/orders --file orders.json
      pulsar-meta put /admin/flags/x --version 3 --raw < value
    """
    # An invalid place is refused before the command waits for stdin.
    path_of(where)
    form, data = text.form, read_input(file)
    if not data and file is None and not raw:
        raise UsageError("stdin is empty: add --raw to write an empty value")
    if form is not None:
        data = _converted(data, form, input_name(file))
    document = None if raw or form is not None else _document(data)
    read_version = None if document is None else _version(document)
    expected = ABSENT if create else version if version is not None else read_version
    if expected is None:
        raise UsageError("no version to replace: add --version V, as get shows it, or --create")
    rule = put_rule(data, expected) if document is None else put_document_rule(document, expected)
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        others = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
        path = one_path_of(opened, where)
        old = current(opened, path)
        new = rule(old).new
        losses = NOTHING if new is None else change_losses(opened, old, new, others)
        _confirm(shell, losses, confirm, writing)
        write(shell, opened, rewrite_one("put", opened, path, rule), writing)


def _converted(text: bytes, form: TextForm, source: str) -> bytes:
    try:
        return text_to_bytes(text, form)
    except ValueError as error:
        raise DecodeError(f"not {form}: {error}", source=source) from error


def _confirm(shell: Shell, losses: Losses, confirm: str | None, writing: WriteOptions) -> None:
    """Print the data that becomes unreachable, and have its name confirmed."""
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

    Use it for a value that brokers no longer need. Removing the record of a topic, subscription, schema or
    ledger makes data unreachable; the command prints how much, and asks for the topic's full name
    (--confirm). For a ledger, it reads every record that may refer to it, including those of other clusters
    in the same BookKeeper.

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
    """Return the version in a document, if it has one. Raises UsageError if it is not a number."""
    version = document.get("version")
    # A version above 2^53 is a string of digits.
    if version is not None and not re.fullmatch(r"-?\d{1,19}", str(version)):
        raise UsageError("the document's version is not a number")
    return None if version is None else int(str(version))


def _document(data: bytes) -> dict[str, object] | None:
    """Return the document that `decode` wrote, or None if the bytes are something else."""
    if not data.lstrip().startswith((b"{", b"[")):
        return None
    try:
        document = read_json(data, literal=True)
    except DecodeError:
        return None
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    return document if isinstance(document, dict) and {"kind", "value"} <= set(document) else None
