"""Protobuf messages as JSON text at once: what `dumps` writes of their JSON form, without that form.

For whole messages without unknown fields. Making dictionaries, and text of these, is most of the work where a
store has many values. `TypeError` where only the JSON form says what is right: text that is no UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from json.encoder import encode_basestring as quoted
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER
from pulsar_meta.codecs.protobuf.to_json import OfFields, encoder_of, is_bit_set
from pulsar_meta.codecs.secrets import redact

# Writes a message; the second argument is the text of the field that is handed in, "" where it has none.
Writer = Callable[[Any, str], str]

_INTEGERS: Final = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_PAIRS: Final = ({"key", "value"}, {"name", "value"})
_TRUTH: Final = {True: "true", False: "false"}
# So many rows at once: the text with places for their numbers is kept.
_BLOCK: Final = 64

_text_of: Final = json.JSONEncoder(ensure_ascii=False).encode


def rows_text(row: str, places: int, numbers: Sequence[int]) -> str:
    """Return `row`, a text with so many places (%s), filled for each handful of numbers, commas between."""
    size = places * _BLOCK
    if len(numbers) <= size:
        return _repeated(row, len(numbers) // places) % tuple(numbers)
    return ", ".join(rows_text(row, places, numbers[at : at + size]) for at in range(0, len(numbers), size))


@cache
def _repeated(row: str, count: int) -> str:
    return ", ".join([row] * count)


@cache
def writer_of(descriptor: Descriptor, given: str = "", *, hide: bool = False) -> Writer:
    """Return the compiled function that writes messages of one type.

    `given`: the repeated field whose text is handed in. `hide`: secrets in pairs of key and value are
    redacted.
    """
    if hide and {field.name for field in descriptor.fields} in _PAIRS:
        as_json = encoder_of(descriptor)
        return lambda pair, given: _text_of(redact(as_json(pair)))
    scope: dict[str, Any] = {
        "low": -MAX_SAFE_INTEGER,
        "high": MAX_SAFE_INTEGER,
        "digits": '"{}"'.format,
        "text": _redacted_text if hide else _text,
        "truth": _TRUTH,
        "writers": OfFields(descriptor, partial(writer_of, hide=hide)),
    }
    statements = [_statement(field, given) for field in descriptor.fields]
    source = "\n".join(["def write(m, given):", " t = ''", *statements, " return '{' + t[2:] + '}'"])
    exec(compile(source, f"<text of {descriptor.full_name}>", "exec"), scope)
    write: Writer = scope["write"]
    return write


def _statement(field: FieldDescriptor, given: str) -> str:
    """Return the statement that adds a field to the text `t`, with a comma before it."""
    name, get = field.name, f"m.{field.name}"
    if name == given:
        return f""" if given: t += f', "{name}": [{{given}}]'"""
    if field.is_repeated:
        items = f"', '.join([f'{_expression(field, 'x')}' for x in {get}])"
        return f""" if len({get}): t += ', "{name}": [' + {items} + ']'"""
    condition = "" if field.is_required else f"if m.HasField({name!r}): "
    return f""" {condition}t += f', "{name}": {_expression(field, get)}'"""


def _expression(field: FieldDescriptor, get: str) -> str:
    """Return what stands in an f-string for the JSON of one value of `field`."""
    if field.message_type is not None:
        return f'{{writers["{field.name}"]({get}, "")}}'
    if is_bit_set(field):
        return f'"{{{get}}}"'
    if field.cpp_type in _INTEGERS:
        return f"{{(v if low <= (v := {get}) <= high else digits(v))}}"
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"{{text({get})}}"
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return f"{{truth[{get}]}}"
    raise NotImplementedError(f"no text for {field.full_name}")


def _redacted_text(value: str | bytes) -> str:
    shown = redact(value)
    return _text(value) if shown == value else _text_of(shown)


def _text(value: str | bytes) -> str:
    if isinstance(value, bytes):
        raise TypeError("text that is no UTF-8")
    return quoted(value)
