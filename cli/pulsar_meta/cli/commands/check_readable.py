"""`check-readable`: what a broker of some release could not load."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.names import MANAGED_LEDGERS
from pulsar_meta.jobs.rewrite.readable import find_unreadable
from pulsar_meta.jobs.rewrite.releases import parse_version


def check_readable(
    shell: Shell,
    for_version: Annotated[
        list[str], typer.Option("--for-version", metavar="V", help="A Pulsar release (repeatable).")
    ],
    store: StoreUrl = None,
) -> None:
    """List the topics and cursors that a broker of a release could not load; exit 1 if there are any.

    Examples:
      pulsar-meta check-readable --store rocksdb:data/metadata --for-version 4.2.4
    """
    for version in for_version:
        parse_version(version)
    with shell.store(store) as opened:
        found = list(find_unreadable(opened.scan(MANAGED_LEDGERS), for_version))
    shell.emit(found, FAULTS)
    if found:
        raise typer.Exit(Exit.FAULT)


def _row(fault: dict[str, Any]) -> list[str]:
    return [fault["topic"], fault.get("cursor", ""), fault["form"], fault["reason"]]


FAULTS = View(["topic", "cursor", "form", "reason"], _row)
