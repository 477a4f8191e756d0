"""The check of topics and ledgers: planned from the metadata, done ledger by ledger, joined in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_check import LedgerReport, check_joints, check_range
from pulsar_meta.jobs.entries.entry_choice import Choice, Limits, Range, Tell, first_entries, ranges
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat, entry_format
from pulsar_meta.stores.base import Store


@dataclass(frozen=True, slots=True)
class LedgerTask:
    """A ledger's range to check, and how its entries are read. `topic` says which tasks belong together."""

    topic: int
    part: Range
    form: EntryFormat


Checker = Callable[[Sequence[LedgerTask]], Iterator[LedgerReport]]


def plan_checks(
    choices: Iterable[Choice], limits: Limits, source: EntrySource, store: Store | None, tell: Tell
) -> Iterator[LedgerTask]:
    """Yield what is to be checked of what was chosen, ledger by ledger, in reading order."""
    for topic, choice in enumerate(choices):
        # Ledgers chosen without a topic have no neighbours: each is checked by itself.
        group = topic if choice.name.startswith(("persistent:", "topic:", "segment:")) else -1
        for part in ranges(choice, limits, source):
            yield LedgerTask(group, part, entry_format(store, part.ledger.ledger_id, tell))


def first_checks(tasks: Iterable[LedgerTask], count: int | None, source: EntrySource) -> list[LedgerTask]:
    """Return the tasks that check the first `count` entries, the last one cut; all where it is None."""
    planned = list(tasks)
    parts = first_entries((task.part for task in planned), count, source)
    return [replace(task, part=part) for task, part in zip(planned, parts, strict=False)]


def check_here(source: EntrySource, max_size: int) -> Checker:
    """Return the checker that reads `source` in this process."""

    def check(tasks: Sequence[LedgerTask]) -> Iterator[LedgerReport]:
        return (check_range(task.part, source, task.form, max_size=max_size) for task in tasks)

    return check


def run_checks(tasks: Sequence[LedgerTask], check: Checker) -> Iterator[LedgerReport]:
    """Yield a report for each task in order, faults between two ledgers of a topic included."""
    reports = zip(tasks, check(tasks), strict=True)
    topic: list[LedgerReport] = []
    before: int | None = None
    for task, report in reports:
        if task.topic == -1 or task.topic != before:
            yield from check_joints(iter(topic))
            topic = []
        topic.append(report)
        before = task.topic
    yield from check_joints(iter(topic))
