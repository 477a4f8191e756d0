"""`history`: what became of a value, change by change."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_meta.cli.options import StoreUrl, Where
from pulsar_meta.cli.render.changes import change_summary
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.documents.document import DecodeOptions
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.values.history import history
from pulsar_meta.jobs.values.places import path_of

COLUMNS = ["time", "transaction", "change", "version", "size", "writer", "differences"]
HEADINGS = [f"{name} (bytes)" if name == "size" else name for name in COLUMNS]


def history_of(
    shell: Shell,
    where: Where,
    store: StoreUrl = None,
    show_passwords: Annotated[
        bool, typer.Option("--show-passwords", help="Do not redact passwords and other secrets.")
    ] = False,
) -> None:
    """Show every change of a value: when, by whom, and which fields went from what to what.

    From ZooKeeper's own files (zk-files:), as far back as its transaction logs go. It shows the record:
    positions of loaded topics move in cursor ledgers, which it does not see.

    Examples:
      pulsar-meta history cursor orders audit --store zk-files:/var/lib/zookeeper
      pulsar-meta history /admin/policies/a/b --store zk-files:/backup/version-2
    """
    options = DecodeOptions(show_secrets=show_passwords)
    with shell.store(store) as opened:
        view = View(
            HEADINGS, _row, right=frozenset({"transaction", "version", "size (bytes)"}), fields=COLUMNS
        )
        shell.emit(history(opened, path_of(where), options), view)


def _row(document: Document) -> list[str]:
    cells = [str(document.get(name, "")) for name in COLUMNS[:-1]]
    return [*cells, change_summary(document["differences"])]
