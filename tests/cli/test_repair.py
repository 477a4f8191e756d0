"""`repair` as users and scripts run it: its messages, questions, writes and exit codes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.damage import damaged, healthy_store, ledger_damage, record_damage

PARTED = "/admin/partitioned-topics/public/default/persistent/parted"


@pytest.fixture
def store(capture: Callable[[str], Path], tmp_path: Path) -> str:
    """The URL of a store that a stopped 4.2.4 left."""
    return written(healthy_store(capture("pulsar-4.2.4")), tmp_path / "store")


def written(store: MemoryStore, folder: Path) -> str:
    """Write a store to a directory and return its URL."""
    folder.mkdir()
    with open_store(f"dir:{folder}", read_only=False) as opened:
        for value in store.scan("/"):
            # A directory cannot have a value and children.
            if not value.ephemeral and (value.value or not store.children(value.path)):
                opened.put(value.path, value.value, ABSENT)
    return f"dir:{folder}"


def test_a_deleted_record_is_restored_and_the_repair_undone(store: str, tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        done = as_text(pulsar_meta_here(*words, "--store", store, env=environment(tmp_path)))
        return done.returncode, done.stdout, done.stderr

    assert run("rm", PARTED, "--yes")[0] == 0
    assert run("repair", "partitions", "parted")[0] == 2
    code, plan, messages = run("repair", "partitions", "parted", "--dry-run", "-o", "ndjson")
    assert (code, json.loads(plan.splitlines()[1])["effect"]) == (0, "create")
    assert "no record; 3 partitions have a record" in messages
    code, summary, messages = run("repair", "partitions", "parted", "--yes", "-o", "json")
    assert (code, json.loads(summary)["created"]) == (0, 1)
    assert json.loads(run("get", PARTED, "-o", "raw")[1]) == {"partitions": 3, "deleted": False}
    assert run("undo", json.loads(summary)["undo_file"], "--yes")[0] == 0
    assert run("get", PARTED)[0] == 3


def test_a_topic_without_partitions_is_not_found(store: str, tmp_path: Path) -> None:
    done = as_text(
        pulsar_meta_here(
            "repair", "partitions", "plain", "--yes", "--store", store, env=environment(tmp_path)
        )
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1


def test_giving_up_entries_needs_confirm(store: str, tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        done = as_text(pulsar_meta_here(*words, "--store", store, env=environment(tmp_path)))
        return done.returncode, done.stderr

    name, words = "persistent://public/default/plain", ("repair", "missing-ledger", "plain", "25")
    code, messages = run(*words, "--dry-run")
    assert (code, "50 entries of ledger 25 become unreachable" in messages) == (0, True)
    for more in ((), ("--confirm", "plain")):
        code, messages = run(*words, "--yes", *more)
        assert (code, f"--confirm {name}" in messages) == (2, True)
    assert run("get", "topic", "plain")[0] == 0
    assert run(*words, "--confirm", name)[0] == 2
    assert run(*words, "--yes", "--confirm", name)[0] == 0
    code, messages = run(*words, "--yes", "--confirm", name)
    assert (code, "does not list ledger 25" in messages) == (3, True)


def test_rm_of_a_listed_ledger_needs_confirm(store: str, tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        done = as_text(
            pulsar_meta_here("rm", "ledger", "25", *words, "--store", store, env=environment(tmp_path))
        )
        return done.returncode, done.stderr

    name = "persistent://public/default/plain"
    code, messages = run("--dry-run")
    assert (code, f"ledger 25 is data of {name}: 50 entries become unreachable" in messages) == (0, True)
    for more in ((), ("--confirm", "plain")):
        code, messages = run("--yes", *more)
        assert (code, f"--confirm {name}" in messages) == (2, True)
    assert run("--yes", "--confirm", name)[0] == 0
    assert run("--dry-run")[0] == 3


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("missing-ledger", "plain", "x"), 2, "invalid ledger id"),
        (("missing-ledger", "plain", "25", "--only", "3-"), 2, "--only '3-'"),
        (("missing-ledger", "plain", "25", "--only", "1", "--only-absent"), 2, "can't be combined"),
        (("missing-ledger", "plain", "25", "--only-absent"), 2, "name the entries"),
        (("missing-ledger", "no-such", "25"), 3, "no topic"),
        (("count", "plain", "999"), 3, "does not list ledger 999"),
        (("count", "plain", "x"), 2, "invalid ledger id"),
        (("topic-record", "no-such"), 3, "no ledger has persistent://public/default/no-such as its owner"),
        (("ledger-metadata", "99999"), 3, "refers to ledger 99999"),
        (("ledger-metadata", "no-such"), 3, "no topic"),
        (("partitions", "parted-partition-1"), 2, "name its topic"),
        (("generator",), 2, "has no counter of ledger ids"),
        (("generator", "--at-least", str(2**40)), 2, "has no counter"),
    ],
)
def test_wrong_arguments_are_one_line_errors(
    store: str, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = as_text(pulsar_meta_here("repair", *words, "--yes", "--store", store, env=environment(tmp_path)))
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_undecided_repair_is_reported_and_ends_with_1(store: str, tmp_path: Path) -> None:
    """The store has no ledger metadata, so the parameters of a new ledger are unknown."""
    env = environment(tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    record = "/managed-ledgers/public/default/persistent/plain"
    with open_store(store) as source, open_store(f"dir:{alone}", read_only=False) as target:
        target.put(record, source.read(record).value, ABSENT)
    for words in (("--yes",), ("--dry-run",)):
        done = as_text(
            pulsar_meta_here(
                "repair", "ledger-metadata", "plain", *words, "--store", f"dir:{alone}", "-o", "json", env=env
            )
        )
        assert (done.returncode, json.loads(done.stdout)["rewritten"]) == (1, 0)
        assert json.loads(done.stdout)["skipped_for"]["undecided"] > 1
        assert "give the bookies' disks" in done.stderr


def test_the_repair_commands_that_check_names_fix_its_findings(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    kinds = (
        *(ledger_damage.metadata_gone, ledger_damage.last_metadata_gone, ledger_damage.metadata_garbage),
        *(record_damage.topic_garbage, record_damage.topic_gone, record_damage.topic_is_a_cursor),
        *(
            ledger_damage.end_differs,
            ledger_damage.counts_zero,
            ledger_damage.not_listed,
            ledger_damage.in_two_topics,
        ),
        *(ledger_damage.foreign, ledger_damage.terminated, record_damage.parent_gone),
    )
    patient = damaged(healthy_store(capture("pulsar-4.2.4")), Random(5), kinds)
    url, env = written(patient.store, tmp_path / "store"), environment(tmp_path)
    # List and metadata contradict each other, so that only the disks decide.
    entries = ("--entries", f"bookie-disk:{capture('pulsar-4.2.4')}")

    def check() -> list[dict[str, str]]:
        words = ("check", "--store", url, *entries, "--severity", "warning", "--except", "record-unreadable")
        done = as_text(pulsar_meta_here(*words, "-o", "ndjson", env=env))
        assert done.returncode in (0, 1), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    before = check()
    assert {finding["code"] for finding in before} >= {finding.code for finding in patient.expected}
    commands = {finding.get("repair"): finding for finding in before}
    assert None not in commands, commands[None]
    for command, finding in commands.items():
        words = shlex.split(command or "")
        confirmed = ("--confirm", finding["topic"]) if "missing-ledger" in words else ()
        done = as_text(pulsar_meta_here(*words[1:], "--yes", *confirmed, env=env))
        assert done.returncode == 0, (command, done.stderr)
    assert check() == []


def test_compressed_and_corrupt_records_have_repair_commands(store: str, tmp_path: Path) -> None:
    env = environment(tmp_path)
    schema = "/schemas/public/default/strings"
    with open_store(store, read_only=False) as opened:
        opened.put(schema, b"\xff garbage", opened.read(schema).version)

    def check() -> list[dict[str, str]]:
        words = ("--for-version", "4.2.4", "--severity", "error", "-o", "ndjson")
        done = as_text(pulsar_meta_here("check", "--store", store, *words, env=env))
        return [json.loads(line) for line in done.stdout.splitlines()]

    before = check()
    assert {finding["code"] for finding in before} == {"record-unreadable", "record-undecodable"}
    assert {shlex.split(finding["repair"])[1] for finding in before} == {"compress-cursors", "repair"}
    for finding in before:
        words = (*shlex.split(finding["repair"])[1:], "--yes")
        done = as_text(pulsar_meta_here(*words, env=env))
        if "schema" in words:
            assert (done.returncode, "no version of its schema can be read" in done.stderr) == (2, True)
            done = as_text(
                pulsar_meta_here(*words, "--confirm", "persistent://public/default/strings", env=env)
            )
        assert done.returncode == 0, (finding["repair"], done.stderr)
    assert check() == []
