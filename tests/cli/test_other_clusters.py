"""Ledgers of clusters that share a BookKeeper, as `whois` and `disk` show them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.cli.render.findings import given_places, with_places
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.codes import finding, with_repair
from tests.cli.program import as_text, pulsar_meta_here

Capture = Callable[[str], Path]
PLAIN = TopicName.parse("plain")


def as_json(*arguments: object) -> Any:
    done = as_text(pulsar_meta_here(*arguments, "-o", "json"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def moved(capture: Capture, tmp_path: Path) -> list[str]:
    """A cluster whose topic `plain` belongs to a cluster in a second store."""
    lines = (capture("pulsar-4.2.4") / "metadata.ndjson").read_text().splitlines(keepends=True)
    theirs = [line for line in lines if json.loads(line)["path"].split("/")[:6] == PLAIN.path.split("/")]
    (tmp_path / "mine.ndjson").write_text("".join(line for line in lines if line not in theirs))
    (tmp_path / "theirs.ndjson").write_text("".join(theirs))
    return [f"snapshot:{tmp_path}/mine.ndjson", f"snapshot:{tmp_path}/theirs.ndjson"]


def test_whois_names_the_owner_in_another_store(moved: list[str]) -> None:
    store, other = moved
    (single,) = as_json("whois", 24, "--store", store)
    assert single["role"] is None
    (ledger,) = as_json("whois", 24, "--store", store, "--other-store", other)
    assert (ledger["role"], ledger["name"]) == ("data", f"{PLAIN} of {other}")
    assert [owner["cluster"] for owner in ledger["named_by"]] == [other]
    assert ledger["kept_by"] == [f"another cluster refers to it as data: {PLAIN} of {other}"]


def test_disk_counts_the_ledgers_of_another_cluster_as_its_own(moved: list[str], capture: Capture) -> None:
    store, other = moved
    urls = ["--store", store, "--entries", f"bookie-disk:{capture('pulsar-4.2.4')}"]
    alone = {row["role"] for row in as_json("disk", *urls) if row["name"] == str(PLAIN)}
    assert alone == {"orphan"}
    rows = as_json("disk", *urls, "--other-store", other)
    assert [row["role"] for row in rows if row["name"] == f"{PLAIN} of {other}"] == ["data"]
    assert not any(row["role"] == "orphan" and row["name"] == str(PLAIN) for row in rows)


def test_a_repair_names_the_stores_of_the_check() -> None:
    given = given_places("zk://a", ["bookie:"], ledger_store="zk://b", other_stores=["zk://c"])
    unlisted = with_repair(finding("ledger-not-listed", "", topic=str(PLAIN), ledger_id=1)).document()
    assert with_places(unlisted, given)["repair"] == (
        f"pulsar-meta repair topic-record {PLAIN} --store zk://a --ledger-store zk://b --entries bookie:"
        " --other-store zk://c"
    )
    # This command has no --other-store.
    unknown = with_repair(finding("ledger-without-metadata", "", topic=str(PLAIN), ledger_id=1)).document()
    assert with_places(unknown, given)["repair"].endswith("--ledger-store zk://b --entries bookie:")
    copied = with_places(unlisted, given_places("snapshot:a", [], ledger_store="snapshot:b"))
    assert copied["repair"] == f"pulsar-meta repair topic-record {PLAIN}"
