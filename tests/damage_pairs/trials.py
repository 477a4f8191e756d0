"""Runs damage together with contradicting evidence, and compares what `check` reports and repairs."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, pulsar_meta_here
from tests.damage_pairs.contradictions import CONTRADICTIONS
from tests.damage_pairs.damages import DAMAGES
from tests.damage_pairs.harm import Reach, harm, reach_of
from tests.damage_pairs.scenario import Expectation, NotPossibleError, Scenario, copy_of


class Examined(NamedTuple):
    """What a run of `check` reported."""

    findings: list[Finding]
    not_checked: Mapping[str, str]


class Trial(NamedTuple):
    """A pair, and what was wrong about what `check` made of it."""

    name: str
    faults: list[str]


def pair_names() -> list[tuple[str, str]]:
    """All pairs of a damage and a contradiction."""
    return [(damage, evidence) for damage in DAMAGES for evidence in CONTRADICTIONS]


def try_pair(
    pair: tuple[str, str], folder: Path, store: MemoryStore, truth: Reach, scratch: Path, seed: int
) -> Trial | None:
    """Try one pair on a capture; None if the capture has nothing to damage so."""
    damage, evidence = pair
    scratch.mkdir(parents=True)
    case = Scenario(folder, scratch, copy_of(store), Random(f"{seed} {damage} {evidence}"))
    try:
        DAMAGES[damage](case)
        CONTRADICTIONS[evidence](case)
    except NotPossibleError:
        return None
    else:
        examined = examine(case)
        faults = [*missing(case, examined), *harmful(case, examined, truth)]
        return Trial(f"{damage}, {evidence}", faults)
    finally:
        shutil.rmtree(scratch)


def examine(case: Scenario) -> Examined:
    """Run `check` over a scenario."""
    with ExitStack() as stack:
        source = stack.enter_context(open_entries(case.urls)) if case.urls else None
        options = CheckOptions(min_age=0)
        run = checkup(case.store, source, (), options, urls=case.urls, others=case.others)
        findings = list(run.findings())
        return Examined(findings, run.not_checked)


def missing(case: Scenario, examined: Examined) -> Iterator[str]:
    """Yield the expected findings that are neither reported nor among what was not checked."""
    for expected in case.expected:
        if not _is_met(expected, case, examined):
            yield f"missed {expected}"


def _is_met(expected: Expectation, case: Scenario, examined: Examined) -> bool:
    if any(_fits(expected, one) for one in examined.findings):
        return True
    lines = [f"{what}: {why}" for what, why in examined.not_checked.items()]
    if expected.or_not_checked and any(expected.or_not_checked in line for line in lines):
        return True
    if case.incomplete and any("bookie" in line for line in lines):
        return True
    if "ledger-lost" in expected.codes and case.lost:
        # Nothing of it is left anywhere.
        return True
    # Whose it is then is another cluster's or topic's matter.
    return case.claimed or any(one.code in _INSTEAD for one in examined.findings)


# Findings that explain others, which are then not listed.
_INSTEAD = ("entry-log-missing", "entry-log-damaged", "bookie-emptied", "store-part-lost")


def _fits(expected: Expectation, one: Finding) -> bool:
    return (
        one.code in expected.codes
        and one.severity.rank <= expected.severity.rank
        and expected.where in (None, one.topic, one.path)
        and expected.ledger_id in (None, one.ledger_id)
    )


def harmful(case: Scenario, examined: Examined, truth: Reach) -> Iterator[str]:
    """Yield what the printed repairs destroy if they run without --confirm."""
    owned = {place: count for place, count in truth.entries.items() if place not in case.foreign}
    truth = truth._replace(entries=owned)
    before = reach_of(case.store)
    for command in dict.fromkeys(one.repair for one in examined.findings if one.repair is not None):
        words = shlex.split(command)[1:]
        if "--confirm" in words or "LEDGER:ENTRY" in words:
            continue
        after = _after(case, words)
        if after is not None:
            yield from (f"{command}: {text}" for text in harm(before, after, truth, case.lost))


def _after(case: Scenario, words: list[str]) -> Reach | None:
    """Return what is reachable after a repair; None if the repair was refused."""
    place = case.scratch / "store"
    _write_store(place, case.store)
    entries = [word for url in case.urls for word in ("--entries", url)]
    given = entries if words[0] == "repair" and words[1] not in ("generator", "partitions") else []
    done = as_text(
        pulsar_meta_here(
            *(*words, *given, "--store", f"dir:{place}", "--yes", "--allow-loaded"),
            *("--undo-file", case.scratch / "undo.ndjson"),
        )
    )
    (case.scratch / "undo.ndjson").unlink(missing_ok=True)
    if done.returncode != 0:
        return None
    with open_store(f"dir:{place}") as target:
        return reach_of(target)


def _write_store(place: Path, store: MemoryStore) -> None:
    """Make a directory a copy of a store. It writes only what the last repair changed there."""
    wanted = {path: record.value for path, record in store.values.items() if record.value}
    with open_store(f"dir:{place}", read_only=False) as target:
        written = {record.path: record for record in target.scan()}
        for path in written.keys() - wanted.keys():
            target.delete(path, written[path].version)
        changed = [path for path in wanted if path not in written or written[path].value != wanted[path]]
        target.put_many(
            [(path, wanted[path], written[path].version if path in written else -1) for path in changed]
        )
