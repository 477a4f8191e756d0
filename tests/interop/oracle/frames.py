"""What Pulsar's Commands and compression codecs make of entry frames and payloads. Runs inside a JVM."""

from __future__ import annotations

from typing import Any

from jpype import JClass

from tests.interop.oracle.java import buffer, drain, each, first_class

_API = "org.apache.pulsar.common.api.proto"


def parse_frames(frames: list[bytes]) -> list[dict[str, Any] | str]:
    """Return the parts of each frame, messages as canonical bytes, or what Commands threw."""
    return each(frames, _parse_frame)


def open_batches(batches: list[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]] | str]:
    """Return (SingleMessageMetadata, payload) of every message in (MessageMetadata, payload)."""
    return each(batches, _open_batch)


def make_frames(parts: list[tuple[bytes, bytes, bool]]) -> list[bytes | str]:
    """Return Commands' frame of each (MessageMetadata, payload, with checksum)."""
    return each(parts, _make_frame)


def add_broker_metadata(frames: list[tuple[bytes, int]], names: list[str]) -> list[bytes | str]:
    """Return each (frame, messages in it) as the broker's interceptors of these names leave it."""
    utils = JClass("org.apache.pulsar.common.intercept.BrokerEntryMetadataUtils")
    chosen = JClass("java.util.LinkedHashSet")()
    for name in names:
        chosen.add(f"org.apache.pulsar.common.intercept.Append{name}MetadataInterceptor")
    loader = JClass("java.lang.Thread").currentThread().getContextClassLoader()
    interceptors = utils.loadBrokerEntryMetadataInterceptors(chosen, loader)
    commands = _commands()
    return each(
        frames, lambda frame: drain(commands.addBrokerEntryMetadata(buffer(frame[0]), interceptors, frame[1]))
    )


def compress(codec: str, values: list[bytes]) -> list[bytes | str]:
    """Return what CompressionCodecProvider's codec makes of each value."""
    used = _codec(codec)
    return each(values, lambda value: drain(used.encode(buffer(value))))


def decompress(codec: str, values: list[tuple[bytes, int]]) -> list[bytes | str]:
    """Return what CompressionCodecProvider's codec reads in each (compressed, raw size)."""
    used = _codec(codec)
    return each(values, lambda value: drain(used.decode(buffer(value[0]), value[1])))


def reserialize(kind: str, values: list[bytes]) -> list[bytes | str]:
    """Return the canonical bytes of each message of PulsarApi.proto."""
    return each(values, lambda value: bytes(_message(kind, value).toByteArray()))


def _parse_frame(data: bytes) -> dict[str, Any]:
    commands, readable = _commands(), buffer(data)
    broker = commands.parseBrokerEntryMetadataIfExist(readable)
    parts: dict[str, Any] = {"broker": None if broker is None else bytes(broker.toByteArray())}
    parts["stored"] = parts["computed"] = None
    if commands.hasChecksum(readable):
        parts["stored"] = int(commands.readChecksum(readable)) & 0xFFFFFFFF
        parts["computed"] = int(_crc32c(readable)) & 0xFFFFFFFF
    parts["metadata"] = bytes(commands.parseMessageMetadata(readable).toByteArray())
    parts["payload"] = drain(readable)
    return parts


def _open_batch(batch: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    metadata = _message("MessageMetadata", batch[0])
    provider = JClass("org.apache.pulsar.common.compression.CompressionCodecProvider")
    codec = provider.getCompressionCodec(metadata.getCompression())
    readable = codec.decode(buffer(batch[1]), metadata.getUncompressedSize())
    count, found = metadata.getNumMessagesInBatch(), []
    for at in range(count):
        single = JClass(f"{_API}.SingleMessageMetadata")()
        payload = _commands().deSerializeSingleMessageInBatch(readable, single, at, count)
        found.append((bytes(single.toByteArray()), drain(payload)))
    return found


def _make_frame(part: tuple[bytes, bytes, bool]) -> bytes:
    commands = _commands()
    kinds = JClass("org.apache.pulsar.common.protocol.Commands$ChecksumType")
    kind = kinds.valueOf("Crc32c" if part[2] else "None")
    metadata = _message("MessageMetadata", part[0])
    return drain(commands.serializeMetadataAndPayload(kind, metadata, buffer(part[1])))


def _message(kind: str, data: bytes) -> Any:
    message = JClass(f"{_API}.{kind}")()
    message.parseFrom(buffer(data), len(data))
    return message


def _codec(name: str) -> Any:
    provider = JClass("org.apache.pulsar.common.compression.CompressionCodecProvider")
    types = JClass(f"{_API}.CompressionType")
    return provider.getCompressionCodec(types.valueOf(name.upper()))


def _commands() -> Any:
    return JClass("org.apache.pulsar.common.protocol.Commands")


def _crc32c(readable: Any) -> int:
    checksum = first_class("com.scurrilous.circe.checksum.Crc32cIntChecksum")
    return int(checksum.computeChecksum(readable))
