"""What a rewriting run counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from pulsar_meta.jobs.rewrite.decision import MOVED, UNDECODABLE, Decision

# Reasons for which a guard left a value alone: the run ends as refused.
REFUSED: Final = frozenset({"loaded", "over-limit", "unreadable", "ephemeral"})


@dataclass(slots=True)
class Tally:
    """Counts of values; every value seen is in exactly one of the five others. Bytes are as stored.

    One thread may see values while another rewrites them.
    """

    seen: int = 0
    rewritten: int = 0
    kept: int = 0
    skipped: int = 0
    conflicts: int = 0
    undecodable: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    saved: int = 0
    kept_for: Counter[str] = field(default_factory=Counter)
    skipped_for: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def refused(self) -> int:
        """How many values a guard left alone."""
        return sum(count for reason, count in self.skipped_for.items() if reason in REFUSED)

    def see(self, decision: Decision) -> None:
        """Count a value, and where it is left alone also why."""
        with self._lock:
            self.seen += 1
            self.bytes_before += decision.size_before
            if decision.action != "rewrite":
                self.bytes_after += decision.size_before
                self._leave(decision)

    def rewrite(self, decision: Decision) -> None:
        """Count a value that was seen before as rewritten."""
        with self._lock:
            self.rewritten += 1
            self.bytes_after += decision.size_after
            self.saved += decision.size_before - decision.size_after

    def refuse(self, decision: Decision, reason: str) -> None:
        """Count a value that was seen before as left alone by a guard."""
        with self._lock:
            self.bytes_after += decision.size_before
            self.skipped += 1
            self.skipped_for[reason] += 1

    def lose(self, decision: Decision) -> None:
        """Count a value that was seen before as one that moved too often."""
        with self._lock:
            self.bytes_after += decision.size_before
            self.conflicts += 1

    def settle(self, decision: Decision) -> None:
        """Count a value that was seen before and then, read again, needed no change."""
        with self._lock:
            self.bytes_after += decision.size_before
            self._leave(decision)

    def _leave(self, decision: Decision) -> None:
        reason = decision.reason or ""
        if reason == UNDECODABLE:
            self.undecodable += 1
        elif reason in MOVED:
            self.conflicts += 1
        elif decision.action == "keep":
            self.kept += 1
            self.kept_for[reason] += 1
        else:
            self.skipped += 1
            self.skipped_for[reason] += 1

    def document(self, undo_file: str | None) -> dict[str, Any]:
        """Return the summary in its JSON form."""
        return {
            "seen": self.seen,
            "rewritten": self.rewritten,
            "kept": self.kept,
            "skipped": self.skipped,
            "conflicts": self.conflicts,
            "undecodable": self.undecodable,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "undo_file": undo_file,
            "kept_for": dict(sorted(self.kept_for.items())),
            "skipped_for": dict(sorted(self.skipped_for.items())),
        }
