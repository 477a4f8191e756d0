"""What Pulsar's MetaStoreImpl makes of the values of managed ledgers and cursors. Runs inside a JVM."""

from __future__ import annotations

from typing import Any

from jpype import JClass

from tests.interop.oracle.java import each, first_class, java_bytes, metadata_class, parse

_stores: dict[tuple[str, int], Any] = {}


def knows_compressed_cursors() -> bool:
    """Whether this version has PIP-146 (2.9 on)."""
    return hasattr(_store("NONE", 0), "parseManagedCursorInfo")


def knows_thresholds() -> bool:
    """Whether this version has PIP-270 (3.1 on)."""
    try:
        JClass("org.apache.bookkeeper.mledger.MetadataCompressionConfig")
    except TypeError:
        return False
    return True


def parse_values(kind: str, values: list[bytes]) -> list[bytes | str]:
    """Return the canonical bytes of what MetaStoreImpl reads in each stored value, or what it threw."""
    method = getattr(_store("NONE", 0), f"parse{kind}")
    return each(values, lambda value: bytes(method(java_bytes(value)).toByteArray()))


def store_values(kind: str, codec: str, threshold: int, payloads: list[bytes]) -> list[bytes | str]:
    """Return what MetaStoreImpl would store for each plain message with these settings."""
    store = _store(codec.upper(), threshold)
    method = store.compressLedgerInfo if kind == "ManagedLedgerInfo" else store.compressCursorInfo
    message_class = metadata_class(kind)
    return each(payloads, lambda payload: bytes(method(parse(message_class, payload))))


def reserialize(kind: str, payloads: list[bytes]) -> list[bytes | str]:
    """Return the canonical bytes of each message, parsed by the version's generated code."""
    message_class = metadata_class(kind)
    return each(payloads, lambda payload: bytes(parse(message_class, payload).toByteArray()))


def field_numbers(kind: str) -> dict[str, int]:
    """Return the numbers of a message's fields by name, without underscores and in small letters.

    Nothing where this version does not have the message.
    """
    try:
        return _numbers(metadata_class(kind))
    except TypeError:
        return {}


def wire_field_numbers(kind: str) -> dict[str, int]:
    """The same for a message of PulsarApi.proto."""
    return _numbers(first_class(f"org.apache.pulsar.common.api.proto.{kind}"))


def _numbers(message_class: Any) -> dict[str, int]:
    numbers = {}
    for field in message_class.class_.getDeclaredFields():
        name = str(field.getName())
        if name.endswith("_FIELD_NUMBER"):
            field.setAccessible(True)
            numbers[name.removesuffix("_FIELD_NUMBER").replace("_", "").lower()] = int(field.get(None))
    return numbers


def _store(codec: str, threshold: int) -> Any:
    key = codec, threshold
    if key not in _stores:
        store_class = JClass("org.apache.bookkeeper.mledger.impl.MetaStoreImpl")
        _stores[key] = store_class(None, None, *_settings(store_class, codec, threshold))
    return _stores[key]


def _settings(store_class: Any, codec: str, threshold: int) -> tuple[Any, ...]:
    if knows_thresholds():
        config = JClass("org.apache.bookkeeper.mledger.MetadataCompressionConfig")(codec, threshold)
        return config, config
    most = max(len(constructor.getParameterTypes()) for constructor in store_class.class_.getConstructors())
    return (codec,) * (most - 2)
