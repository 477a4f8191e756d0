"""Paths of values: `/a/b`, never ending in a slash but for the root."""

from __future__ import annotations

from pulsar_meta.codecs.errors import UsageError


def checked(path: str) -> str:
    """Return `path` if a value can be written there; UsageError for empty parts, `.`, `..` or NUL."""
    parts = path.split("/")
    if parts[0] != "" or len(parts) < 2 or any(part in ("", ".", "..") or "\0" in part for part in parts[1:]):
        raise UsageError(f"{path!r}: a path is /a/b, without empty parts, . and ..")
    return path


def prefixed(prefix: str) -> tuple[str, str]:
    """Return (`prefix` without a closing slash, what every path below it begins with)."""
    if not prefix.startswith("/"):
        raise UsageError(f"{prefix!r}: a path begins with /")
    bare = prefix.rstrip("/")
    return bare or "/", bare + "/"


def is_within(path: str, prefix: str) -> bool:
    """Tell whether `path` is `prefix` or lies below it (`/ab` does not lie below `/a`)."""
    bare, below = prefixed(prefix)
    return path == bare or path.startswith(below)


def joined(parent: str, name: str) -> str:
    """Return the path of the child `name` of `parent`."""
    return f"{parent.rstrip('/')}/{name}"
