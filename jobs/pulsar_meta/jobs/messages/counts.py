"""Count the messages that were read or left out."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

from pulsar_meta.jobs.entries.entry_choice import ELSEWHERE, MARKERS_ELSEWHERE

NO_KEY: Final = "no key"
# The number of error texts to keep.
KEPT: Final = 20


@dataclass(slots=True)
class MessageCounts:
    """Counts of one run. `first_errors` has the first errors of rows, each with its position.

    `entries` were read, `missing` entries are on no disk, and `elsewhere` are on disks that were not given.
    `rows` were produced, `errors` of them with an error (`without_schema`: their schema was not found), and
    `encrypted` ones without a key. `markers`,
    `hidden` entries (aborted, or after the start of an open transaction) and `filtered` messages were left
    out, and also `undecided` entries (the outcome of their transaction is unknown) and `unfiltered` ones
    (encrypted, so the filter can't be applied).
    """

    entries: int = 0
    rows: int = 0
    errors: int = 0
    without_schema: int = 0
    encrypted: int = 0
    missing: int = 0
    elsewhere: int = 0
    markers: int = 0
    hidden: int = 0
    undecided: int = 0
    filtered: int = 0
    unfiltered: int = 0
    first_errors: list[str] = field(default_factory=list)

    def error(self, place: object, text: str) -> None:
        """Count a row with an error."""
        self.errors += 1
        if len(self.first_errors) < KEPT:
            self.first_errors.append(f"{place}: {text}")

    def merge(self, other: MessageCounts) -> None:
        """Add the counts of another process."""
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first_errors += other.first_errors[: KEPT - len(self.first_errors)]

    def document(self) -> dict[str, Any]:
        """The counts that are not zero, and always `rows` and `entries`."""
        counts = {name: getattr(self, name) for name in COUNTED}
        return {name: count for name, count in counts.items() if count or name in ("entries", "rows")}

    @property
    def whole(self) -> bool:
        """True if everything was read, so that another run would give the same result."""
        return not (self.errors or self.missing or self.elsewhere or self.undecided or self.unfiltered)

    @property
    def left_out(self) -> dict[str, str]:
        """The messages that were not read, by kind, with the reasons."""
        reasons = {
            f"{self.elsewhere} entries": ELSEWHERE if self.elsewhere else "",
            f"the payloads of {self.encrypted} encrypted entries": NO_KEY if self.encrypted else "",
            f"whether {self.undecided} entries are readable": MARKERS_ELSEWHERE if self.undecided else "",
            f"whether the messages of {self.unfiltered} encrypted entries match": NO_KEY
            if self.unfiltered
            else "",
        }
        return {messages: reason for messages, reason in reasons.items() if reason}


COUNTED: Final = tuple(item.name for item in fields(MessageCounts) if item.name != "first_errors")
