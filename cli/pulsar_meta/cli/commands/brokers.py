"""The commands `brokers` and `lookup-properties`: who has which lookup properties (PIP-368)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.inputs import input_name, read_input
from pulsar_meta.cli.options import StoreUrl, property_pairs
from pulsar_meta.cli.render.tables import Detail, View
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, decoding
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.brokers.lookup_properties import published_properties
from pulsar_meta.jobs.brokers.registered import BROKERS, match_broker, match_notes, registered_brokers


def brokers(
    shell: Shell,
    store: StoreUrl = None,
    match: Annotated[
        list[str] | None, typer.Option("--match", help="KEY=VALUE as a client would send it, repeatable.")
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", help="What brokers put before a client's key (lookupPropertyPrefix).")
    ] = "lookup.",
) -> None:
    """Show every broker that is registered in the store, with its lookup properties.

    With --match: which of them a load manager that honours lookup properties could choose for such a client,
    which not, and why. Exit code 1 where it could choose none, 3 where no broker is registered.

    Examples:
      pulsar-meta brokers --store zk://localhost:2181
      pulsar-meta brokers --store zk://localhost:2181 --match rack=A -o json
    """
    wanted = property_pairs(match or [])
    with shell.store(store) as opened:
        found = list(registered_brokers(opened))
        if not found:
            raise NotFoundError(f"no broker is registered below {BROKERS}", source=opened.url)
    for broker in found if wanted else []:
        broker["match"] = match_broker(broker, wanted, prefix)
    shell.emit(found, _MATCHED if wanted else _LISTED)
    for note in match_notes(found) if wanted else []:
        shell.say(f"note: {note}")
    for broker in found:
        if broker["kind"] is None:
            raise DecodeError(broker["error"], source=broker["path"])
    if wanted and all(broker["match"]["could_be_chosen"] is False for broker in found):
        raise typer.Exit(Exit.FAULT)


def lookup_properties(
    shell: Shell, file: Annotated[Path, typer.Argument(help="A broker.conf, or - for stdin.")]
) -> None:
    """Show what a broker with this broker.conf would publish under lookupPropertyPrefix.

    Examples:
      pulsar-meta lookup-properties conf/broker.conf
    """
    with decoding(input_name(file)):
        document = published_properties(read_input(file))
    shell.emit([document], Detail(_property_lines), single=True)
    for warning in document["warnings"]:
        shell.warn(warning)


def _property_lines(document: Document) -> Iterator[str]:
    for key, value in document["properties"].items():
        yield f"{key}={value}"


def _cells(broker: Document) -> list[str]:
    properties = " ".join(f"{key}={value}" for key, value in sorted(broker.get("properties", {}).items()))
    if broker.get("extensible") is False:
        properties = "(ignored: not an extensible load manager)"
    url = broker.get("service_url") or broker.get("service_url_tls")
    manager = (broker.get("load_manager") or "").rsplit(".", 1)[-1]
    texts = (broker["broker"], broker.get("kind"), broker.get("broker_version"), manager, url)
    return [*(text or "-" for text in texts), broker.get("error") or properties or "-"]


def _matched_cells(broker: Document) -> list[str]:
    match = broker["match"]
    chosen = {True: "yes", False: "no", None: "any"}[match["could_be_chosen"]]
    return [broker["broker"], chosen, match["why"], broker.get("service_url") or "-"]


_URLS = ("service_url", "service_url_tls")
_LISTED = View(
    ("broker", "kind", "version", "load manager", "service URL", "lookup properties"),
    _cells,
    fields=("broker", "kind", "broker_version", "load_manager", "extensible", *_URLS, "properties", "error"),
)
_MATCHED = View(
    ("broker", "could be chosen", "why", "service URL"),
    _matched_cells,
    fields=("broker", "match.could_be_chosen", "match.why", *_URLS),
)
