"""What is to become of one value, and the change that this makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from pulsar_meta.stores.base import ABSENT, Versioned

Action = Literal["rewrite", "keep", "skip"]

UNDECODABLE: Final = "undecodable"
# What was named one by one and does not exist.
NOT_THERE: Final = "not-there"
# Since the plan was made, and since the run that is being undone.
MOVED: Final = frozenset({"moved", "touched"})


class Decision(NamedTuple):
    """Rewrite a value with `new` (None: delete it), keep it because it is right, or skip it.

    `reason` says why it is kept or skipped; sizes are in bytes as stored; `told` is what a person should
    read of it (an undecodable value's error). A codec is None where the value has none. `readable`: whoever
    decided has made sure that the brokers at hand can load `new`. A tuple, since a run makes one for every
    value, and hands it from process to process.
    """

    action: Action
    reason: str | None = None
    codec_before: str | None = None
    codec_after: str | None = None
    size_before: int = 0
    size_after: int = 0
    new: bytes | None = None
    told: str | None = None
    readable: bool = False

    def __repr__(self) -> str:
        sizes = f"{self.size_before} to {self.size_after} bytes"
        return f"Decision({self.action}, {self.reason}, {self.codec_before} to {self.codec_after}, {sizes})"


Rule = Callable[[Versioned], Decision]
Decided = tuple[Versioned, Decision]


@dataclass(frozen=True, slots=True)
class Change:
    """One write: at `path` the value `old` of that version (None and ABSENT: nothing) becomes `new`.

    `readable` as in the decision.
    """

    path: str
    version: int
    old: bytes | None = field(repr=False)
    new: bytes | None = field(repr=False)
    readable: bool = False

    @classmethod
    def of(cls, seen: Versioned, decision: Decision) -> Change:
        """Return the change that `decision` makes of the value `seen`."""
        old = None if seen.version == ABSENT else seen.value
        return cls(seen.path, seen.version, old, decision.new, decision.readable)


def keep(seen: Versioned, reason: str, codec: str | None = None) -> Decision:
    """Return the decision to leave a value that is as it should be."""
    return Decision("keep", reason, codec, codec, len(seen.value), len(seen.value))


def skip(seen: Versioned, reason: str, codec: str | None = None, *, told: str | None = None) -> Decision:
    """Return the decision not to touch a value, for a reason that a person may want to know."""
    return Decision("skip", reason, codec, codec, len(seen.value), len(seen.value), told=told)


def write(
    seen: Versioned,
    new: bytes | None,
    codec_before: str | None = None,
    codec_after: str | None = None,
    *,
    readable: bool = False,
) -> Decision:
    """Return the decision to replace a value by `new`, or to delete it where that is None."""
    sizes = len(seen.value), len(new or b"")
    return Decision("rewrite", None, codec_before, codec_after, *sizes, new, readable=readable)


def digest(data: bytes | None) -> str | None:
    """Return the SHA-256 of a value in hex, None where there is none."""
    return None if data is None else sha256(data).hexdigest()
