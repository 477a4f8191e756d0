"""Commands that only read report no fault while topics are written, trimmed and deleted.

`PULSAR_META_FULL=1` runs 200 rounds of all commands for each release and store, `PULSAR_META_ROUNDS=N` N.
The commands run in this process, which saves their start-up time and changes nothing else. Left out are
`browse`, which needs a terminal and reads as `get`, `tree` and `check` do, and the commands that read no
cluster: `encode`, `explain`, `schema`, `lookup-properties` and those for frames.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from tests.cli.program import environment, pulsar_meta_here
from tests.interop.busy import KEEPS, MARKS, TRIMMED, WRITTEN
from tests.servers.pulsar import PulsarStandalone
from tests.servers.versions import size

# Not in `make interop`: `export` and `check-index` still report some topics that are being deleted.
pytestmark = [pytest.mark.interop, pytest.mark.nightly]

BUSY = "tests.interop.busy"
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    # In milliseconds: bookies delete entries of deleted ledgers soon.
    "gcWaitTime": "3000",
}
# Seconds between two topics that are created and deleted, and between the other clients' pieces of work.
PAUSE = 0.5
ROUNDS = int(os.environ.get("PULSAR_META_ROUNDS", 0)) or size(3, 200)
# A topic that is deleted, and a ledger that is trimmed, may be gone when a command asks for it.
MAYBE_GONE = (0, 3)
DIFFERS = (0, 1)
# Not every release was tested before every other one.
MAYBE_UNKNOWN = (0, 3)


class Reading(NamedTuple):
    """A command that only reads, and the exit codes that the contract allows for a healthy cluster."""

    words: tuple[str, ...]
    codes: tuple[int, ...] = (0,)


@pytest.fixture(params=["zookeeper", "rocksdb"])
def pulsar(request: pytest.FixtureRequest, version: str) -> Iterator[PulsarStandalone]:
    settings = {"PULSAR_STANDALONE_USE_ZOOKEEPER": "1"} if request.param == "zookeeper" else {}
    with PulsarStandalone(version, settings=SETTINGS, environment=settings) as running:
        yield running


def of_store(number: int, scratch: Path) -> Iterator[Reading]:
    """Yield the commands that need no entries."""
    snapshot = f"snapshot:{scratch / 'all.ndjson'}"
    yield Reading(("check", "-o", "ndjson"))
    yield Reading(("check", TRIMMED, WRITTEN, "-o", "ndjson"))
    yield Reading(("check", "public/default", "--all", "-o", "ndjson"))
    yield Reading(("check-readable", "--for-version", "4.2.4"))
    yield Reading(("top", "-o", "ndjson"))
    yield Reading(("tree", "-o", "ndjson"))
    yield Reading(("ls", "/managed-ledgers/public/default/persistent", "--long"))
    yield Reading(("get", "topic", WRITTEN, "-o", "json"))
    yield Reading(("get", "topic", f"public/default/short-lived-{number}"), MAYBE_GONE)
    yield Reading(("decode", "/ledgers", "-o", "ndjson"))
    yield Reading(("decode", "/managed-ledgers", "/schemas", "/admin", "-o", "ndjson"))
    yield Reading(("whois", *map(str, range(number, number + 60, 7)), "-o", "ndjson"), MAYBE_GONE)
    yield Reading(("show-cursor", "public/default"))
    yield Reading(("properties", "--all"))
    yield Reading(("brokers", "-o", "ndjson"))
    yield Reading(("snapshot", str(scratch / "all.ndjson")))
    yield Reading(("diff", snapshot, "STORE"), DIFFERS)
    yield Reading(("check", "--store", snapshot, "-o", "ndjson"))
    yield Reading(("check-readable", "--store", snapshot, "--for-version", "4.2.4"))
    yield Reading(("bundle", str(scratch / "all.tar.gz")))


def of_entries(number: int, scratch: Path) -> Iterator[Reading]:
    """Yield the commands that read entries from disks or from bookies."""
    yield Reading(("check", "-o", "ndjson"))
    yield Reading(("check", "public/default", "-o", "ndjson"))
    yield Reading(("verify-entries", "--all", "-o", "ndjson"))
    yield Reading(("verify-entries", TRIMMED, WRITTEN, "-o", "ndjson"))
    yield Reading(("verify-entries", "--all", "--one-copy", "-o", "ndjson"))
    yield Reading(("check-index", "--all", "-o", "ndjson"))
    yield Reading(("seek", WRITTEN, "--index", "3", "--time", "0", "-o", "ndjson"))
    yield Reading(("seek", WRITTEN, "--time", "0", "--readable", "-o", "ndjson"))
    yield Reading(("seek", "--namespace", "public/default", "--time", "0", "-o", "ndjson"), MAYBE_GONE)
    yield Reading(("show-cursor", "public/default", "-o", "ndjson"))
    yield Reading(("show-cursor", WRITTEN, MARKS, "-o", "json"))
    yield Reading(("get", "cursor", WRITTEN, KEEPS))
    yield Reading(("dump-entries", "public/default", "-o", "ndjson"))
    yield Reading(("dump-entries", "public/default", "--deep", "--where", "region=eu", "-o", "ndjson"))
    yield Reading(("plan-batches", WRITTEN, "--keys", "region"))
    yield Reading(("whois", *map(str, range(number, number + 60, 7)), "-o", "ndjson"), MAYBE_GONE)
    to = scratch / f"exported-{len(list(scratch.iterdir()))}"
    yield Reading(("export", "--all", "--to", str(to), "-o", "ndjson"))
    readable = "--readable", "--compacted", "-o", "csv"
    yield Reading(("export", "public/default", "--to", f"{to}-readable", *readable))


def of_disks() -> Iterator[Reading]:
    """Yield the commands that only disks can answer."""
    for by in ("topic", "subscription", "log", "bookie"):
        yield Reading(("disk", "--by", by, "-o", "ndjson"))
    yield Reading(("disk", "--if-deleted", KEEPS, "--if-retention", "0"))
    yield Reading(("ledgers", "-o", "ndjson"))
    yield Reading(("ledgers", "--by-log", "-o", "ndjson"))
    yield Reading(("dump-entries", "-o", "ndjson"))
    yield Reading(("check", "--before-upgrade", "4.2.4", "-o", "json"), MAYBE_UNKNOWN)


def readings(pulsar: PulsarStandalone, number: int, scratch: Path) -> Iterator[Reading]:
    """Yield the commands of one round, with their store and entries."""
    yield from of_store(number, scratch)
    yield Reading(("lookup", WRITTEN, "--service-url", pulsar.service_url))
    if pulsar.uses_zookeeper:
        files = f"zk-files:{pulsar.directory / 'zookeeper'}"
        yield Reading(("history", "topic", TRIMMED, "--store", files, "-o", "ndjson"))
    disks = [f"bookie-disk:{path}" for path in pulsar.bookie_dirs]
    for urls in (disks, ["bookie:"]):
        entries = [word for url in urls for word in ("--entries", url)]
        for reading in (*of_entries(number, scratch), *(of_disks() if urls is disks else ())):
            yield reading._replace(words=(*reading.words, *entries))


def alarms(reading: Reading, env: dict[str, str], store: str) -> Iterator[str]:
    """Run a command, and yield what it reports although the cluster is healthy."""
    words = tuple(store if word == "STORE" else word for word in reading.words)
    done = pulsar_meta_here(*words, env=env)
    shown = f"{' '.join(words)} -> {done.returncode}: {done.stderr.decode()[-3000:]}"
    if done.returncode not in reading.codes:
        yield f"{shown}\n{done.stdout.decode()[-3000:]}"
    elif b"Traceback" in done.stderr or b"unforeseen" in done.stderr:
        yield shown
    if words[0] == "check" and "ndjson" in words:
        for finding in map(orjson.loads, done.stdout.splitlines()):
            if finding["severity"] == "error":
                yield f"{' '.join(words)}: {finding}"


def test_readers_report_no_fault_of_a_healthy_cluster_at_work(
    pulsar: PulsarStandalone, tmp_path: Path
) -> None:
    pulsar.call(f"{BUSY}:begin", pulsar.service_url, PAUSE)
    store, scratch = pulsar.store_url, tmp_path / "scratch"
    pulsar.call(f"{BUSY}:wait_until_written", 3)
    env = environment(tmp_path, PULSAR_META_STORE=store)
    reported: list[str] = []
    for number in range(ROUNDS):
        scratch.mkdir()
        began, before = time.monotonic(), len(reported)
        for reading in readings(pulsar, number, scratch):
            reported += alarms(reading, env, store)
        shutil.rmtree(scratch)
        seconds = time.monotonic() - began
        print(f"round {number}: {seconds:.0f} s", *reported[before:], sep="\n", flush=True)
    done = pulsar.call(f"{BUSY}:end")
    assert not reported, "\n\n".join(reported)
    assert min(done["written"], done["trimmed"], done["deleted"]) > 0, done
