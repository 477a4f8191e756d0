"""Groups of changes are sent level by level: parents before children, or the reverse for removals."""

from __future__ import annotations

from pulsar_meta.jobs.rewrite.apply import Batches, level_by_level
from pulsar_meta.jobs.rewrite.decision import Change, Decided, write
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.memory import MemoryStore

TOPICS = [path for at in range(5) for path in (f"/t{at}", f"/t{at}/c1", f"/t{at}/c2")]


class GroupingStore(MemoryStore):
    batches_requests = True


def made(path: str) -> Decided:
    nothing = Versioned(path, b"", ABSENT)
    return nothing, write(nothing, b"x")


def removed(path: str) -> Decided:
    record = Versioned(path, b"x", 0)
    return record, write(record, None)


def sent(group: list[Decided]) -> list[list[str]]:
    changes = [Change.of(*decided) for decided in level_by_level(group)]
    with Batches(GroupingStore(), 64) as batches:
        return [[change.path for change in part] for part in batches.sendings(changes)]


def test_topics_and_cursors_are_created_and_removed_in_two_steps() -> None:
    cursors = [path for path in TOPICS if "c" in path]
    assert sent(list(map(made, TOPICS))) == [TOPICS[::3], cursors]
    assert sent(list(map(removed, reversed(TOPICS)))) == [cursors[::-1], TOPICS[::3][::-1]]


def test_creations_mixed_with_removals_keep_their_order() -> None:
    group = [made("/a/b"), removed("/c"), made("/a")]
    assert [seen.path for seen, _ in level_by_level(group)] == ["/a/b", "/c", "/a"]
    assert sent(group) == [["/a/b"], ["/c"], ["/a"]]
