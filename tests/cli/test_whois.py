"""`whois` on every kind of ledger, with and without a store or entries."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from tests.cli.program import as_text, pulsar_meta_here
from tests.cli.test_summaries import snapshot_without

Capture = Callable[[str], Path]
MARKS, ORDERS = (str(TopicName.parse(name)) for name in ("marks", "orders"))


def run(*arguments: object) -> CompletedProcess[str]:
    return as_text(pulsar_meta_here("whois", *arguments))


@pytest.fixture
def folder(capture: Capture) -> Path:
    return capture("pulsar-4.2.4")


@pytest.fixture
def sources(folder: Path) -> list[str]:
    return ["--store", f"snapshot:{folder}/metadata.ndjson", "--entries", f"bookie-disk:{folder}/bookie0"]


def whois(*arguments: object) -> dict[int, dict[str, Any]]:
    done = run(*arguments, "-o", "json")
    return {document["ledger_id"]: document for document in json.loads(done.stdout)}


def test_each_kind_of_ledger_has_its_owner(sources: list[str], capture: Capture) -> None:
    ledgers = whois(64, 61, 2, *sources)
    assert [(ledger["role"], ledger["name"], ledger["cursor"]) for ledger in ledgers.values()] == [
        ("data", MARKS, None),
        ("compacted", str(TopicName.parse("compacted")), "__compaction"),
        ("schema", "pulsar/system/__change_events", None),
    ]
    assert ledgers[61]["content"].startswith("compacted messages")
    killed = capture("pulsar-4.2.4-killed")
    reader = whois(375, "--store", f"snapshot:{killed}/metadata.ndjson")[375]
    assert (reader["role"], reader["cursor"]) == ("cursor", "reader")
    assert reader["kept_by"] == [
        f"it contains the state of the subscription reader of {TopicName.parse('last-words')}"
    ]


def test_subscriptions_keep_a_ledger_that_they_have_not_consumed(sources: list[str]) -> None:
    ledger = whois(18, *sources)[18]
    assert (ledger["entries"], ledger["entries_here"], ledger["state"]) == (50, 50, "CLOSED")
    assert ledger["size"] < ledger["size_here"]
    assert ledger["kept_by"] == ["the subscription batch-idx is at 18:0, with 46 of its entries left"]
    assert ledger["first_time"] < ledger["last_time"] <= ledger["closed"]
    reasons = whois(143, *sources)[143]["kept_by"]
    assert len(reasons) == 6
    assert reasons[-1] == "2 other subscriptions have not consumed it"


def test_retention_keeps_a_ledger_without_subscriptions(sources: list[str]) -> None:
    """The topic has no subscription, so only retention keeps its ledgers."""
    ledger = whois(203, *sources)[203]
    assert ledger["kept_by"][0].startswith("the topic has no subscription; the namespace")
    assert ledger["kept_by"][1].startswith("not visible here: non-durable readers")


def test_a_ledger_that_no_record_names_is_never_deleted(
    folder: Path, sources: list[str], tmp_path: Path
) -> None:
    store = snapshot_without(folder, tmp_path / "without.ndjson", TopicName.parse("orders").path)
    ledger = whois(18, "--store", store)[18]
    assert (ledger["role"], ledger["named_by"]) == (None, [])
    assert ledger["created_for"]["name"] == ORDERS
    assert ledger["kept_by"] == [
        f"no record refers to it (created as data of {ORDERS}), so it is never deleted"
    ]
    assert f"created as data of {ORDERS}" in run(18, "--store", store).stdout


def test_the_entries_of_a_ledger_without_metadata_are_deleted(
    folder: Path, sources: list[str], tmp_path: Path
) -> None:
    store = snapshot_without(folder, tmp_path / "without.ndjson", ledger_path(18))
    ledger = whois(18, "--store", store, *sources[2:])[18]
    assert (ledger["metadata"], ledger["entries"], ledger["entries_here"]) == ("absent", 50, 50)
    assert "next garbage collection deletes its entries" in ledger["kept_by"][-1]


def test_a_ledger_is_described_by_its_entries_without_a_store(sources: list[str]) -> None:
    done = run(18, *sources[2:])
    assert done.returncode == 0
    assert "ledger 18  owner unknown" in done.stdout
    assert "holds: messages, the first from producer orders-producer" in done.stdout
    assert "owners (no --store)" in done.stderr


def test_csv_has_the_fields_of_json(sources: list[str]) -> None:
    (row,) = csv.DictReader(io.StringIO(run(18, *sources, "-o", "csv").stdout))
    (document,) = whois(18, *sources).values()
    # The ledger belongs to no segment.
    assert row.keys() == {*document, "scalable_topic"}
    assert json.loads(row["kept_by"]) == document["kept_by"]


def test_subscriptions_of_unknown_state_are_named(capture: Capture) -> None:
    killed = capture("pulsar-4.2.4-killed")
    done = run(354, "--store", f"snapshot:{killed}/metadata.ndjson", "-o", "json")
    (document,) = json.loads(done.stdout)
    assert "unknown for reader, whose state is in ledgers that were not given" in document["kept_by"]
    assert "entries" in json.loads(done.stderr)["not_checked"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["999999"], 3, "ledger 999999 not found: no record refers to it"),
        (["x"], 2, "expected a number from 0 to"),
        ([str(2**63)], 2, "expected a number from 0 to"),
    ],
)
def test_missing_ledgers_and_wrong_ids_are_refused(
    arguments: list[str], code: int, message: str, sources: list[str]
) -> None:
    done = run(*arguments, *sources)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_an_unreadable_record_leaves_the_owner_undecided(
    folder: Path, sources: list[str], tmp_path: Path
) -> None:
    path = TopicName.parse("orders").path
    text = (folder / "metadata.ndjson").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if json.loads(line)["path"] != path]
    broken = json.dumps({"path": path, "version": 0, "value": "Cn8="})
    (tmp_path / "broken.ndjson").write_text("\n".join([*lines, broken]) + "\n", encoding="utf-8")
    done = run(18, "--store", f"snapshot:{tmp_path / 'broken.ndjson'}")
    assert done.returncode == 4
    assert f"{path}: not a ManagedLedgerInfo" in done.stderr
    assert "no record that could be read refers to it" in done.stdout
    assert "but an unreadable one may" in done.stdout
    rows = as_text(
        pulsar_meta_here(
            "disk", "--store", f"snapshot:{tmp_path / 'broken.ndjson'}", *sources[2:], "-o", "json"
        )
    )
    assert rows.returncode == 4
    roles = {(row["name"], row["role"]) for row in json.loads(rows.stdout)}
    assert (ORDERS, "undecided") in roles


def test_the_source_of_a_shadow_topic_keeps_its_ledgers(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-shadows")
    words = ["--store", f"snapshot:{folder}/metadata.ndjson", "--entries", f"bookie-disk:{folder}"]
    ledger = whois(7, *words)[7]
    source = str(TopicName.parse("source"))
    assert (ledger["name"], ledger["role"]) == (source, "data")
    assert len(ledger["named_by"]) > 2
    shadows = {topic["name"].rpartition("/")[2]: topic.get("shadow_of") for topic in ledger["named_by"]}
    assert shadows | {"of-short": source} == shadows
    assert (shadows["shadow"], shadows["source"]) == (source, None)
    assert all("subscription own" not in reason for reason in ledger["kept_by"])
    done = as_text(pulsar_meta_here("disk", "--by", "subscription", *words, "-o", "json"))
    cursors = {(row["topic"], row["cursor"]) for row in json.loads(done.stdout)}
    assert (source, "keep") in cursors
    assert "own" not in {cursor for _, cursor in cursors}


def test_whois_needs_a_store_or_entries() -> None:
    done = run(1)
    assert (done.returncode, "no store and no entries" in done.stderr) == (2, True)


def test_an_offloaded_ledger_may_be_absent_from_bookkeeper(tmp_path: Path) -> None:
    """Its metadata and entries were deleted from BookKeeper after the offload."""
    orders = TopicName.parse("orders")
    info = ManagedLedgerInfo()
    offloaded = info.ledgerInfo.add(ledgerId=5, entries=10, size=1000, timestamp=1)
    offloaded.offloadContext.complete = offloaded.offloadContext.bookkeeperDeleted = True
    offloaded.offloadContext.driverMetadata.name = "aws-s3"
    info.ledgerInfo.add(ledgerId=9, timestamp=0)
    schema = {"path": ledger_path(1), "value": ""}
    record = {"path": orders.path, "value": b64encode(info.SerializeToString()).decode()}
    lines = (json.dumps({"version": 0} | line) for line in (record, schema))
    (tmp_path / "s.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ledger = whois(5, "--store", f"snapshot:{tmp_path / 's.ndjson'}")[5]
    assert (ledger["metadata"], ledger["entries"], ledger["size"]) == ("absent", 10, 1000)
    assert ledger["kept_by"][0] == "offloaded to aws-s3, bookies' copy deleted"
    assert not any("garbage collection" in reason for reason in ledger["kept_by"])
