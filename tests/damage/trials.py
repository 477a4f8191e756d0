"""Trials: damage a store once or in pairs, and find what `check` missed or invented."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import NamedTuple

from pulsar_meta.codecs.json_text import dumps
from pulsar_meta.stores.memory import MemoryStore
from tests.cli.documents import check_document
from tests.damage.patient import (
    DamageFunction,
    Disks,
    Expected,
    NotApplicableError,
    Patient,
    all_findings,
    as_expected,
    damaged,
)


class Trial(NamedTuple):
    """The functions that ran, the codes that `check` had to report, and the mistakes in its report."""

    name: str
    codes: frozenset[str]
    faults: list[str]


def findings_of(patient: Patient) -> set[Expected]:
    """Run `check`, validate each finding against the schema and return all of them."""
    findings = all_findings(patient)
    for finding in findings:
        check_document("check", json.loads(dumps(finding.document())))
    return {as_expected(finding) for finding in findings}


def compare(patient: Patient, before: set[Expected]) -> list[str]:
    """Describe the findings that `check` missed and those that nothing explains."""
    found, expected = (
        {finding for finding in findings if finding.code not in patient.undecided}
        for findings in (findings_of(patient) - before, patient.expected)
    )
    return [
        *(f"missed {finding}" for finding in sorted(map(str, expected - found))),
        *(f"made up {finding}" for finding in sorted(map(str, found - expected))),
    ]


def trials(
    store: MemoryStore, seed: int, count: int, kinds: Mapping[str, DamageFunction], disks: Disks | None = None
) -> Iterator[Trial]:
    """Yield the results of `count` trials: first each damage function alone, then random pairs."""
    before = findings_of(damaged(store, Random(), (), disks))
    names = list(kinds)
    for number in range(count):
        rng = Random(f"{seed} {number}")
        chosen = [names[number]] if number < len(names) else rng.sample(names, 2)
        with suppress(NotApplicableError):
            patient = damaged(store, rng, [kinds[name] for name in chosen], disks)
            codes = frozenset(expected.code for expected in patient.expected)
            yield Trial(f"{number} {' and '.join(chosen)}", codes, compare(patient, before))
