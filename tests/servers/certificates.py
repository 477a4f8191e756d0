"""A test certificate authority with certificates for a server on 127.0.0.1 and for a client (by openssl)."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(directory: Path) -> Certificates:
    """Create the files in `directory`. They are valid for a day."""
    directory.mkdir(parents=True, exist_ok=True)
    authority, authority_key = directory / "ca.pem", directory / "ca.key"
    _openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=test authority",
        "-keyout", authority_key, "-out", authority,
    )  # fmt: skip
    made = [_signed(directory, name, authority, authority_key) for name in ("server", "client")]
    return Certificates(authority, *made[0], *made[1])


def _signed(directory: Path, name: str, authority: Path, authority_key: Path) -> tuple[Path, Path]:
    certificate, key, request = (directory / f"{name}.{suffix}" for suffix in ("pem", "key", "csr"))
    _openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-addext",
        "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key, "-out", request,
    )  # fmt: skip
    _openssl(
        "x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-days", "1",
        "-copy_extensions", "copy", "-out", certificate,
    )  # fmt: skip
    return certificate, key


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
