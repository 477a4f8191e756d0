"""JSON Schemas (2020-12) of documents, generated from their types.

A TypedDict becomes an object with its docstring as description. Objects allow more fields, because later
releases may add some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pulsar_meta.codecs.shapes import ByMember, Either, Members

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
INTEGER: Final = {
    "description": "A number; beyond ±(2⁵³−1), which not every reader of JSON can hold, its digits.",
    "type": ["integer", "string"],
    "pattern": "^-?[0-9]+$",
}

Schema = dict[str, Any]
_PLAIN: Final[dict[Any, Schema]] = {
    Any: {},
    NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    object: {},
    str: {"type": "string"},
}


def document_schema(title: str, kinds: list[Any]) -> Schema:
    """Return the schema of a document of one of these TypedDicts, or of a list of such documents.

    Raises TypeError if a type has no form in JSON.
    """
    definitions: dict[str, Schema] = {}
    document = _any_of([_schema(kind, definitions) for kind in kinds])
    return {
        "$schema": DIALECT,
        "title": title,
        "anyOf": [{"$ref": "#/$defs/document"}, {"type": "array", "items": {"$ref": "#/$defs/document"}}],
        "$defs": {"document": document, **dict(sorted(definitions.items()))},
    }


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a type; schemas of objects are added to `definitions` by type name."""
    if is_typeddict(kind):
        return _reference(kind.__name__, lambda: _object(kind, definitions), definitions)
    if isinstance(kind, Members):
        return _reference(kind.name, lambda: _members(kind, definitions), definitions)
    if isinstance(kind, Either):
        return _union(kind.kinds, definitions)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if kind is int:
        definitions["Integer"] = INTEGER
        return {"$ref": "#/$defs/Integer"}
    made = _OF_GENERIC.get(get_origin(kind))
    if made is not None:
        return made(get_args(kind), definitions)
    if kind not in _PLAIN:
        raise TypeError(f"no JSON Schema for {kind!r}")
    return dict(_PLAIN[kind])


def _reference(name: str, made: Callable[[], Schema], definitions: dict[str, Schema]) -> Schema:
    if name not in definitions:
        # Registered before its members are resolved, because a member may have the same type.
        definitions[name] = {}
        definitions[name] |= made()
    return {"$ref": f"#/$defs/{name}"}


def _members(kind: Members, definitions: dict[str, Schema]) -> Schema:
    properties = {name: _schema(member, definitions) for name, member in kind.of().items()}
    return {"description": kind.about, "type": "object", "properties": properties}


def _object(kind: Any, definitions: dict[str, Schema]) -> Schema:
    # `__required_keys__` ignores NotRequired in annotations that are strings. The empty namespaces make each
    # annotation resolve names in its own module.
    hints = get_type_hints(kind, {}, {}, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    required = [name for name in hints if name not in optional | kind.__optional_keys__]
    members = {name: get_args(hint)[0] if name in optional else hint for name, hint in hints.items()}
    about = {"description": " ".join(kind.__doc__.split())} if kind.__doc__ else {}
    properties = {name: _schema(member, definitions) for name, member in members.items()}
    cases = [case for name, member in members.items() for case in _cases(name, member, definitions)]
    by_member = {"allOf": cases} if cases else {}
    return {**about, "type": "object", "properties": properties, "required": required, **by_member}


def _cases(name: str, kind: Any, definitions: dict[str, Schema]) -> Iterator[Schema]:
    """Yield a conditional schema of the member `name` for each value of the member that decides its type."""
    by = get_args(kind)[1] if get_origin(kind) is Annotated else None
    if isinstance(by, ByMember):
        for value, type_then in by.of().items():
            condition = {"properties": {by.name: {"const": value}}, "required": [by.name]}
            yield {"if": condition, "then": {"properties": {name: _schema(type_then, definitions)}}}


def _annotated(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    declared, detail = arguments
    return _schema(declared if isinstance(detail, ByMember) else detail, definitions)


def _list(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    return {"type": "array", "items": _schema(arguments[0], definitions)}


def _tuple(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    items = [_schema(argument, definitions) for argument in arguments]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _map(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}


def _literal(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    return {"enum": list(arguments)}


def _union(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    return _any_of([_schema(argument, definitions) for argument in arguments])


def _any_of(schemas: list[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


_OF_GENERIC: Final[Mapping[Any, Callable[[tuple[Any, ...], dict[str, Schema]], Schema]]] = {
    list: _list,
    tuple: _tuple,
    dict: _map,
    Mapping: _map,
    Annotated: _annotated,
    Literal: _literal,
    Union: _union,
    UnionType: _union,
}
