"""Missing copies of entries on three bookies, with write quorum 2 and ack quorum 2 or 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import healthy_store
from tests.damage.damaged_disks import EntryDamage, Lost

Capture = Callable[[str], Path]
LEDGER = 24


def findings_without(store: MemoryStore, source: EntrySource, losing: str, lost: Lost) -> list[Finding]:
    left = EntryDamage({(losing, LEDGER): lost}).remaining(source)
    options = CheckOptions(frozenset({"ledger-under-replicated", "ledger-below-ack-quorum"}))
    return list(checkup(store, left, ("public/default/plain",), options).findings())


@pytest.fixture
def folder(capture: Capture) -> Path:
    return capture("pulsar-4.2.4-3bookies")


def with_ack_quorum(store: MemoryStore, quorum: int) -> MemoryStore:
    path = ledger_path(LEDGER)
    decoded = decode_ledger_metadata(store.values[path].value)
    decoded.metadata.ackQuorumSize = quorum
    store.values[path] = store.values[path]._replace(value=encode_ledger_metadata(decoded))
    return store


def test_missing_copies_are_counted(folder: Path) -> None:
    store = healthy_store(folder)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        bookie = sorted(source.bookies or ())[0]
        assert findings_without(store, source, bookie, lambda entry_id: False) == []
        [below] = findings_without(store, source, bookie, lambda entry_id: True)
        assert (below.code, below.severity) == ("ledger-below-ack-quorum", Severity.ERROR)
        assert (below.evidence["copies"], below.evidence["write_quorum"]) == (1, 2)
        # This bookie had two thirds of the entries.
        assert 30 <= below.evidence["entries"] <= 36
        with_ack_quorum(store, 1)
        [under] = findings_without(store, source, bookie, lambda entry_id: True)
        assert (under.code, under.severity) == ("ledger-under-replicated", Severity.WARNING)
        assert under.evidence["bookies"] == [bookie]
        # Single entries may lack a copy if the writer waited for only one.
        assert findings_without(store, source, bookie, lambda entry_id: entry_id % 7 == 0) == []


def test_copies_on_disks_that_are_not_given_are_not_missing(folder: Path) -> None:
    with open_entries([f"bookie-disk:{folder}/bookie0", f"bookie-disk:{folder}/bookie1"]) as source:
        assert findings_without(healthy_store(folder), source, "nobody", lambda entry_id: False) == []


def test_bookies_whose_disks_were_not_given_are_named(folder: Path) -> None:
    store = healthy_store(folder)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        bookies = sorted(source.bookies or ())
    for names in ((), ("public/default/plain",)):
        with open_entries([f"bookie-disk:{folder}/bookie0"]) as source:
            (given,) = source.bookies or set()
            run = checkup(store, source, names, CheckOptions())
            assert [finding.severity for finding in run.findings()] in ([], [Severity.NOTE])
        others = ", ".join(bookie for bookie in bookies if bookie != given)
        assert run.not_checked[f"entries on bookies {others}"] == "their disks were not given"
