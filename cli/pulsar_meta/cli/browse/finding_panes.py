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
UNCHECKED: Final = "not checked yet: press c to check this topic, this namespace, or the whole store"


@dataclass(slots=True)
class Findings:
    """The findings of a check by path.

    `names` are the checked topics or namespaces (None before the first check), `root` is their path in the
    tree, and `about` has lines about the extent of the check.
    """

    names: list[str] | None = None
    root: str = "/"
    about: list[Text] = field(default_factory=list)
    found: dict[str, list[FindingDocument]] = field(default_factory=dict)
    _severities: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def scope(self) -> str:
        """The extent of the check, in words."""
        return ", ".join(self.names or ()) or "the whole store"

    def begin(self, spot: Spot) -> None:
        """Forget all findings, and start a check of this place."""
        self.names, self.root = scope_of(spot)
        self.about = [line("this check has not ended, so there may be more findings", "warning")]
        self.found.clear()
        self._severities.clear()

    def add(self, document: FindingDocument) -> None:
        """Add a finding."""
        path = path_of(document)
        self.found.setdefault(path, []).append(document)
        for at in dict.fromkeys((path, *parents_of(path), "/")):
            self._severities.setdefault(at, Counter())[document["severity"]] += 1

    def mark(self, path: str) -> tuple[str, int] | None:
        """Return the highest severity and the number of findings at and below a path, or None."""
        severities = self._severities.get(path)
        if not severities:
            return None
        highest = next(name for name in ("error", "warning", "note") if severities[name])
        return highest, severities.total()

    def next_after(self, path: str | None) -> str | None:
        """Return the next path with findings, starting over after the last; None if there are no findings."""
        paths = sorted(self.found)
        later = [other for other in paths if path is not None and other > path]
        return next(iter(later or paths), None)

    def lines(self, spot: Spot) -> list[Text]:
        """Return the lines of the findings at and below a place."""
        if self.names is None:
            return [line(UNCHECKED, "dim")]
        here = [path for path in sorted(self.found) if is_within(path, spot.path)]
        shown = [text for path in here[:SHOWN] for text in self._at(path)]
        if len(here) > SHOWN:
            shown.append(
                line(
                    f"… and findings at {len(here) - SHOWN} more places: choose a part of the tree", "warning"
                )
            )
        looked_at = is_within(spot.path, self.root) or is_within(self.root, spot.path)
        none = "no findings here" if looked_at else "this place was not checked"
        head = line(f"check of {self.scope}", "dim")
        return [head, *(shown or [line(none, "dim")]), *self.about]

    def _at(self, path: str) -> Iterator[Text]:
        for finding in self.found[path]:
            names = (finding.get("topic"), finding.get("cursor"), finding.get("ledger_id"))
            yield line(f"{finding['severity']}  {finding['code']}", finding["severity"])
            yield line(f"  {'  '.join(str(name) for name in names if name is not None) or path}")
            yield line(f"  {finding['message']}")
            yield from lines([f"  {finding['repair']}"] if "repair" in finding else [], "head")
            yield line(f"  pulsar-meta explain {finding['code']}", "dim")


def path_of(document: FindingDocument) -> str:
    """Return the path of a finding in the tree: that of its cursor, topic, record or ledger."""
    with suppress(PulsarMetaError):
        if "topic" in document:
            topic = TopicName.parse(document["topic"])
            return topic.cursor_path(document["cursor"]) if "cursor" in document else topic.path
    if "path" in document:
        return document["path"]
    return ledger_path(document["ledger_id"]) if "ledger_id" in document else "/"


def scope_of(spot: Spot) -> tuple[list[str], str]:
    """Return the arguments of `check` for a place (a topic, namespace or nothing), and their path."""
    if spot.topic is not None:
        return [spot.topic], spot.path if spot.cursor is None else spot.path.rpartition("/")[0]
    below = f"{MANAGED_LEDGERS}/"
    names = spot.path.removeprefix(below).split("/") if spot.path.startswith(below) else []
    # The last part may be a domain. Three other parts are a V1 namespace.
    names = names[:-1] if len(names) > 2 and names[-1] in DOMAINS else names
    name = "/".join(names)
    return ([name], f"{below}{name}") if len(names) in (2, 3) else ([], "/")


def check(
    opened: Opened, names: Iterable[str], job: Job, found: Callable[[FindingDocument], object]
) -> list[Text]:
    """Pass each finding to `found`; returns lines about the extent of the check and the unreachable bookies.

    Raises UnreachableError and DecodeError of the store.
    """
    from pulsar_meta.cli.browse.drawing import fault_line
    from pulsar_meta.cli.render.findings import given_places, with_places
    from pulsar_meta.cli.render.text import checked_text
    from pulsar_meta.jobs.check.checkup import checkup
    from pulsar_meta.jobs.check.context import CheckOptions

    places, source = opened.places, opened.entries
    run = checkup(opened.store, source, names, CheckOptions(), job.advance, urls=places.entries)
    given = given_places(places.store, places.entries)
    for finding in run.findings():
        job.advance(0)
        found(with_places(finding.document(), given))
    run.ensure_found()
    notes = [] if source is None else [*source.notes, *map(str, source.faults)]
    about = [line(checked_text(run.counts, run.not_checked), "dim"), *lines(notes, "warning")]
    return about if run.unreachable is None else [*about, fault_line(run.unreachable)]


# A search ends after this many paths.
SEARCH_RESULTS: Final = 500
POSITION: Final = re.compile(r"[0-9]+:[0-9]+")


def named(opened: Opened, text: str) -> list[str] | None:
    """Return the paths that a text like `topic NAME` or a full topic name refers to, or None for other texts.

    Raises UsageError if the name is not valid, and DecodeError and UnreachableError of the store.
    """
    words = text.split()
    if "://" in text and len(words) == 1:
        words = ["topic", text]
    return places_below(opened.store, words) if len(words) > 1 and words[0] in WORDS else None


def search(opened: Opened, text: str, job: Job, found: Callable[[str], object]) -> str:
    """Pass each path that contains the text, encoded or decoded, to `found`; returns a summary."""
    sought, count = text.lower(), 0
    for value in opened.store.scan("/"):
        path = value.path
        job.advance(1)
        if sought in path.lower() or ("%" in path and sought in _decoded(path).lower()):
            found(path)
            count += 1
            if count == SEARCH_RESULTS:
                return f"the first {count} in {job.count} values; use a longer name to find fewer"
    return f"{count} found in {job.count} values"


def _decoded(path: str) -> str:
    with suppress(DecodeError):
        return decode_name(path)
    return path
