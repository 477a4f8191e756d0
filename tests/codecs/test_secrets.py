"""A corpus of secrets that must be hidden, and of captured values that must not."""

from __future__ import annotations

import base64
import json
import random
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.secrets import is_secret, mask, redact, redact_text, refuse_redacted
from tests.conftest import CAPTURES

ALPHABET = string.ascii_letters + string.digits
COPIES = 8


def secret(seed: str, length: int, alphabet: str = ALPHABET) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=length))


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def token(seed: str) -> str:
    parts = ({"alg": "HS256"}, {"sub": seed})
    head, body = (in_base64(json.dumps(part)).rstrip("=") for part in parts)
    return f"{head}.{body}.{secret(seed, 32)}"


# Each kind makes a JSON value around a secret; the first member of the pair is what must disappear.
KINDS: dict[str, Callable[[str], tuple[str, Any]]] = {
    "password": lambda seed: (s := secret(seed, 12), {"password": s}),
    "pwd": lambda seed: (s := secret(seed, 12), {"dbPwd": s}),
    "passwordHash": lambda seed: (s := secret(seed, 32), {"passwordHash": s}),
    "passphrase": lambda seed: (s := secret(seed, 12), {"key-passphrase": s}),
    "client secret": lambda seed: (s := secret(seed, 20), {"a": [{"clientSecret": s}]}),
    "token": lambda seed: (s := secret(seed, 20), {"brokerClientToken": [s]}),
    "access key": lambda seed: (s := secret(seed, 40), {"aws_secret_access_key": s}),
    "api key": lambda seed: (s := secret(seed, 24), {"x-api-key": s}),
    "jwt name": lambda seed: (s := secret(seed, 24), {"jwt": s}),
    "property": lambda seed: (s := secret(seed, 12), [{"key": "ldap.password", "value": s}]),
    "pair in a string": lambda seed: (s := secret(seed, 12), {"params": f"user=u,password={s},x=1"}),
    "colon in a string": lambda seed: (s := secret(seed, 12), {"note": f"login u, passwd: {s}"}),
    "quoted pair": lambda seed: (s := secret(seed, 12), {"authPlugin": f'p; secret="{s} {s}"'}),
    "JSON in a string": lambda seed: (s := secret(seed, 12), {"conf": json.dumps({"a": {"token": s}})}),
    "params": lambda seed: (s := secret(seed, 12), {"brokerClientAuthenticationParameters": f"token:{s}"}),
    "URL": lambda seed: (s := secret(seed, 12), {"jdbc": f"jdbc:postgresql://user:{s}@db:5432/x"}),
    "user in a URL": lambda seed: (s := secret(seed, 12), f"see https://{s}@host/path"),
    "signed URL": lambda seed: (s := secret(seed, 30), {"url": f"https://h/c/b?sv=2020&sig={s}%3D&se=1"}),
    "Azure": lambda seed: (
        s := secret(seed, 86, ALPHABET + "+/"),
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={s}==;EndpointSuffix=core.windows.net",
    ),
    "bare Azure key": lambda seed: (s := secret(seed, 86, ALPHABET + "+/"), {"x": f"{s}=="}),
    "service bus": lambda seed: (s := secret(seed, 43), f"Endpoint=sb://n/;SharedAccessKey={s}="),
    "bearer": lambda seed: (s := secret(seed, 30), {"header": f"Bearer {s}"}),
    "basic": lambda seed: (s := in_base64(f"u:{secret(seed, 12)}"), {"h": f"authorization basic {s}"}),
    "PEM": lambda seed: (
        s := secret(seed, 64),
        {"k": f"-----BEGIN RSA PRIVATE KEY-----\n{s}\n-----END RSA PRIVATE KEY-----\n"},
    ),
    "cut PEM": lambda seed: (s := secret(seed, 64), {"k": f"-----BEGIN PRIVATE KEY-----\\n{s}"}),
    "web token": lambda seed: (s := token(seed), {"x": f"got {s} from u"}),
    "AWS key id": lambda seed: (s := "AKIA" + secret(seed, 16, string.ascii_uppercase), {"x": s}),
    "Google": lambda seed: (s := "AIza" + secret(seed, 35), {"x": s}),
    "GitHub": lambda seed: (s := "ghp_" + secret(seed, 36), ["x", f"git {s}"]),
    "Slack": lambda seed: (s := "xoxb-" + secret(seed, 24), {"hook": s}),
    "Stripe": lambda seed: (s := "sk_live_" + secret(seed, 24), {"pay": s}),
    "Vault": lambda seed: (s := "hvs." + secret(seed, 24), {"x": s}),
    "bytes": lambda seed: (s := secret(seed, 12), {"custom": in_base64(f"password={s}")}),
    "JAAS": lambda seed: (s := secret(seed, 12), {"c": f'PlainLoginModule required password="{s}";'}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_planted_secret_is_hidden(kind: str) -> None:
    for copy in range(COPIES):
        planted, value = KINDS[kind](f"{kind} {copy}")
        assert planted in json.dumps(value) or kind == "bytes"
        for hidden in (redact(value), mask(value)):
            assert planted not in json.dumps(hidden)
            assert in_base64(f"password={planted}") not in json.dumps(hidden)
        with pytest.raises(DecodeError, match="--show-secrets"):
            refuse_redacted(redact(value), "value")
        refuse_redacted(mask(value), "value")


def test_the_corpus_is_large_enough() -> None:
    assert len(KINDS) >= 30
    assert len(KINDS) * COPIES >= 200


def strings_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings_of(member)


def test_at_most_one_captured_value_in_200_is_hidden(capture: Callable[[str], Path]) -> None:
    seen = hidden = 0
    for name in sorted(path.name.removesuffix(".tar.xz") for path in CAPTURES.glob("pulsar-*.tar.xz")):
        file = capture(name) / "metadata.ndjson"
        for line in file.read_text().splitlines() if file.exists() else ():
            held = json.loads(line)
            if "value" not in held:
                continue
            data = base64.b64decode(held["value"])
            options = DecodeOptions(show_secrets=True)
            document = decode_document(data, source=name, path=held["path"], options=options).document
            seen += 1
            hidden += redact(document["value"]) != document["value"]
    assert seen >= 2000
    assert hidden <= seen / 200


@pytest.mark.parametrize(
    "name",
    [
        "cToken", "tokenBucket", "auth_policies", "namespace_auth", "subscription_auth_mode", "ordering_key",
        "key", "signatureAlgorithm", "tokenPublicKey", "brokerClientTlsKeyStoreType", "assignment", "compact",
        "bypass",
        "encryption_required", "passwordPolicy", "accessKeyId", "tokenExpirySeconds",
    ],
)  # fmt: skip
def test_a_harmless_name_is_not_hidden(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        "persistent://tenant/namespace/token-events",
        "the token bucket has no secrets, 16 passwords were changed",
        "pulsar+ssl://broker-1:6651", "user@host", "routing key: abc", "bookie:3181", "a=1;b=2", "",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)  # fmt: skip
def test_harmless_text_is_not_changed(text: str) -> None:
    assert redact_text(text) == text


def test_the_path_of_a_password_file_is_shown() -> None:
    assert redact({"passwordFile": "/etc/pulsar/pw"}) == {"passwordFile": "/etc/pulsar/pw"}
    assert redact({"passwordFile": "hunter2"}) == {"passwordFile": {"redacted": True}}


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "password",
        "a:",
        "x=",
        "://",
        "eyJ",
        "-----BEGIN A-----",
        "[{",
        "bearer ",
        "a=[",
        '"token":"\\',
        "k: ",
    ],
)
def test_time_grows_linearly_with_the_text(unit: str) -> None:
    """A ratio of two runs in one process; quadratic time would be a ratio of 64."""
    small, large = unit * (20_000 // len(unit)), unit * (160_000 // len(unit))

    def seconds(text: str) -> float:
        times = []
        for _ in range(3):
            begin = time.process_time()
            redact_text(text + " token")
            times.append(time.process_time() - begin)
        return max(min(times), 1e-3)

    assert seconds(large) / seconds(small) < 32
