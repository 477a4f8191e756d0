"""Findings about bookies' files, registrations and policies, on copies of captures."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pulsar_meta.codecs.bookie_files.entry_log import HEADER_SIZE
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import check_findings, healthy_store
from tests.jobs.check.test_verdicts import copied_disks, run_check

Capture = Callable[[str], Path]


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize(
    ("offset", "data", "text"),
    [
        (0, b"GARB", "expected an entry log's"),
        (4, b"\0\0\0\7", "its version is 7"),
        # The offset of the ledgers map.
        (8, HEADER_SIZE.to_bytes(8), "there is no ledgers map at offset 1024"),
    ],
)
def test_an_invalid_header_of_an_entry_log_is_an_error(
    capture: Capture, tmp_path: Path, offset: int, data: bytes, text: str
) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    log = max(disks.glob("bookie0/current/*.log"), key=lambda path: path.stat().st_size)
    overwrite(log, offset, data)
    findings, _ = run_check(healthy_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}")
    [header] = [finding for finding in findings if finding.code == "entry-log-header"]
    assert (header.severity, header.path) == (Severity.ERROR, str(log))
    assert text in header.message


def test_a_bookie_without_its_index_is_reported(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    shutil.rmtree(disks / "bookie0" / "current" / "locations")
    findings, _ = run_check(healthy_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}")
    [damaged] = [finding for finding in findings if finding.code == "bookie-index-damaged"]
    assert (damaged.severity, damaged.evidence["part"]) == (Severity.ERROR, "index")


def test_a_bookie_without_the_states_of_its_ledgers_is_reported(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    states = disks / "bookie0" / "current" / "ledgers"
    shutil.rmtree(states)
    findings, _ = run_check(healthy_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}")
    assert [each.path for each in findings if each.code == "bookie-index-damaged"] == [str(states)]


def cut_tables(database: Path) -> None:
    for table in database.glob("*.sst"):
        os.truncate(table, table.stat().st_size // 2)


def spoil_blocks(database: Path) -> None:
    for table in database.glob("*.sst"):
        overwrite(table, 0, bytes(table.stat().st_size // 2))


def cut_manifest(database: Path) -> None:
    [manifest] = database.glob("MANIFEST-*")
    os.truncate(manifest, 40)


def spoil_current(database: Path) -> None:
    (database / "CURRENT").write_text("garbage")


def empty(database: Path) -> None:
    shutil.rmtree(database)
    database.mkdir()


@pytest.mark.parametrize("damage", [cut_tables, spoil_blocks, cut_manifest, spoil_current, empty])
@pytest.mark.parametrize("database", ["ledgers", "locations"])
def test_a_damaged_database_of_a_bookie_is_one_finding(
    capture: Capture, tmp_path: Path, damage: Callable[[Path], None], database: str
) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4-3bookies", tmp_path)
    damaged = disks / "bookie0" / "current" / database
    damage(damaged)
    findings, run = run_check(healthy_store(capture("pulsar-4.2.4-3bookies")), f"bookie-disk:{disks}")
    assert [(each.code, each.path) for each in findings] == [("bookie-index-damaged", str(damaged))]
    [gap] = [reason for reason in run.not_checked if str(damaged) in reason]
    assert str(findings[0].evidence["bookie"]) in gap


def test_entries_lost_on_a_bookie_without_states_are_not_given_up(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    empty(disks / "bookie0" / "current" / "ledgers")
    change_rows(disks / "bookie0" / "current" / "locations", {(25, 3): None, (25, 4): None})
    findings, run = run_check(healthy_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}")
    assert [each.code for each in findings] == ["bookie-index-damaged"]
    assert "entries of 1 ledger of 1 topic" in run.not_checked.values()


def test_ledgers_whose_state_a_bookie_lost_are_one_finding(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    change_rows(disks / "bookie0" / "current" / "ledgers", {(25,): None, (26,): None})
    findings, _ = run_check(healthy_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}")
    [lost] = findings
    assert (lost.code, lost.evidence["ledgers"]) == ("bookie-index-damaged", 2)
    assert "the first is 25" in lost.message


def change_rows(database: Path, rows: Mapping[tuple[int, ...], int | None]) -> None:
    """Set locations of entries in a database of a bookie; None deletes a row."""
    from rocksdict import Options, Rdict

    opened = Rdict(str(database), Options(raw_mode=True))
    for ids, location in rows.items():
        key = struct.pack(f">{len(ids)}q", *ids)
        if location is None:
            del opened[key]
        else:
            opened[key] = struct.pack(">q", location)
    opened.close()


def test_entries_that_only_the_index_lost_are_not_given_up(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    change_rows(disks / "bookie0" / "current" / "locations", {(25, 3): 0x7FFFFF00, (25, 4): 0x7FFFFF00})
    findings, _ = run_check(healthy_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}")
    [missing] = [each for each in findings if each.ledger_id == 25]
    assert (missing.code, missing.repair) == ("entry-missing", None)
    assert "the index of a bookie is damaged" in missing.message


@pytest.mark.parametrize("path", ["/loadbalance/brokers/broker:8080", "/ledgers/available/bookie:3181"])
def test_a_registration_without_a_session_is_reported(capture: Capture, path: str) -> None:
    def findings_with(record: Versioned, url: str) -> list[str]:
        store = MemoryStore(url)
        store.values = {**healthy_store(capture("pulsar-4.2.4")).values, path: record}
        codes = {finding.path: finding.code for finding in check_findings(store)}
        return [code for place, code in codes.items() if place == path]

    record = Versioned(path, b'{"pulsarServiceUrl": "pulsar://broker:6650"}', 0)
    assert findings_with(record, "zk:host:2181") == ["registration-persistent"]
    assert findings_with(record._replace(ephemeral=True), "zk:host:2181") == []
    # A copy doesn't mark records of sessions.
    assert findings_with(record, "snapshot:copy.ndjson") == []


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [("/admin/policies/public", "tenant", "public"), ("/admin/clusters/standalone", "cluster", "standalone")],
)
def test_policies_that_refer_to_a_missing_record_are_reported(
    capture: Capture, path: str, kind: str, name: str
) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    del store.values[path]
    found = [each for each in check_findings(store) if each.code == "policy-reference-missing"]
    assert [each.evidence for each in found] == [{"kind": kind, "name": name}]


def copy_another_log(log: Path) -> None:
    other = sorted(log.parent.glob("*.log"), key=lambda path: path.stat().st_size)[-2]
    shutil.copy(other, log)


def cut(log: Path) -> None:
    os.truncate(log, log.stat().st_size // 2)


def cut_all(log: Path) -> None:
    os.truncate(log, 0)


def zero_the_middle(log: Path) -> None:
    size = log.stat().st_size
    overwrite(log, size // 4, bytes(size // 4))


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-4.2.4-3bookies"])
@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (copy_another_log, "it has other bytes where entries should be"),
        (cut, "it ends after "),
        (cut_all, "it is empty"),
        (zero_the_middle, "it has other bytes where entries should be"),
    ],
)
def test_a_damaged_entry_log_is_one_finding(
    capture: Capture, tmp_path: Path, name: str, damage: Callable[[Path], None], text: str
) -> None:
    disks = copied_disks(capture, name, tmp_path)
    log = max(disks.glob("bookie0/current/*.log"), key=lambda path: path.stat().st_size)
    damage(log)
    findings, _ = run_check(healthy_store(capture(name)), f"bookie-disk:{disks}", consequences=True)
    [damaged] = [each for each in findings if each.code == "entry-log-damaged"]
    assert (damaged.code, damaged.severity, damaged.path) == (
        "entry-log-damaged",
        Severity.ERROR,
        str(log),
    )
    assert text in damaged.message
    assert damaged.evidence["consequences"] >= len(findings) - 1 > 5
    assert [each.code for each in run_check(healthy_store(capture(name)), f"bookie-disk:{disks}")[0]] == [
        "entry-log-damaged"
    ]


def test_a_log_of_a_directory_without_logs_has_its_true_path(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4-3bookies", tmp_path)
    logs = list(disks.glob("bookie0/current/*.log"))
    for log in logs:
        log.unlink()
    findings, _ = run_check(healthy_store(capture("pulsar-4.2.4-3bookies")), f"bookie-disk:{disks}")
    missing = [each for each in findings if each.code == "entry-log-missing"]
    assert missing
    assert {each.path for each in missing} <= set(map(str, logs))


def test_an_index_that_leads_elsewhere_does_not_accuse_the_log(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    rows: dict[tuple[int, ...], int | None] = {(25, entry_id): 0x7FFFFF00 for entry_id in (0, 49)}
    change_rows(disks / "bookie0" / "current" / "locations", rows)
    findings, _ = run_check(healthy_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}")
    assert [(each.code, each.ledger_id, each.repair) for each in findings] == [("entry-missing", 25, None)]
    assert findings[0].severity is Severity.ERROR
    assert "the index of a bookie is damaged" in findings[0].message


def test_exchanged_rows_of_an_index_are_one_finding(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    with open_entries([f"bookie-disk:{disks}"]) as source:
        tables = {
            each: next(table for part in source.parts for _, table in part.located(each) or ())
            for each in (25, 26)
        }
    rows: dict[tuple[int, ...], int | None] = {
        (other, entry_id): at
        for each, other in ((25, 26), (26, 25))
        for entry_id, at in zip(tables[each].entry_ids, tables[each].locations, strict=True)
    }
    change_rows(disks / "bookie0" / "current" / "locations", rows)
    [cause] = run_check(healthy_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}")[0]
    assert (cause.code, cause.severity, cause.evidence["ledgers"]) == (
        "bookie-index-damaged",
        Severity.ERROR,
        2,
    )


def add_a_short_row(current: Path) -> None:
    change_bytes(current / "locations", {b"abc": b"12345678"})


def spoil_a_state(current: Path) -> None:
    change_bytes(current / "ledgers", {struct.pack(">q", 25): b"\xff\xff"})


def lose_the_journals(current: Path) -> None:
    for journal in current.glob("*.txn"):
        journal.unlink()


def set_the_mark_ahead(current: Path) -> None:
    (current / "lastMark").write_bytes(struct.pack(">qq", 1 << 60, 5))


def change_bytes(database: Path, rows: Mapping[bytes, bytes]) -> None:
    from rocksdict import Options, Rdict

    opened = Rdict(str(database), Options(raw_mode=True))
    for key, value in rows.items():
        opened[key] = value
    opened.close()


@pytest.mark.parametrize("name", ["pulsar-2.8.2", "pulsar-4.2.4"])
@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (add_a_short_row, "cannot be used"),
        (spoil_a_state, "has no readable states of ledgers"),
        (lose_the_journals, "so it does not start"),
        (set_the_mark_ahead, "does not have 1000000000000000.txn"),
    ],
)
def test_a_bookie_that_would_not_start_is_an_error(
    capture: Capture, tmp_path: Path, name: str, damage: Callable[[Path], None], text: str
) -> None:
    disks = copied_disks(capture, name, tmp_path)
    damage(disks / "bookie0" / "current")
    findings, run = run_check(healthy_store(capture(name)), f"bookie-disk:{disks}")
    errors = [each for each in findings if each.severity is Severity.ERROR]
    assert [each.code for each in errors] == ["bookie-index-damaged"]
    assert text in errors[0].message
    assert any(text in what for what in run.not_checked)


def test_the_content_of_entries_is_not_checked(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    _, run = run_check(healthy_store(folder), f"bookie-disk:{folder}")
    assert run.not_checked["the content of entries"] == "verify-entries reads it"


def start_an_index(current: Path) -> None:
    from rocksdict import Options, Rdict

    shutil.rmtree(current / "locations")
    Rdict(str(current / "locations"), Options(raw_mode=True)).close()


def exchange_logs(current: Path) -> None:
    first, second = sorted(current.glob("*.log"), key=lambda path: -path.stat().st_size)[:2]
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-4.2.4-3bookies"])
@pytest.mark.parametrize(
    ("damage", "code", "text"),
    [
        (start_an_index, "bookie-index-damaged", "does not lead to entries that its entry logs have"),
        (exchange_logs, "entry-log-damaged", "4.log has the entries of "),
    ],
)
def test_an_index_that_does_not_fit_the_logs_is_one_finding(
    capture: Capture, tmp_path: Path, name: str, damage: Callable[[Path], None], code: str, text: str
) -> None:
    disks = copied_disks(capture, name, tmp_path)
    damage(disks / "bookie0" / "current")
    [cause] = run_check(healthy_store(capture(name)), f"bookie-disk:{disks}")[0]
    assert (cause.code, cause.severity, cause.repair) == (code, Severity.ERROR, None)
    assert text in cause.message
    assert cause.evidence["consequences"] > 100


def versions(disks: Path) -> list[Path]:
    return [disks / f"bookie{number}" / "current" / "VERSION" for number in range(3)]


def test_swapped_version_files_are_one_finding(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4-3bookies", tmp_path)
    store = healthy_store(capture("pulsar-4.2.4-3bookies"))
    first, second, _ = versions(disks)
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    [swapped] = run_check(store, f"bookie-disk:{disks}")[0]
    assert (swapped.code, swapped.severity) == ("cookie-differs", Severity.ERROR)
    assert {swapped.evidence["directory"], swapped.evidence["other"]} == {
        str(first.parent),
        str(second.parent),
    }
    assert "they are swapped" in swapped.message
    listed, run = run_check(store, f"bookie-disk:{disks}", consequences=True)
    assert swapped.evidence["consequences"] >= len(listed) - 1 > 100
    assert [why for what, why in run.not_checked.items() if what.startswith("copies on")]


def test_a_version_file_copied_to_another_bookie_is_an_error(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4-3bookies", tmp_path)
    first, second, _ = versions(disks)
    shutil.copy(first, second)
    [copied] = run_check(healthy_store(capture("pulsar-4.2.4-3bookies")), f"bookie-disk:{disks}")[0]
    assert (copied.code, copied.path, copied.evidence["other"]) == ("cookie-differs", str(second), None)


def test_old_disks_of_a_replaced_bookie_are_not_accused(capture: Capture, tmp_path: Path) -> None:
    # The metadata names bookie1 for what is on the disks of bookie0.
    disks = copied_disks(capture, "pulsar-4.2.4-3bookies", tmp_path)
    first, second, third = versions(disks)
    shutil.copy(second, first)
    shutil.rmtree(second.parent.parent)
    findings, _ = run_check(healthy_store(capture("pulsar-4.2.4-3bookies")), f"bookie-disk:{disks}")
    assert third.exists()
    assert "cookie-differs" not in {each.code for each in findings}


def test_swapped_indexes_do_not_accuse_the_version_files(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4-3bookies", tmp_path)
    first, second = (disks / name / "current" / "locations" for name in ("bookie0", "bookie1"))
    first.rename(tmp_path / "kept")
    second.rename(first)
    (tmp_path / "kept").rename(second)
    findings, _ = run_check(healthy_store(capture("pulsar-4.2.4-3bookies")), f"bookie-disk:{disks}")
    codes = {each.code for each in findings}
    assert "bookie-index-damaged" in codes
    assert "cookie-differs" not in codes


@pytest.mark.parametrize(
    ("name", "other", "why"),
    [
        ("pulsar-4.2.4", "pulsar-4.0.7", "they belong to another cluster"),
        ("pulsar-4.2.4", "pulsar-2.8.2", "the store has no cookie of it"),
        ("pulsar-2.8.2", "pulsar-4.0.7", "the store has no cookie of it"),
    ],
)
def test_a_disk_of_another_cluster_is_one_finding_and_not_read(
    capture: Capture, tmp_path: Path, name: str, other: str, why: str
) -> None:
    disks, store = copied_disks(capture, name, tmp_path), healthy_store(capture(name))
    shutil.copytree(capture(other) / "bookie0", disks / "bookie9")
    findings, run = run_check(store, f"bookie-disk:{disks}")
    assert [each.code for each in findings] == ["cookie-differs"]
    [gap] = [reason for what, reason in run.not_checked.items() if what.startswith("the disks of bookie")]
    assert why in gap
    assert "entries" not in run.not_checked
    # Now no entry of the cluster is checked.
    shutil.rmtree(disks / "bookie0")
    findings, run = run_check(store, f"bookie-disk:{disks}")
    assert [each.code for each in findings] == ["cookie-differs"]
    assert run.not_checked["entries"] == "no disks of this cluster were given"
    assert "the content of entries" not in run.not_checked


def test_a_wrong_instance_id_in_the_store_does_not_accuse_the_disks(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    path = "/ledgers/INSTANCEID"
    store.values[path] = store.values[path]._replace(value=b"00000000-0000-0000-0000-000000000000")
    findings, run = run_check(store, f"bookie-disk:{capture('pulsar-4.2.4')}")
    assert {each.code for each in findings} == {"cookie-differs"}
    assert not any(what.startswith("the disks of bookie") for what in run.not_checked)


def test_a_wrong_cookie_comes_before_the_findings_of_topics(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    store = healthy_store(capture("pulsar-4.2.4"))
    cookie = disks / "bookie0" / "current" / "VERSION"
    cookie.write_text(cookie.read_text().replace("journalDir: ", 'journalDir: "/elsewhere" '))
    path = "/schemas/public/default/strings"
    store.values.pop(path)
    codes = [each.code for each in run_check(store, f"bookie-disk:{disks}")[0]]
    assert codes[0] == "cookie-differs"
    assert len(codes) > 1
