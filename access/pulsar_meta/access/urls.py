"""Store URLs, the options in their query, and references to credentials.

Networked stores: `SCHEME://HOST:PORT[,HOST:PORT…][/PATH][?OPTION=VALUE&…]`. All of them accept these options:

- `timeout=SECONDS`: the time to connect, and to wait for an answer (default 10),
- `ca=FILE`, `cert=FILE`, `key=FILE`: TLS with this authority and this client certificate,
- `auth=REFERENCE`: a reference to the credentials, never the credentials: `file:PATH` (the file's first line)
  or `env:NAME`. Each store documents the format of the text (`user:password`, a token).

Files (`snapshot:`, `dir:`, `rocksdb:`) take everything after the colon as a path. Secrets come from a file or
the environment, never from a command line or a URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from pulsar_meta.access.files import read_any
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.patterns import lazy_pattern

LARGEST_SECRET: Final = 64 << 10


def read_secret(reference: str, name: str = "auth") -> str:
    """Return the first line of a secret in `file:PATH` or `env:NAME`. It never appears in messages.

    Raises UsageError, which begins with `name`, if the reference is invalid or there is no secret.
    """
    return secret_reader(reference, name)()


def secret_reader(reference: str, name: str = "auth") -> Callable[[], str]:
    """Return a function that reads the secret each time it is needed. Raises the errors of `read_secret`."""
    kind, _, target = reference.partition(":")
    if kind not in ("file", "env") or not target:
        raise UsageError(
            f"{name}: expected file:PATH or env:NAME; secrets are never taken from the command line"
        )
    if kind == "env":
        return partial(_from_environment, target, name)
    return partial(_from_file, Path(target.removeprefix("//")), name)


def user_password(secret: str, name: str = "auth") -> tuple[str, str]:
    """Split `user:password`. Raises UsageError if there is no user or no colon."""
    user, colon, password = secret.partition(":")
    if not colon or not user:
        raise UsageError(f"{name}: the secret must have the form user:password")
    return user, password


def _from_environment(variable: str, name: str) -> str:
    return _first_line(
        os.environ.get(variable, ""), f"the environment variable {variable} is not set or empty", name
    )


def _from_file(path: Path, name: str) -> str:
    try:
        text = read_any(path, LARGEST_SECRET).decode()
    except (OSError, UnicodeDecodeError, DecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file of a plausible size"
        raise UsageError(f"{name}: cannot read {path}: {why}") from error
    return _first_line(text, f"{path} is empty", name)


def _first_line(text: str, otherwise: str, name: str) -> str:
    if not text.strip():
        raise UsageError(f"{name}: {otherwise}")
    return text.splitlines()[0]


DEFAULT_TIMEOUT = 10.0
LAST_PORT = 65535
LONGEST = 4096
LARGEST_CERTIFICATE = 16 << 20
COMMON_OPTIONS = frozenset({"timeout", "auth", "ca", "cert", "key"})

_AT = r"(?:@|%40)"
# The authority of a URL in a text, and the rest of the text up to the next URL.
_NEXT = r"(?![\s,;'\"]+[\w+.:-]+://)"
_authority_re = lazy_pattern(rf"(?<=://)(?P<authority>(?:{_NEXT}[^/?#\s])*)(?P<rest>(?:{_NEXT}[^\n])*)")
_host_re = lazy_pattern(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?")
_bare_re = lazy_pattern(rf"(?P<scheme>\b[a-z][a-z0-9+.-]*:)(?!//)[^\s/:@]+:(?!//)[^\s@]+{_AT}")
_secret_option_re = lazy_pattern(
    r"(?P<name>[?&;](?:[\w.-]*(?:password|passwd|secret|token|signature|credential)[\w.-]*|sig|(?:auth|sasl)(?==(?!file:|env:)))=)[^&;\s]*",
    re.IGNORECASE,
)
_endpoint_re = lazy_pattern(r"^(?:\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::\d{1,5})?$")


def redact(text: str) -> str:
    """Replace the credentials in a URL, or in a text with URLs, by ***.

    Credentials are everything before the last `@` (or %40) of an authority, and query options with names like
    password, secret and token. References to secrets (`auth=file:…`) are kept. A text is cut after `LONGEST`
    characters, because the time grows by the square of its length.
    """
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    try:
        text = _authority_re.sub(_without_user, text)
    except RecursionError:
        # Hundreds of URLs without a space between them.
        return "***"
    return _secret_option_re.sub(r"\g<name>***", _bare_re.sub(r"\g<scheme>***@", text))


def redact_about(url: str, text: str) -> str:
    """Redact `text` like `redact`, and also replace the credentials of `url` if they occur outside a URL."""
    user = re.search(rf"://(.*){_AT}", url) if redact(url) != url else None
    if user is not None:
        password = user[1].partition(":")[2]
        for secret in (user[1], unquote(user[1]), password, unquote(password)):
            text = text.replace(secret, "***") if secret else text
    return redact(text)


def _without_user(match: re.Match[str]) -> str:
    authority, rest = match["authority"], match["rest"]
    hidden, shown = "", authority + rest
    *user, hosts = re.split(_AT, authority)
    named = hosts and all(map(_host_re.fullmatch, hosts.split(",")))
    if authority and not named and re.search(_AT, rest):
        # This is not a host, but part of a password with a slash in it, which ends at the last @.
        hidden, shown = "***@", re.split(_AT, rest)[-1]
    elif user:
        hidden, shown = "***@", hosts + rest
    # The next URL may follow without a space.
    return hidden + _authority_re.sub(_without_user, shown)


def split_scheme(url: str) -> tuple[str, str]:
    """Return (scheme, rest). Raises UsageError if there is no scheme."""
    scheme, colon, rest = url.partition(":")
    if not colon or not rest:
        raise UsageError(f"invalid URL {redact(url)!r}: expected SCHEME:LOCATION")
    return scheme, rest


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A parsed URL of a networked store. `path` is the chroot or namespace without its outer slashes.

    `url` is the complete URL, with `//` even if it was omitted.
    """

    url: str
    scheme: str
    endpoints: tuple[str, ...]
    path: str
    options: dict[str, str] = field(repr=False)

    @classmethod
    def parse(cls, url: str, *, default_port: int, options: Collection[str] = ()) -> ServerUrl:
        """Parse `url`. Raises UsageError for credentials in it, an invalid address or an unknown option."""
        scheme, rest = split_scheme(url)
        address, _, query = rest.removeprefix("//").partition("?")
        hosts, _, path = address.partition("/")
        known = all(_endpoint_re.match(host) for host in hosts.split(","))
        if re.search(_AT, hosts) or (re.search(_AT, address) and not known):
            # The address is not shown, because the end of the password is unknown.
            raise UsageError(
                f"{scheme}://***: put credentials in a file or the environment (?auth=file:… or env:…)"
            )
        url = f"{scheme}://{rest.removeprefix('//')}"
        endpoints = tuple(_endpoint(host, default_port, url) for host in hosts.split(","))
        given = _query(query, frozenset(options) | COMMON_OPTIONS, url)
        return cls(url, scheme, endpoints, unquote(path).strip("/"), given)

    def check_tls(self, *, used: bool, how: str) -> None:
        """Raise UsageError if certificate options are given without TLS, or their files are unreadable."""
        for name in ("ca", "cert", "key"):
            if name in self.options and not used:
                raise UsageError(f"{name}=… needs TLS; turn it on with {how}", source=self.url)
            self.file(name)

    @property
    def timeout(self) -> float:
        """Seconds to wait for a connection, and for an answer."""
        return self.number("timeout", DEFAULT_TIMEOUT)

    def number(self, name: str, default: float) -> float:
        """Return a positive number given as an option."""
        text = self.options.get(name)
        try:
            number = default if text is None else float(text)
        except ValueError:
            number = -1.0
        if not 0 < number < 1e9:
            raise UsageError(f"{name}={text}: expected a positive number", source=self.url)
        return number

    def flag(self, name: str) -> bool:
        """Return True if an option is set (`name=true`, `name=1`)."""
        text = self.options.get(name, "false").lower()
        if text not in ("true", "1", "yes", "false", "0", "no"):
            raise UsageError(f"{name}={text}: expected true or false", source=self.url)
        return text in ("true", "1", "yes")

    def secret(self, name: str = "auth") -> str | None:
        """Return the credentials that an option refers to, or None if the option is missing."""
        reference = self.options.get(name)
        return None if reference is None else read_secret(reference, name)

    def file(self, name: str) -> bytes | None:
        """Read the file that an option names, or return None if the option is missing."""
        path = self.options.get(name)
        if path is None:
            return None
        try:
            return read_any(Path(path), LARGEST_CERTIFICATE)
        except OSError as error:
            raise UsageError(f"{name}={path}: {error.strerror}", source=self.url) from error
        except DecodeError as error:
            raise UsageError(f"{name}={path}: {error.message}", source=self.url) from error


def _endpoint(text: str, default_port: int, url: str) -> str:
    port = re.search(r":(\d+)$", text)
    if not _endpoint_re.match(text) or (port and not 0 < int(port[1]) <= LAST_PORT):
        raise UsageError(f"{url}: invalid server {text!r}: expected HOST or HOST:PORT")
    return text if port else f"{text}:{default_port}"


def _query(query: str, known: frozenset[str], url: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in known:
            choices = ", ".join(sorted(known))
            raise UsageError(f"{url.partition('?')[0]}: unknown option {name!r}; choose from {choices}")
    return options
