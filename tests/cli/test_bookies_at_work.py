"""Commands that read disks while brokers and bookies keep working."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_path
from pulsar_meta.jobs.disk.usage import usage_of
from pulsar_meta.jobs.entries.check_plan import first_checks
from pulsar_meta.jobs.entries.live_changes import PAUSES
from pulsar_meta.jobs.export.pieces import run_export
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.cli.program import pulsar_meta_here
from tests.damage import healthy_store
from tests.damage.late_entries import close_last_ledger, hide_journals, write_journals


def test_entries_written_after_opening_the_disks_are_not_missing(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(capture("pulsar-4.2.4-killed"), tmp_path / "killed")
    with open_store(f"rocksdb:{folder}/rocksdb", read_only=False) as store:
        close_last_ledger(store, folder)
    hide_journals(folder)
    sources = ("--store", f"rocksdb:{folder}/rocksdb", "--entries", f"bookie-disk:{folder}")
    words = ("verify-entries", "last-words", *sources, "-o", "json")
    assert {fault["layer"] for fault in json.loads(pulsar_meta_here(*words).stdout)} == {"missing"}

    def write_then_check(*arguments: Any) -> Any:
        write_journals(folder)
        return first_checks(*arguments)

    monkeypatch.setattr("pulsar_meta.cli.commands.verify_entries.first_checks", write_then_check)
    done = pulsar_meta_here(*words)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_a_ledger_created_after_opening_the_store_is_not_deleted(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = capture("pulsar-4.2.4")
    url = f"rocksdb:{shutil.copytree(folder / 'rocksdb', tmp_path / 'rocksdb')}"
    with open_store(url, read_only=False) as store:
        path = ledger_path(read_topic(store, TopicName.parse("orders")).ledgers[0].ledger_id)
        record = store.read(path)
        store.delete(path, record.version)
    words = ("disk", "--store", url, "--entries", f"bookie-disk:{folder}", "-o", "json")

    def deleted() -> int:
        done = pulsar_meta_here(*words)
        assert done.returncode == 0, done.stderr
        return sum(row["ledgers"] for row in json.loads(done.stdout) if row["role"] == "deleted")

    before = deleted()

    def create_ledger(*arguments: Any) -> Any:
        usage = usage_of(*arguments)
        with open_store(url, read_only=False) as broker:
            broker.put(path, record.value, ABSENT)
        return usage

    monkeypatch.setattr("pulsar_meta.cli.commands.disk.usage_of", create_ledger)
    assert deleted() == before - 1


class TrimmedStore(MemoryStore):
    """A store in which the first ledger of a topic is trimmed when ledger metadata is read."""

    def __init__(self, values: dict[str, Versioned], topic: TopicName) -> None:
        super().__init__()
        self.values, self._topic = values, topic
        self.trimmed: int | None = None

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        if self.trimmed is None and any(path.startswith(LEDGERS) for path in paths):
            record = self.values[self._topic.path]
            info = decode_managed_ledger(record.value)
            self.trimmed = info.ledgerInfo[0].ledgerId
            del info.ledgerInfo[0], self.values[ledger_path(self.trimmed)]
            self.values[self._topic.path] = record._replace(value=info.SerializeToString())
        return super().read_many(paths)


@pytest.mark.parametrize("command", ["verify-entries", "check-index"])
def test_a_ledger_trimmed_during_the_run_is_not_checked(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    folder = capture("pulsar-4.2.4")
    store = TrimmedStore(dict(healthy_store(folder).values), TopicName.parse("plain"))
    monkeypatch.setattr("pulsar_meta.stores.registry.open_store", lambda url, **_: store)
    sources = ("--store", f"dir:{tmp_path}", "--entries", f"bookie-disk:{folder}")
    done = pulsar_meta_here(command, "plain", *sources, "-o", "json")
    assert done.returncode == 0, done.stdout
    not_checked = json.loads(done.stderr)["not_checked"]
    assert not_checked == {f"ledger {store.trimmed}": "deleted while it was read"}


def relist(url: str, name: TopicName, *, longer: int) -> int:
    """Make a topic's first ledger end `longer` entries later than its entries on the disks; return its id."""
    with open_store(url, read_only=False) as store:
        record = store.read(name.path)
        info = decode_managed_ledger(record.value)
        first = info.ledgerInfo[0]
        first.entries += longer
        store.put(record.path, info.SerializeToString(), record.version)
        metadata = store.read(ledger_path(first.ledgerId))
        decoded = decode_ledger_metadata(metadata.value)
        decoded.metadata.lastEntryId += longer
        store.put(metadata.path, encode_ledger_metadata(decoded), metadata.version)
        return int(first.ledgerId)


def trim(url: str, name: TopicName) -> None:
    """Trim the first ledger of a topic as a broker does."""
    with open_store(url, read_only=False) as store:
        record = store.read(name.path)
        info = decode_managed_ledger(record.value)
        path = ledger_path(info.ledgerInfo[0].ledgerId)
        del info.ledgerInfo[0]
        store.put(record.path, info.SerializeToString(), record.version)
        store.delete(path, store.read(path).version)


@pytest.mark.parametrize(
    ("words", "missing", "during"),
    [
        (("verify-entries",), 1, "cli.commands.verify_entries.run_checks"),
        (("check-index",), 1, "cli.commands.properties.check_indexes"),
        (("dump-entries",), 3, "jobs.entries.entry_reading.Presence.end"),
        (("dump-entries", "--deep"), 3, "jobs.entries.entry_reading.Presence.end"),
        (("export", "--to", "out"), 3, "cli.commands.export.run_export"),
    ],
)
def test_entries_of_a_ledger_that_was_trimmed_meanwhile_are_not_missing(
    capture: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    missing: int,
    during: str,
) -> None:
    folder, name = capture("pulsar-4.2.4"), TopicName.parse("plain")
    url = f"rocksdb:{shutil.copytree(folder / 'rocksdb', tmp_path / 'rocksdb')}"
    ledger_id = relist(url, name, longer=2)
    command = (*words, "plain", "--store", url, "--entries", f"bookie-disk:{folder}", "-o", "ndjson")
    assert pulsar_meta_here(*command, folder=tmp_path).returncode == missing
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    parent, _, function = f"pulsar_meta.{during}".rpartition(".")
    original, trimmed = resolve_name(f"pulsar_meta.{during}"), list[bool]()

    def trim_first(*arguments: Any) -> Any:
        if not trimmed:
            trimmed.append(True)
            trim(url, name)
        return original(*arguments)

    monkeypatch.setattr(f"{parent}.{function}", trim_first)
    done = pulsar_meta_here(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    not_checked = json.loads(done.stderr.splitlines()[-1])["not_checked"]
    assert list(not_checked.values()) == ["deleted while it was read"]
    assert words[0] == "export" or str(ledger_id) in next(iter(not_checked))


def test_entries_that_an_earlier_export_missed_are_not_missing_after_trimming(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, name = capture("pulsar-4.2.4"), TopicName.parse("plain")
    url = f"rocksdb:{shutil.copytree(folder / 'rocksdb', tmp_path / 'rocksdb')}"
    relist(url, name, longer=2)
    words = ("export", "--to", "out", "plain", "--store", url, "--entries", f"bookie-disk:{folder}")
    assert pulsar_meta_here(*words, folder=tmp_path).returncode == 3
    trim(url, name)
    done = pulsar_meta_here(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr


class LiveStore(MemoryStore):
    networked = True


@pytest.mark.parametrize("deleted", [True, False])
def test_the_schema_of_a_topic_that_is_being_deleted_is_not_missing(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    folder, name, store, pauses = capture("pulsar-4.2.4"), TopicName.parse("strings"), LiveStore(), 0
    store.values = dict(healthy_store(folder).values)

    def delete_schema(*arguments: Any) -> Any:
        del store.values[name.schema_path]
        return run_export(*arguments)

    def delete_topic(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if deleted:
            del store.values[name.path]

    monkeypatch.setattr("pulsar_meta.stores.registry.open_store", lambda url, **_: store)
    monkeypatch.setattr("pulsar_meta.cli.commands.export.run_export", delete_schema)
    monkeypatch.setattr("pulsar_meta.jobs.entries.live_changes.sleep", delete_topic)
    sources = ("--store", f"dir:{tmp_path}", "--entries", f"bookie-disk:{folder}", "-o", "ndjson")
    done = pulsar_meta_here("export", str(name), "--to", "out", *sources, folder=tmp_path)
    assert (done.returncode, pauses) == ((0, 1) if deleted else (4, len(PAUSES))), done.stderr
    not_checked = json.loads(done.stderr.splitlines()[-1]).get("not_checked")
    expected = {f"the schema of {name}": "deleted while it was read"}
    assert not_checked == expected if deleted else not_checked != expected


@pytest.mark.parametrize("deleted", [True, False])
def test_entries_of_a_topic_that_is_being_deleted_are_not_undecided(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    folder, name, store = capture("pulsar-4.2.4"), TopicName.parse("plain"), LiveStore()
    store.values = dict(healthy_store(folder).values)

    def export_undecided(pieces: Any, export: Any, manifest: Any) -> Any:
        def undecided(pieces: Any) -> Any:
            for exported in export(pieces):
                counts = {**exported.done.counts, "undecided": 1}
                yield replace(exported, done=replace(exported.done, whole=False, counts=counts))

        yield from run_export(pieces, undecided, manifest)
        if deleted:
            del store.values[name.path]

    monkeypatch.setattr("pulsar_meta.stores.registry.open_store", lambda url, **_: store)
    monkeypatch.setattr("pulsar_meta.cli.commands.export.run_export", export_undecided)
    monkeypatch.setattr("pulsar_meta.jobs.entries.live_changes.sleep", lambda seconds: None)
    sources = ("--store", f"dir:{tmp_path}", "--entries", f"bookie-disk:{folder}", "-o", "ndjson")
    done = pulsar_meta_here("export", str(name), "--to", "out", *sources, folder=tmp_path)
    assert done.returncode == (0 if deleted else 3), done.stderr
    not_checked = json.loads(done.stderr.splitlines()[-1]).get("not_checked", {})
    expected = {f"readability of 1 entry of {name}": "deleted while it was read"}
    assert (not_checked == expected) is deleted


@pytest.mark.parametrize("words", [("dump-entries",), ("export", "--to", "out")])
def test_entries_that_were_written_after_the_opening_are_not_missing(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    folder = shutil.copytree(capture("pulsar-4.2.4-killed"), tmp_path / "killed")
    url = f"rocksdb:{folder}/rocksdb"
    with open_store(url, read_only=False) as store:
        close_last_ledger(store, folder)
    hide_journals(folder)
    command = (*words, "last-words", "--store", url, "--entries", f"bookie-disk:{folder}", "-o", "ndjson")
    assert pulsar_meta_here(*command, folder=tmp_path).returncode == 3
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    during = "cli.commands.export.run_export" if words[0] == "export" else "cli.commands.dump_entries.choose"
    original = resolve_name(f"pulsar_meta.{during}")

    def write_first(*arguments: Any, **options: Any) -> Any:
        write_journals(folder)
        return original(*arguments, **options)

    monkeypatch.setattr(f"pulsar_meta.{during}", write_first)
    done = pulsar_meta_here(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    not_checked = json.loads(done.stderr.splitlines()[-1])["not_checked"]
    assert list(not_checked.values()) == ["written while it was read"]
