"""Random protobuf messages over the full ranges, many at once (Hypothesis takes too long for 100 000).

The same seed gives the same values, so a disagreement can be looked at again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
# Both implementations of the protobuf runtime have a class of their own for it.
Field: TypeAlias = Any
SEED: Final = 0x4778

_LIMITS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_LETTERS: Final = "abcXYZ0189-_./:=& %+~*#\\\"'\n\t\0äß€漢字🚀\u202e"


def messages(kind: type[M], count: int, *, seed: int = SEED, depth: int = 4) -> Iterator[M]:
    """Yield `count` random messages of type `kind` with all required fields set."""
    source = random.Random(f"{seed} {kind.DESCRIPTOR.full_name}")
    for _ in range(count):
        message = kind()
        _fill(message, source, depth)
        yield message


def mutations(values: list[bytes], count: int, *, seed: int = SEED) -> Iterator[bytes]:
    """Yield `count` damaged values: a bit flipped, bytes replaced, removed or added, an end cut off."""
    source = random.Random(seed)
    for _ in range(count):
        value = bytearray(source.choice(values))
        for _ in range(source.choice((1, 1, 1, 2, 5))):
            _damage(value, source)
        yield bytes(value)


def text(source: random.Random, longest: int = 12) -> str:
    """Return a string that names, quotes and codecs may stumble over."""
    return "".join(source.choice(_LETTERS) for _ in range(source.randrange(longest + 1)))


def _fill(message: Message, source: random.Random, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            _repeat(message, field, source, depth)
        elif field.is_required or source.random() < 0.6:
            if field.message_type is None:
                setattr(message, field.name, _scalar(field, source))
            elif depth > 0 or field.is_required:
                child = getattr(message, field.name)
                child.SetInParent()
                _fill(child, source, depth - 1)


def _repeat(message: Message, field: Field, source: random.Random, depth: int) -> None:
    count = source.choice((0, 0, 1, 2, 5)) if depth > 0 else 0
    repeated: Any = getattr(message, field.name)
    for _ in range(count):
        if field.message_type is None:
            repeated.append(_scalar(field, source))
        else:
            _fill(repeated.add(), source, depth - 1)


def _scalar(field: Field, source: random.Random) -> Any:
    kind = field.cpp_type
    if kind in _LIMITS:
        return _integer(*_LIMITS[kind], source)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return source.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return source.choice(field.enum_type.values).number
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return float(source.randrange(-1000, 1000))
    return (
        text(source) if field.type == FieldDescriptor.TYPE_STRING else source.randbytes(source.randrange(20))
    )


def _integer(low: int, high: int, source: random.Random) -> int:
    """Choose small numbers, the limits and everything between alike."""
    choice = source.random()
    if choice < 0.2:
        return source.choice((low, high, 0, max(low, -1), 1))
    return source.randint(max(low, -200), 200) if choice < 0.6 else source.randint(low, high)


def _damage(value: bytearray, source: random.Random) -> None:
    if not value:
        value.extend(source.randbytes(source.randrange(8)))
        return
    at, how = source.randrange(len(value)), source.randrange(5)
    if how == 0:
        value[at] ^= 1 << source.randrange(8)
    elif how == 1:
        value[at : at + 1] = source.randbytes(1)
    elif how == 2:
        del value[at : at + source.randrange(1, 4)]
    elif how == 3:
        value[at:at] = source.randbytes(source.randrange(1, 4))
    else:
        del value[at:]
