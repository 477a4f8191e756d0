"""Counts of the messages that were read: rows, rows with an error, and messages that are no row."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

from pulsar_meta.jobs.entries.entry_choice import ELSEWHERE, MARKERS_ELSEWHERE

NO_KEY: Final = "no key"
# The texts of so many errors are kept.
KEPT: Final = 20


@dataclass(slots=True)
class MessageCounts:
    """Counts of one reading; `first_errors` has the first errors of rows, each with its place.

    `entries` were held, `missing` of those that should be are nowhere, `elsewhere` on disks that were not
    given. `rows` came out, `errors` of them with an error, encrypted ones apart. Left out were `markers`,
    `hidden` entries (not readable: aborted, or behind an open transaction), `filtered` messages.
    `undecided`: entries left out because the outcome of their transaction is unknown; `unfiltered`: encrypted
    entries left out since a filter cannot look into them.
    """

    entries: int = 0
    rows: int = 0
    errors: int = 0
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
        """Return the counts that are not zero, `rows` and `entries` always."""
        counts = {name: getattr(self, name) for name in COUNTED}
        return {name: count for name, count in counts.items() if count or name in ("entries", "rows")}

    @property
    def whole(self) -> bool:
        """Whether everything was read, so that another reading would return the same."""
        return not (self.errors or self.missing or self.elsewhere or self.undecided or self.unfiltered)

    @property
    def left_out(self) -> dict[str, str]:
        """The messages that were not read, each kind with the reason."""
        found = {
            f"{self.elsewhere} entries": ELSEWHERE if self.elsewhere else "",
            f"the payloads of {self.encrypted} encrypted entries": NO_KEY if self.encrypted else "",
            f"whether {self.undecided} entries are readable": MARKERS_ELSEWHERE if self.undecided else "",
            f"whether the messages of {self.unfiltered} encrypted entries match": NO_KEY
            if self.unfiltered
            else "",
        }
        return {what: why for what, why in found.items() if why}


COUNTED: Final = tuple(one.name for one in fields(MessageCounts) if one.name != "first_errors")
