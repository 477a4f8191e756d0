"""`check-readable`: what a broker of some release could not load."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.names import MANAGED_LEDGERS
from pulsar_meta.jobs.rewrite.readable import Readability
from pulsar_meta.jobs.rewrite.releases import parse_version


def check_readable(
    shell: Shell,
    for_version: Annotated[
        list[str], typer.Option("--for-version", metavar="V", help="A Pulsar release (repeatable).")
    ],
    store: StoreUrl = None,
) -> None:
    """List the topics and cursors that a broker of a release could not load; exit 1 if there are any.

    Where no broker of that release was ever tried with such a record the verdict is unknown, which by itself
    is no fault.

    Examples:
      pulsar-meta check-readable --store rocksdb:data/metadata --for-version 4.2.4
    """
    for version in for_version:
        parse_version(version)
    found = Readability()
    with shell.store(store) as opened:
        shell.emit(found.documents(opened.scan(MANAGED_LEDGERS), for_version), FAULTS)
    unknown = (
        {}
        if not found.unknown
        else {counted(found.unknown, "records"): "whether these releases can load them is unknown"}
    )
    shell.account({"topics": found.topics, "cursors": found.cursors}, unknown)
    if found.faults:
        raise typer.Exit(Exit.FAULT)


def _row(fault: dict[str, Any]) -> list[str]:
    return [fault["topic"], fault.get("cursor", ""), fault["form"], fault["reason"], fault["verdict"]]


FAULTS = View(
    ["topic", "cursor", "form", "reason", "verdict"],
    _row,
    fields=("path", "version", "topic", "cursor", "form", "reason", "verdict"),
)
