"""JSON types that a TypedDict can't express. They annotate a type and replace it in JSON Schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Any


@dataclass(frozen=True, slots=True)
class Members:
    """An object with optional members: its name, its description, and the types of its members.

    `of` is called only when a schema is generated, because an object may contain itself.
    """

    name: str
    about: str
    of: Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Either:
    """A value of one of several types."""

    kinds: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ByMember:
    """A member whose type depends on the value of the member `name`; the annotated type is the default."""

    name: str
    of: Callable[[], Mapping[str, Any]]


def many(kind: Any) -> Any:
    """Return the type of a list of `kind`."""
    return GenericAlias(list, (kind,))
