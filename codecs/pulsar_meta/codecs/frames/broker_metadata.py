"""The broker's part of an entry frame: taken off, or put on as the broker's interceptors do.

What stands after it (checksum, metadata, payload) is never touched, so its checksum stays right.

Sources: apache/pulsar ManagedLedgerInterceptorImpl.beforeAddEntry, AppendIndexMetadataInterceptor,
AppendBrokerTimestampMetadataInterceptor, Commands.addBrokerEntryMetadata; PIP-70.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.frame import decode_frame, encode_prefix, split_broker_metadata
from pulsar_meta.codecs.reader import Buffer, byte_view
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata

NO_INDEX: Final = -1
_PACKAGE: Final = "org.apache.pulsar.common.intercept."
INTERCEPTORS: Final = {
    "timestamp": f"{_PACKAGE}AppendBrokerTimestampMetadataInterceptor",
    "index": f"{_PACKAGE}AppendIndexMetadataInterceptor",
}


def strip_broker_metadata(frame: Buffer) -> tuple[memoryview, bool]:
    """Return the frame without the broker's part, and whether there was one; the bytes are not copied.

    DecodeError where the broker's part does not fit into the bytes.
    """
    broker, at = split_broker_metadata(frame)
    return byte_view(frame)[at:], broker is not None


def parse_interceptors(text: str) -> tuple[str, ...]:
    """Return the interceptors of a `brokerEntryMetadataInterceptors` setting, in its order.

    Both the classes' names and `timestamp`, `index` are taken; UsageError for others and for repeated ones.
    """
    names = {full: short for short, full in INTERCEPTORS.items()} | {short: short for short in INTERCEPTORS}
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    for name in chosen:
        if name not in names:
            raise UsageError(f"no interceptor {name!r}: there are {', '.join(INTERCEPTORS)}")
    found = tuple(names[name] for name in chosen)
    if len(set(found)) != len(found) or not found:
        raise UsageError(f"{text!r}: expected interceptors, each once")
    return found


@dataclass(slots=True)
class MetadataAppender:
    """A topic's interceptors and its index generator, which starts at -1 as a new topic's does.

    `clock` returns milliseconds since the epoch for a frame's publish time.
    """

    interceptors: Sequence[str]
    clock: Callable[[int], int]
    last_index: int = NO_INDEX
    replace: bool = False

    def attach(self, frame: Buffer) -> bytes:
        """Return the frame with the broker's part in front, its index that of its last message.

        DecodeError where it is no frame, or has such a part already and is not to be replaced.
        """
        bare, had = strip_broker_metadata(frame)
        if had and not self.replace:
            raise DecodeError("the frame has broker metadata already (--replace replaces it)", offset=0)
        decoded = decode_frame(bare, verify=False)
        metadata = BrokerEntryMetadata()
        for name in self.interceptors:
            if name == "timestamp":
                metadata.broker_timestamp = self.clock(decoded.metadata.publish_time)
            else:
                self.last_index += decoded.index_width
                metadata.index = self.last_index
        return encode_prefix(metadata) + bytes(bare)
