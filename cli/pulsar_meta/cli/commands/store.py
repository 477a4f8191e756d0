"""`ls`, `get` and `tree`: looking around in one store."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

import typer

from pulsar_meta.cli.cursor_states import CursorStates
from pulsar_meta.cli.errors import Parts
from pulsar_meta.cli.options import AnyWhere, EntriesUrls, ShowPasswords, StoreUrl, Where
from pulsar_meta.cli.render.tables import Detail, Format, View
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.values import emit_values
from pulsar_meta.codecs.documents.document import DecodeOptions
from pulsar_meta.codecs.documents.kinds import checked_kind
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.entries.entry_sources import EntriesOnDemand
from pulsar_meta.jobs.values.places import paths_of, places_below, places_listed
from pulsar_meta.jobs.values.store_tree import list_children, walk
from pulsar_meta.jobs.values.value_inputs import named_values, value_at

# What lies at a path, by the names that commands take.
NAMES = ("topic", "scalable_topic", "cursor")


def ls(
    shell: Shell,
    where: AnyWhere = None,
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
    where: Where,
    store: StoreUrl = None,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="KIND", help="What it is, where the path does not say.")
    ] = None,
    entries: EntriesUrls = None,
    show_passwords: ShowPasswords = False,
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
    options = DecodeOptions(kind and checked_kind(kind), show_secrets=show_passwords)
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
    where: AnyWhere = None,
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
