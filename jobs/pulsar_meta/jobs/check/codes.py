"""What a finding is, and what its code stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pulsar_meta.codecs.json_text import Document

# The places of a finding, and what else it has, by its fields.
Where = dict[str, Any]


class Severity(StrEnum):
    """How bad it is: data lost, unreachable or a topic that does not load; state lost; the broker copes."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the gravest."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing: where, what, and the numbers that were compared.

    `topic` is a full name, `cursor` a subscription's; `repair` is a command. `scalable_topic` is the topic of
    which `topic` is a segment, or `topic` itself.
    """

    code: str
    severity: Severity
    message: str
    topic: str | None = None
    cursor: str | None = None
    ledger_id: int | None = None
    path: str | None = None
    evidence: Document = field(default_factory=dict)
    repair: str | None = None
    scalable_topic: str | None = None

    @property
    def place(self) -> tuple[object, ...]:
        """What is wrong where: two findings of one place are the same."""
        return self.code, self.topic, self.cursor, self.ledger_id, self.path

    def document(self) -> Document:
        """Return the finding as it is printed; places that it has not are left out."""
        found: Document = {"code": self.code, "severity": str(self.severity)}
        places = {
            "topic": self.topic,
            "scalable_topic": self.scalable_topic,
            "cursor": self.cursor,
            "ledger_id": self.ledger_id,
            "path": self.path,
        }
        found |= {name: place for name, place in places.items() if place is not None}
        found |= {"message": self.message, "evidence": self.evidence}
        return found if self.repair is None else found | {"repair": self.repair}


@dataclass(frozen=True, slots=True)
class Code:
    """What a code stands for. `severity` is the gravest it is found with.

    `means` is for somebody who does not know these formats, `broker` what a broker does, `errors` its own
    words, `comes` how it comes to be, `cure` what to do, `unless` what looks like it and is healthy.
    """

    name: str
    severity: Severity
    title: str
    means: str
    broker: str
    comes: str
    cure: str
    errors: tuple[str, ...] = ()
    unless: str = ""

    def found(self, message: str, *, severity: Severity | None = None, **where: Any) -> Finding:
        """Return a finding of this code; `where` are the places, `evidence` and `repair` of a Finding."""
        return Finding(self.name, severity or self.severity, message, **where)
