"""Whole levels of a store at once."""

from __future__ import annotations

from pulsar_meta.jobs.rewrite.apply import Batches, level_by_level
from pulsar_meta.jobs.rewrite.decision import Change, Decided, write
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.memory import MemoryStore

TOPICS = [path for at in range(5) for path in (f"/t{at}", f"/t{at}/c1", f"/t{at}/c2")]


class Grouped(MemoryStore):
    sends_groups = True


def made(path: str) -> Decided:
    nothing = Versioned(path, b"", ABSENT)
    return nothing, write(nothing, b"x")


def removed(path: str) -> Decided:
    held = Versioned(path, b"x", 0)
    return held, write(held, None)


def sent(group: list[Decided]) -> list[list[str]]:
    changes = [Change.of(*one) for one in level_by_level(group)]
    with Batches(Grouped(), 64) as batches:
        return [[change.path for change in part] for part in batches.sendings(changes)]


def test_topics_and_their_cursors_are_made_and_removed_in_two_steps() -> None:
    cursors = [path for path in TOPICS if "c" in path]
    assert sent(list(map(made, TOPICS))) == [TOPICS[::3], cursors]
    assert sent(list(map(removed, reversed(TOPICS)))) == [cursors[::-1], TOPICS[::3][::-1]]


def test_what_is_made_beside_what_goes_keeps_its_order() -> None:
    group = [made("/a/b"), removed("/c"), made("/a")]
    assert [seen.path for seen, _ in level_by_level(group)] == ["/a/b", "/c", "/a"]
    assert sent(group) == [["/a/b"], ["/c"], ["/a"]]
