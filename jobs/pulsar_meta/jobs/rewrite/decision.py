"""The decision about one value, the change that follows from it, and the counts of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Final, Literal, NamedTuple, NotRequired, TypedDict

from pulsar_meta.stores.base import ABSENT, Versioned

Action = Literal["rewrite", "keep", "skip"]
Effect = Literal["replace", "create", "remove"]

UNDECODABLE: Final = "undecodable"
# What was named one by one and does not exist.
NOT_THERE: Final = "not-there"
# How many of a kind are named.
NAMED: Final = 10
# Since the plan was made, and since the run that is being undone.
MOVED: Final = frozenset({"moved", "touched"})
# An undo file has an old value that its command can't have replaced.
ALTERED: Final = "altered"
# Reasons for which a guard left a value alone: the run ends as refused.
REFUSED: Final = frozenset({"loaded", "over-limit", "unreadable", "ephemeral", "parent-refused", ALTERED})


class SummaryDocument(TypedDict):
    """What a run did: each value seen is in one of the five counts after `seen`; `counters` by path."""

    seen: int
    rewritten: int
    kept: int
    skipped: int
    conflicts: int
    undecodable: int
    bytes_before: int
    bytes_after: int
    undo_file: str | None
    kept_for: dict[str, int]
    skipped_for: dict[str, int]
    created: int
    removed: int
    left_unreadable: int
    counters: NotRequired[dict[str, int]]


class Decision(NamedTuple):
    """Rewrite a value with `new` (None: delete it), keep it because it is right, or skip it.

    `reason` is a word for keeping or skipping it. Sizes are in bytes as stored. `note` is a message for the
    operator, such as the error of an undecodable value. A codec is None if the value has none. `readable` is
    True if the rule has checked that the brokers can load `new`, `unreadable` if they may not load the kept
    value, and `creates` if there was no value. This is a tuple because a run makes one for every value and
    sends it between processes.
    """

    action: Action
    reason: str | None = None
    codec_before: str | None = None
    codec_after: str | None = None
    size_before: int = 0
    size_after: int = 0
    new: bytes | None = None
    note: str | None = None
    readable: bool = False
    unreadable: bool = False
    creates: bool = False

    @property
    def effect(self) -> Effect:
        """The effect of a rewrite."""
        if self.new is None:
            return "remove"
        return "create" if self.creates else "replace"

    def __repr__(self) -> str:
        sizes = f"{self.size_before} to {self.size_after} bytes"
        return f"Decision({self.action}, {self.reason}, {self.codec_before} to {self.codec_after}, {sizes})"


Rule = Callable[[Versioned], Decision]
Decided = tuple[Versioned, Decision]
# Decides again about a value that has changed since the first decision.
Anew = Callable[[Versioned, Decision], Decision]


def by_rule(rule: Rule) -> Anew:
    """Decide again by the same rule, regardless of the earlier decision."""
    return lambda seen, before: rule(seen)


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
        return cls(seen.path, seen.version, content(seen), decision.new, decision.readable)


def keep(seen: Versioned, reason: str, codec: str | None = None) -> Decision:
    """Return the decision to leave a value that is as it should be."""
    return Decision("keep", reason, codec, codec, len(seen.value), len(seen.value))


def skip(seen: Versioned, reason: str, codec: str | None = None, *, note: str | None = None) -> Decision:
    """Return the decision not to touch a value, for a reason that a person may want to know."""
    return Decision("skip", reason, codec, codec, len(seen.value), len(seen.value), note=note)


def write(
    seen: Versioned,
    new: bytes | None,
    codec_before: str | None = None,
    codec_after: str | None = None,
    *,
    readable: bool = False,
) -> Decision:
    """Decide to replace a value by `new`, or to delete it if `new` is None."""
    sizes = len(seen.value), len(new or b"")
    creates = seen.version == ABSENT
    return Decision(
        "rewrite", None, codec_before, codec_after, *sizes, new, readable=readable, creates=creates
    )


def content(seen: Versioned) -> bytes | None:
    """Return the bytes of a value, None if there is none."""
    return None if seen.version == ABSENT else seen.value


def digest(data: bytes | None) -> str | None:
    """Return the SHA-256 of a value in hex, None if there is none."""
    return None if data is None else sha256(data).hexdigest()


@dataclass(slots=True)
class Summary:
    """Counts of values; every value seen is in exactly one of the five others. Bytes are as stored.

    `created` and `removed` are among `rewritten`; `left_unreadable` are those kept that brokers may not load.
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
    created: int = 0
    removed: int = 0
    saved: int = 0
    # Of those kept that brokers may not load: how many, by the reason, and the first to be named.
    unreadable_for: Counter[str] = field(default_factory=Counter)
    unreadable_paths: list[str] = field(default_factory=list)
    # The next number of each counter that goes forward.
    counters: dict[str, int] = field(default_factory=dict)
    kept_for: Counter[str] = field(default_factory=Counter)
    skipped_for: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def left_unreadable(self) -> int:
        """How many values are kept that brokers may not load."""
        return self.unreadable_for.total()

    @property
    def refused(self) -> int:
        """How many values a guard left alone."""
        return sum(count for reason, count in self.skipped_for.items() if reason in REFUSED)

    def see(self, seen: Versioned, decision: Decision) -> None:
        """Count a value, and the reason if it is left alone."""
        with self._lock:
            self.seen += 1
            self.bytes_before += decision.size_before
            if decision.action != "rewrite":
                self.bytes_after += decision.size_before
                self._leave(seen, decision)

    def rewrite(self, decision: Decision) -> None:
        """Count a value that was seen before as rewritten."""
        with self._lock:
            self.rewritten += 1
            self.created += decision.effect == "create"
            self.removed += decision.effect == "remove"
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

    def settle(self, seen: Versioned, decision: Decision) -> None:
        """Count a value that was seen before and then, read again, needed no change."""
        with self._lock:
            self.bytes_after += decision.size_before
            self._leave(seen, decision)

    def _leave(self, seen: Versioned, decision: Decision) -> None:
        if decision.unreadable:
            self.unreadable_for[decision.reason or ""] += 1
            if len(self.unreadable_paths) < NAMED:
                self.unreadable_paths.append(seen.path)
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

    def document(self, undo_file: str | None) -> SummaryDocument:
        """Return the summary in its JSON form."""
        document: SummaryDocument = {
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
            "created": self.created,
            "removed": self.removed,
            "left_unreadable": self.left_unreadable,
        }
        if self.counters:
            document["counters"] = dict(self.counters)
        return document
