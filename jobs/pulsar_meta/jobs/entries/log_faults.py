"""Count the faults of entries that one missing or damaged entry log explains.

The log is one fault that counts its entries and ledgers. A few damaged entries are printed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_check import DamagedLog, EntryFault, Fault, Layer, LedgerReport
from pulsar_meta.jobs.topics.completeness import MissingLog, missing_logs

# The layers of faults that a log without its entries causes.
_CAUSED: Final[tuple[Layer, ...]] = ("record", "copy")
# The faults of a log with at most this many damaged entries are printed one by one.
_FEW: Final = 4


def with_logs(report: LedgerReport, source: EntrySource) -> LedgerReport:
    """Add to each fault of a report the log that should have its entry and does not. Reads the entries' ids.

    Raises UnreachableError.
    """
    if any(fault.layer in _CAUSED for fault in report.faults):
        logs = list(missing_logs(source, report.ledger_id))
        report.faults[:] = [_with_log(fault, logs) for fault in report.faults]
    return report


def _with_log(fault: Fault, logs: list[MissingLog]) -> Fault:
    bookie = None if fault.copy is None else fault.copy.bookie
    if fault.layer not in _CAUSED:
        return fault
    for log in logs:
        if bookie in (None, log.bookie) and fault.entry_id in log.entry_ids:
            return replace(fault, log=DamagedLog(log.bookie, log.file, log.why))
    return fault


@dataclass(slots=True)
class _Group:
    """The faults of the entries of one log. `few` are those that are printed if there are no more."""

    log: DamagedLog
    ledgers: set[int] = field(default_factory=set)
    entries: int = 0
    lost: int = 0
    consequences: int = 0
    few: list[EntryFault] = field(default_factory=list)

    def add(self, report: LedgerReport, documents: list[tuple[Fault, EntryFault]]) -> None:
        entry_ids = {fault.entry_id for fault, _ in documents}
        self.ledgers.add(report.ledger_id)
        self.entries += len(entry_ids)
        self.lost += len({fault.entry_id for fault, _ in documents if _is_lost(fault)})
        self.consequences += len(documents)
        self.few += [document for _, document in documents][: _FEW + 1 - len(self.few)]

    @property
    def is_few(self) -> bool:
        return self.entries <= _FEW and len(self.few) == self.consequences

    @property
    def text(self) -> str:
        ledgers = _count(len(self.ledgers), "ledger")
        copies = "all of them have" if not self.lost else f"{self.lost} of them don't have"
        return (
            f"entry log {self.log.file} {self.log.why or 'does not exist'}; this affects"
            f" {_count(self.entries, 'entry')} of {ledgers}, and {copies} a good copy"
        )

    def document(self) -> EntryFault:
        document: EntryFault = {
            "ledger_id": -1,
            "entry_id": -1,
            "layer": "log",
            "fault": self.text,
            "file": self.log.file,
            "entries": self.entries,
            "ledgers": len(self.ledgers),
            "lost": self.lost,
            "consequences": self.consequences,
        }
        if self.log.bookie is not None:
            document["bookie"] = self.log.bookie
        return document


def _is_lost(fault: Fault) -> bool:
    return fault.layer == "record" if fault.copy is None else not fault.copy.good


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


@dataclass(slots=True)
class LogFaults:
    """The faults of reports, with one for each damaged log. `consequences` also lists what it explains."""

    consequences: bool = False
    _groups: dict[tuple[str | None, str], _Group] = field(default_factory=dict)

    def of(self, report: LedgerReport) -> Iterator[EntryFault]:
        """Yield the faults of a report that no log explains, and count the others."""
        caused: dict[tuple[str | None, str], list[tuple[Fault, EntryFault]]] = {}
        for fault, document in zip(report.faults, report.documents(), strict=True):
            if fault.log is None:
                yield document
                continue
            key = fault.log.bookie, fault.log.file
            caused.setdefault(key, []).append((fault, document))
            group = self._groups.setdefault(key, _Group(fault.log))
            # Other bytes in a log say more than an early end.
            group.log = fault.log if group.log.why.startswith("ends") else group.log
            if self.consequences:
                yield document
        for key, documents in caused.items():
            self._groups[key].add(report, documents)

    def finish(self) -> Iterator[EntryFault]:
        """Yield a fault for each log, and the faults of logs with few."""
        for group in self._groups.values():
            if not group.is_few:
                yield group.document()
            elif not self.consequences:
                yield from group.few
