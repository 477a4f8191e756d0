"""One value put or removed: the same path as for thousands."""

from __future__ import annotations

from pulsar_meta.codecs.errors import ConflictError, GuardError, NotFoundError
from pulsar_meta.jobs.rewrite.decision import Decision, Rule, keep, write
from pulsar_meta.stores.base import ABSENT, Store, Versioned


def current(store: Store, path: str) -> Versioned:
    """Return the value at `path`, or one of version ABSENT where there is none."""
    try:
        return store.read(path)
    except NotFoundError:
        return Versioned(path, b"", ABSENT)


def put_rule(value: bytes, expected: int) -> Rule:
    """Return the rule that replaces the version `expected` (ABSENT: creates) by `value`.

    It raises ConflictError for any other version, and changes nothing where the bytes are there already.
    """

    def decide(seen: Versioned) -> Decision:
        _check_version(seen, expected)
        if seen.version != ABSENT and seen.value == value:
            return keep(seen, "already")
        return write(seen, value)

    return decide


def remove_rule(expected: int | None, children: list[str]) -> Rule:
    """Return the rule that deletes a value of the version `expected` (None: as read).

    NotFoundError where there is none, GuardError where it has children: nothing is removed recursively.
    """

    def decide(seen: Versioned) -> Decision:
        if seen.version == ABSENT:
            raise NotFoundError("nothing there", source=seen.path)
        _check_version(seen, seen.version if expected is None else expected)
        if children:
            raise GuardError(f"has {len(children)} children; rm is never recursive", source=seen.path)
        return write(seen, None)

    return decide


def _check_version(seen: Versioned, expected: int) -> None:
    if seen.version == expected:
        return
    if expected == ABSENT:
        raise ConflictError("exists already", source=seen.path)
    here = "there is none" if seen.version == ABSENT else f"it is {seen.version}"
    raise ConflictError(f"version {expected} was expected, {here}", source=seen.path)
