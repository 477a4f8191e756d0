"""`lookup`, `brokers`, `lookup-properties`: who serves a topic, and what brokers publish (PIP-368)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from pulsar_meta.access.urls import read_secret
from pulsar_meta.brokers.client_conf import ClientConf, read_client_conf, token_credentials
from pulsar_meta.brokers.lookup import LookupRequest, OriginalClient
from pulsar_meta.brokers.lookup_session import LookupSession
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.inputs import input_name, read_input
from pulsar_meta.cli.options import StoreUrl, property_pairs
from pulsar_meta.cli.render.tables import Detail, View
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError, decoding
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.wire.commands import parse_service_url
from pulsar_meta.jobs.brokers.registered import (
    BROKERS,
    match_broker,
    match_notes,
    published_properties,
    registered_brokers,
)

# Options for what stands in a client.conf and is not read.
INSTEAD: Final = {"lookupProperties": "--property KEY=VALUE", "listenerName": "--listener-name NAME"}

_FIELDS = (
    "topic", "status", "error", "broker", "broker_service_url", "broker_service_url_tls", "authoritative",
    "proxy_through_service_url", "scalable_topic", "segment_state", "controller",
)  # fmt: skip


def lookup(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="persistent://tenant/namespace/name, or shorter.")],
    service_url: Annotated[
        str | None,
        typer.Option(
            "--service-url", envvar="PULSAR_META_SERVICE_URL", help="pulsar://host:port[,host:port]."
        ),
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", help="KEY=VALUE sent along (PIP-368), repeatable.")
    ] = None,
    client_conf: Annotated[
        Path | None, typer.Option("--client-conf", help="Pulsar's client.conf: URL, authentication, TLS.")
    ] = None,
    token: Annotated[str | None, typer.Option("--token", help="A token, as file:PATH or env:NAME.")] = None,
    listener_name: Annotated[
        str | None, typer.Option("--listener-name", help="Which of the brokers' advertised listeners.")
    ] = None,
    authoritative: Annotated[
        bool, typer.Option("--authoritative", help="Ask the broker to decide by itself, as after a redirect.")
    ] = False,
    original_principal: Annotated[
        str | None, typer.Option("--original-principal", help="As a proxy: the client's principal.")
    ] = None,
    original_auth_data: Annotated[
        str | None,
        typer.Option(
            "--original-auth-data", help="As a proxy: the client's secret, as file:PATH or env:NAME."
        ),
    ] = None,
    original_auth_method: Annotated[
        str | None, typer.Option("--original-auth-method", help="As a proxy: the client's method.")
    ] = None,
    trust_certs: Annotated[
        Path | None, typer.Option("--tls-trust-certs", help="PEM file of whom to trust (else the system's).")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="Our certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key (PEM).")] = None,
    check_hostname: Annotated[
        bool | None,
        typer.Option("--tls-hostname-verification/--no-tls-hostname-verification", help="On by default."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--tls-insecure", help="Accept any certificate; not with secrets.")
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds for each broker.")] = 10.0,
    max_redirects: Annotated[int, typer.Option("--max-redirects", min=0, help="Redirects followed.")] = 20,
) -> None:
    """Ask brokers where a topic is served, with lookup properties, and show every hop with its time.

    The name of a partitioned topic stands for all its partitions, if the broker can be asked for their
    number without creating some (Pulsar 3.0.6, 3.3.1, 4.0; --verbose says where it cannot). That of a
    scalable topic (topic://tenant/namespace/name, or shorter; Pulsar 5) stands for its segments, sealed ones
    included. A short name that a persistent topic has, too, is refused (2).

    Speaks the binary protocol, since HTTP lookups carry no properties. It does what a client does, so a
    bundle without an owner is assigned one. Exit code 3 where there is no such topic, 6 where a
    broker does not answer or refuses.

    Examples:
      pulsar-meta lookup orders --service-url pulsar://host:6650 --property rack=A
      pulsar-meta lookup my/ns/t --client-conf client.conf --token env:TOKEN
    """
    conf = read_client_conf(client_conf) if client_conf else ClientConf()
    for name in conf.ignored:
        option = INSTEAD.get(name)
        shell.warn(f"{client_conf}: {name} is ignored{f', give {option}' if option else ''}")
    url = service_url or conf.service_url
    if url is None:
        raise UsageError("no broker: give --service-url pulsar://host:port, or --client-conf FILE")
    pairs = property_pairs(properties or [])
    refuse_http(url, pairs)
    secret = read_secret(original_auth_data, "--original-auth-data").strip() if original_auth_data else None
    named = TopicName.parse(topic)
    request = LookupRequest(
        topic=str(named),
        properties=pairs,
        listener_name=listener_name,
        authoritative=authoritative,
        credentials=token_credentials(token) if token else conf.credentials,
        original=OriginalClient(original_principal, secret, original_auth_method),
        max_redirects=max_redirects,
    )
    tls = replace(
        conf.tls,
        trust_certs=trust_certs or conf.tls.trust_certs,
        certificate=tls_cert or conf.tls.certificate,
        key=tls_key or conf.tls.key,
        insecure=insecure or conf.tls.insecure,
        check_hostname=conf.tls.check_hostname if check_hostname is None else check_hostname,
    )
    session = LookupSession(parse_service_url(url), tls, timeout)
    outcomes = list(session.look_up_all(request, shell.detail, short=named.short))
    alone = [outcome.request.topic for outcome in outcomes] == [request.topic]
    shell.emit((outcome.document() for outcome in outcomes), Detail(_lines, fields=_FIELDS), single=alone)
    faults = Faults(shell)
    for outcome in outcomes:
        if outcome.error is not None:
            faults.report(outcome.error)
    faults.finish()


def refuse_http(url: str, properties: dict[str, str]) -> None:
    """Raise UsageError for an HTTP service URL, with the reason that matters most."""
    if not url.startswith(("http://", "https://")):
        return
    if properties:
        raise UsageError(f"{url}: HTTP carries no lookup properties, only pulsar:// does")
    raise UsageError(f"{url}: lookups go over the binary protocol, give pulsar://host:port")


def _lines(document: Document) -> Iterator[str]:
    for number, hop in enumerate(document["hops"], start=1):
        yield f"hop {number}  {hop['broker']}  ({hop['server_version']}, protocol {hop['protocol_version']})"
        yield f"       {_said(hop)}  [connected in {hop['connect_ms']} ms, answered in {hop['answer_ms']} ms]"
    for note in document["notes"]:
        yield f"note   {note}"
    if document["status"] == "found":
        through = ", through the service URL" if document["proxy_through_service_url"] else ""
        sealed = " (sealed)" if document.get("segment_state") == "SEALED" else ""
        yield f"{document['topic']}{sealed} is served by {document['broker']}{through}"


def _said(hop: Document) -> str:
    if hop["response"] == "failed":
        return f"failed: {hop.get('error')}: {hop.get('message')}"
    urls = " / ".join(url for url in (hop["broker_service_url"], hop["broker_service_url_tls"]) if url)
    return f"{hop['response']} to {urls}{', authoritative' if hop['authoritative'] else ''}"


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
        shell.note(f"note: {note}")
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
