"""Runs that write decisions which a test makes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pulsar_meta.jobs.rewrite.apply import Batches, Sender, Speed
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, Rule, Summary, by_rule
from pulsar_meta.jobs.rewrite.guards import Guards, Overrides
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.undo_log import UndoLog
from pulsar_meta.stores.base import Store, Versioned


class Run(Sender):
    """A sender that is given the decisions and the rule for changed values, and ends its threads."""

    def apply(self, decided: Iterable[Decided], decide: Rule) -> Summary:
        self.decide = by_rule(decide)
        with Batches(self.batches.store, self.speed.concurrency) as self.batches:
            return self.send(decided)


def make_run(
    store: Store,
    undo: UndoLog,
    speed: Speed | None = None,
    *,
    overrides: Overrides | None = None,
    readers: Readers | None = None,
    warn: Callable[[str], None] = lambda text: None,
    strict: bool = False,
) -> Run:
    guards = Guards.of(store, overrides or Overrides(), readers or Readers())
    batches = Batches(store, 1)
    return Run(batches, guards, undo, by_rule(_no_rule), speed or Speed(), warn=warn, strict=strict)


def _no_rule(seen: Versioned) -> Decision:
    raise AssertionError(f"{seen.path} was to be decided again")
