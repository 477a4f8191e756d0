"""Healthy captures have no findings, and each kind of damage is found, alone and in pairs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.codes import Severity, all_codes
from tests.damage import (
    DAMAGE,
    DamageFunction,
    Disks,
    as_expected,
    check_findings,
    cluster_damage,
    cursor_damage,
    damaged,
    entry_damage,
    healthy_store,
    ledger_damage,
    trials,
)
from tests.damage.harmless import HARMLESS, a_copy_less
from tests.damage.patient import NotApplicableError
from tests.damage.scalable_damage import SCALABLE_DAMAGE, SHADOW_DAMAGE
from tests.nightly import AT_NIGHT

Capture = Callable[[str], Path]
OF_COPIES = entry_damage.DAMAGE | {
    function.__name__: function
    for function in (a_copy_less, cluster_damage.bookie_stopped, cluster_damage.bookie_unknown)
}
# Tests of damaged directories and of stores of other clusters are in tests/damage_pairs and test_verdicts.
WITH_OTHER_EVIDENCE = {
    *(
        "entry-log-missing",
        "entry-log-damaged",
        "bookie-directory-missing",
        "bookie-emptied",
        "store-part-lost",
    ),
    *("store-older-than-disks", "ledgers-in-two-clusters", "ledger-metadata-copied"),
    *("entry-log-header", "bookie-index-damaged", "topics-without-trace", "registration-persistent"),
}
NAMES = (
    *("pulsar-2.8.2", "pulsar-3.0.7", "pulsar-4.0.7", "pulsar-4.2.4", "pulsar-4.2.4-killed"),
    *("pulsar-4.2.4-3bookies", "pulsar-5.0.0-M1"),
)


@pytest.mark.parametrize("name", NAMES)
def test_healthy_captures_have_no_findings(capture: Capture, name: str) -> None:
    folder = capture(name)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        for given in (None, source):
            findings = check_findings(healthy_store(folder), given)
            # 4.2.4 wrote compressed cursors that it can't load. Only a killed cluster has releases.
            # The clusters were stopped. A schema that two clients register at once leaves a ledger behind.
            assert {finding.code for finding in findings} <= {
                "record-unreadable",
                "bookie-unreachable",
                "orphan-ledger",
                "entry-log-header",
            }
            unreadable = {finding.severity for finding in findings if finding.code == "record-unreadable"}
            assert unreadable <= {Severity.ERROR if name.endswith("killed") else Severity.WARNING}
            assert {finding.severity for finding in findings if finding.code != "record-unreadable"} <= {
                Severity.NOTE
            }


@pytest.mark.parametrize(
    ("name", "kinds", "count"),
    [
        # Each kind alone, and at night some pairs too.
        ("pulsar-4.2.4", DAMAGE | HARMLESS, 120 if AT_NIGHT else len(DAMAGE | HARMLESS)),
        ("pulsar-4.2.4-3bookies", OF_COPIES, 12),
        ("pulsar-4.2.4-killed", cursor_damage.DAMAGE, 16),
        ("pulsar-5.0.0-M1-scalable", SCALABLE_DAMAGE, 7),
        ("pulsar-4.2.4-shadows", SHADOW_DAMAGE, 2),
    ],
)
def test_damage_is_found_in_its_place_and_nothing_else_is(
    capture: Capture, name: str, kinds: dict[str, DamageFunction], count: int
) -> None:
    folder = capture(name)
    urls = (f"bookie-disk:{folder}",)
    with open_entries(urls) as source:
        tried = list(trials(healthy_store(folder), 7, count, kinds, Disks(source, urls)))
    assert [(trial.name, trial.faults) for trial in tried if trial.faults] == []
    assert len(tried) > count / 2


def test_damage_is_found_without_entries(capture: Capture) -> None:
    for name in ("pulsar-2.8.2", "pulsar-4.2.4"):
        tried = list(trials(healthy_store(capture(name)), 8, 16, ledger_damage.DAMAGE | HARMLESS))
        assert [(trial.name, trial.faults) for trial in tried if trial.faults] == []


def test_every_code_has_damage_that_causes_it(capture: Capture) -> None:
    codes = set[str]()
    for name, kinds in (
        ("pulsar-4.2.4-3bookies", DAMAGE),
        ("pulsar-4.2.4-killed", cursor_damage.DAMAGE),
        ("pulsar-5.0.0-M1-scalable", SCALABLE_DAMAGE),
        ("pulsar-4.2.4-shadows", SHADOW_DAMAGE),
    ):
        folder = capture(name)
        store, urls = healthy_store(folder), (f"bookie-disk:{folder}",)
        with open_entries(urls) as source:
            for seed in range(3):
                for damage in kinds.values():
                    with suppress(NotApplicableError):
                        done = damaged(store, Random(seed), [damage], Disks(source, urls))
                        codes |= {expected.code for expected in done.expected}
    assert codes == set(all_codes()) - WITH_OTHER_EVIDENCE


def test_a_check_of_one_topic_has_the_same_findings_about_it(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    topic = "persistent://public/default/plain"
    del store.values["/ledgers/00/0000/L0025"]
    everything = {as_expected(finding) for finding in check_findings(store)} - {
        as_expected(finding) for finding in check_findings(healthy_store(capture("pulsar-4.2.4")))
    }
    assert {as_expected(finding) for finding in check_findings(store, None, topic)} == everything
    assert {as_expected(finding) for finding in check_findings(store, None, "public/default")} >= everything
    assert check_findings(store, None, "public/zero") == []


@pytest.mark.parametrize("name", SCALABLE_DAMAGE)
def test_a_check_of_one_scalable_topic_has_the_same_findings_about_it(capture: Capture, name: str) -> None:
    store = healthy_store(capture("pulsar-5.0.0-M1-scalable"))
    assert check_findings(store, None, "split") == []
    patient = damaged(store, Random(), [SCALABLE_DAMAGE[name]])
    # Only a check of all topics finds segments that no record lists and segments without a topic.
    named = {expected for expected in patient.expected if expected.code != "segment-without-topic"}
    assert {as_expected(finding) for finding in check_findings(patient.store, None, "split")} == named
    assert check_findings(patient.store, None, "merged") == []
