"""`whois` of every kind of ledger, with and without a store or entries."""

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
from tests.cli.test_what_was_looked_at import snapshot_without

Capture = Callable[[str], Path]
MARKS, ORDERS = (str(TopicName.parse(name)) for name in ("marks", "orders"))


def run(*arguments: object) -> CompletedProcess[str]:
    return as_text(pulsar_meta_here("whois", *arguments))


@pytest.fixture
def folder(capture: Capture) -> Path:
    return capture("pulsar-4.2.4")


@pytest.fixture
def where(folder: Path) -> list[str]:
    return ["--store", f"snapshot:{folder}/metadata.ndjson", "--entries", f"bookie-disk:{folder}/bookie0"]


def asked(*arguments: object) -> dict[int, dict[str, Any]]:
    done = run(*arguments, "-o", "json")
    return {document["ledger_id"]: document for document in json.loads(done.stdout)}


def test_each_kind_of_ledger_has_its_owner(where: list[str], capture: Capture) -> None:
    found = asked(64, 61, 2, *where)
    assert [(one["role"], one["name"], one["cursor"]) for one in found.values()] == [
        ("data", MARKS, None),
        ("compacted", str(TopicName.parse("compacted")), "__compaction"),
        ("schema", "pulsar/system/__change_events", None),
    ]
    assert found[61]["content"].startswith("compacted messages")
    killed = capture("pulsar-4.2.4-killed")
    reader = asked(375, "--store", f"snapshot:{killed}/metadata.ndjson")[375]
    assert (reader["role"], reader["cursor"]) == ("cursor", "reader")
    assert reader["kept_by"] == [
        f"it has the state of the subscription reader of {TopicName.parse('last-words')}"
    ]


def test_a_ledger_of_data_is_kept_by_the_subscriptions_that_have_not_consumed_it(where: list[str]) -> None:
    ledger = asked(18, *where)[18]
    assert (ledger["entries"], ledger["entries_here"], ledger["state"]) == (50, 50, "CLOSED")
    assert ledger["size"] < ledger["size_here"]
    assert ledger["kept_by"] == ["the subscription batch-idx stands at 18:0 and has 46 of its entries left"]
    assert ledger["first_time"] < ledger["last_time"] <= ledger["closed"]
    many = asked(143, *where)[143]["kept_by"]
    assert len(many) == 6
    assert many[-1] == "2 other subscriptions have not consumed it"


def test_what_everybody_has_consumed_is_kept_by_retention(where: list[str]) -> None:
    """A topic without any subscription: only retention keeps its ledgers."""
    ledger = asked(203, *where)[203]
    assert ledger["kept_by"][0].startswith("the topic has no subscription; the namespace")
    assert ledger["kept_by"][1].startswith("not visible here: readers that are not durable")


def test_a_ledger_that_no_record_names(folder: Path, where: list[str], tmp_path: Path) -> None:
    store = snapshot_without(folder, tmp_path / "without.ndjson", TopicName.parse("orders").path)
    ledger = asked(18, "--store", store)[18]
    assert (ledger["role"], ledger["named_by"]) == (None, [])
    assert ledger["created_for"]["name"] == ORDERS
    assert ledger["kept_by"] == [f"no record names it (created as data of {ORDERS}): nobody deletes it"]
    assert f"created as data of {ORDERS}" in run(18, "--store", store).stdout


def test_a_ledger_that_bookkeeper_does_not_know(folder: Path, where: list[str], tmp_path: Path) -> None:
    store = snapshot_without(folder, tmp_path / "without.ndjson", ledger_path(18))
    ledger = asked(18, "--store", store, *where[2:])[18]
    assert (ledger["metadata"], ledger["entries"], ledger["entries_here"]) == ("absent", 50, 50)
    assert "bookies delete its entries at their next garbage collection" in ledger["kept_by"][-1]


def test_with_a_disk_alone_the_entries_say_what_they_are(where: list[str]) -> None:
    done = run(18, *where[2:])
    assert done.returncode == 0
    assert "ledger 18  owner not known" in done.stdout
    assert "holds: messages, the first from producer orders-producer" in done.stdout
    assert "owners (no --store)" in done.stderr


def test_csv_has_the_fields_of_json(where: list[str]) -> None:
    (row,) = csv.DictReader(io.StringIO(run(18, *where, "-o", "csv").stdout))
    (document,) = asked(18, *where).values()
    # This ledger is no segment's.
    assert row.keys() == {*document, "scalable_topic"}
    assert json.loads(row["kept_by"]) == document["kept_by"]


def test_what_cannot_be_seen_is_said(capture: Capture) -> None:
    killed = capture("pulsar-4.2.4-killed")
    done = run(354, "--store", f"snapshot:{killed}/metadata.ndjson", "-o", "json")
    (document,) = json.loads(done.stdout)
    assert "not known of reader: their state lies in ledgers that are not given" in document["kept_by"]
    assert "entries" in json.loads(done.stderr)["not_checked"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["999999"], 3, "no ledger 999999: nobody names it, and it is nowhere"),
        (["x"], 2, "a ledger id is 0 to"),
        ([str(2**63)], 2, "a ledger id is 0 to"),
    ],
)
def test_ledgers_that_there_are_not(arguments: list[str], code: int, says: str, where: list[str]) -> None:
    done = run(*arguments, *where)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


def test_a_broken_record_may_have_named_it(folder: Path, where: list[str], tmp_path: Path) -> None:
    path = TopicName.parse("orders").path
    text = (folder / "metadata.ndjson").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if json.loads(line)["path"] != path]
    broken = json.dumps({"path": path, "version": 0, "value": "Cn8="})
    (tmp_path / "broken.ndjson").write_text("\n".join([*lines, broken]) + "\n", encoding="utf-8")
    done = run(18, "--store", f"snapshot:{tmp_path / 'broken.ndjson'}")
    assert done.returncode == 4
    assert f"{path}: not a ManagedLedgerInfo" in done.stderr
    assert "no record that could be read names it" in done.stdout
    assert "whether any does is not known" in done.stdout
    rows = as_text(
        pulsar_meta_here(
            "disk", "--store", f"snapshot:{tmp_path / 'broken.ndjson'}", *where[2:], "-o", "json"
        )
    )
    assert rows.returncode == 4
    roles = {(row["name"], row["role"]) for row in json.loads(rows.stdout)}
    assert (ORDERS, "undecided") in roles


def test_what_a_shadow_topic_reads_is_its_sources_to_keep(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-shadows")
    words = ["--store", f"snapshot:{folder}/metadata.ndjson", "--entries", f"bookie-disk:{folder}"]
    ledger = asked(7, *words)[7]
    source = str(TopicName.parse("source"))
    assert (ledger["name"], ledger["role"]) == (source, "data")
    assert len(ledger["named_by"]) > 2
    shadows = {one["name"].rpartition("/")[2]: one.get("shadow_of") for one in ledger["named_by"]}
    assert shadows | {"of-short": source} == shadows
    assert (shadows["shadow"], shadows["source"]) == (source, None)
    assert all("subscription own" not in reason for reason in ledger["kept_by"])
    done = as_text(pulsar_meta_here("disk", "--by", "subscription", *words, "-o", "json"))
    held = {(row["topic"], row["cursor"]) for row in json.loads(done.stdout)}
    assert (source, "keep") in held
    assert "own" not in {cursor for _, cursor in held}


def test_neither_store_nor_entries() -> None:
    done = run(1)
    assert (done.returncode, "neither store nor entries" in done.stderr) == (2, True)


def test_an_offloaded_ledger_is_not_missed_in_bookkeeper(tmp_path: Path) -> None:
    """Neither its metadata nor its entries: both were deleted after it had gone to tiered storage."""
    orders = TopicName.parse("orders")
    info = ManagedLedgerInfo()
    gone = info.ledgerInfo.add(ledgerId=5, entries=10, size=1000, timestamp=1)
    gone.offloadContext.complete = gone.offloadContext.bookkeeperDeleted = True
    gone.offloadContext.driverMetadata.name = "aws-s3"
    info.ledgerInfo.add(ledgerId=9, timestamp=0)
    schema = {"path": ledger_path(1), "value": ""}
    record = {"path": orders.path, "value": b64encode(info.SerializeToString()).decode()}
    lines = (json.dumps({"version": 0} | line) for line in (record, schema))
    (tmp_path / "s.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ledger = asked(5, "--store", f"snapshot:{tmp_path / 's.ndjson'}")[5]
    assert (ledger["metadata"], ledger["entries"], ledger["size"]) == ("absent", 10, 1000)
    assert ledger["kept_by"][0] == "offloaded to aws-s3, bookies' copy deleted"
    assert not any("garbage collection" in reason for reason in ledger["kept_by"])
