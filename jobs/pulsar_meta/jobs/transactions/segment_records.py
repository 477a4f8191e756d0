"""Read the transactions of Pulsar 5's segments, which are records in the store instead of markers (PIP-473).

    /txn/id/MOST_LEAST          {"state": "OPEN|COMMITTED|ABORTED", …}; removed some time after the end
    /txn/op/MOST_LEAST-NUMBER   {"kind": "WRITE|ACK", "segment", "subscription"?, …}, until the end
    /txn/segment-state/aborted/SEGMENT:MOST_LEAST  while the segment has messages of the transaction
    /txn/segment-state/watermark/SEGMENT  {"ledgerId", "entryId"}: all transactions up to there have ended

Source: apache/pulsar MetadataTransactionBuffer.java, TxnPaths.java, TxnIds.java (branch-5.0-M1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import TopicName, encode_name
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.jobs.topics.topic import Position, Report
from pulsar_meta.jobs.transactions.buffer_snapshots import BufferSnapshot
from pulsar_meta.stores.base import Store

HEADERS: Final = "/txn/id"
OPS: Final = "/txn/op"
ABORTED: Final = "/txn/segment-state/aborted"
WATERMARKS: Final = "/txn/segment-state/watermark"
_SIGN: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class SegmentRecords:
    """The records of the transactions of one segment. Corrupt records go to `report`."""

    store: Store
    segment: TopicName
    report: Report

    def snapshot(self) -> BufferSnapshot | None:
        """The aborted transactions, and the position up to which all have ended; None without a watermark."""
        watermark = self._object(f"{WATERMARKS}/{encode_name(str(self.segment))}")
        place = None if watermark is None else position_in(watermark)
        return None if place is None else BufferSnapshot(place, frozenset(self.aborted()))

    def aborted(self) -> Iterator[TxnId]:
        """Yield the aborted transactions of which the segment may still have messages."""
        prefix = f"{encode_name(str(self.segment))}:"
        for name in self.store.children(ABORTED):
            txn = _txn(name.removeprefix(prefix)) if name.startswith(prefix) else None
            if txn is not None:
                yield txn

    def states(self, txns: Iterable[TxnId]) -> Iterator[tuple[TxnId, str | None]]:
        """Yield the state of each transaction from its record; None if the record is corrupt.

        A transaction without a record has ended. If its operations remain, it was aborted, as brokers treat
        it. Otherwise it was committed, because aborted transactions have separate records.
        """
        wanted = list(txns)
        records = self.store.read_many([f"{HEADERS}/{_key(txn)}" for txn in wanted])
        remaining: set[TxnId] | None = None
        for txn, record in zip(wanted, records, strict=True):
            if record is not None:
                yield txn, self._state(record.value, record.path)
                continue
            if remaining is None:
                remaining = {other for other, _ in self.operations()}
            yield txn, "ABORTED" if txn in remaining else "COMMITTED"

    def operations(self, kind: str = "WRITE") -> Iterator[tuple[TxnId, dict[str, Any]]]:
        """Yield the remaining operations of a kind on the segment, with their transactions."""
        for record in self.store.scan(OPS):
            txn = _txn(record.path.rpartition("/")[2].rpartition("-")[0])
            operation = None if txn is None else self._parsed(record.value, record.path)
            if txn is None or operation is None:
                continue
            if (operation.get("kind"), operation.get("segment")) == (kind, str(self.segment)):
                yield txn, operation

    def _state(self, value: bytes, path: str) -> str | None:
        header = self._parsed(value, path)
        state = None if header is None else header.get("state")
        return state if state in ("OPEN", "COMMITTED", "ABORTED") else None

    def _object(self, path: str) -> dict[str, Any] | None:
        try:
            return self._parsed(self.store.read(path).value, path)
        except NotFoundError:
            return None

    def _parsed(self, value: bytes, path: str) -> dict[str, Any] | None:
        try:
            return read_json_object(value, source=path)
        except DecodeError as error:
            self.report(error)
            return None


def position_in(record: dict[str, Any]) -> Position | None:
    """The position in the members `ledgerId` and `entryId` of a record; None if there is none."""
    ledger_id, entry_id = record.get("ledgerId"), record.get("entryId")
    if not isinstance(ledger_id, int) or not isinstance(entry_id, int):
        return None
    return Position(ledger_id, entry_id)


def _key(txn: TxnId) -> str:
    """Encode a transaction as in paths: two signed numbers."""
    most, least = (number - 2 * _SIGN if number >= _SIGN else number for number in txn)
    return f"{most}_{least}"


def _txn(key: str) -> TxnId | None:
    """Parse the transaction in a key; None for other names, such as counters."""
    most, _, least = key.partition("_")
    numbers = [part for part in (most, least) if part.removeprefix("-").isdecimal() and part.isascii()]
    return TxnId(*(int(part) % (2 * _SIGN) for part in numbers)) if len(numbers) == 2 else None
