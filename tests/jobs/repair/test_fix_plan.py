"""Plans of all repairs: applied to damaged stores, they leave the findings that they list, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.codecs.errors import ConflictError, UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.repair.fix_plan import FixPlan, Planner, read_plan, replayed, write_plan
from pulsar_meta.jobs.rewrite.guards import Overrides
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.run import Listener, Terms, run
from pulsar_meta.jobs.rewrite.undo import put_back
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import (
    DAMAGE,
    Disks,
    NotApplicableError,
    check_findings,
    damaged,
    entry_damage,
    healthy_store,
    record_damage,
)
from tests.nightly import mostly_at_night

# Damage of entries is repaired with disks, in a test of its own.
KINDS = {name: damage for name, damage in DAMAGE.items() if name not in entry_damage.DAMAGE}


def planner(store: Store, source: EntrySource | None = None) -> Planner:
    return Planner(store, source, Readers(), lambda error: None)


def findings_of(store: Store) -> Iterable[Finding]:
    return check_findings(store)  # type: ignore[arg-type]


def apply(store: MemoryStore, plan: FixPlan, undo_file: Path) -> None:
    """Write a plan, as the command does."""
    terms = Terms(Overrides(loaded=True, unreadable=True), undo_file=undo_file)
    report = run(store, plan.rewrite(), terms, Listener())
    assert report.summary.conflicts == report.summary.skipped == 0


@pytest.mark.parametrize("number", mostly_at_night(range(8), 0, 1, 2))
def test_a_plan_leaves_exactly_the_findings_that_it_lists(
    capture: Callable[[str], Path], tmp_path: Path, number: int
) -> None:
    """Each kind of damage, alone or with two others."""
    healthy, names = healthy_store(capture("pulsar-4.2.4")), sorted(KINDS)
    for at, name in enumerate(names[number::8]):
        for names_of in [[name]] if at % 2 else [[name, *Random(name).sample(names, 2)]]:
            try:
                store = damaged(healthy, Random(name), [KINDS[kind] for kind in names_of]).store
            except NotApplicableError:
                continue
            check_plan(store, tmp_path, names_of)


@pytest.mark.parametrize("name", sorted(entry_damage.DAMAGE))
def test_a_plan_with_disks_leaves_exactly_the_findings_that_it_lists(
    capture: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    folder = capture("pulsar-4.2.4")
    url = f"bookie-disk:{folder}"
    with open_entries([url]) as source:
        try:
            patient = damaged(
                healthy_store(folder), Random(name), [entry_damage.DAMAGE[name]], Disks(source, (url,))
            )
        except NotApplicableError:
            pytest.skip("the capture has nothing that can be damaged in this way")
        check_plan(patient.store, tmp_path, [name], patient.entries, url)


def check_plan(
    store: MemoryStore, folder: Path, names: list[str], source: EntrySource | None = None, *urls: str
) -> None:
    """Plan, read the plan again, apply it, check, and undo it."""

    def findings_of(view: Store) -> Iterable[Finding]:
        return check_findings(view, source, urls=urls)  # type: ignore[arg-type]

    before = {path: value.value for path, value in store.values.items()}
    plan = planner(store, source).plan(findings_of)
    file, undo_file = folder / "plan", folder / "undo"
    write_plan(plan, file)
    again = replayed(planner(store, source), file)
    assert list(again.decided()) == list(plan.decided()), names
    apply(store, again, undo_file)
    stays = sorted(str(finding.document()) for finding in plan.stays)
    assert sorted(str(finding.document()) for finding in findings_of(store)) == stays, names
    # A finding whose repair is not in the plan has a reason there.
    assert all(finding.repair in plan.left_out for finding in plan.stays if finding.repair), names
    if undo_file.exists():
        terms = Terms(Overrides(loaded=True, unreadable=True), undo_file=folder / "redo")
        run(store, put_back(store, undo_file, any_version=False), terms, Listener())
        (folder / "redo").unlink(missing_ok=True)
        undo_file.unlink()
    assert {path: value.value for path, value in store.values.items()} == before, names


def test_a_plan_of_another_state_or_with_another_command_is_refused(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    store = damaged(healthy_store(capture("pulsar-4.2.4")), Random(1), [record_damage.topic_gone]).store
    plan, file = planner(store).plan(findings_of), tmp_path / "plan"
    write_plan(plan, file)
    text = file.read_text()
    [line] = [line for line in read_plan(file) if "topic-record" in line.get("command", "")]
    file.write_text(text.replace(line["command"], "pulsar-meta rm /managed-ledgers"))
    with pytest.raises(UsageError, match="not a command that check prints"):
        replayed(planner(store), file)
    file.write_text(text)
    path = next(line["path"] for line in read_plan(file) if "path" in line)
    store.put(path, b"", -1)
    with pytest.raises(ConflictError, match="has changed since the plan was made"):
        replayed(planner(store), file)
