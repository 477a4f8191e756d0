"""Inside an oracle's JVM: bytes both ways, and the classes that moved between versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from jpype import JArray, JByte, JClass, JException

T = TypeVar("T")
R = TypeVar("R")


def java_bytes(data: bytes | memoryview) -> Any:
    """Return `data` as a Java byte[]."""
    return JArray(JByte)(bytes(data))


def buffer(data: bytes | memoryview) -> Any:
    """Return `data` as a Netty buffer of its own."""
    return JClass("io.netty.buffer.Unpooled").wrappedBuffer(java_bytes(data))


def drain(readable: Any) -> bytes:
    """Return what is left to read in a Netty buffer."""
    return bytes(JClass("io.netty.buffer.ByteBufUtil").getBytes(readable))


def first_class(*names: str) -> Any:
    """Return the first of the classes that exists in this version."""
    for name in names:
        try:
            return JClass(name)
        except TypeError:
            continue
    raise TypeError(f"none of {', '.join(names)}")


def metadata_class(name: str) -> Any:
    """Return a class of MLDataFormats.proto: Java protobuf until 4.1, LightProto since."""
    package = "org.apache.bookkeeper.mledger.proto"
    return first_class(f"{package}.MLDataFormats${name}", f"{package}.{name}")


def parse(message_class: Any, data: bytes) -> Any:
    """Return `data` as a message, however the version's generated code is used."""
    if hasattr(message_class, "newBuilder"):
        return message_class.parseFrom(java_bytes(data))
    message = message_class()
    message.parseFrom(java_bytes(data))
    return message


def each(values: Iterable[T], function: Callable[[T], R]) -> list[R | str]:
    """Return what `function` makes of each value, or the name and words of what it threw."""
    return [_attempt(function, value) for value in values]


def _attempt(function: Callable[[T], R], value: T) -> R | str:
    try:
        return function(value)
    except JException as error:
        return f"{error.getClass().getName()}: {error.getMessage()}"
