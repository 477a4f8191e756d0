"""Panes for the findings of `check` by place, and for search results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.text import Text

from pulsar_meta.cli.browse.drawing import Job, line, lines
from pulsar_meta.cli.browse.tree import Opened, Spot
from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.codecs.names import DOMAINS, MANAGED_LEDGERS, TopicName, decode_name, ledger_path
from pulsar_meta.jobs.values.places import WORDS, places_below
from pulsar_meta.stores.base import is_within, parents_of

if TYPE_CHECKING:
    from pulsar_meta.jobs.check.codes import FindingDocument


# Places whose findings are shown at once.
SHOWN: Final = 1000
UNCHECKED: Final = "nothing was checked yet: c checks this topic or namespace, or all of the store"


@dataclass(slots=True)
class Findings:
    """The findings of a check by their paths; `names` is what is checked, None before the first one.

    `root` is where in the tree that lies, `about` what was looked at and what was not, or why nobody knows.
    """

    names: list[str] | None = None
    root: str = "/"
    about: list[Text] = field(default_factory=list)
    found: dict[str, list[FindingDocument]] = field(default_factory=dict)
    _severities: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def of_what(self) -> str:
        """What is checked, in words."""
        return ", ".join(self.names or ()) or "the whole store"

    def begin(self, spot: Spot) -> None:
        """Forget all, and begin with a check of this place; until it has ended, that is said."""
        self.names, self.root = scope_of(spot)
        self.about = [line("this check has not ended: not all was looked at", "warning")]
        self.found.clear()
        self._severities.clear()

    def add(self, document: FindingDocument) -> None:
        """Take one."""
        path = path_of(document)
        self.found.setdefault(path, []).append(document)
        for at in dict.fromkeys((path, *parents_of(path), "/")):
            self._severities.setdefault(at, Counter())[document["severity"]] += 1

    def mark(self, path: str) -> tuple[str, int] | None:
        """Return the gravest severity at a path and below it, and how many findings; None for none."""
        severities = self._severities.get(path)
        if not severities:
            return None
        gravest = next(name for name in ("error", "warning", "note") if severities[name])
        return gravest, severities.total()

    def next_after(self, path: str | None) -> str | None:
        """Return the path of the next finding, the first one behind the last; None where there is none."""
        paths = sorted(self.found)
        behind = [one for one in paths if path is not None and one > path]
        return next(iter(behind or paths), None)

    def lines(self, spot: Spot) -> list[Text]:
        """Return the findings at a place and below it, those of all places where it is the root."""
        if self.names is None:
            return [line(UNCHECKED, "dim")]
        here = [path for path in sorted(self.found) if is_within(path, spot.path)]
        shown = [text for path in here[:SHOWN] for text in self._at(path)]
        if len(here) > SHOWN:
            shown.append(
                line(f"… findings at {len(here) - SHOWN} places more: choose a part of the tree", "warning")
            )
        looked_at = is_within(spot.path, self.root) or is_within(self.root, spot.path)
        none = "no finding here" if looked_at else "this place is no part of it"
        head = line(f"check of {self.of_what}", "dim")
        return [head, *(shown or [line(none, "dim")]), *self.about]

    def _at(self, path: str) -> Iterator[Text]:
        for one in self.found[path]:
            names = (one.get("topic"), one.get("cursor"), one.get("ledger_id"))
            yield line(f"{one['severity']}  {one['code']}", one["severity"])
            yield line(f"  {'  '.join(str(name) for name in names if name is not None) or path}")
            yield line(f"  {one['message']}")
            yield from lines([f"  {one['repair']}"] if "repair" in one else [], "head")


def path_of(document: FindingDocument) -> str:
    """Return where in the tree a finding belongs: the cursor or the topic, else the path, else the ledger."""
    with suppress(PulsarMetaError):
        if "topic" in document:
            topic = TopicName.parse(document["topic"])
            return topic.cursor_path(document["cursor"]) if "cursor" in document else topic.path
    if "path" in document:
        return document["path"]
    return ledger_path(document["ledger_id"]) if "ledger_id" in document else "/"


def scope_of(spot: Spot) -> tuple[list[str], str]:
    """Return what is checked at a place, as `check` takes it, and its path: a topic, a namespace, or all."""
    if spot.topic is not None:
        return [spot.topic], spot.path if spot.cursor is None else spot.path.rpartition("/")[0]
    below = f"{MANAGED_LEDGERS}/"
    names = spot.path.removeprefix(below).split("/") if spot.path.startswith(below) else []
    # The last part may be a domain; three parts without it are a V1 namespace.
    names = names[:-1] if len(names) > 2 and names[-1] in DOMAINS else names
    name = "/".join(names)
    return ([name], f"{below}{name}") if len(names) in (2, 3) else ([], "/")


def check(
    opened: Opened, names: Iterable[str], job: Job, found: Callable[[FindingDocument], object]
) -> list[Text]:
    """Give `found` each finding as it comes; return the lines that say what was looked at, and what was not.

    UnreachableError, DecodeError of the store; the first bookie that did not answer is a line.
    """
    from pulsar_meta.cli.browse.drawing import fault_line
    from pulsar_meta.cli.render.findings import given_places, with_places
    from pulsar_meta.cli.render.text import looked_at
    from pulsar_meta.jobs.check.checkup import checkup
    from pulsar_meta.jobs.check.context import CheckOptions
    from pulsar_meta.jobs.check.scope import ensure_not_empty

    places, source = opened.places, opened.entries
    run = checkup(opened.store, source, names, CheckOptions(), job.advance, urls=places.entries)
    given, count = given_places(places.store, places.entries), 0
    for finding in run.findings():
        job.advance(0)
        count += 1
        found(with_places(finding.document(), *given))
    ensure_not_empty(opened.store, run.scope, count + run.counts["topics"])
    said = [] if source is None else [*source.notes, *map(str, source.faults)]
    about = [line(looked_at(run.counts, run.not_checked), "dim"), *lines(said, "warning")]
    return about if run.unreachable is None else [*about, fault_line(run.unreachable)]


# Paths that a search shows; then it ends.
SEARCH_RESULTS: Final = 500
POSITION: Final = re.compile(r"[0-9]+:[0-9]+")


def named(opened: Opened, text: str) -> list[str] | None:
    """Return the paths that a text names: `topic NAME`, a full name; None where it names nothing.

    UsageError for what begins like a name and is none; DecodeError, UnreachableError of the store.
    """
    words = text.split()
    if "://" in text and len(words) == 1:
        words = ["topic", text]
    return places_below(opened.store, words) if len(words) > 1 and words[0] in WORDS else None


def search(opened: Opened, text: str, job: Job, found: Callable[[str], object]) -> str:
    """Give `found` each path with the text in it, as stored or decoded; return what was looked at."""
    sought, count = text.lower(), 0
    for held in opened.store.scan("/"):
        job.advance(1)
        if sought in held.path.lower() or ("%" in held.path and sought in _decoded(held.path).lower()):
            found(held.path)
            count += 1
            if count == SEARCH_RESULTS:
                return f"the first {count} in {job.count} values; a longer name finds fewer"
    return f"{count} found in {job.count} values"


def _decoded(path: str) -> str:
    with suppress(DecodeError):
        return decode_name(path)
    return path
