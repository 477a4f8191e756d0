"""The index of all ledgers has the same content in memory and in temporary files."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NoReturn

import numpy as np
import pytest

from pulsar_meta.codecs.names import LEDGERS
from pulsar_meta.jobs.check import ledger_index
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.check.ledger_index import index_ledgers, join_indexes
from pulsar_meta.stores.base import Versioned
from tests.cli.program import as_text, pulsar_meta_here
from tests.damage import healthy_store

Capture = Callable[[str], Path]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only a few ledgers fit in memory."""
    monkeypatch.setattr(ledger_index, "IN_MEMORY", 100)


def test_an_index_in_files_equals_one_in_memory(capture: Capture, request: pytest.FixtureRequest) -> None:
    records = list(healthy_store(capture("pulsar-4.2.4-3bookies")).scan(LEDGERS))
    in_memory = index_ledgers(records)
    request.getfixturevalue("small")
    Random(1).shuffle(records)
    parts = [index_ledgers(records[:70]), index_ledgers(records[70:])]
    for index in (index_ledgers(records), join_indexes(parts)):
        assert len(index) > 100
        assert index.ids.tolist() == in_memory.ids.tolist()
        assert [index.facts(ledger_id) for ledger_id in index.ids.tolist()] == [
            in_memory.facts(ledger_id) for ledger_id in in_memory.ids.tolist()
        ]
        assert index.data_owners()[0].tolist() == in_memory.data_owners()[0].tolist()


@pytest.mark.usefixtures("small")
def test_a_full_disk_is_an_error_without_a_traceback(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    store = f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}"
    done = as_text(pulsar_meta_here("check", "--store", store))
    assert (done.returncode, done.stdout) == (6, "")
    assert "in temporary files: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("count", [0, 1, 7, 400])
def test_membership_is_decided_for_each_number(count: int) -> None:
    rng = Random(count)
    numbers = [rng.randint(-99, 99) for _ in range(250)]
    others = array("q", (rng.randint(-99, 99) for _ in range(count)))
    ordered = ledger_index.in_order(others)
    mask = ledger_index.are_among(np.array(numbers, np.int64), ordered).tolist()
    assert mask == [number in set(others) for number in numbers]


def test_all_unknown_paths_are_counted_and_the_first_are_kept(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    for number in range(15):
        path = f"{LEDGERS}/copy-{number:02}"
        store.values[path] = Versioned(path, b"x", 0, None, None)
    records = list(store.scan(LEDGERS))
    for index in (
        index_ledgers(records),
        join_indexes([index_ledgers(records[::2]), index_ledgers(records[1::2])]),
    ):
        assert index.around.unknown == tuple(f"{LEDGERS}/copy-{number:02}" for number in range(10))
        assert index.around.unknown_count == 15
    run = checkup(store, None, (), CheckOptions(min_age=0))
    notes = [each for each in run.findings() if (each.path or "").startswith(f"{LEDGERS}/copy-")]
    assert {(each.code, each.severity, each.repair) for each in notes} == {
        ("record-undecodable", Severity.NOTE, None)
    }
    assert len(notes) == 10
    assert run.not_checked[f"5 more records below {LEDGERS}"] == "BookKeeper has no such paths"
