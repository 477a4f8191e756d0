"""Connections to the bookies of a cluster: made when needed, made anew when one broke."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.codecs.wire.bookie_protocol import OK, ReadAnswer
from pulsar_meta.entries.bookie_client import BookieClient

# For how long a bookie that did not answer is asked last.
AVOIDED_SECONDS: Final = 30.0

Answer = TypeVar("Answer")


class BookieConnections:
    """One connection a bookie, by the bookie's id. Every reading may raise UnreachableError."""

    def __init__(self, address: Callable[[str], tuple[str, int]], seconds: float) -> None:
        """`address` gives host and port of a bookie; `seconds` bound each wait."""
        self._address = address
        self._seconds = seconds
        self._clients: dict[str, BookieClient] = {}
        self._failed: dict[str, float] = {}
        self._no_batches: set[str] = set()

    def by_hope(self, bookies: Sequence[str]) -> list[str]:
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
