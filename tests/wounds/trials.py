"""Wounds made one at a time and in pairs, and what the doctor missed or made up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import NamedTuple

from pulsar_meta.codecs.json_text import dumps
from pulsar_meta.stores.memory import MemoryStore
from tests.cli.documents import check_document
from tests.wounds.patient import (
    Disks,
    Expected,
    NotHereError,
    Patient,
    Wound,
    examined_whole,
    place_of,
    wounded,
)


class Trial(NamedTuple):
    """What was done, which codes had to be found, and what was wrong in what the doctor said."""

    name: str
    codes: frozenset[str]
    faults: list[str]


def found_in(patient: Patient) -> set[Expected]:
    """Return what the doctor finds, as it is expected."""
    findings = examined_whole(patient)
    for finding in findings:
        check_document("check", json.loads(dumps(finding.document())))
    return {place_of(finding) for finding in findings}


def compare(patient: Patient, before: set[Expected]) -> list[str]:
    """Return what the doctor missed, and what it made up."""
    found = found_in(patient) - before
    expected = {one for one in patient.expected if one.code not in patient.undecided}
    return [
        *(f"missed {one}" for one in sorted(map(str, expected - found))),
        *(f"made up {one}" for one in sorted(map(str, found - expected))),
    ]


def trials(
    store: MemoryStore, seed: int, count: int, wounds: Mapping[str, Wound], disks: Disks | None = None
) -> Iterator[Trial]:
    """Yield `count` trials of wounds: each of them alone, then pairs."""
    before = found_in(wounded(store, Random(), (), disks))
    names = list(wounds)
    for number in range(count):
        rng = Random(f"{seed} {number}")
        chosen = [names[number]] if number < len(names) else rng.sample(names, 2)
        with suppress(NotHereError):
            patient = wounded(store, rng, [wounds[name] for name in chosen], disks)
            codes = frozenset(one.code for one in patient.expected)
            yield Trial(f"{number} {' and '.join(chosen)}", codes, compare(patient, before))
