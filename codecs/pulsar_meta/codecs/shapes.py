"""Shapes of JSON that no TypedDict is written for, since another schema or another member decides on them.

They stand beside a type in `Annotated`, and in the JSON Schemas of what is printed in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Any


@dataclass(frozen=True, slots=True)
class Members:
    """An object: a name for it, what it is, and the types of its members, none of which has to be there.

    `of` is asked when a schema is made, and not before: an object may have one of its own kind in it.
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
    """The type of a member by what another, `name`, says; where it says something else, as it is written."""

    name: str
    of: Callable[[], Mapping[str, Any]]


def many(kind: Any) -> Any:
    """Return the type of a list of `kind`."""
    return GenericAlias(list, (kind,))
