"""The search, compared with a full scan, on small topics with every feature that topics have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.jobs.seek.readings import (
    CLOCKS,
    MAX_LEDGERS,
    PATIENCE,
    LedgerRange,
    Measure,
    Reading,
    ReadingOrder,
    ReadRequest,
    State,
    by_index,
)
from pulsar_meta.jobs.seek.search import TopicSearch
from pulsar_meta.jobs.topics.topic import Position
from tests.nightly import examples


@dataclass(frozen=True)
class FakeTopic:
    """All entries of a topic by ledger. Ledgers in `gone` are lost on all bookies."""

    ledgers: dict[int, list[Reading]]
    gone: frozenset[int] = frozenset()
    first_indexes: tuple[int | None, ...] = ()
    closed: tuple[int | None, ...] = ()
    last_index: int | None = None

    def order(self) -> ReadingOrder:
        hints = [*self.first_indexes, *([None] * len(self.ledgers))]
        closed = [*self.closed, *([None] * len(self.ledgers))]
        spans = [
            LedgerRange(ledger, len(entries), first_index=hints[at], closed_at=closed[at])
            for at, (ledger, entries) in enumerate(self.ledgers.items())
        ]
        return ReadingOrder(spans, self.last_index)

    def readings(self) -> list[Reading]:
        readings = []
        for ledger, entries in self.ledgers.items():
            lost = [replace(entry, state=State.MISSING) for entry in entries]
            readings += lost if ledger in self.gone else entries
        return readings


@dataclass
class FakeReads:
    """Reads entries of a fake topic, and remembers none."""

    fake: FakeTopic
    entries_per_read: int = 1
    entries_read: int = 0
    round_trips: int = 0

    def read(self, request: ReadRequest) -> list[Reading]:
        entries = self.fake.ledgers[request.ledger_id]
        assert 0 <= request.first <= request.last < len(entries)
        assert request.last - request.first < self.entries_per_read
        self.round_trips += 1
        if request.ledger_id in self.fake.gone:
            return [Reading(request.ledger_id, 0, State.MISSING, span=len(entries))]
        readings = entries[request.first : request.last + 1]
        self.entries_read += len(readings)
        return readings


def searching(
    fake: FakeTopic,
    measure: Measure = by_index,
    per_read: int = 1,
    *,
    exhaustive: bool = False,
) -> TopicSearch:
    return TopicSearch(fake.order(), measure, FakeReads(fake, per_read), exhaustive=exhaustive)


KINDS = ("batch", "one", "txn", "plain", "missing", "unreadable")
entry_kinds = st.tuples(st.sampled_from(KINDS), st.integers(1, 12), st.integers(0, 2), st.integers(0, 9))
healthy_kinds = st.tuples(
    st.sampled_from(("batch", "one")), st.integers(1, 12), st.just(0), st.integers(0, 9)
)


@st.composite
def topics(
    draw: st.DrawFn, *, kinds: st.SearchStrategy[tuple[str, int, int, int]], resets: bool
) -> FakeTopic:
    """Generate a topic with runs of entries, gaps in the indexes and steps back between ledgers."""
    next_index, clock = draw(st.sampled_from((0, 0, 500))), 1_000_000
    ledgers: dict[int, list[Reading]] = {}
    firsts: list[int] = []
    closed: list[int] = []
    for ledger in range(draw(st.integers(0, 8))):
        if resets and draw(st.integers(0, 3)) == 0:
            next_index = draw(st.integers(0, next_index))
        firsts.append(next_index)
        entries: list[Reading] = []
        for kind, size, gap, wait in draw(st.lists(kinds, max_size=25)):
            clock += wait
            shared = Reading(ledger, len(entries), broker_timestamp=clock, publish_time=clock - 3)
            if kind == "plain":
                entries.append(replace(shared, broker_timestamp=None))
                continue
            next_index += gap if kind != "txn" else 0
            width = size if kind in ("batch", "missing", "unreadable") else 1
            state = {"missing": State.MISSING, "unreadable": State.UNREADABLE}.get(kind, State.READ)
            last = next_index + width - 1
            entries.append(replace(shared, state=state, first_index=next_index, last_index=last))
            next_index = last + 1
        ledgers[ledger] = entries
        closed.append(clock)
    claimed: list[int | None] = [
        draw(st.sampled_from((None, first, draw(st.integers(-5, 2000))))) for first in firsts
    ]
    times: list[int | None] = [
        draw(st.sampled_from((None, time, draw(st.integers(0, 2_000_000))))) for time in closed
    ]
    lost = draw(st.sets(st.integers(0, 7), max_size=2)) if kinds is entry_kinds else set()
    claim = draw(st.sampled_from((None, next_index - 1, draw(st.integers(-1, 5000)))))
    return FakeTopic(ledgers, frozenset(lost), tuple(claimed), tuple(times), claim)


def holders(fake: FakeTopic, target: int) -> list[Reading]:
    return [
        reading
        for reading in fake.readings()
        if reading.state is State.READ
        and reading.first_index is not None
        and reading.last_index is not None
        and reading.first_index <= target <= reading.last_index
    ]


def brute_status(fake: FakeTopic, target: int) -> str:
    """Return the status of an index that no entry has, in a topic whose indexes never step back."""
    samples = [
        (at, reading)
        for at, reading in enumerate(fake.readings())
        if reading.state is State.READ and reading.last_index is not None
    ]
    below = max((at for at, reading in samples if reading.last_index < target), default=-1)  # type: ignore[operator]
    above = min((at for at, reading in samples if reading.first_index > target), default=None)  # type: ignore[operator]
    between = fake.readings()[below + 1 : above]
    for state, status in (
        (State.MISSING, "missing-ledger"),
        (State.UNREADABLE, "unreadable"),
        (State.READ, "no-index"),
    ):
        if any(reading.state is state for reading in between):
            return status
    if not fake.readings():
        return "before-first" if fake.last_index is not None and target <= fake.last_index else "after-last"
    return "after-last" if above is None else "before-first" if below < 0 else "gap"


@settings(max_examples=examples(300), deadline=None)
@given(
    topics(kinds=entry_kinds, resets=False),
    st.integers(0, 1600),
    st.sampled_from((1, 3, 100)),
)
def test_index_search_equals_a_full_scan(fake: FakeTopic, target: int, per_read: int) -> None:
    topic = searching(fake, per_read=per_read)
    for wanted in (target, target // 3, target // 7, target):
        outcome = topic.find(wanted)
        expected = holders(fake, wanted)
        if expected:
            assert (outcome.status, [outcome.reading]) == ("found", expected)
        else:
            assert (outcome.status, outcome.reading) == (brute_status(fake, wanted), None)


@settings(max_examples=examples(300), deadline=None)
@given(topics(kinds=entry_kinds, resets=True), st.integers(0, 1600), st.sampled_from((1, 3, 100)))
def test_an_index_in_a_topic_that_steps_back_is_found(fake: FakeTopic, target: int, per_read: int) -> None:
    topic = searching(fake, per_read=per_read)
    for wanted in (target, target // 3, target // 7):
        outcome = topic.find(wanted)
        expected = holders(fake, wanted)
        assert (outcome.reading in expected) if expected else (outcome.reading is None)
        assert (outcome.status == "found") == bool(expected)


@settings(max_examples=examples(200), deadline=None)
@given(topics(kinds=healthy_kinds, resets=False), st.data(), st.sampled_from((1, 10)))
def test_a_healthy_topic_needs_few_reads_even_if_its_properties_are_false(
    fake: FakeTopic, data: st.DataObject, per_read: int
) -> None:
    samples = fake.readings()
    if not samples:
        return
    chosen = data.draw(st.sampled_from(samples))
    outcome = searching(fake, per_read=per_read).find(chosen.last_index or 0)
    assert outcome.reading == chosen
    assert outcome.round_trips <= 6 + 2 * len(samples).bit_length()


def first_not_before(readings: Sequence[Reading], clock: str, target: int) -> Reading | None:
    for reading in readings:
        value = CLOCKS[clock](reading) if reading.state is State.READ else None
        if value is not None and value[0] >= target:
            return reading
    return None


times = st.integers(999_990, 1_001_500)


@settings(max_examples=examples(300), deadline=None)
@given(
    topics(kinds=entry_kinds, resets=False),
    times,
    st.sampled_from(("broker", "publish")),
    st.sampled_from((1, 3, 100)),
    st.sampled_from((-1, 0, 20, 60_000)),
)
def test_time_search_equals_a_full_scan_if_the_clock_never_steps_back(
    fake: FakeTopic, target: int, clock: str, per_read: int, skew: int
) -> None:
    measure = CLOCKS[clock]
    outcome = searching(fake, measure, per_read).find(target, skew=skew)
    readings = fake.readings()
    expected = first_not_before(readings, clock, target)
    stop = readings.index(expected) if expected else len(readings)
    start = max(
        (
            at + 1
            for at, reading in enumerate(readings[:stop])
            if reading.state is State.READ and measure(reading)
        ),
        default=0,
    )
    lost = {reading.state for reading in readings[start:stop]}
    if State.MISSING in lost:
        assert (outcome.status, outcome.reading) == ("missing-ledger", None)
    elif State.UNREADABLE in lost:
        assert (outcome.status, outcome.reading) == ("unreadable", None)
    elif expected:
        assert (outcome.status, outcome.reading) == ("found", expected)
    else:
        assert outcome.reading is None
        assert outcome.status == ("no-index" if State.READ in lost else "after-last")


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 60), max_size=12), max_size=5),
    st.integers(0, 70),
    st.sampled_from((1, 4)),
    st.booleans(),
)
def test_time_search_with_disagreeing_clocks_finds_a_crossing_or_the_first(
    times: list[list[int]], target: int, per_read: int, exhaustive: bool
) -> None:
    ledgers = {
        ledger: [Reading(ledger, entry, publish_time=time) for entry, time in enumerate(ledger_times)]
        for ledger, ledger_times in enumerate(times)
    }
    fake = FakeTopic(ledgers, closed=tuple(max(time, default=0) for time in times))
    outcome = searching(fake, CLOCKS["auto"], per_read, exhaustive=exhaustive).find(target, skew=5)
    readings = fake.readings()
    if exhaustive:
        assert outcome.reading == first_not_before(readings, "auto", target)
    elif outcome.reading is not None:
        at = readings.index(outcome.reading)
        assert (readings[at].publish_time or 0) >= target
        assert at == 0 or (readings[at - 1].publish_time or 0) < target
    else:
        assert not readings or (readings[-1].publish_time or 0) < target


def steady(ledgers: int, per_ledger: int, start: Callable[[int], int]) -> FakeTopic:
    """Generate ledgers of unbatched entries; `start(ledger)` is the first index of each."""
    return FakeTopic(
        {
            ledger: [
                Reading(ledger, entry, first_index=start(ledger) + entry, last_index=start(ledger) + entry)
                for entry in range(per_ledger)
            ]
            for ledger in range(ledgers)
        }
    )


def test_all_ledgers_are_searched_if_indexes_start_again() -> None:
    fake = steady(300, 5, lambda ledger: (ledger * 5) if ledger < 150 else (ledger - 150) * 5)
    assert searching(fake).find(748).status == "found"
    assert searching(fake).find(750).status == "after-last"


def test_an_index_after_the_end_needs_two_reads_per_ledger_once() -> None:
    fake = steady(300, 5, lambda ledger: ledger * 5)
    topic = searching(fake)
    outcome = topic.find(1500)
    assert outcome.status == "after-last"
    assert outcome.entries_read <= 601


def test_an_index_outside_the_pattern_is_found_in_its_ledger() -> None:
    fake = steady(300, 5, lambda ledger: 9000 if ledger == 7 else ledger * 20)
    assert searching(fake).find(9003).reading == fake.ledgers[7][3]


def test_a_missing_index_in_too_many_ledgers_is_unknown_unless_exhaustive() -> None:
    fake = steady(MAX_LEDGERS + 1, 2, lambda ledger: 9000 if ledger == 7 else ledger * 2)
    outcome = searching(fake).find(9001)
    assert (outcome.status, outcome.reading) == ("unknown", None)
    assert "--exhaustive" in str(outcome.limit)
    assert outcome.entries_read < 20
    outcome = searching(fake, exhaustive=True).find(9001)
    assert (outcome.reading, outcome.limit) == (fake.ledgers[7][1], None)
    assert searching(fake, exhaustive=True).find(9002).status == "after-last"


def test_the_answer_does_not_depend_on_earlier_questions_if_two_entries_hold_an_index() -> None:
    fake = steady(6, 50, lambda ledger: ledger % 3 * 50)
    together = searching(fake)
    for index in (149, 0, 75, 10, 149, 60):
        assert together.find(index).reading == searching(fake).find(index).reading


def test_ledgers_without_broker_metadata_are_skipped_after_a_while() -> None:
    plain = [Reading(0, entry, publish_time=1) for entry in range(50_000)]
    indexed = [Reading(1, entry, first_index=entry, last_index=entry) for entry in range(1000)]
    fake = FakeTopic({0: plain, 1: indexed})
    topic = searching(fake)
    outcome = topic.find(5)
    assert outcome.reading == indexed[5]
    assert outcome.round_trips < 40
    for outcome in (topic.find(5000), searching(FakeTopic({0: plain})).find(5)):
        assert outcome.status == "unknown"
        assert (
            outcome.limit == f"{PATIENCE} entries without index were read (the limit); --exhaustive reads on"
        )
        assert outcome.entries_read < 2 * PATIENCE + 100
    few = FakeTopic({0: plain[:PATIENCE]})
    assert searching(few).find(5).status == "no-index"


def test_a_time_is_unknown_if_an_earlier_entry_may_have_it() -> None:
    silent = [Reading(0, entry, publish_time=entry) for entry in range(20 * PATIENCE)]
    first = replace(silent[4321], broker_timestamp=100)
    last = Reading(0, len(silent), broker_timestamp=9000)
    fake = FakeTopic({0: [*silent[:4321], first, *silent[4322:], last]})
    outcome = searching(fake, CLOCKS["broker"]).find(50, skew=-1)
    assert (outcome.status, outcome.reading) == ("unknown", None)
    assert "broker time" in str(outcome.limit)
    assert searching(fake, CLOCKS["broker"], exhaustive=True).find(50).reading == first


def test_reading_both_ends_of_a_ledger_stops_at_the_limit() -> None:
    silent = [Reading(0, entry, publish_time=1) for entry in range(1, 5 * PATIENCE)]
    fake = FakeTopic({0: [Reading(0, 0, first_index=7, last_index=7), *silent]})
    outcome = searching(fake).find(3)
    assert outcome.status == "unknown"
    assert outcome.entries_read < 2 * PATIENCE + 100
    assert searching(fake, exhaustive=True).find(3).status == "before-first"


def test_positions_and_ordinals_are_inverse() -> None:
    order = ReadingOrder([LedgerRange(3, 4), LedgerRange(5, 0), LedgerRange(9, 2, first_entry=7)])
    positions = [order.position(ordinal) for ordinal in range(order.total)]
    assert positions == [(3, 0), (3, 1), (3, 2), (3, 3), (9, 7), (9, 8)]
    assert [order.ordinal(position) for position in positions] == list(range(6))
    assert order.ordinal(Position(1, 5)) == 0
    assert order.ordinal(Position(3, 9)) == 4
    assert order.ordinal(Position(5, 0)) == 4
    assert order.ordinal(Position(9, 0)) == 4
    assert order.ordinal(Position(99, 0)) == 6
    middle = order.between(2, 5)
    assert [middle.position(ordinal) for ordinal in range(middle.total)] == positions[2:5]
