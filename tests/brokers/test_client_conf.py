"""Pulsar's client.conf, and secrets from files and the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulsar_meta.brokers.client_conf import read_client_conf, token_credentials
from pulsar_meta.codecs.errors import UsageError
from tests.cli.program import pulsar_meta_here

PLUGINS = "org.apache.pulsar.client.impl.auth."


def conf(tmp_path: Path, **settings: str) -> Path:
    file = tmp_path / "client.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


def test_the_defaults_of_an_empty_file(tmp_path: Path) -> None:
    settings = read_client_conf(conf(tmp_path))
    assert (settings.service_url, settings.credentials.method, settings.credentials.secret()) == (
        None,
        "none",
        b"",
    )
    assert (settings.tls.insecure, settings.tls.check_hostname, settings.tls.trust_certs) == (
        False,
        True,
        None,
    )


def test_tls_settings(tmp_path: Path) -> None:
    file = conf(
        tmp_path,
        brokerServiceUrl="pulsar+ssl://h:6651/",
        tlsTrustCertsFilePath="/ca.pem",
        tlsAllowInsecureConnection="true",
        tlsEnableHostnameVerification="false",
        authPlugin=PLUGINS + "AuthenticationTls",
        authParams="tlsCertFile:/c.pem,tlsKeyFile:/k.pem",
    )
    settings = read_client_conf(file)
    assert (settings.service_url, settings.credentials.method) == ("pulsar+ssl://h:6651/", "tls")
    assert (settings.tls.insecure, settings.tls.check_hostname) == (True, False)
    paths = (settings.tls.trust_certs, settings.tls.certificate, settings.tls.key)
    assert paths == (Path("/ca.pem"), Path("/c.pem"), Path("/k.pem"))


@pytest.mark.parametrize(
    ("plugin", "parameters", "method", "secret"),
    [
        ("AuthenticationToken", "token:abc", "token", b"abc"),
        ("AuthenticationToken", "abc", "token", b"abc"),
        ("AuthenticationToken", '{"token": "abc"}', "token", b"abc"),
        ("AuthenticationBasic", '{"userId": "u", "password": "p"}', "basic", b"u:p"),
    ],
)
def test_credentials_of_each_plugin_are_read_and_hidden(
    tmp_path: Path, plugin: str, parameters: str, method: str, secret: bytes
) -> None:
    settings = read_client_conf(conf(tmp_path, authPlugin=PLUGINS + plugin, authParams=parameters))
    assert (settings.credentials.method, settings.credentials.secret()) == (method, secret)
    assert secret.decode() not in repr(settings)


def test_a_token_file_is_read_again_for_each_use(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    for source in (f"file:{file}", f"file://{file}"):
        file.write_text("one\n")
        credentials = token_credentials(source)
        assert credentials.secret() == b"one"
        file.write_text("two\n")
        assert credentials.secret() == b"two"


def test_a_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_FOR_TEST", " abc\n")
    assert token_credentials("env:TOKEN_FOR_TEST").secret() == b"abc"


@pytest.mark.parametrize("source", ["abc", "token:abc", "env:", "env:NOT_THERE_AT_ALL", "file:/not/there"])
def test_a_missing_secret_is_an_error(source: str) -> None:
    with pytest.raises(UsageError):
        token_credentials(source)


@pytest.mark.parametrize(
    "settings",
    [
        {"useKeyStoreTls": "true"},
        {"authPlugin": "com.example.Mine"},
        {"authPlugin": PLUGINS + "AuthenticationBasic", "authParams": "{broken"},
        {"authPlugin": PLUGINS + "AuthenticationBasic", "authParams": '{"a": [}'},
    ],
)
def test_unsupported_settings_are_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        read_client_conf(conf(tmp_path, **settings))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--service-url", "http://h:8080", "--property", "rack=A"], 2, "HTTP lookups carry no properties"),
        (["--service-url", "http://h:8080"], 2, "binary protocol"),
        ([], 2, "no broker"),
        (["--service-url", "pulsar://h", "--property", "rack"], 2, "expected KEY=VALUE"),
        (["--service-url", "pulsar://h", "--property", "a=1", "--property", "a=2"], 2, "given twice"),
        (["--service-url", "pulsar://h", "--token", "abc"], 2, "never taken from the command line"),
        (["--client-conf", "/not/there"], 3, "no such file/not/there"),
        (["--service-url", "pulsar://127.0.0.1:1"], 6, "Connection refused"),
    ],
)
def test_lookup_explains_wrong_arguments(arguments: list[str], code: int, words: str) -> None:
    env = {"PATH": "/usr/bin:/bin"}
    done = pulsar_meta_here("lookup", "t", *arguments, "-o", "json", env=env)
    assert done.returncode == code
    assert words in json.loads(done.stderr)["message"] + str(json.loads(done.stderr).get("source"))


def test_ignored_settings_are_named(tmp_path: Path) -> None:
    file = conf(
        tmp_path, lookupProperties="rack=A", listenerName="inner", brokerServiceUrl="pulsar://127.0.0.1:1"
    )
    assert read_client_conf(file).ignored == ("lookupProperties", "listenerName")
    done = pulsar_meta_here("lookup", "t", "--client-conf", file)
    assert done.returncode == 6
    assert b"lookupProperties is ignored; use --property KEY=VALUE" in done.stderr
    assert b"listenerName is ignored; use --listener-name" in done.stderr
