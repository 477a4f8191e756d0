"""A read-only connection to one bookie (it cannot fence, write or recover), and the bookies of an entry.

Several reads are under way at a time. Version 2 of the protocol matches an answer to its question by ledger
and
entry, so no two equal questions are under way together.

Source: apache/bookkeeper client/RoundRobinDistributionSchedule.java.
"""

from __future__ import annotations

import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pulsar_meta.access.sockets import TimedSocket, reason
from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.wire.bookie_protocol import (
    BAD_VERSION,
    LAST_ENTRY,
    OK,
    UNAUTHORISED,
    ReadAnswer,
    decode_answer,
    encode_batch_read,
    encode_read,
)
from pulsar_meta.entries.base import Closing

READS_UNDER_WAY: Final = 64
SECONDS: Final = 10.0
BATCH_BYTES: Final = 5 << 20
# A bookie sends nothing over its netty frame limit: 5 MiB unless set otherwise.
LARGEST_ANSWER: Final = 256 << 20

# For how long a bookie that did not answer is asked last.
AVOIDED_SECONDS: Final = 30.0

Answer = TypeVar("Answer")

_SIZE: Final = struct.Struct(">i")
# How a TLS record begins that is an alert or a handshake.
_TLS: Final = (b"\x15\x03", b"\x16\x03")
_SECURED: Final = (
    "it wants TLS or an authentication plugin, which pulsar-meta does not speak: "
    "read its disk (bookie-disk:) or ask a bookie that takes plain connections"
)


class BookieClient(Closing):
    """Reads entries of the bookie at `host:port`. After UnreachableError it is of no more use."""

    def __init__(self, host: str, port: int, *, seconds: float = SECONDS) -> None:
        """Connect; `seconds` bound the connecting and the wait for each whole answer. UnreachableError."""
        self.address = f"{host}:{port}"
        self._requests = 0
        self._seconds = seconds
        try:
            self._socket = TimedSocket(host, port, seconds=seconds)
        except (OSError, UnicodeError) as error:
            raise self._unreachable(f"cannot connect: {reason(error, seconds)}") from error

    def read(self, ledger_id: int, entry_ids: Iterable[int]) -> dict[int, ReadAnswer]:
        """Return the answer for each of `entry_ids`, asked with several under way."""
        left = list(dict.fromkeys(entry_ids))[::-1]
        answers: dict[int, ReadAnswer] = {}
        under_way: set[int] = set()
        while left or under_way:
            asked = [left.pop() for _ in range(min(len(left), READS_UNDER_WAY - len(under_way)))]
            under_way.update(asked)
            self._send(b"".join(encode_read(ledger_id, entry_id) for entry_id in asked))
            answer = self._receive()
            if answer.ledger_id != ledger_id or answer.entry_id not in under_way:
                raise self._lost(f"it answered for {answer.ledger_id}:{answer.entry_id}, not asked for")
            under_way.discard(answer.entry_id)
            answers[answer.entry_id] = answer
        return answers

    def read_last(self, ledger_id: int) -> ReadAnswer:
        """Return the last entry that this bookie holds of a ledger, confirmed or not."""
        return self.read(ledger_id, [LAST_ENTRY])[LAST_ENTRY]

    def read_batch(self, ledger_id: int, first: int, most: int) -> ReadAnswer:
        """Return the entries from `first` on that this bookie has without a gap, at most `most`.

        Bookies before 4.17 do not know the question and close the connection: UnreachableError.
        """
        self._requests += 1
        self._send(encode_batch_read(ledger_id, first, self._requests, most, BATCH_BYTES))
        answer = self._receive()
        if (answer.ledger_id, answer.request_id) != (ledger_id, self._requests):
            raise self._lost(f"it answered request {answer.request_id}, not asked for")
        return answer

    def close(self) -> None:
        """Let go of the connection. Safe to call twice."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        self._socket.begin()
        try:
            self._socket.send(data)
        except OSError as error:
            raise self._lost(reason(error, self._seconds)) from error

    def _receive(self) -> ReadAnswer:
        self._socket.begin()
        size = self._receive_exactly(_SIZE.size)
        if size[:2] in _TLS:
            raise self._lost(_SECURED)
        (count,) = _SIZE.unpack(size)
        if not 0 < count <= LARGEST_ANSWER:
            raise self._lost(f"it announced an answer of {count} bytes")
        try:
            answer = decode_answer(self._receive_exactly(count))
        except DecodeError as error:
            raise self._lost(f"it speaks another protocol: {error}") from error
        if answer.code in (UNAUTHORISED, BAD_VERSION):
            raise self._lost(_SECURED if answer.code == UNAUTHORISED else answer.reason)
        return answer

    def _receive_exactly(self, count: int) -> bytes:
        """Return the next `count` bytes; memory grows only as they come."""
        received = bytearray()
        while len(received) < count:
            try:
                piece = self._socket.receive(min(count - len(received), 1 << 20))
            except OSError as error:
                raise self._lost(reason(error, self._seconds)) from error
            if not piece:
                raise self._lost("it closed the connection")
            received += piece
        return bytes(received)

    def _lost(self, reason: str) -> UnreachableError:
        self._socket.close()
        return self._unreachable(reason)

    def _unreachable(self, reason: str) -> UnreachableError:
        return UnreachableError(reason, source=f"bookie {self.address}")


class BookieConnections:
    """One connection a bookie, by the bookie's id. Every reading may raise UnreachableError."""

    def __init__(self, address: Callable[[str], tuple[str, int]], seconds: float) -> None:
        """`address` gives host and port of a bookie; `seconds` bound each wait."""
        self._address = address
        self._seconds = seconds
        self._clients: dict[str, BookieClient] = {}
        self._failed: dict[str, float] = {}
        self._no_batches: set[str] = set()

    def working_first(self, bookies: Sequence[str]) -> list[str]:
        """Return bookies in their order, but those last that failed a short while ago."""
        now = time.monotonic()
        return sorted(bookies, key=lambda bookie: now - self._failed.get(bookie, -1e9) < AVOIDED_SECONDS)

    def read(self, bookie: str, ledger_id: int, entry_ids: Sequence[int]) -> dict[int, ReadAnswer]:
        """Return the bookie's answer for each of `entry_ids`."""
        return self._with_client(bookie, lambda client: client.read(ledger_id, entry_ids))

    def read_last(self, bookie: str, ledger_id: int) -> ReadAnswer:
        """Return the last entry that the bookie holds of a ledger."""
        return self._with_client(bookie, lambda client: client.read_last(ledger_id))

    def read_run(self, bookie: str, ledger_id: int, first: int, count: int) -> Sequence[memoryview]:
        """Return the entries from `first` on, at most `count`, that the bookie sends at once; maybe none."""
        if bookie in self._no_batches:
            return ()
        try:
            answer = self._client(bookie).read_batch(ledger_id, first, count)
        except UnreachableError:
            # An older bookie hangs up at a batch read; a dead one will not answer the next question either.
            self._forget(bookie)
            self._no_batches.add(bookie)
            return ()
        return answer.entries if answer.code == OK else ()

    def close(self) -> None:
        """Let go of all connections. Safe to call twice."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _with_client(self, bookie: str, ask: Callable[[BookieClient], Answer]) -> Answer:
        """Ask; where a connection that was used before broke, once more on a new one."""
        used_before = bookie in self._clients
        try:
            return ask(self._client(bookie))
        except UnreachableError:
            self._forget(bookie)
            if not used_before:
                raise
        try:
            return ask(self._client(bookie))
        except UnreachableError:
            self._forget(bookie)
            raise

    def _client(self, bookie: str) -> BookieClient:
        if bookie not in self._clients:
            try:
                self._clients[bookie] = BookieClient(*self._address(bookie), seconds=self._seconds)
            except UnreachableError:
                self._failed[bookie] = time.monotonic()
                raise
        return self._clients[bookie]

    def _forget(self, bookie: str) -> None:
        self._failed[bookie] = time.monotonic()
        client = self._clients.pop(bookie, None)
        if client is not None:
            client.close()


@dataclass(frozen=True, slots=True)
class Segment:
    """From `first_entry` on the ledger's entries go to `members`, ids of bookies in their order."""

    first_entry: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ensembles:
    """What LedgerMetadata says about where a ledger's entries lie.

    `last_entry` is None while the ledger is open, and -1 for a closed ledger without entries.
    """

    ledger_id: int
    write_quorum: int
    ack_quorum: int
    segments: tuple[Segment, ...]
    last_entry: int | None
    digest_type: DigestType
    password: bytes | None = None

    def segment(self, entry_id: int) -> Segment:
        """Return the segment that an entry belongs to."""
        at = bisect_right([segment.first_entry for segment in self.segments], entry_id)
        return self.segments[max(0, at - 1)]

    def replicas(self, entry_id: int) -> Sequence[str]:
        """Return the bookies that an entry was written to, in the order in which they are asked."""
        members = self.segment(entry_id).members
        return [members[(entry_id + copy) % len(members)] for copy in range(self.write_quorum)]

    @property
    def striped(self) -> bool:
        """Whether a bookie holds only some of the entries of its segment."""
        return any(len(segment.members) > self.write_quorum for segment in self.segments)


class BookieCluster(Protocol):
    """What a metadata store knows about ledgers and bookies, as the source of live entries asks it."""

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers, in order."""
        ...

    def ensembles(self, ledger_id: int) -> Ensembles:
        """Return where a ledger's entries lie; NotFoundError where there is no such ledger."""
        ...

    def address(self, bookie_id: str) -> tuple[str, int]:
        """Return host and port of a bookie; UnreachableError where it is not known."""
        ...
