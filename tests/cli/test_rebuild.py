"""`rebuild` makes a snapshot from disks and tells how certain each of its values is."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.stores.registry import open_store
from tests.cli.program import MAIN, environment, wait_until
from tests.cli.values import Run
from tests.nightly import mostly_at_night


def test_bookkeepers_values_are_rebuilt(capture: Callable[[str], Path], run: Run, tmp_path: Path) -> None:
    folder, target = capture("pulsar-4.2.4-3bookies"), tmp_path / "found.ndjson.zst"
    ran = run("rebuild", "--entries", f"bookie-disk:{folder}", "--output", str(target), "-o", "json")
    assert ran.returncode == 0, ran.stderr
    lines = {line["path"]: line for line in json.loads(ran.stdout)}
    with open_store(f"snapshot:{target}") as store, open_store(f"snapshot:{folder}/metadata.ndjson") as old:
        rebuilt = {value.path: value.value for value in store.scan()}
        assert store.origin["counters"]["/ledgers/idgen"] > max(
            line["ledger_id"] for line in lines.values() if "ledger_id" in line
        )
        for path in ("INSTANCEID", *(f"cookies/{name}" for name in old.children("/ledgers/cookies"))):
            assert rebuilt[f"/ledgers/{path}"] == old.read(f"/ledgers/{path}").value
    assert rebuilt.keys() == {path for path, line in lines.items() if "next" not in line}
    assert lines["/ledgers/LAYOUT"]["certainty"] == "invented"
    likely = [line for line in lines.values() if line["certainty"] == "likely" and "ledger_id" in line]
    assert {evidence for line in likely for evidence in line["evidence"]} == {
        "other orders of its bookies are possible"
    }
    kinds = {line["kind"] for line in lines.values() if "kind" in line}
    assert {"data", "cursor", "schema"} <= kinds <= {
        "data", "cursor", "schema", "compacted", "delayed-index-bucket", "transaction-log",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "with_old"),
    mostly_at_night(
        product(("pulsar-2.8.2", "pulsar-4.0.7", "pulsar-4.2.4", "pulsar-4.2.4-3bookies"), (False, True)),
        ("pulsar-2.8.2", True),
        ("pulsar-4.2.4", False),
        ("pulsar-4.2.4-3bookies", False),
    ),
)
def test_check_finds_no_fault_in_what_rebuild_makes(
    capture: Callable[[str], Path], run: Run, tmp_path: Path, name: str, with_old: bool
) -> None:
    folder, target = capture(name), tmp_path / "found.ndjson"
    disks = ("--entries", f"bookie-disk:{folder}")
    old = ("--with", f"snapshot:{folder / 'metadata.ndjson'}") if with_old else ()
    assert run("rebuild", *disks, *old, "--output", str(target)).returncode == 0
    checked = run("check", "--store", f"snapshot:{target}", *disks, "-o", "ndjson")
    findings = [json.loads(line) for line in checked.stdout.splitlines()]
    assert {finding["severity"] for finding in findings} <= {"note"}, checked.stdout
    assert checked.returncode == 0


def test_topics_can_be_named_by_hand(capture: Callable[[str], Path], run: Run, tmp_path: Path) -> None:
    folder, target, names = capture("pulsar-4.2.4"), tmp_path / "found.ndjson", tmp_path / "names"
    disks = ("--entries", f"bookie-disk:{folder}")
    ran = run("rebuild", *disks, "--unnamed", "-o", "ndjson")
    assert ran.returncode == 0, ran.stderr
    topic_names = {"orders", "parted-partition-0", "parted-partition-1", "parted-partition-2", "late-index"}
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        true = {name: read_topic(store, TopicName.parse(name)) for name in sorted(topic_names)}
    topic_of_ledger = {ledger.ledger_id: name for name, topic in true.items() for ledger in topic.ledgers}
    lines = [line for line in map(json.loads, ran.stdout.splitlines()) if "cursor" not in line]
    assert len(lines) < len(ran.stdout.splitlines())
    for line in lines:
        line["topic"] = next((topic_of_ledger[at] for at in line["ledgers"] if at in topic_of_ledger), None)
    names.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = run("rebuild", *disks, "--names", str(names), "--cluster", "east", "--output", str(target))
    assert ran.returncode == 0, ran.stderr
    with open_store(f"snapshot:{target}") as store:
        for name, topic in true.items():
            rebuilt = read_topic(store, TopicName.parse(name))
            closed = {ledger.ledger_id: ledger.entries for ledger in topic.ledgers if ledger.entries}
            assert closed.items() <= {ledger.ledger_id: ledger.entries for ledger in rebuilt.ledgers}.items()
        assert json.loads(store.read("/admin/partitioned-topics/public/default/persistent/parted").value) == {
            "partitions": 3, "deleted": False,
        }  # fmt: skip
        for namespace in ("public/default", "lost-found/ledgers"):
            policies = json.loads(store.read(f"/admin/policies/{namespace}").value)
            assert set(policies["retention_policies"].values()) == {-1}
            assert policies["replication_clusters"] == ["east"]
        assert len(store.children("/managed-ledgers/lost-found/ledgers/persistent")) > 20
    ran = run("rebuild", *disks, "--names", str(names), "--unnamed", "-o", "ndjson")
    remaining = [line for line in map(json.loads, ran.stdout.splitlines()) if "cursor" not in line]
    assert len(remaining) == len(lines) - sum(line["topic"] is not None for line in lines)


def test_topics_are_named_from_an_old_store(capture: Callable[[str], Path], run: Run, tmp_path: Path) -> None:
    folder, target = capture("pulsar-4.2.4"), tmp_path / "found.ndjson"
    old = f"snapshot:{folder / 'metadata-after-step-2.ndjson'}"
    disks = ("--entries", f"bookie-disk:{folder}")
    ran = run("rebuild", *disks, "--with", old, "--output", str(target), "-o", "json")
    assert ran.returncode == 0, ran.stderr
    topics = [line for line in json.loads(ran.stdout) if line.get("ledgers")]
    assert sum(line["certainty"] == "lost+found" for line in topics) < 3
    with open_store(f"snapshot:{target}") as store, open_store(f"snapshot:{folder}/metadata.ndjson") as new:
        # A ledger that was created after the old store was written is still added to its topic.
        rebuilt, expected = (read_topic(each, TopicName.parse("orders")) for each in (store, new))
        assert {ledger.ledger_id for ledger in expected.ledgers if ledger.entries} <= {
            ledger.ledger_id for ledger in rebuilt.ledgers
        }
        assert rebuilt.ledgers[-1].ledger_id > 200
    ran = run("rebuild", *disks, "--with", f"snapshot:{tmp_path / 'no'}", "--output", str(target))
    assert ran.returncode == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense\n", b"line 1"),
        ('{"ledger_id": "6", "topic": "x"}\n', b"line 1"),
        ('\n{"ledger_id": 6, "topic": "a/b"}\n', b"line 2"),
        ('{"ledger_id": 99999, "topic": "x"}\n', b"99999"),
    ],
)
def test_wrong_names_are_refused(
    capture: Callable[[str], Path], run: Run, tmp_path: Path, text: str, words: bytes
) -> None:
    names, target = tmp_path / "names", tmp_path / "found"
    names.write_text(text)
    disks = ("--entries", f"bookie-disk:{capture('pulsar-2.8.2')}")
    ran = run("rebuild", *disks, "--names", str(names), "--output", str(target))
    assert ran.returncode == 2
    assert words in ran.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"names", "found.work"}
    if words == b"99999":
        # The result of reading the disks is kept, although a name turned out to be wrong.
        ran = run("rebuild", *disks, "--output", str(target), "--resume")
        assert ran.returncode == 0, ran.stderr
        assert b"222 ledgers were already scanned" in ran.stderr
        assert {path.name for path in tmp_path.iterdir()} == {"names", "found"}


def test_a_killed_run_is_resumed(capture: Callable[[str], Path], run: Run, tmp_path: Path) -> None:
    disks = ("--entries", f"bookie-disk:{capture('pulsar-2.8.2')}", "-o", "ndjson")
    complete, target, work = (tmp_path / name for name in ("complete", "found", "found.work"))
    ran = run("rebuild", *disks, "--output", str(complete))
    headers = list[bytes]()
    for lines in (random.randint(2, 30), random.randint(35, 130)):
        with subprocess.Popen(
            [*MAIN, "rebuild", *disks, "--output", str(target), "--resume"],
            env=environment(tmp_path),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as killed:
            wait_until(lambda: work.exists() and work.read_bytes().count(b"\n") >= lines)  # noqa: B023
            killed.kill()
        assert not target.exists()
        headers.append(work.read_bytes().splitlines()[0])
    assert headers[0] == headers[1]
    refused = run("rebuild", *disks, "--output", str(target))
    assert (refused.returncode, b"--resume" in refused.stderr) == (2, True)
    resumed = run("rebuild", *disks, "--output", str(target), "--resume")
    assert resumed.returncode == ran.returncode == 0
    assert resumed.stdout == ran.stdout
    taken_at = [json.loads(path.read_bytes().splitlines()[0])["taken"] for path in (complete, target)]
    assert taken_at[1] == json.loads(headers[0])["taken"]
    # The files differ only in the time at which they were begun and in the footer's checksums of it.
    texts = [re.sub(r'"crc32c_(before|header)": ?\d+', "", path.read_text()) for path in (complete, target)]
    assert texts[1].replace(taken_at[1], taken_at[0]) == texts[0]
    assert not work.exists()


@pytest.mark.parametrize(("url", "code"), [("s3://bucket", 2), ("offload:/nowhere", 3), ("offload:/etc", 3)])
def test_wrong_urls_of_offloaded_ledgers_are_refused(
    capture: Callable[[str], Path], run: Run, tmp_path: Path, url: str, code: int
) -> None:
    disks = ("--entries", f"bookie-disk:{capture('pulsar-2.8.2')}", "--output", str(tmp_path / "found"))
    ran = run("rebuild", *disks, "--offloaded", url)
    assert (ran.returncode, ran.stderr.count(b"\n"), list(tmp_path.iterdir())) == (code, 1, []), ran.stderr


def test_resume_needs_an_output_file(capture: Callable[[str], Path], run: Run) -> None:
    disks = ("--entries", f"bookie-disk:{capture('pulsar-2.8.2')}")
    ran = run("rebuild", *disks, "--unnamed", "--resume")
    assert (ran.returncode, b"--output" in ran.stderr) == (2, True)


def test_a_wrong_password_is_refused(capture: Callable[[str], Path], run: Run, tmp_path: Path) -> None:
    secret, target = tmp_path / "secret", tmp_path / "found.ndjson"
    secret.write_text("hunter2\n")
    disks = f"bookie-disk:{capture('pulsar-2.8.2')}"
    ran = run(
        "rebuild", "--entries", disks, "--output", str(target), "--password", f"file:{secret}", "-o", "csv"
    )
    assert ran.returncode == 7
    assert b"hunter2" not in ran.stdout + ran.stderr
    assert b"its master key does not match the password given" in ran.stdout
    with open_store(f"snapshot:{target}") as store:
        assert not list(store.scan("/ledgers/00"))


def test_disks_that_cannot_be_rebuilt_are_refused(
    capture: Callable[[str], Path], run: Run, tmp_path: Path
) -> None:
    folder, target = capture("pulsar-4.2.4"), str(tmp_path / "found.ndjson")
    ran = run("rebuild", "--entries", f"bookie-disk:{folder}")
    assert ran.returncode == 2
    assert b"--output" in ran.stderr
    nameless = tmp_path / "nameless"
    shutil.copytree(folder / "bookie0", nameless)
    (nameless / "current" / "VERSION").unlink()
    ran = run("rebuild", "--entries", f"bookie-disk:{nameless}", "--output", target)
    assert ran.returncode == 2
    assert b"VERSION" in ran.stderr
    other = capture("pulsar-4.0.7")
    disks = [f"--entries=bookie-disk:{cluster / 'bookie0'}" for cluster in (folder, other)]
    ran = run("rebuild", *disks, "--output", target)
    assert ran.returncode == 7
    assert b"disks of 2 clusters" in ran.stderr
    assert not Path(target).exists()


def test_an_output_that_cannot_be_written_is_a_usage_error(
    capture: Callable[[str], Path], run: Run, tmp_path: Path
) -> None:
    disks = f"bookie-disk:{capture('pulsar-4.2.4')}"
    ran = run("rebuild", "--entries", disks, "--output", str(tmp_path / "no" / "found"))
    assert ran.returncode == 2, ran.stderr
