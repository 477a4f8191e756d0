"""The command `lookup`: which broker serves a topic, as a client with these properties would find it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from pulsar_meta.access.credentials import read_secret
from pulsar_meta.brokers.client_conf import ClientConf, read_client_conf, token_credentials
from pulsar_meta.brokers.lookup import LookupRequest, OriginalClient
from pulsar_meta.brokers.lookup_session import LookupSession
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import property_pairs
from pulsar_meta.cli.render.tables import Detail
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.wire.service_url import parse_service_url

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
            faults(outcome.error)
    faults.end()


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
