"""Read connection settings from Pulsar's client.conf, and tokens from files and the environment.

Sources: apache/pulsar conf/client.conf, AuthenticationToken, AuthenticationBasic, AuthenticationTls,
AuthenticationUtil (the `key:value,key:value` form of parameters).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pulsar_meta.access.files import read_any
from pulsar_meta.access.sockets import TlsSettings
from pulsar_meta.access.urls import secret_reader
from pulsar_meta.brokers.lookup import Credentials
from pulsar_meta.codecs.errors import DecodeError, UsageError, unreadable
from pulsar_meta.codecs.java_properties import decode_properties, last_values
from pulsar_meta.codecs.json_text import read_json_object

LARGEST_CONF: Final = 16 << 20
# The format of lookupProperties in a file is undefined. The other settings are command-line options or
# unsupported.
NOT_READ: Final = ("lookupProperties", "listenerName", "proxyServiceUrl")

_PLUGINS: Final = "org.apache.pulsar.client.impl.auth."


@dataclass(frozen=True, slots=True)
class ClientConf:
    """The settings with which a client connects. `ignored` names settings that would affect lookups."""

    service_url: str | None = None
    credentials: Credentials = field(default_factory=Credentials)
    tls: TlsSettings = field(default_factory=TlsSettings)
    ignored: tuple[str, ...] = ()


def read_client_conf(path: Path) -> ClientConf:
    """Read a client.conf. Raises UsageError for settings that are not supported."""
    try:
        settings = last_values(decode_properties(read_any(path, LARGEST_CONF)))
    except OSError as error:
        raise unreadable(error, str(path)) from error
    if _true(settings.get("useKeyStoreTls")):
        raise UsageError("useKeyStoreTls: Java key stores are not supported; use PEM files", source=str(path))
    tls = TlsSettings(
        trust_certs=_path(settings.get("tlsTrustCertsFilePath")),
        certificate=_path(settings.get("tlsCertificateFilePath")),
        key=_path(settings.get("tlsKeyFilePath")),
        insecure=_true(settings.get("tlsAllowInsecureConnection")),
        check_hostname=settings.get("tlsEnableHostnameVerification", "").strip().lower() != "false",
    )
    plugin, parameters = settings.get("authPlugin", "").strip(), settings.get("authParams", "").strip()
    credentials, tls = _credentials(plugin, parameters, tls, path)
    ignored = tuple(name for name in NOT_READ if settings.get(name, "").strip())
    url = settings.get("brokerServiceUrl", "").strip() or None
    return ClientConf(url, credentials, tls, ignored)


def token_credentials(source: str) -> Credentials:
    """Return token authentication from `file:PATH` or `env:NAME`, which is read each time it is sent."""
    read = secret_reader(source, "token")
    read()
    return Credentials("token", lambda: read().strip().encode())


def _credentials(
    plugin: str, parameters: str, tls: TlsSettings, conf: Path
) -> tuple[Credentials, TlsSettings]:
    match plugin.removeprefix(_PLUGINS):
        case "" | "AuthenticationDisabled":
            return Credentials(), tls
        case "AuthenticationToken" | "token":
            return _token(parameters), tls
        case "AuthenticationBasic" | "basic":
            given = _parameters(parameters)
            secret = f"{given.get('userId', '')}:{given.get('password', '')}".encode()
            return Credentials("basic", lambda: secret), tls
        case "AuthenticationTls" | "tls":
            given = _parameters(parameters)
            certificate, key = _path(given.get("tlsCertFile")), _path(given.get("tlsKeyFile"))
            return Credentials("tls"), replace(tls, certificate=certificate, key=key)
    raise UsageError(
        f"unknown authPlugin {plugin}; supported are none, token, basic and tls", source=str(conf)
    )


def _token(parameters: str) -> Credentials:
    """Parse a token in any form that AuthenticationToken accepts: token:, file:, env:, JSON or plain."""
    if parameters.startswith(("file:", "env:")):
        return token_credentials(parameters)
    if parameters.startswith("{"):
        token = _parameters(parameters).get("token", "")
    else:
        token = parameters.removeprefix("token:")
    return Credentials("token", lambda: token.encode())


def _parameters(text: str) -> dict[str, str]:
    """Parse parameters that are a JSON object or `key:value,key:value`."""
    if text.startswith("{"):
        try:
            return {str(key): str(value) for key, value in read_json_object(text).items()}
        except DecodeError as error:
            raise UsageError("authParams is not a JSON object") from error
    pairs = (part.partition(":") for part in text.split(",") if part)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _path(text: str | None) -> Path | None:
    return Path(text.strip().removeprefix("file://")) if text and text.strip() else None


def _true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"
