"""A real bookie of which one ledger directory is not given: it is named, and nothing counts as lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.interop.test_bookie_disks import SpreadBookies
from tests.interop.test_shared_bookies import SETTINGS, send
from tests.servers.cluster import Cluster

pytestmark = pytest.mark.interop

TOPICS = [f"persistent://public/default/spread-{number}" for number in range(4)]
SENT = 35
FORGOTTEN = "a"


class SpreadCluster(Cluster):
    """A broker, and a bookie with three ledger directories; see SpreadBookies."""

    def __init__(self, version: str) -> None:
        super().__init__(racks=["A"], version=version, settings=SETTINGS)
        self._bookies.close()
        self._bookies = SpreadBookies(1, version=version)

    def stop_all(self) -> None:
        """Stop the broker and the bookie in good order; ZooKeeper keeps running."""
        self.stop(0)
        self._bookies.stop(0)


@pytest.fixture(scope="module")
def cluster(version: str) -> Iterator[SpreadCluster]:
    with SpreadCluster(version) as cluster:
        for topic in TOPICS:
            send(cluster.brokers[0], topic, [f"{topic} {number}" for number in range(SENT)])
        cluster.stop_all()
        yield cluster


@pytest.fixture
def disks(cluster: SpreadCluster, tmp_path: Path) -> Iterator[str]:
    """The URL of the bookie's data, of which a ledger directory and its index are not mounted meanwhile."""
    data = cluster.bookie_dirs[0]
    moved = [(data / name, tmp_path / name) for name in (FORGOTTEN, "index-1")]
    for directory, elsewhere in moved:
        directory.rename(elsewhere)
    yield f"bookie-disk:{data}"
    for directory, elsewhere in moved:
        elsewhere.rename(directory)


def run(cluster: SpreadCluster, *given: object) -> tuple[int, list[dict[str, object]], dict[str, str]]:
    """Return the exit code, the documents, and everything that was not checked."""
    folder = environment(cluster.directory / "state")
    # A lost store is rebuilt from the disks alone.
    words = [*given, *(() if given[0] == "rebuild" else ("--store", cluster.store_url))]
    done = as_text(pulsar_meta_here(*words, "-o", "ndjson", env=folder))
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    [not_checked] = [line["not_checked"] for line in lines if "not_checked" in line]
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], not_checked


def test_the_directory_is_named_and_nothing_is_lost(
    cluster: SpreadCluster, disks: str, tmp_path: Path
) -> None:
    forgotten = str(cluster.bookie_dirs[0] / FORGOTTEN)
    commands: list[list[object]] = [
        ["check"],
        ["check", *TOPICS],
        ["verify-entries", *TOPICS],
        ["disk"],
        ["disk", "--by", "bookie"],
        ["rebuild", "--output", tmp_path / "found"],
    ]
    for command in commands:
        code, documents, not_checked = run(cluster, *command, "--entries", disks)
        # Entries of named topics that can't be verified are no success. Neither is a rebuild without some.
        assert code == (3 if command[0] in ("verify-entries", "rebuild") else 0), (command, documents)
        assert any(forgotten in f"{what} {why}" for what, why in not_checked.items()), (command, not_checked)
        assert [document for document in documents if {"repair", "fault"} & document.keys()] == []


def test_nothing_is_left_out_if_all_directories_are_given(cluster: SpreadCluster) -> None:
    disks = f"bookie-disk:{cluster.bookie_dirs[0]}"
    code, findings, not_checked = run(cluster, "check", "--entries", disks)
    # The bookie is stopped, as it must be while its disks are mounted elsewhere.
    assert (code, [finding["code"] for finding in findings]) == (0, ["bookie-unreachable"])
    assert list(not_checked) == ["the content of entries"]
    code, faults, not_checked = run(cluster, "verify-entries", *TOPICS, "--entries", disks)
    assert (code, faults, not_checked) == (0, [], {})
