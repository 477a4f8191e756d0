"""A value made again from disks: how certain it is, and what says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pulsar_meta.codecs.json_text import Document

# "old": an older store had it. "lost+found": nothing says its name. "invented": nothing on the disks says so.
# "gone": an older store named it, and no disk has it. "refused": a value would be wrong, so there is none.
Certainty = Literal["certain", "likely", "old", "lost+found", "invented", "gone", "refused"]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One value: where it belongs, how certain it is, and why. `facts` are what a reader of it looks at."""

    path: str
    certainty: Certainty
    evidence: tuple[str, ...]
    value: bytes | None = field(default=None, repr=False)
    facts: Document = field(default_factory=dict)

    def document(self) -> Document:
        """Return it for showing, without the value itself."""
        return {
            "path": self.path,
            "certainty": self.certainty,
            **self.facts,
            "evidence": list(self.evidence),
        }
