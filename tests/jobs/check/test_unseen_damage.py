"""Each kind of damage is found where it was done, nothing else is accused, and no repair makes it worse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.stores.memory import MemoryStore
from tests.damage.unseen_damage import KINDS, Kind
from tests.damage_pairs.harm import reach_of
from tests.damage_pairs.scenario import NotPossibleError, Scenario, copy_of, loaded_store
from tests.damage_pairs.trials import Examined, examine, harmful

Capture = Callable[[str], Path]
CAPTURES = ("pulsar-4.2.4", "pulsar-4.2.4-3bookies")
OF_BROKERS = (
    *("cluster: settings ", "cluster: registration ", "cluster: leader "),
    *("cluster: resource group ", "cluster: policies of a ", "cluster: isolation ", "cluster: failure "),
    *(
        "cluster: unknown node ",
        "cluster: known nodes ",
        "cluster: partitions of a ",
        "cluster: no partitions of ",
        "cluster: load of a bundle",
        "cluster: owner of a bundle",
    ),
)
# `check` once said nothing about these.
SILENT_ONCE = (
    *("list: twice, then without entries", "list: first ledger gone, unread", "list: index is no number"),
    *(
        "list: name with a broken escape",
        "list: name that is not encoded",
        "cursor: name with a broken escape",
    ),
    *("list: index gone", "list: offload incomplete, bookies' copy gone", "metadata: password of another"),
    *("metadata: closed without entries, and so in the list", "metadata: created in the future"),
    *("metadata: larger ensemble than its bookies", "cursor: no position", "cursor: bucket in a data ledger"),
    *(
        "cluster: cookie gone",
        "cluster: cookie garbage",
        "cluster: instance id gone",
        "cluster: layout garbage",
    ),
    *("cursor: position at entry -5", "cluster: layout of version 9"),
    *("cluster: policies empty", "cluster: policies with text for a list"),
    *("cluster: policies with text for a number", "cluster: policies with a list for an object"),
    *("cluster: cluster garbage", "cluster: schema after its ledger's end", "cluster: schema of another"),
    *(name for name in KINDS if name.startswith(OF_BROKERS)),
    *(name for name in KINDS if name.startswith(("cursor: bucket ", "cluster: schema "))),
)


def judged(kind: Kind, case: Scenario, healthy: Examined, found: Examined) -> list[str]:
    """Describe what `check` missed, and the errors of topics that the damage did not touch."""
    before = {(one.code, one.topic, one.path, one.cursor, one.ledger_id) for one in healthy.findings}
    new = [
        one
        for one in found.findings
        if (one.code, one.topic, one.path, one.cursor, one.ledger_id) not in before
    ]
    if kind.code is None:
        return [f"{one.code} of {one.topic or one.path}" for one in serious(new)]
    if kind.by_disks and not case.with_disks:
        return []
    return [] if kind.code in {one.code for one in new} else [f"no {kind.code}"]


def serious(findings: Iterable[Finding]) -> list[Finding]:
    """Return the errors and warnings."""
    return [one for one in findings if one.severity is not Severity.NOTE]


def faults_of(
    name: str, folder: Path, store: MemoryStore, scratch: Path, healthy: Examined, *, with_disks: bool
) -> list[str]:
    """Do one kind of damage and judge it; the capture may have nothing to damage so."""
    kind, case = KINDS[name], Scenario(folder, scratch, copy_of(store), Random(name))
    case.with_disks = with_disks
    try:
        kind.damage(case)
    except NotPossibleError:
        return []
    found = examine(case)
    return [*judged(kind, case, healthy, found), *harmful(case, found, reach_of(store))]


def test_damage_that_was_not_seen_before_is_found(capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4")
    store = loaded_store(folder)
    healthy = examine(Scenario(folder, tmp_path, copy_of(store), Random()))
    faults = {}
    for name in SILENT_ONCE:
        case = Scenario(folder, tmp_path, copy_of(store), Random(name))
        KINDS[name].damage(case)
        faults[name] = judged(KINDS[name], case, healthy, examine(case))
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.nightly
@pytest.mark.parametrize("capture_name", CAPTURES)
@pytest.mark.parametrize("with_disks", [True, False])
def test_unseen_damage_is_judged_correctly(
    capture: Capture, tmp_path: Path, capture_name: str, with_disks: bool
) -> None:
    folder = capture(capture_name)
    store = loaded_store(folder)
    undamaged = Scenario(folder, tmp_path, copy_of(store), Random())
    undamaged.with_disks = with_disks
    healthy = examine(undamaged)
    faults = {
        name: faults_of(name, folder, store, tmp_path / "scratch", healthy, with_disks=with_disks)
        for name in KINDS
    }
    assert {name: found for name, found in faults.items() if found} == {}
    assert len(KINDS) > 60
