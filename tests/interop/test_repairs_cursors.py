"""Cursors, compacted data, schemas and offloads that real brokers cannot read, and read after `repair`.

Three starts for each release: one makes the topics (`cursor_topics`), one shows what it makes of the wounds
(`cursor_wounds`), one what it makes of the same store after the verbs ran on it.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pulsar as client
import pytest

from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.interop.cursor_topics import (
    ACKED,
    COMPACTED,
    INSIDE,
    MESSAGES,
    PLAIN,
    PREFIX,
    SCHEMAS,
    SETTINGS,
    TWICE,
    compacted_view,
    java,
    make,
    path_of,
    payload,
    records,
    schema,
    wait,
)
from tests.interop.cursor_wounds import ledgers, wound
from tests.servers.admin import AdminError
from tests.servers.jvm import JavaFailed
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop
# Seconds that a reader waits which is to stall, or not to.
STALLED, PATIENCE = 15, 90
LEFT = [at for at in range(MESSAGES) if at not in ACKED]
UNLOADABLE = ("garbage-record", "cut-record", "empty-record", "garbage-closed", "ledger-foreign")
FROM_LEDGER = ("garbage-record", "cut-record", "empty-record", "ledger-gone", "ledger-foreign")


Read = list[tuple[str, bytes]] | None


@dataclass
class Seen:
    """What a broker made of a store, by topic; None where a reader stalled."""

    loads: dict[str, bool | str] = field(default_factory=dict)
    left: dict[str, list[bytes]] = field(default_factory=dict)
    messages: dict[str, Read] = field(default_factory=dict)
    compacted: dict[str, Read] = field(default_factory=dict)
    recompacted: dict[str, int] = field(default_factory=dict)
    versions: dict[str, list[int]] = field(default_factory=dict)
    records: dict[str, list[dict[str, int] | str] | None] = field(default_factory=dict)


@dataclass
class Stores:
    """What a release's broker, and the doctor, made of the wounded store and of the repaired one."""

    before: Seen
    after: Seen
    findings: dict[str, set[str]]
    still: dict[str, set[str]]


@pytest.fixture(scope="module")
def stores(version: str, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    base = tmp_path_factory.mktemp("cursors")
    wounded, repaired = base / "wounded", base / "repaired"
    wounded.mkdir()
    make(version, wounded)
    wound(wounded)
    shutil.copytree(wounded, repaired)
    findings = found(wounded)
    repair_all(repaired, base)
    still = found(repaired)
    return Stores(seen(version, wounded, mended=False), seen(version, repaired, mended=True), findings, still)


def found(data: Path) -> dict[str, set[str]]:
    """Return what the doctor finds of each topic, but for notes."""
    where = ("--store", f"rocksdb:{data / 'rocksdb'}", "--entries", f"bookie-disk:{data / 'bookie0'}")
    done = as_text(pulsar_meta_here("check", *where, "--severity", "warning", "-o", "ndjson"))
    codes: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        finding = json.loads(line)
        codes.setdefault(finding.get("topic", "").removeprefix(PREFIX), set()).add(finding["code"])
    return codes


def repair_all(data: Path, scratch: Path) -> None:
    """Run every verb on what it is for."""
    file, disk = scratch / "schema.avsc", ("--entries", f"bookie-disk:{data / 'bookie0'}")
    file.write_text(schema(0))
    with open_store(f"rocksdb:{data / 'rocksdb'}") as store:
        known, lost = ledgers(store, "garbage-closed")[1], ledgers(store, "offload-lost")[1]
    for words in (
        *(("cursor", name, "work", *disk) for name in FROM_LEDGER),
        (
            "cursor",
            "garbage-closed",
            "work",
            "--position",
            f"{known}:1",
            "--confirm",
            f"{PREFIX}garbage-closed",
        ),
        *(("compaction", name, *disk) for name in ("pointer-closed", "pointer-in-ledger")),
        *(
            ("compaction", name, "--drop", "--confirm", f"{PREFIX}{name}", *disk)
            for name in ("compacted-closed", "compacted-in-ledger")
        ),
        *(("schema", name, "--confirm", f"{PREFIX}{name}") for name in SCHEMAS),
        ("schema", TWICE, "--version", "0", "--schema", str(file)),
        ("schema", TWICE, "--confirm", f"{PREFIX}{TWICE}"),
        ("offload", "offload-begun", *disk),
        ("offload", "offload-lost", str(lost), *disk),
    ):
        where = ("--store", f"rocksdb:{data / 'rocksdb'}", "--yes", "-o", "json")
        done = as_text(pulsar_meta_here("repair", *words, *where, env=environment(scratch)))
        assert done.returncode == 0, (words, done.stderr)
        assert json.loads(done.stdout)["rewritten"] == 1, words


def seen(version: str, data: Path, *, mended: bool) -> Seen:
    """Return what a broker makes of a store. `mended`: what people do after the verbs is done, too."""
    stated, stalled = Seen(), PATIENCE if mended else STALLED
    with PulsarStandalone(version, data=data, settings=SETTINGS) as pulsar:
        for name in PLAIN:
            stated.loads[name] = loads(pulsar, name)
            if stated.loads[name] is True:
                stated.messages[name] = read(pulsar, name, stalled)
                if mended or name in ("ledger-gone", "healthy", "offload-begun"):
                    stated.left[name] = left(pulsar, name)
        for name in COMPACTED:
            stated.compacted[name] = read(pulsar, name, stalled, compacted=True)
        if mended:
            stated.recompacted = {name: compacted_again(pulsar, name) for name in COMPACTED}
            for name, number in (("schema-only", 0), ("schema-last", 2)):
                body = {"type": "AVRO", "schema": schema(number), "properties": {}}
                pulsar.admin("POST", f"schemas/public/default/{name}/schema", body)
        for name in (*SCHEMAS, TWICE):
            stated.versions[name] = versions(pulsar, name)
            stated.records[name] = decoded(pulsar, name)
    return stated


def loads(pulsar: PulsarStandalone, name: str) -> bool | str:
    """Return whether a topic loads, or the broker's words."""
    try:
        pulsar.admin("GET", f"{path_of(name)}/internalStats")
    except AdminError as error:
        return str(error)
    return True


def left(pulsar: PulsarStandalone, name: str) -> list[bytes]:
    """Return what the subscription gets."""
    expected = len(LEFT) + 3 * (name == "garbage-closed")
    return [one["payload"] for one in java(pulsar, "drain", PREFIX + name, "work", expected, {})]


def read(pulsar: PulsarStandalone, name: str, seconds: int, *, compacted: bool = False) -> Read:
    """Return the keys and payloads that a reader gets, None where it stalls for so long."""
    level = client.ConsoleLogger(client.LoggerLevel.Error)
    connected, found = client.Client(pulsar.service_url, operation_timeout_seconds=seconds, logger=level), []
    try:
        reader = connected.create_reader(
            PREFIX + name, client.MessageId.earliest, is_read_compacted=compacted
        )
        while reader.has_message_available():
            message = reader.read_next(seconds * 1000)
            found.append((message.partition_key(), message.data()))
    except client.PulsarException:
        return None
    finally:
        connected.close()
    return found


def compacted_again(pulsar: PulsarStandalone, name: str) -> int:
    """Compact a topic; return the ledger with its compacted data."""
    pulsar.admin("PUT", f"{path_of(name)}/compaction")
    wait(lambda: pulsar.admin("GET", f"{path_of(name)}/compaction")["status"] == "SUCCESS")
    return int(pulsar.admin("GET", f"{path_of(name)}/internalStats")["compactedLedger"]["ledgerId"])


def versions(pulsar: PulsarStandalone, name: str) -> list[int]:
    """Return the versions of a schema that are read."""
    found = pulsar.admin("GET", f"schemas/public/default/{name}/schemas")["getSchemaResponses"]
    return [schema["version"] for schema in found]


def decoded(pulsar: PulsarStandalone, name: str) -> list[dict[str, int] | str] | None:
    """Return the records of a topic as a client decodes them, None where it cannot read."""
    try:
        found: list[dict[str, int] | str] = pulsar.call(
            f"{INSIDE}:read_records", pulsar.service_url, PREFIX + name
        )
    except JavaFailed:
        return None
    return found


def view(messages: Read) -> dict[str, bytes]:
    """Return the last message of each key that is not removed."""
    return {key: data for key, data in dict(messages or ()).items() if data}


EVERY = {name: [payload(name, at) for at in range(MESSAGES)] for name in PLAIN}
WRITTEN = {name: [record for at in range(count) for record in records(at)] for name, count in SCHEMAS.items()}
WRITTEN[TWICE] = [*records(0), *records(0)]


def test_cursors_that_could_not_be_loaded_go_on_where_they_stood(stores: Stores) -> None:
    for name in UNLOADABLE:
        assert "ManagedLedgerException" in str(stores.before.loads[name]), name
    assert len(stores.before.left["ledger-gone"]) > len(LEFT)
    for name in PLAIN:
        assert stores.after.loads[name] is True
        assert [data for _, data in stores.after.messages[name] or ()] == EVERY[name], name
        places = [at for at in range(MESSAGES) if at >= 12] if name == "garbage-closed" else LEFT
        assert stores.after.left[name] == [payload(name, at) for at in places], name


def test_ledgers_that_are_said_to_be_offloaded_are_read_from_bookkeeper(stores: Stores) -> None:
    for name in ("offload-begun", "offload-lost"):
        assert stores.before.loads[name] is True, stores.before.loads[name]
    assert stores.before.messages["offload-lost"] is None
    assert [data for _, data in stores.before.messages["offload-begun"] or ()] == EVERY["offload-begun"]


def test_compacted_data_is_found_again_or_made_again(stores: Stores) -> None:
    for name in ("pointer-closed", "pointer-in-ledger"):
        whole, without = compacted_view(name), view(stores.before.compacted[name])
        assert without.items() < whole.items(), "what was trimmed is only in the compacted ledger"
        assert view(stores.after.compacted[name]) == whole
    for name in ("compacted-closed", "compacted-in-ledger"):
        assert stores.before.compacted[name] is None
        assert view(stores.after.compacted[name]).items() < compacted_view(name).items()
        assert "new" in view(stores.after.compacted[name])
    assert all(ledger_id > 0 for ledger_id in stores.after.recompacted.values())


def test_versions_of_a_schema_that_are_not_lost_are_kept(stores: Stores) -> None:
    for name in (*SCHEMAS, TWICE):
        assert stores.before.records[name] != WRITTEN[name], "the broker deletes every version"
    after = stores.after
    assert after.versions["schema-first"] == [1, 2]
    assert after.versions["schema-middle"] == [0, 2]
    for name in ("schema-only", "schema-last", TWICE):
        assert after.records[name] == WRITTEN[name], name
    assert (after.records["schema-first"] or [])[2:] == WRITTEN["schema-first"][2:]
    middle = after.records["schema-middle"] or []
    assert middle[:2] + middle[4:] == WRITTEN["schema-middle"][:2] + WRITTEN["schema-middle"][4:]


def test_the_doctor_finds_each_wound_and_then_none(stores: Stores) -> None:
    named = stores.findings
    for name in ("garbage-record", "cut-record", "garbage-closed"):
        assert named[name] == {"record-undecodable"}, name
    assert named["empty-record"] <= {"record-undecodable", "record-empty"}
    assert named["ledger-gone"] == {"cursor-ledger-missing"}
    assert named["ledger-foreign"] == {"cursor-ledger-foreign"}
    for name in ("pointer-closed", "pointer-in-ledger"):
        assert named[name] == {"compaction-pointer-lost"}, name
    for name in ("compacted-closed", "compacted-in-ledger"):
        assert named[name] == {"compaction-ledger-missing"}, name
    for name in (*SCHEMAS, TWICE):
        assert "schema-ledger-missing" in named[name], name
    lasting = {name: codes for name, codes in stores.still.items() if name in (*PLAIN, *COMPACTED, TWICE)}
    assert lasting == {}
    assert all("schema-ledger-missing" not in codes for codes in stores.still.values())
