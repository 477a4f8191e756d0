"""Every verb of `repair` except `generator`, run on each server as `check` suggests it, and undone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, confirmation, environment, pulsar_meta_here
from tests.damage import (
    Patient,
    cluster_damage,
    cursor_damage,
    damaged,
    healthy_store,
    ledger_damage,
    record_damage,
)
from tests.nightly import mostly_at_night

pytestmark = pytest.mark.server

DAMAGE = (
    *(
        ledger_damage.metadata_gone,
        record_damage.topic_garbage,
        ledger_damage.in_two_topics,
        ledger_damage.counts_zero,
    ),
    *(ledger_damage.terminated, record_damage.parent_gone, cursor_damage.cursor_ledger_foreign),
    *(cursor_damage.compacted_ledger_gone, cluster_damage.schema_ledger_gone, cluster_damage.offload_begun),
)
# Without disks, `check` prints no `repair schema`: a bookie may still have the schema's ledger.
VERBS = {
    *("ledger-metadata", "topic-record", "missing-ledger", "count", "termination", "partitions", "cursor"),
    *("compaction", "offload"),
}


@pytest.fixture(scope="module")
def patient(capture: Callable[[str], Path]) -> Patient:
    """A store with damage for each verb, each on a separate topic."""
    store = healthy_store(capture("pulsar-4.2.4"))
    for seed in range(100):
        done = damaged(store, Random(seed), DAMAGE)
        codes = {finding.code for finding in done.expected}
        if {"schema-ledger-missing", "compaction-ledger-missing"} <= codes and not any(
            finding.code == "system-topic-unreadable" for finding in done.expected
        ):
            return done
    raise AssertionError("no seed makes them all")


@pytest.fixture(params=mostly_at_night(("zookeeper", "etcd", "oxia"), "zookeeper", "etcd"))
def url(request: pytest.FixtureRequest, patient: Patient, root: str) -> Iterator[str]:
    """The URL of a server that contains the damaged store."""
    address = request.getfixturevalue(f"{request.param}_server").address
    server_url = f"{'zk' if request.param == 'zookeeper' else request.param}://{address}"
    if request.param == "zookeeper":
        with open_store(server_url, read_only=False) as server:
            server.put(root, b"", ABSENT)
        server_url += root
    copied_values = {
        path: value.value for path, value in patient.store.values.items() if _is_copied(patient.store, path)
    }
    with open_store(server_url, read_only=False) as store:
        for path, value in sorted(copied_values.items()):
            _put(store, path, value)
        yield server_url
        for path in sorted(copied_values, reverse=True):
            with suppress(NotFoundError):
                store.delete(path, store.read(path).version)


def _is_copied(store: MemoryStore, path: str) -> bool:
    value = store.values[path]
    parts = ("/managed-ledgers/", "/ledgers/", "/schemas/", "/admin/")
    return path.startswith(parts) and not value.ephemeral and "idgen" not in path


def _put(store: Store, path: str, value: bytes) -> None:
    try:
        version = store.read(path).version
    except NotFoundError:
        version = ABSENT
    store.put(path, value, version)


def values_in(url: str) -> dict[str, bytes]:
    with open_store(url) as store:
        scanned = ("/managed-ledgers/public/default", "/ledgers", "/schemas", "/admin")
        return {value.path: value.value for path in scanned for value in store.scan(path) if value.value}


def test_the_commands_that_check_names_repair_the_store_and_can_be_undone(
    url: str, patient: Patient, tmp_path: Path
) -> None:
    env = environment(tmp_path)
    expected = {(finding.code, finding.where) for finding in patient.expected}
    before = values_in(url)

    def check() -> dict[str, dict[str, str]]:
        done = as_text(pulsar_meta_here("check", "--store", url, "-o", "ndjson", env=env))
        assert done.returncode in (0, 1), done.stderr
        documents = [json.loads(line) for line in done.stdout.splitlines()]
        return {
            finding["repair"]: finding
            for finding in documents
            if (finding["code"], finding.get("topic")) in expected and "repair" in finding
        }

    commands, undo_files = check(), list[str]()
    assert {shlex.split(command)[2] for command in commands} == VERBS
    for command, finding in commands.items():
        words = shlex.split(command)[1:]
        if words[1] in ("missing-ledger", "cursor", "compaction"):
            words += ["--confirm", finding["topic"]]
        if words[1] == "cursor":
            # No entry records the position at which the cursor was.
            words += ["--earliest"]
        done = as_text(pulsar_meta_here(*words, "--yes", "-o", "json", env=env))
        assert done.returncode == 0, (command, done.stderr)
        undo_files.append(json.loads(done.stdout)["undo_file"])
    assert check() == {}
    for file in reversed(undo_files):
        words = ["undo", file, "--store", url, "--yes", "--allow-unreadable"]
        refused = pulsar_meta_here(*words, env=env)
        done = as_text(pulsar_meta_here(*words, *confirmation(refused), env=env))
        assert done.returncode == 0, done.stderr
    assert values_in(url) == before
