"""Damage with contradicting evidence is found or listed as not checked, and no repair makes it worse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.damage_pairs.harm import reach_of
from tests.damage_pairs.scenario import loaded_store
from tests.damage_pairs.trials import pair_names, try_pair

Capture = Callable[[str], Path]
# Each pair is tried on one of these captures; together they make more than 300 trials.
CAPTURES = ("pulsar-4.2.4", "pulsar-4.0.7", "pulsar-2.8.2", "pulsar-4.2.4-3bookies")
GROUPS = 8


@pytest.mark.parametrize("group", range(GROUPS))
def test_pairs_of_damage_and_evidence_are_judged_correctly(
    capture: Capture, tmp_path: Path, group: int
) -> None:
    folder = capture(CAPTURES[group % len(CAPTURES)])
    store = loaded_store(folder)
    truth = reach_of(store)
    tried = []
    for number, pair in enumerate(pair_names()):
        if number % GROUPS == group:
            trial = try_pair(pair, folder, store, truth, tmp_path / str(number), seed=group)
            tried += [] if trial is None else [trial]
    assert [(trial.name, trial.faults) for trial in tried if trial.faults] == []
    assert len(tried) > 35


def test_there_are_more_than_300_pairs() -> None:
    assert len(pair_names()) > 300
