"""What a finding is, and what its code stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any, NotRequired, TypedDict

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.shapes import ByMember, Members

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


class Places(TypedDict, total=False):
    """Where a finding is, as it is printed."""

    topic: str
    scalable_topic: str
    cursor: str
    ledger_id: int
    path: str


def _evidence() -> dict[str, Members]:
    """Return the types of `evidence` by `code`."""
    codes = import_module("pulsar_meta.jobs.check.catalogue").CODES.values()
    return {one.name: one.shape for one in codes}


class FindingDocument(Places):
    """A finding of `check`: what is wrong, where, what was compared, and the command that repairs it."""

    code: str
    severity: Severity
    message: str
    evidence: Annotated[Document, ByMember("code", _evidence)]
    repair: NotRequired[str]


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

    def document(self) -> FindingDocument:
        """Return the finding as it is printed; places that it has not are left out."""
        found: FindingDocument = {
            "code": self.code,
            "severity": self.severity,
            **self._places(),
            "message": self.message,
            "evidence": self.evidence,
        }
        if self.repair is not None:
            found["repair"] = self.repair
        return found

    def _places(self) -> Places:
        places: Places = {}
        if self.topic is not None:
            places["topic"] = self.topic
        if self.scalable_topic is not None:
            places["scalable_topic"] = self.scalable_topic
        if self.cursor is not None:
            places["cursor"] = self.cursor
        if self.ledger_id is not None:
            places["ledger_id"] = self.ledger_id
        if self.path is not None:
            places["path"] = self.path
        return places


@dataclass(frozen=True, slots=True)
class Code:
    """What a code stands for. `severity` is the gravest it is found with.

    `means` is for somebody who does not know these formats, `broker` what a broker does, `errors` its own
    words, `comes` how it comes to be, `cure` what to do, `unless` what looks like it and is healthy.
    `evidence` are the names of what a finding of it may have as evidence, with their types.
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
    evidence: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def shape(self) -> Members:
        """What evidence of a finding looks like."""
        return Members(f"evidence-{self.name}", f"{self.title}.", lambda: self.evidence)

    def found(self, message: str, *, severity: Severity | None = None, **where: Any) -> Finding:
        """Return a finding of this code; `where` are the places, `evidence` and `repair` of a Finding."""
        return Finding(self.name, severity or self.severity, message, **where)
