"""Which data ledgers belong to one topic: what joins them and what keeps them apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.rebuild.evidence import DataClues, Mention, Sequence
from pulsar_meta.jobs.rebuild.groups import Group, group_ledgers
from pulsar_meta.jobs.rebuild.rebuilt import Known, rebuilt_values
from pulsar_meta.jobs.topics.topic import every_topic
from pulsar_meta.stores.registry import open_store

# (Topics with all their ledgers in one group, topics with data) in each capture. The other topics have
# ledgers from before the broker wrote indexes.
WHOLE = {
    "pulsar-2.8.2": (33, 34),
    "pulsar-3.0.7": (40, 40),
    "pulsar-4.0.7": (37, 38),
    "pulsar-4.2.4": (36, 37),
    "pulsar-4.2.4-3bookies": (37, 38),
    "pulsar-5.0.0-M1": (36, 37),
}


# Named topics: those that snapshots of transaction buffers name (3.0.7 wrote one per topic), the topics with
# the snapshots, and the log of the coordinator.
NAMED = {"pulsar-3.0.7": 40}


def data(ledger_id: int, first: int | None, last: int | None, **more: Sequence) -> DataClues:
    times = ledger_id * 1000, ledger_id * 1000 + 999
    return DataClues(ledger_id, 1, first, last, *times, times_by_broker=True, producers=more)


def run(first: int, last: int) -> Sequence:
    return Sequence(first, frozenset((last + 1,)))


def joined(
    *clues: DataClues, names: Mapping[int, str] | None = None, by: tuple[Mention, ...] = ()
) -> list[Group]:
    return group_ledgers({clue.ledger_id: clue for clue in clues}, by, names or {})


def ledgers(
    *clues: DataClues, names: Mapping[int, str] | None = None, by: tuple[Mention, ...] = ()
) -> list[tuple[int, ...]]:
    return [group.ledgers for group in joined(*clues, names=names, by=by)]


def test_consecutive_indexes_join_ledgers() -> None:
    (group,) = joined(data(1, 0, 9), data(2, 10, 19), data(5, 20, 20))
    assert group.ledgers == (1, 2, 5)
    assert not group.certain
    assert group.evidence == ("its indexes continue from ledger 1", "its indexes continue from ledger 2")


def test_two_partitions_with_equal_numbers_are_not_joined() -> None:
    assert ledgers(data(1, 0, 9), data(2, 0, 9), data(3, 10, 19), data(4, 10, 19)) == [(1,), (2,), (3,), (4,)]
    # Two candidates at one end only are ambiguous too.
    assert ledgers(data(1, 0, 9), data(2, 0, 9), data(3, 10, 19)) == [(1,), (2,), (3,)]
    assert ledgers(data(1, 0, 9), data(3, 10, 19), data(4, 10, 19)) == [(1,), (3,), (4,)]


def test_incomplete_ledgers_are_not_joined() -> None:
    clues = {clue.ledger_id: clue for clue in (data(1, 0, 9), data(2, 10, 19), data(5, 20, 20))}
    assert [group.ledgers for group in group_ledgers(clues, (), {}, {1})] == [(1,), (2, 5)]


@pytest.mark.parametrize("disk", ["bookie0", "bookie1", "bookie2"])
def test_one_disk_of_three_never_mixes_topics(capture: Callable[[str], Path], disk: str) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        topic_of = {
            ledger.ledger_id: topic.name for topic in every_topic(store, print) for ledger in topic.ledgers
        }
    with open_entries([f"bookie-disk:{folder / disk}"]) as source:
        rebuilt = list(rebuilt_values(source, print, Known()))
    groups = [value.facts["ledgers"] for value in rebuilt if value.facts.get("ledgers")]
    assert all(len({topic_of[at] for at in group if at in topic_of}) <= 1 for group in groups)
    assert any(len(group) > 1 for group in groups)


def test_producers_decide_between_several_candidates() -> None:
    first, second = data(1, 0, 9, p=run(0, 9)), data(2, 0, 9, q=run(0, 9))
    after = data(3, 10, 19, q=run(10, 19)), data(4, 10, 19, p=run(10, 19))
    assert ledgers(first, second, *after) == [(1, 4), (2, 3)]
    # Partitions have producers of the same name, and often of equal numbers. Then producers decide nothing.
    same = [data(at, 0, 9, p=run(0, 9)) for at in (1, 2)] + [data(at, 10, 19, p=run(10, 19)) for at in (3, 4)]
    assert ledgers(*same) == [(1,), (2,), (3,), (4,)]


def test_the_last_candidates_are_joined_after_the_others() -> None:
    clues = data(1, 0, 9), data(2, 0, 9), data(3, 10, 19), data(4, 10, 19)
    cursor = Mention(9, "cursor", frozenset((1, 4)))
    assert ledgers(*clues, by=(cursor,)) == [(1, 4), (2, 3)]


def test_a_cursor_joins_ledgers_across_a_gap() -> None:
    cursors = Mention(9, "cursor", frozenset((1, 77))), Mention(10, "cursor", frozenset((77, 3)))
    (group,) = joined(data(1, 5, 9), data(3, 40, 44), by=cursors)
    assert group.ledgers == (1, 3)
    assert group.certain


def test_names_separate_and_join_ledgers() -> None:
    clues = data(1, 0, 9), data(2, 10, 19)
    assert ledgers(*clues, names={1: "a", 2: "b"}) == [(1,), (2,)]
    cursor = Mention(9, "cursor", frozenset((1, 2)))
    assert ledgers(*clues, names={1: "a", 2: "b"}, by=(cursor,)) == [(1,), (2,)]
    assert ledgers(data(1, 0, 9), data(2, 50, 59), names={1: "a", 2: "a"}) == [(1, 2)]


def test_ledgers_of_a_topic_do_not_overlap() -> None:
    early = DataClues(2, 1, 10, 19, 500, 600, times_by_broker=True)
    assert ledgers(data(1, 0, 9), early) == [(1,), (2,)]
    # A cursor joins 1 and 4, so no other ledger with index 10 fits between them.
    cursor = Mention(9, "cursor", frozenset((1, 4)))
    assert ledgers(data(1, 0, 9), data(3, 10, 19), data(4, 12, 19), by=(cursor,)) == [(1, 4), (3,)]


def test_producers_join_ledgers_without_indexes() -> None:
    assert ledgers(data(1, None, None, p=run(0, 9)), data(2, None, None, p=run(10, 19))) == [(1, 2)]
    assert ledgers(data(1, None, None, p=run(0, 9)), data(2, None, None, p=run(0, 9))) == [(1,), (2,)]


@pytest.mark.parametrize("name", WHOLE)
def test_ledgers_of_captures_are_grouped_by_topic(capture: Callable[[str], Path], name: str) -> None:
    folder = capture(name)
    topic_of: dict[int, str] = {}
    for file in folder.glob("metadata*.ndjson"):
        with open_store(f"snapshot:{file}") as store:
            for topic in every_topic(store, print):
                topic_of |= {ledger.ledger_id: str(topic.name) for ledger in topic.ledgers}
    with open_entries([f"bookie-disk:{folder}"]) as source:
        topics = [value for value in rebuilt_values(source, print, Known()) if value.facts.get("ledgers")]
    group_lists = [topic.facts["ledgers"] for topic in topics]
    named = [topic.facts for topic in topics if topic.certainty != "lost+found"]
    for facts in named:
        assert {topic_of[ledger_id] for ledger_id in facts["ledgers"] if ledger_id in topic_of} <= {
            facts["topic"]
        }
    assert len(named) == NAMED.get(name, len(named))
    assert len({topic.path for topic in topics}) == len(topics)
    groups_of: dict[str, set[int]] = defaultdict(set)
    for number, group in enumerate(group_lists):
        assert len({topic_of[ledger_id] for ledger_id in group if ledger_id in topic_of}) <= 1, (
            f"two topics in {group}"
        )
        for ledger_id in group:
            if ledger_id in topic_of:
                groups_of[topic_of[ledger_id]].add(number)
    assert (sum(len(groups) == 1 for groups in groups_of.values()), len(groups_of)) == WHOLE[name]
