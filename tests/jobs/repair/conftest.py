"""A captured cluster that tests damage, repair in the way the command does, and check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.rewrite.decision import Summary
from pulsar_meta.jobs.rewrite.guards import Overrides
from pulsar_meta.jobs.rewrite.run import Listener, Terms, run
from pulsar_meta.jobs.rewrite.undo import put_back
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import Patient as DamagedStore
from tests.damage import check_findings, healthy_store


@dataclass
class Patient(DamagedStore):
    """A store in memory. Its undo files are in `folder`."""

    store: MemoryStore
    folder: Path = field(kw_only=True)
    undo_files: list[Path] = field(default_factory=list, kw_only=True)

    def reported(self, *names: str, source: EntrySource | None = None) -> list[tuple[str, int | None]]:
        """Return (code, ledger) of each finding of `check` about topics, without notes."""
        return [(finding.code, finding.ledger_id) for finding in self.findings(*names, source=source)]

    def findings(self, *names: str, source: EntrySource | None = None) -> list[Finding]:
        """Return the findings of `check` about topics, without notes."""
        findings = check_findings(self.store, source, *names, every_ledger=True)
        return [finding for finding in findings if finding.severity != "note"]

    def values(self) -> dict[str, bytes]:
        """Map each path in the store to its value."""
        return {path: record.value for path, record in self.store.values.items()}

    def apply(self, repair: Repair) -> Summary:
        """Apply a repair as the command does."""
        undo_file = self._file()
        self.undo_files.append(undo_file)
        terms = Terms(Overrides(loaded=True), undo_file=undo_file)
        report = run(self.store, repair.rewrite(), terms, Listener())
        assert report.summary.conflicts == report.summary.refused == 0
        return report.summary

    def take_back(self) -> None:
        """Undo the last repair, even if that restores records that no broker can load."""
        terms = Terms(Overrides(unreadable=True), undo_file=self._file())
        report = run(
            self.store, put_back(self.store, self.undo_files.pop(), any_version=False), terms, Listener()
        )
        assert report.summary.conflicts == report.summary.skipped == 0

    def _file(self) -> Path:
        return self.folder / f"{len(list(self.folder.iterdir()))}.undo.ndjson"


@pytest.fixture
def patient(capture: Callable[[str], Path], tmp_path: Path) -> Patient:
    """The store of a stopped 4.2.4 cluster."""
    return Patient(healthy_store(capture("pulsar-4.2.4")), Random(1), folder=tmp_path)
