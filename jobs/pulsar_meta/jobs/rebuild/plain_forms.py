"""Plain values (dataclasses of numbers, texts, bytes, sets) as JSON and back, by their annotations.

A dataclass is a list of its name and its fields, a set a sorted list, a mapping a list of pairs, bytes are
base64. What is read back is what was written or an error: nothing but the annotated classes is made of it.
"""

from __future__ import annotations

import types
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    GuardError,
    NotFoundError,
    PulsarMetaError,
    UnreachableError,
    UsageError,
)

_ERRORS: Final = (ConflictError, GuardError, NotFoundError, PulsarMetaError, UnreachableError, UsageError)
_errors: Final = {one.__name__: one for one in _ERRORS}


def plain(value: Any) -> Any:
    """Return a value as what JSON has."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case PulsarMetaError():
            return [type(value).__name__, value.message, value.source, getattr(value, "offset", None)]
        case frozenset():
            return sorted(map(plain, value))
        case Mapping():
            return [[plain(key), plain(held)] for key, held in value.items()]
        case tuple():
            return list(map(plain, value))
        case _ if is_dataclass(value):
            return [type(value).__name__, *(plain(getattr(value, one.name)) for one in fields(value))]
        case _:
            return value


def read_plain(kind: Any, found: Any) -> Any:
    """Return the value of the annotated type that `plain` made `found` of; ValueError where it made none."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), found)
    if origin is Literal:
        return _checked(found, found in get_args(kind), kind)
    if kind in (int, str, bool, type(None)):
        return _checked(found, type(found) is kind, kind)
    if kind is bytes:
        return b64decode(_checked(found, isinstance(found, str), kind), validate=True)
    return _of_list(kind, origin, _checked(found, isinstance(found, list), kind))


def _of_list(kind: Any, origin: Any, found: list[Any]) -> Any:
    arguments = get_args(kind)
    if origin is frozenset:
        return frozenset(read_plain(arguments[0], one) for one in found)
    if origin is tuple and arguments[1:] == (...,):
        return tuple(read_plain(arguments[0], one) for one in found)
    if origin is tuple:
        return tuple(read_plain(*pair) for pair in zip(arguments, found, strict=True))
    if origin is Mapping:
        key, held = arguments
        return {read_plain(key, one[0]): read_plain(held, one[1]) for one in found}
    if kind is PulsarMetaError:
        return _error(*found)
    if isinstance(kind, type) and is_dataclass(kind):
        _checked(found, found[:1] == [kind.__name__], kind)
        found = found[1:]
    # Of a named tuple only the values are there.
    return kind(*(read_plain(*pair) for pair in zip(_types(kind), found, strict=True)))


def _one_of(kinds: tuple[Any, ...], found: Any) -> Any:
    if found is None and type(None) in kinds:
        return None
    some = [one for one in kinds if one is not type(None)]
    if len(some) > 1:
        some = [one for one in some if isinstance(found, list) and found[:1] == [one.__name__]]
    _checked(found, len(some) == 1, kinds)
    return read_plain(some[0], found)


@cache
def _types(kind: Any) -> tuple[Any, ...]:
    return tuple(get_type_hints(kind).values())


def _error(name: str, message: str, source: str | None, offset: int | None) -> PulsarMetaError:
    if name == DecodeError.__name__:
        return DecodeError(message, offset=offset, source=source)
    return _errors[name](message, source=source)


def _checked(found: Any, right: bool, kind: object) -> Any:
    if not right:
        raise ValueError(f"{str(found)[:80]} is no {kind}")
    return found
