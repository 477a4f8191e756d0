"""Lookups at a real broker with TLS, tokens, proxies' roles and advertised listeners."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.lookups import lookup, run, stated
from tests.servers.certificates import Certificates, make_certificates
from tests.servers.processes import free_port
from tests.servers.pulsar import PulsarStandalone
from tests.servers.versions import NEWEST

pytestmark = pytest.mark.interop

SECRET = b"s" * 32
PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
ADMIN, PROXY = ("--token", "env:ADMIN_TOKEN"), ("--token", "env:PROXY_TOKEN")


def _jwt(secret: bytes, subject: str) -> str:
    """Return an HS256 token as Pulsar's token authentication takes it."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=")
        for part in ({"alg": "HS256"}, {"sub": subject})
    ]
    signature = hmac.new(secret, b".".join(parts), "sha256").digest()
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


TOKENS = {f"{role.upper()}_TOKEN": _jwt(SECRET, role) for role in ("admin", "proxy", "nobody")}


class SecuredStandalone(PulsarStandalone):
    """A standalone whose admin interface wants a token, which the usual question for readiness has not."""

    def _ready(self) -> bool:
        return run("lookup", "t", "--service-url", self.service_url, *ADMIN).returncode == 0


@dataclass(frozen=True, slots=True)
class Secured:
    """A running broker: where it listens without and with TLS, and whose certificate it has."""

    url: str
    tls_url: str
    certificates: Certificates


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with all of it; the tokens are in the environment."""
    certificates, port = make_certificates(tmp_path_factory.mktemp("tls")), free_port()
    settings = {
        "brokerServicePortTls": str(port),
        "tlsCertificateFilePath": str(certificates.server),
        "tlsKeyFilePath": str(certificates.server_key),
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "superUserRoles": "admin,proxy",
        "proxyRoles": "proxy",
        "authenticateOriginalAuthData": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
        "brokerClientAuthenticationPlugin": PLUGIN,
        "brokerClientAuthenticationParameters": f"token:{TOKENS['ADMIN_TOKEN']}",
        "advertisedAddress": "",
        "internalListenerName": "inside",
    }
    standalone = SecuredStandalone(NEWEST, settings=settings)
    tls_url = f"pulsar+ssl://127.0.0.1:{port}"
    standalone.settings["advertisedListeners"] = ",".join(
        f"{name}:{url}"
        for name, urls in (
            ("inside", (standalone.service_url, tls_url)),
            ("outside", ("pulsar://broker.example:7650", "pulsar+ssl://broker.example:7651")),
        )
        for url in urls
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, token in {**TOKENS, "WRONG_TOKEN": _jwt(b"x" * 32, "admin")}.items():
            patch.setenv(name, token)
        with standalone:
            yield Secured(standalone.service_url, tls_url, certificates)


def test_tokens(secured: Secured) -> None:
    assert lookup(secured.url, "t", *ADMIN)["broker"] == secured.url
    for options in ((), ("--token", "env:WRONG_TOKEN")):
        refused = run("lookup", "t", "--service-url", secured.url, *options)
        assert refused.returncode == 6
        assert "AuthenticationError" in refused.stderr
    nobody = run("lookup", "t", "--service-url", secured.url, "--token", "env:NOBODY_TOKEN")
    assert nobody.returncode == 6
    assert "AuthorizationError" in nobody.stderr


def test_tls_from_client_conf(secured: Secured, tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text(
        f"brokerServiceUrl={secured.tls_url}\nauthPlugin={PLUGIN}\n"
        f"authParams=token:{TOKENS['ADMIN_TOKEN']}\ntlsTrustCertsFilePath={secured.certificates.authority}\n"
    )
    assert stated("lookup", "t", "--client-conf", str(conf))["broker"] == secured.tls_url
    untrusted = run("lookup", "t", "--service-url", secured.tls_url, *ADMIN)
    assert untrusted.returncode == 6
    assert "not trusted" in untrusted.stderr


def test_the_listener_chooses_the_url(secured: Secured) -> None:
    outside = lookup(secured.url, "t", *ADMIN, "--listener-name", "outside")
    assert outside["broker"] == "pulsar://broker.example:7650"
    assert outside["broker_service_url_tls"] == "pulsar+ssl://broker.example:7651"
    assert lookup(secured.url, "t", *ADMIN, "--listener-name", "inside")["broker"] == secured.url
    unknown = run("lookup", "t", "--service-url", secured.url, *ADMIN, "--listener-name", "no-such")
    assert unknown.returncode == 6
    assert "no-such" in unknown.stderr


def original(principal: str, token: str) -> tuple[str, ...]:
    data = ("--original-auth-data", f"env:{token}", "--original-auth-method", "token")
    return ("--original-principal", principal, *data)


def test_a_proxy_speaks_for_its_client(secured: Secured) -> None:
    assert lookup(secured.url, "t", *PROXY, *original("admin", "ADMIN_TOKEN"))["status"] == "found"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "AuthorizationError"),
        (original("admin", "WRONG_TOKEN"), "AuthenticationError"),
        (original("nobody", "NOBODY_TOKEN"), "AuthorizationError"),
    ],
)
def test_a_proxy_whose_client_may_not(secured: Secured, options: tuple[str, ...], error: str) -> None:
    refused = run("lookup", "t", "--service-url", secured.url, *PROXY, *options)
    assert refused.returncode == 6
    assert error in refused.stderr


def test_only_proxies_speak_for_others(secured: Secured) -> None:
    refused = run("lookup", "t", "--service-url", secured.url, *ADMIN, *original("nobody", "NOBODY_TOKEN"))
    assert refused.returncode == 6
