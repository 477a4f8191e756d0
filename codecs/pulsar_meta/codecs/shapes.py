"""JSON types that a TypedDict can't express. They annotate a type and replace it in JSON Schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any, NamedTuple


class Members(NamedTuple):
    """An object with optional members: its name, its description, and the types of its members.

    `of` is called only when a schema is generated, because an object may contain itself.
    """

    name: str
    about: str
    of: Callable[[], Mapping[str, Any]]


class Either(NamedTuple):
    """A value of one of several types."""

    kinds: tuple[Any, ...]


class ByMember(NamedTuple):
    """A member whose type depends on the value of the member `name`; the annotated type is the default."""

    name: str
    of: Callable[[], Mapping[str, Any]]


def many(kind: Any) -> Any:
    """Return the type of a list of `kind`."""
    return GenericAlias(list, (kind,))
