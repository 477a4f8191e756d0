"""A value made again from disks: how certain it is, and what says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypedDict

from pulsar_meta.jobs.rebuild.kinds import Kind

# "old": an older store had it. "lost+found": nothing says its name. "invented": nothing on the disks says so.
# "gone": an older store named it, and no disk has it. "refused": a value would be wrong, so there is none.
Certainty = Literal["certain", "likely", "old", "lost+found", "invented", "gone", "refused"]


class Segment(TypedDict):
    """From which entry on a ledger's entries lie on which bookies."""

    first_entry: int
    bookies: list[str]


class RebuiltFacts(TypedDict, total=False):
    """What a reader of a value looks at: of a ledger, topic, subscription, schema or counter what it has.

    `missing` are runs of entries that no disk has, both ends included; `gone` is a ledger that no disk has,
    `of` whose it was; times are in milliseconds.
    """

    ledger_id: int
    kind: Kind
    entries: int
    last_entry: int
    size: int | None
    digest_type: str | None
    ensemble_size: int
    write_quorum: int
    ensembles: list[Segment]
    missing: list[list[int]]
    fenced: bool
    topic: str | None
    ledgers: list[int]
    messages: int
    first_time: int | None
    last_time: int | None
    cursor: str | None
    position: str | None
    cursor_ledger: int | None
    compacted_ledger: int
    schema: str
    version: int
    deleted: bool
    schema_ledgers: list[int]
    gone: int
    of: str
    next: int


class RebuiltValue(RebuiltFacts):
    """A value made again from disks, how certain it is, and what says so."""

    path: str
    certainty: Certainty
    evidence: list[str]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One value: where it belongs, how certain it is, and why. `facts` are what a reader of it looks at."""

    path: str
    certainty: Certainty
    evidence: tuple[str, ...]
    value: bytes | None = field(default=None, repr=False)
    facts: RebuiltFacts = field(default_factory=RebuiltFacts)

    def document(self) -> RebuiltValue:
        """Return it for showing, without the value itself."""
        return {
            "path": self.path,
            "certainty": self.certainty,
            **self.facts,
            "evidence": list(self.evidence),
        }
