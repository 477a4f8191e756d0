"""Convert protobuf messages directly to JSON text, equal to `dumps(message_to_json(message))` but faster.

For complete messages without unknown fields. Raises TypeError for string fields that are not UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from json.encoder import encode_basestring as quoted
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER
from pulsar_meta.codecs.protobuf.to_json import ByField, encoder_of, is_bit_set
from pulsar_meta.codecs.secrets import redact

# Converts a message to text; the second argument is the text of the `given` field, "" if it is empty.
Writer = Callable[[Any, str], str]

_INTEGERS: Final = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_PAIRS: Final = ({"key", "value"}, {"name", "value"})
_BOOLEANS: Final = {True: "true", False: "false"}
# The number of rows that are formatted at once, with one cached template.
_BLOCK: Final = 64

_text_of: Final = json.JSONEncoder(ensure_ascii=False).encode


def rows_text(row: str, places: int, numbers: Sequence[int]) -> str:
    """Format rows: `row` is a template with `places` %s, filled from `numbers`; commas separate the rows."""
    size = places * _BLOCK
    if len(numbers) <= size:
        return _repeated(row, len(numbers) // places) % tuple(numbers)
    return ", ".join(rows_text(row, places, numbers[at : at + size]) for at in range(0, len(numbers), size))


@cache
def _repeated(row: str, count: int) -> str:
    return ", ".join([row] * count)


@cache
def writer_of(descriptor: Descriptor, given: str = "", *, hide: bool = False) -> Writer:
    """Return a compiled function that converts messages of one type to JSON text.

    `given` is a repeated field whose text the caller passes. `hide` redacts secrets in pairs of key and
    value.
    """
    if hide and {field.name for field in descriptor.fields} in _PAIRS:
        as_json = encoder_of(descriptor)
        return lambda pair, given: _text_of(redact(as_json(pair)))
    scope: dict[str, Any] = {
        "low": -MAX_SAFE_INTEGER,
        "high": MAX_SAFE_INTEGER,
        "digits": '"{}"'.format,
        "text": _redacted_text if hide else _text,
        "booleans": _BOOLEANS,
        "writers": ByField(descriptor, partial(writer_of, hide=hide)),
    }
    statements = [_statement(field, given) for field in descriptor.fields]
    source = "\n".join(["def write(m, given):", " t = ''", *statements, " return '{' + t[2:] + '}'"])
    exec(compile(source, f"<text of {descriptor.full_name}>", "exec"), scope)
    write: Writer = scope["write"]
    return write


def _statement(field: FieldDescriptor, given: str) -> str:
    """Return a statement that appends a field to the text `t`, after a comma."""
    name, get = field.name, f"m.{field.name}"
    if name == given:
        return f""" if given: t += f', "{name}": [{{given}}]'"""
    if field.is_repeated:
        items = f"', '.join([f'{_expression(field, 'x')}' for x in {get}])"
        return f""" if len({get}): t += ', "{name}": [' + {items} + ']'"""
    condition = "" if field.is_required else f"if m.HasField({name!r}): "
    return f""" {condition}t += f', "{name}": {_expression(field, get)}'"""


def _expression(field: FieldDescriptor, get: str) -> str:
    """Return the f-string fragment for the JSON of one value of `field`."""
    if field.message_type is not None:
        return f'{{writers["{field.name}"]({get}, "")}}'
    if is_bit_set(field):
        return f'"{{{get}}}"'
    if field.cpp_type in _INTEGERS:
        return f"{{(v if low <= (v := {get}) <= high else digits(v))}}"
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"{{text({get})}}"
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return f"{{booleans[{get}]}}"
    raise NotImplementedError(f"no text for {field.full_name}")


def _redacted_text(value: str | bytes) -> str:
    shown = redact(value)
    return _text(value) if shown == value else _text_of(shown)


def _text(value: str | bytes) -> str:
    if isinstance(value, bytes):
        raise TypeError("not UTF-8")
    return quoted(value)
