"""An OpenID issuer on a free loopback port that publishes its key and signs tokens (openssl, RS256)."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from base64 import urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.servers.processes import Servers


class Issuer(Servers):
    """Serves its discovery document and its key until the end of the `with` block."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._key = directory / "issuer.key"
        _openssl("genrsa", "-out", str(self._key), "2048")
        modulus = _openssl("rsa", "-in", str(self._key), "-noout", "-modulus").decode().strip()
        key = {"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "e": "AQAB"}
        key["n"] = _base64(bytes.fromhex(modulus.partition("=")[2]))
        answers: dict[str, Any] = {"/keys": {"keys": [key]}}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(answers[self.path]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        answers["/.well-known/openid-configuration"] = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def token(self, subject: str, *, audience: str) -> str:
        """Return a token that is valid for an hour."""
        claims = {"iss": self.url, "sub": subject, "aud": audience, "exp": int(time.time()) + 3600}
        parts = ({"alg": "RS256", "kid": "1", "typ": "JWT"}, claims)
        signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_base64(_openssl('dgst', '-sha256', '-sign', str(self._key), stdin=signed))}"

    def bring_up(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="issuer", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _openssl(*arguments: str, stdin: str = "") -> bytes:
    return subprocess.run(
        ["openssl", *arguments], input=stdin.encode(), check=True, capture_output=True
    ).stdout
