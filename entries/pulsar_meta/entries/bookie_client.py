"""Read-only connections to bookies (they can't fence, write or recover), and the bookies of an entry.

Several reads are in flight together. Version 2 of the protocol matches answers to requests by ledger and
entry, so equal requests are never in flight together.

Source: apache/bookkeeper client/RoundRobinDistributionSchedule.java.
"""

from __future__ import annotations

import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
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

READS_IN_FLIGHT: Final = 64
SECONDS: Final = 10.0
BATCH_BYTES: Final = 5 << 20
# Answers are limited by the bookie's nettyMaxFrameSizeBytes, which is 5 MiB by default.
LARGEST_ANSWER: Final = 256 << 20

# For this time, a bookie that did not answer is tried last.
AVOIDED_SECONDS: Final = 30.0
# After so many time-outs in a row, a bookie is not asked again.
TIMEOUTS_TO_GIVE_UP: Final = 3

Answer = TypeVar("Answer")

_SIZE: Final = struct.Struct(">i")
# The first bytes of a TLS alert and of a TLS handshake.
_TLS: Final = (b"\x15\x03", b"\x16\x03")
_SECURED: Final = (
    "the bookie requires TLS or an authentication plugin, which pulsar-meta doesn't support; "
    "read its disk instead (bookie-disk:), or use a bookie that accepts plain connections"
)


class BookieClient:
    """A connection to the bookie at `host:port`. It can't be used after an UnreachableError."""

    def __init__(self, host: str, port: int, *, seconds: float = SECONDS) -> None:
        """Connect. Connecting and each complete answer may take `seconds`. Raises UnreachableError."""
        self.address = f"{host}:{port}"
        self._requests = 0
        self._seconds = seconds
        try:
            self._socket = TimedSocket(host, port, seconds=seconds)
        except (OSError, UnicodeError) as error:
            raise self._unreachable(f"cannot connect: {reason(error, seconds)}") from error

    def read(self, ledger_id: int, entry_ids: Iterable[int]) -> dict[int, ReadAnswer]:
        """Return the answer for each of `entry_ids`, with several requests in flight."""
        left = list(dict.fromkeys(entry_ids))[::-1]
        answers: dict[int, ReadAnswer] = {}
        in_flight: set[int] = set()
        while left or in_flight:
            added = [left.pop() for _ in range(min(len(left), READS_IN_FLIGHT - len(in_flight)))]
            in_flight.update(added)
            self._send(b"".join(encode_read(ledger_id, entry_id) for entry_id in added))
            answer = self._receive()
            if answer.ledger_id != ledger_id or answer.entry_id not in in_flight:
                raise self._lost(
                    f"the answer is for {answer.ledger_id}:{answer.entry_id}, which was not requested"
                )
            in_flight.discard(answer.entry_id)
            answers[answer.entry_id] = answer
        return answers

    def read_last(self, ledger_id: int) -> ReadAnswer:
        """Return the last entry of a ledger on this bookie, confirmed or not."""
        return self.read(ledger_id, [LAST_ENTRY])[LAST_ENTRY]

    def read_batch(self, ledger_id: int, first: int, most: int) -> ReadAnswer:
        """Return up to `most` consecutive entries on this bookie, starting with `first`.

        Raises UnreachableError for a bookie before 4.17, which closes the connection.
        """
        self._requests += 1
        self._send(encode_batch_read(ledger_id, first, self._requests, most, BATCH_BYTES))
        answer = self._receive()
        if (answer.ledger_id, answer.request_id) != (ledger_id, self._requests):
            raise self._lost(f"the answer is for request {answer.request_id}, which was not sent")
        return answer

    def close(self) -> None:
        """Close the connection. Can be called twice."""
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
            raise self._lost(f"the bookie announced an answer of {count} bytes")
        try:
            answer = decode_answer(self._receive_exactly(count))
        except DecodeError as error:
            raise self._lost(
                f"cannot parse the answer; the server speaks another protocol: {error}"
            ) from error
        if answer.code in (UNAUTHORISED, BAD_VERSION):
            raise self._lost(_SECURED if answer.code == UNAUTHORISED else answer.reason)
        return answer

    def _receive_exactly(self, count: int) -> bytes:
        """Return the next `count` bytes. Memory use grows only as they arrive."""
        received = bytearray()
        while len(received) < count:
            try:
                piece = self._socket.receive(min(count - len(received), 1 << 20))
            except OSError as error:
                raise self._lost(reason(error, self._seconds)) from error
            if not piece:
                raise self._lost("the bookie closed the connection")
            received += piece
        return bytes(received)

    def _lost(self, reason: str) -> UnreachableError:
        self._socket.close()
        return self._unreachable(reason)

    def _unreachable(self, reason: str) -> UnreachableError:
        return UnreachableError(reason, source=f"bookie {self.address}")


class BookieConnections:
    """Connections to bookies by bookie id. Every read may raise UnreachableError."""

    def __init__(
        self, address: Callable[[str], tuple[str, int]], seconds: float, notes: list[str] | None = None
    ) -> None:
        """Connect on demand to `address(bookie id)`. Each wait may take `seconds`.

        A bookie that times out `TIMEOUTS_TO_GIVE_UP` times in a row is not asked again; `notes` then gets a
        message for the user.
        """
        self._notes = [] if notes is None else notes
        self._address = address
        self._seconds = seconds
        self._clients: dict[str, BookieClient] = {}
        self._failed: dict[str, float] = {}
        self._timeouts: dict[str, int] = {}
        self._no_batches: set[str] = set()

    def working_first(self, bookies: Sequence[str]) -> list[str]:
        """Return the bookies in their order, except that those that failed recently come last."""
        now = time.monotonic()
        return sorted(bookies, key=lambda bookie: now - self._failed.get(bookie, -1e9) < AVOIDED_SECONDS)

    def read(self, bookie: str, ledger_id: int, entry_ids: Sequence[int]) -> dict[int, ReadAnswer]:
        """Return a bookie's answer for each of `entry_ids`."""
        return self._with_client(bookie, lambda client: client.read(ledger_id, entry_ids))

    def read_last(self, bookie: str, ledger_id: int) -> ReadAnswer:
        """Return the last entry of a ledger on a bookie."""
        return self._with_client(bookie, lambda client: client.read_last(ledger_id))

    def read_run(self, bookie: str, ledger_id: int, first: int, count: int) -> Sequence[memoryview]:
        """Return up to `count` entries from `first` on that a bookie sends in one answer, possibly none."""
        if bookie in self._no_batches:
            return ()
        try:
            answer = self._attempt(bookie, lambda client: client.read_batch(ledger_id, first, count))
        except UnreachableError:
            # An old bookie closes the connection. A dead one doesn't answer the next request either.
            self._forget(bookie)
            self._no_batches.add(bookie)
            return ()
        return answer.entries if answer.code == OK else ()

    def close(self) -> None:
        """Close all connections. Can be called twice."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _with_client(self, bookie: str, ask: Callable[[BookieClient], Answer]) -> Answer:
        """Call `ask`, and once more with a new connection if an existing connection was broken."""
        used_before = bookie in self._clients
        try:
            return self._attempt(bookie, ask)
        except UnreachableError:
            self._forget(bookie)
            if not used_before:
                raise
        try:
            return self._attempt(bookie, ask)
        except UnreachableError:
            self._forget(bookie)
            raise

    def _attempt(self, bookie: str, ask: Callable[[BookieClient], Answer]) -> Answer:
        """Call `ask` with a connection, and count the time-outs in a row."""
        if self._timeouts.get(bookie, 0) >= TIMEOUTS_TO_GIVE_UP:
            raise UnreachableError(f"not asked again after {self._patience}", source=f"bookie {bookie}")
        try:
            answer = ask(self._client(bookie))
        except UnreachableError as error:
            self._count_timeout(bookie, error)
            raise
        self._timeouts.pop(bookie, None)
        return answer

    def _count_timeout(self, bookie: str, error: UnreachableError) -> None:
        if not isinstance(error.__cause__, TimeoutError):
            self._timeouts.pop(bookie, None)
            return
        self._timeouts[bookie] = self._timeouts.get(bookie, 0) + 1
        if self._timeouts[bookie] == TIMEOUTS_TO_GIVE_UP:
            self._notes.append(
                f"bookie {bookie} is not asked again after {self._patience}; read its disk instead"
                " (bookie-disk:), or run the command again when it answers"
            )

    @property
    def _patience(self) -> str:
        return f"{TIMEOUTS_TO_GIVE_UP} time-outs of {self._seconds:g} seconds in a row"

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
    """A part of a ledger from `first_entry` on, whose entries are on the bookies `members`."""

    first_entry: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ensembles:
    """The bookies of a ledger's entries, from LedgerMetadata.

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
        """Return the bookies that an entry was written to, in BookKeeper's order."""
        members = self.segment(entry_id).members
        return [members[(entry_id + copy) % len(members)] for copy in range(self.write_quorum)]

    def entries_on(self, bookie: str, first: int, last: int) -> Iterator[int]:
        """Yield the ids of the entries in [first, last] that were written to a bookie."""
        starts = [0, *(segment.first_entry for segment in self.segments[1:]), last + 1]
        for segment, start, stop in zip(self.segments, starts, starts[1:], strict=False):
            if bookie in segment.members:
                ids = range(max(first, start), min(last + 1, stop))
                yield from (entry_id for entry_id in ids if bookie in self.replicas(entry_id))

    @property
    def striped(self) -> bool:
        """Whether a bookie only has some entries of its segment."""
        return any(len(segment.members) > self.write_quorum for segment in self.segments)


class BookieCluster(Protocol):
    """Ledgers and bookies in a metadata store, as `LiveBookies` needs them."""

    def ledgers(self) -> list[int]:
        """List the ids of all ledgers, sorted."""
        ...

    def ensembles(self, ledger_id: int, *, again: bool = False) -> Ensembles:
        """Return the ensembles of a ledger, never cached ones if `again`.

        Raises NotFoundError if the ledger doesn't exist.
        """
        ...

    def address(self, bookie_id: str) -> tuple[str, int]:
        """Return host and port of a bookie. Raises UnreachableError if they are unknown."""
        ...
