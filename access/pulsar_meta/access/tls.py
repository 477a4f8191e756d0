"""Whom to trust on a TLS connection, and who we are."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from pulsar_meta.codecs.errors import UsageError


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Whom to trust and who we are. `insecure` takes any certificate; `check_hostname` is on by default."""

    trust_certs: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the TLS context; UsageError where a file cannot be read or is no certificate."""
        try:
            context = ssl.create_default_context(cafile=self.trust_certs)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            named = ", ".join(str(path) for path in (self.trust_certs, self.certificate, self.key) if path)
            raise UsageError(f"cannot use it for TLS: {error}", source=named) from error
        if self.insecure or not self.check_hostname:
            context.check_hostname = False
        if self.insecure:
            context.verify_mode = ssl.CERT_NONE
        return context
