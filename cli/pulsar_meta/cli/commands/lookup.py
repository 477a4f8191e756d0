"""`lookup`, `brokers` and `lookup-properties`: brokers of topics and their lookup properties (PIP-368)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from pulsar_meta.access.sockets import TlsSettings
from pulsar_meta.access.urls import read_secret
from pulsar_meta.brokers.client_conf import ClientConf, read_client_conf, token_credentials
from pulsar_meta.brokers.lookup import Credentials, LookupRequest, OriginalClient
from pulsar_meta.brokers.lookup_session import LookupOutcome, LookupSession
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import ShowSecrets, StoreUrl, property_pairs
from pulsar_meta.cli.render.tables import Detail, View
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.cli.streams import STDIN, input_name, read_input, read_lines
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError, decoding
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.secrets import mask
from pulsar_meta.codecs.wire.commands import parse_service_url
from pulsar_meta.jobs.brokers.registered import (
    BROKERS,
    DEFAULT_PREFIX,
    match_broker,
    match_notes,
    published_properties,
    registered_brokers,
)
from pulsar_meta.jobs.seek.questions import topics_of_namespace
from pulsar_meta.jobs.topics.scope import is_namespace
from pulsar_meta.stores.base import Store

# Options for settings of client.conf that are not read.
INSTEAD: Final = {"lookupProperties": "--property KEY=VALUE", "listenerName": "--listener-name NAME"}
TLS: Final = "TLS"
PROXY: Final = "Proxy"

_FIELDS = (
    "topic", "status", "error", "broker", "broker_service_url", "broker_service_url_tls", "authoritative",
    "proxy_through_service_url", "scalable_topic", "segment_state", "controller",
)  # fmt: skip


@dataclass(frozen=True)
class ConnectionOptions:
    """Options that say which brokers to ask, and with which credentials."""

    service_url: Annotated[
        str | None,
        typer.Option(
            "--service-url", envvar="PULSAR_META_SERVICE_URL", help="pulsar://host:port[,host:port]."
        ),
    ] = None
    client_conf: Annotated[
        Path | None, typer.Option("--client-conf", help="Pulsar's client.conf: URL, authentication, TLS.")
    ] = None
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="file:PATH|env:NAME", help="Source of the authentication token."),
    ] = None

    def settings(self, shell: Shell) -> ClientConf:
        """Read the client.conf, and warn of its settings that are not used."""
        conf = read_client_conf(self.client_conf) if self.client_conf else ClientConf()
        for setting in conf.ignored:
            option = INSTEAD.get(setting)
            shell.warn(f"{self.client_conf}: {setting} is ignored{f'; use {option}' if option else ''}")
        return conf

    def url(self, conf: ClientConf) -> str:
        """Return the service URL. Raises UsageError if there is none."""
        url = self.service_url or conf.service_url
        if url is None:
            raise UsageError("no broker: add --service-url pulsar://host:port or --client-conf FILE")
        return url

    def credentials(self, conf: ClientConf) -> Credentials:
        """Return the credentials of --token, or those of the client.conf."""
        return token_credentials(self.token) if self.token else conf.credentials


@dataclass(frozen=True)
class ProxyOptions:
    """Options that send a lookup on behalf of another client, as a proxy does."""

    original_principal: Annotated[
        str | None,
        typer.Option("--original-principal", rich_help_panel=PROXY, help="The client's principal."),
    ] = None
    original_auth_data: Annotated[
        str | None,
        typer.Option(
            "--original-auth-data",
            metavar="file:PATH|env:NAME",
            rich_help_panel=PROXY,
            help="Source of the client's secret.",
        ),
    ] = None
    original_auth_method: Annotated[
        str | None,
        typer.Option(
            "--original-auth-method", rich_help_panel=PROXY, help="The client's authentication method."
        ),
    ] = None

    def client(self) -> OriginalClient:
        """Return the client, with its secret."""
        data = self.original_auth_data
        secret = read_secret(data, "--original-auth-data").strip() if data else None
        return OriginalClient(self.original_principal, secret, self.original_auth_method)


@dataclass(frozen=True)
class TlsOptions:
    """Options that override the TLS settings of a client.conf."""

    trust_certs: Annotated[
        Path | None,
        typer.Option(
            "--tls-trust-certs",
            rich_help_panel=TLS,
            help="Trusted certificates (PEM). Default: the system's.",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", rich_help_panel=TLS, help="Client certificate (PEM).")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", rich_help_panel=TLS, help="Private key of --tls-cert (PEM).")
    ] = None
    check_hostname: Annotated[
        bool | None,
        typer.Option(
            "--tls-hostname-verification/--no-tls-hostname-verification",
            rich_help_panel=TLS,
            help="Compare the broker's certificate with its host name. On by default.",
        ),
    ] = None
    insecure: Annotated[
        bool,
        typer.Option(
            "--tls-insecure", rich_help_panel=TLS, help="Accept any certificate. Don't use it with secrets."
        ),
    ] = False

    def over(self, conf: TlsSettings) -> TlsSettings:
        """Return the settings of `conf` with these options applied."""
        return replace(
            conf,
            trust_certs=self.trust_certs or conf.trust_certs,
            certificate=self.tls_cert or conf.certificate,
            key=self.tls_key or conf.key,
            insecure=self.insecure or conf.insecure,
            check_hostname=conf.check_hostname if self.check_hostname is None else self.check_hostname,
        )


def lookup(
    shell: Shell,
    connection: ConnectionOptions,
    proxy: ProxyOptions,
    tls: TlsOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC|NAMESPACE",
            help="persistent://tenant/namespace/name, or shorter; tenant/namespace needs --store.",
            show_default=False,
        ),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read topics from stdin, one per line.")] = False,
    store: StoreUrl = None,
    by: Annotated[
        str, typer.Option("--by", metavar="KEY", help="With --store, lookup property for the summary.")
    ] = "rack",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="Lookup property (PIP-368; repeatable)."),
    ] = None,
    listener_name: Annotated[
        str | None, typer.Option("--listener-name", help="Name of an advertised listener of the brokers.")
    ] = None,
    authoritative: Annotated[
        bool, typer.Option("--authoritative", help="Make the asked broker decide, as after a redirect.")
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds for each broker.")] = 10.0,
    max_redirects: Annotated[int, typer.Option("--max-redirects", min=0, help="Most redirects.")] = 20,
) -> None:
    """Ask brokers which broker serves a topic.

    Use it to test lookup properties, listeners, redirects and authentication. It shows every hop with its
    time. Like a client's lookup, it makes a broker load a bundle that has no owner. It uses the binary
    protocol, because HTTP lookups carry no properties.

    The name of a partitioned topic looks up all its partitions, if the broker can return their number without
    creating partitions (Pulsar 3.0.6, 3.3.1 and 4.0; otherwise, --verbose shows the reason). The name of a
    scalable topic (topic://tenant/namespace/name, or shorter; Pulsar 5) looks up its segments, including
    sealed ones. A short name that is also a persistent topic is refused (exit code 2). Exits with 3 if the
    topic doesn't exist, and with 6 if a broker refuses or doesn't answer.

    For several topics or a namespace, it prints one line per topic. The last lines on stderr say how many
    topics each broker serves, and with --store how many the brokers of each rack serve.

    Examples:
      pulsar-meta lookup orders --service-url pulsar://host:6650 --property rack=A
      pulsar-meta lookup my/ns --store zk://zk1:2181 --property rack=A
      pulsar-meta lookup my/ns/t --client-conf client.conf --token env:TOKEN
    """
    conf = connection.settings(shell)
    url = connection.url(conf)
    pairs = property_pairs(properties or [])
    refuse_http(url, pairs)
    with _store(shell, store, names or []) as opened:
        topics = _topics(names or [], opened, stdin=stdin)
        groups = _groups(opened, by)
    request = LookupRequest(
        topic="",
        properties=pairs,
        listener_name=listener_name,
        authoritative=authoritative,
        credentials=connection.credentials(conf),
        original=proxy.client(),
        max_redirects=max_redirects,
    )
    session = LookupSession(parse_service_url(url), tls.over(conf.tls), timeout)
    outcomes = _outcomes(shell, session, request, topics)
    if len(topics) == 1 and not stdin:
        _show(shell, replace(request, topic=str(topics[0])), list(outcomes))
    else:
        _show_many(shell, outcomes, groups, by)


def _outcomes(
    shell: Shell, session: LookupSession, request: LookupRequest, topics: Iterable[TopicName]
) -> Iterator[LookupOutcome]:
    for name in topics:
        yield from session.look_up_all(replace(request, topic=str(name)), shell.detail, short=name.short)


@contextmanager
def _store(shell: Shell, url: str | None, names: Sequence[str]) -> Iterator[Store | None]:
    """Open the store of --store, or the configured one if a namespace needs it."""
    if url is None and not any(map(is_namespace, names)):
        yield None
        return
    with shell.store(url) as opened:
        yield opened


def _topics(names: Sequence[str], store: Store | None, *, stdin: bool) -> list[TopicName]:
    """Return the topics that were named, those of named namespaces, and those on stdin."""
    listed = [name for line in read_lines(STDIN) if (name := line.strip())] if stdin else []
    topics: list[str] = []
    for name in [*names, *listed]:
        if is_namespace(name) and store is not None:
            topics += topics_of_namespace(store, name)
        else:
            topics.append(name)
    if not topics:
        raise UsageError("no topic: name topics or a namespace, or add --stdin")
    return [TopicName.parse(topic) for topic in dict.fromkeys(topics)]


def _groups(store: Store | None, key: str) -> dict[str, str]:
    """Map the service URLs of the registered brokers to their values of a lookup property."""
    groups: dict[str, str] = {}
    for broker in [] if store is None else registered_brokers(store):
        if broker["kind"] is None:
            continue
        found = broker["properties"].get(f"{DEFAULT_PREFIX}{key}", broker["properties"].get(key))
        for url in (broker["service_url"], broker["service_url_tls"]):
            if url is not None and found is not None:
                groups[url] = found
    return groups


def _show_many(shell: Shell, outcomes: Iterable[LookupOutcome], groups: Mapping[str, str], key: str) -> None:
    """Print one line per topic, then how many topics each broker and each group of brokers serves."""
    faults, counts = Faults(shell), Counter[str | None]()

    def documents() -> Iterator[Document]:
        for outcome in outcomes:
            document = outcome.document()
            counts[document.get("broker")] += 1
            if outcome.error is not None:
                faults.report(outcome.error)
            yield document

    def cells(document: Document) -> list[str]:
        broker = document.get("broker")
        group = [groups.get(broker or "", "-")] if groups else []
        return [document["topic"], broker or document["status"], *group]

    columns = ("topic", "broker", *([key] if groups else []))
    shell.emit(documents(), View(columns, cells, fields=_FIELDS))
    of_groups = Counter[str]()
    for broker, count in counts.most_common():
        group = groups.get(broker or "")
        of_groups[f"{key} {group}" if group else f"no {key}"] += count if broker else 0
        about = f" ({key} {group})" if group else ""
        shell.note(f"{broker or 'no broker'}{about}: {counted(count, 'topics')}")
    for group, count in of_groups.most_common() if groups else ():
        shell.note(f"{group}: {counted(count, 'topics')}")
    faults.finish()


def _show(shell: Shell, request: LookupRequest, outcomes: Sequence[LookupOutcome]) -> None:
    single = [outcome.request.topic for outcome in outcomes] == [request.topic]
    shell.emit((outcome.document() for outcome in outcomes), Detail(_lines, fields=_FIELDS), single=single)
    faults = Faults(shell)
    for outcome in outcomes:
        if outcome.error is not None:
            faults.report(outcome.error)
    faults.finish()


def refuse_http(url: str, properties: dict[str, str]) -> None:
    """Raise UsageError for an HTTP service URL."""
    if not url.startswith(("http://", "https://")):
        return
    if properties:
        raise UsageError(f"{url}: HTTP lookups carry no properties; use pulsar://host:port")
    raise UsageError(f"{url}: lookup uses the binary protocol; use pulsar://host:port")


def _lines(document: Document) -> Iterator[str]:
    for number, hop in enumerate(document["hops"], start=1):
        yield f"hop {number}  {hop['broker']}  ({hop['server_version']}, protocol {hop['protocol_version']})"
        times = f"connected in {hop['connect_ms']} ms, answered in {hop['answer_ms']} ms"
        yield f"       {_reply(hop)}  [{times}]"
    for note in document["notes"]:
        yield f"note   {note}"
    if document["status"] == "found":
        through = ", through the service URL" if document["proxy_through_service_url"] else ""
        sealed = " (sealed)" if document.get("segment_state") == "SEALED" else ""
        yield f"{document['topic']}{sealed} is served by {document['broker']}{through}"


def _reply(hop: Document) -> str:
    if hop["response"] == "failed":
        return f"failed: {hop.get('error')}: {hop.get('message')}"
    urls = " / ".join(url for url in (hop["broker_service_url"], hop["broker_service_url_tls"]) if url)
    return f"{hop['response']} to {urls}{', authoritative' if hop['authoritative'] else ''}"


def brokers(
    shell: Shell,
    store: StoreUrl = None,
    match: Annotated[
        list[str] | None,
        typer.Option("--match", metavar="KEY=VALUE", help="Lookup property of a client (repeatable)."),
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", help="The brokers' lookupPropertyPrefix, which a client's key lacks.")
    ] = "lookup.",
    show_secrets: ShowSecrets = False,
) -> None:
    """List the registered brokers with their lookup properties.

    Use it to find out where brokers run, or why a client gets a certain broker. With --match, it shows which
    brokers a load manager that uses lookup properties could choose for a client with these properties, and
    why. Exits with 1 if there is none, and with 3 if no broker is registered.

    Examples:
      pulsar-meta brokers --store zk://localhost:2181
      pulsar-meta brokers --store zk://localhost:2181 --match rack=A -o json
    """
    properties = property_pairs(match or [])
    with shell.store(store) as opened:
        registered = list(registered_brokers(opened))
        if not registered:
            raise NotFoundError(f"no broker is registered below {BROKERS}", source=opened.url)
    for broker in registered if properties else []:
        broker["match"] = match_broker(broker, properties, prefix)
    shown = registered if show_secrets else map(mask, registered)
    shell.emit(shown, _MATCHED if properties else _LISTED)
    for note in match_notes(registered) if properties else []:
        shell.note(f"note: {note}")
    for broker in registered:
        if broker["kind"] is None:
            raise DecodeError(broker["error"], source=broker["path"])
    if properties and all(broker["match"]["could_be_chosen"] is False for broker in registered):
        raise typer.Exit(Exit.FAULT)


def lookup_properties(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="A broker.conf, or - for stdin.")],
    show_secrets: ShowSecrets = False,
) -> None:
    """Show the lookup properties that a broker.conf publishes.

    Use it before you start a broker, to test which settings have the prefix lookupPropertyPrefix.

    Examples:
      pulsar-meta lookup-properties conf/broker.conf
      pulsar-meta lookup-properties /pulsar/conf/broker.conf -o json
    """
    with decoding(input_name(file)):
        document = published_properties(read_input(file))
    shell.emit([document if show_secrets else mask(document)], Detail(_property_lines), single=True)
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
