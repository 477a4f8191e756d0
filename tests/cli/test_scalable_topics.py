"""Commands on scalable topics, compared with the answers of the broker and its clients."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from pulsar_meta.codecs.names import TopicName, decode_name
from tests.cli.program import environment, pulsar_meta_here
from tests.seek_truth import is_transactional

NAME: Final = "pulsar-5.0.0-M1-scalable"
Run = Callable[..., subprocess.CompletedProcess[str]]
Truth = dict[str, Any]


@pytest.fixture
def run(capture: Callable[[str], Path], tmp_path: Path) -> Run:
    """Return a function that runs the program on a copy of the capture's store and on its bookie."""
    folder = capture(NAME)
    shutil.copytree(folder / "rocksdb", tmp_path / "rocksdb")
    env = environment(
        tmp_path,
        PULSAR_META_STORE=f"rocksdb:{tmp_path / 'rocksdb'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = pulsar_meta_here(*arguments, env=env)
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return call


@pytest.fixture
def truth(capture: Callable[[str], Path]) -> Truth:
    stated: Truth = orjson.loads((capture(NAME) / "truth.json").read_bytes())
    return stated


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def scalable(truth: Truth) -> Iterator[tuple[str, list[str]]]:
    """Yield each scalable topic that has messages, and its segments ordered by id."""
    for name, topic_truth in truth.items():
        if topic_truth.get("sent"):
            yield (
                name,
                [topic_truth["segments"][number] for number in sorted(topic_truth["segments"], key=int)],
            )


def positions(truth: Truth, topic: str) -> dict[str, str]:
    """Return each subscription's mark-delete position, without the reader that recorded the truth."""
    cursors = truth[topic]["internalStats"]["cursors"].items()
    return {
        decode_name(name): cursor["markDeletePosition"]
        for name, cursor in cursors
        if not name.startswith("reader-")
    }


def test_every_message_is_shown_once_in_its_segment(run: Run, truth: Truth) -> None:
    shown: Counter[tuple[str, str, int, int, int]] = Counter()
    sent: Counter[tuple[str, str, int, int, int]] = Counter()
    for name, segments in scalable(truth):
        done = run("dump-entries", name, "--deep", "-o", "ndjson")
        assert done.returncode == 0, done.stderr
        entries = lines(done)
        assert list(dict.fromkeys(entry["topic"] for entry in entries)) == [
            segment for segment in segments if truth[segment]["messages"]
        ]
        assert {entry["scalable_topic"] for entry in entries} == {name}
        for entry in entries:
            for message in entry["messages"]:
                batch = message.get("batch_index", -1)
                shown[name, entry["topic"], entry["ledger_id"], entry["entry_id"], batch] += 1
        for message in truth[name]["sent"]:
            sent[name, segments[message["segment"]], message["l"], message["e"], message["b"]] += 1
    assert sum(sent.values()) == 1218
    assert not sent - shown
    old = {
        segment for _, segments in scalable(truth) for segment in segments if segment.startswith("persistent")
    }
    assert {topic for _, topic, *_ in shown - sent} == old


def test_each_segment_answers_for_an_index(run: Run, truth: Truth) -> None:
    for name, segments in scalable(truth):
        by_index = {
            (segment, message["ix"]): (message["l"], message["e"])
            for segment in segments
            for message in truth[segment]["messages"]
            if not is_transactional(segment)
        }
        for index in (0, 7, 31, 1000):
            done = run("seek", name, "--index", str(index), "-o", "ndjson")
            answers = lines(done)
            assert [answer["topic"] for answer in answers] == segments
            if is_transactional(name):
                continue
            places = [
                (answer["ledger_id"], answer["entry_id"]) if "ledger_id" in answer else None
                for answer in answers
            ]
            assert places == [by_index.get((segment, index)) for segment in segments]
            assert done.returncode == (0 if any(places) else 3)


def test_all_segments_give_one_answer_for_a_time(run: Run, truth: Truth) -> None:
    name, segments = next(pair for pair in scalable(truth) if pair[0].endswith("/moved"))
    entries = sorted(
        {
            (message["bt"], message["l"], message["e"])
            for seg in segments
            for message in truth[seg]["messages"]
        }
    )
    times = [time for time, *_ in entries]
    for time_sought in (times[0] - 5, times[len(times) // 2], times[len(times) * 3 // 4] + 1, times[-1]):
        done = run("seek", name, "--time", str(time_sought), "-o", "ndjson")
        (answer,) = lines(done)
        first = next(time for time in times if time >= time_sought)
        assert (answer["broker_timestamp"], done.returncode) == (first, 0)
        assert (first, answer["ledger_id"], answer["entry_id"]) in entries
        assert answer["scalable_topic"] == name
    after = run("seek", name, "--time", str(times[-1] + 1), "-o", "ndjson")
    assert (lines(after)[0]["status"], after.returncode) == ("after-last", 3)
    # For a single segment, and with --expired, each segment gives its own answer.
    (single,) = lines(run("seek", segments[-1], "--time", str(times[0]), "-o", "ndjson"))
    assert (single["topic"], single["scalable_topic"]) == (segments[-1], name)
    assert len(lines(run("seek", name, "--expired", "1d", "-o", "ndjson"))) == len(segments)


def test_dump_entries_from_a_time_reads_every_segment(run: Run, truth: Truth) -> None:
    name, segments = next(pair for pair in scalable(truth) if pair[0].endswith("/split"))
    messages = [message for segment in segments for message in truth[segment]["messages"]]
    middle = sorted(message["bt"] for message in messages)[len(messages) // 2]
    done = run("dump-entries", name, "--time", str(middle), "-o", "ndjson")
    expected = {(message["l"], message["e"]) for message in messages if message["bt"] >= middle}
    assert {(entry["ledger_id"], entry["entry_id"]) for entry in lines(done)} == expected
    # The first segment was sealed before that time, which is no fault.
    assert done.returncode == 0, done.stderr
    assert run("dump-entries", name, "--time", "2100-01-01").returncode == 3


def test_plain_lines_begin_with_the_segment(run: Run) -> None:
    done = run("seek", "public/default/moved", "--index", "0")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [
        "persistent://public/default/moved",
        "segment://public/default/moved/0000-ffff-1",
        "segment://public/default/moved/0000-7fff-2",
        "segment://public/default/moved/8000-ffff-3",
    ]


def test_checks_find_no_fault(run: Run, truth: Truth) -> None:
    for name, segments in scalable(truth):
        for command in ("verify-entries", "check-index"):
            done = run(command, name, "-o", "ndjson")
            assert done.returncode == 0, done.stdout + done.stderr
            assert json.loads(done.stderr)["checked"]["topics"] == len(segments)
        ledgers = [(line["topic"], line["ledger_id"]) for line in lines(done)]
        expected = [
            (segment, ledger["ledgerId"])
            for segment in segments
            for ledger in truth[segment]["internalStats"]["ledgers"]
        ]
        assert [ledger for ledger in ledgers if ledger in expected] == expected
    assert run("verify-entries", "--all").returncode == 0


def test_a_fault_names_its_segment(run: Run, tmp_path: Path) -> None:
    path = "/ledgers/00/0000/L0035"
    confirm = ("--confirm", "segment://public/default/merged/0000-7fff-0")
    assert run("rm", path, "--yes", *confirm, "--version", str(version_of(run, path))).returncode == 0
    done = run("verify-entries", "public/default/merged", "-o", "ndjson")
    (fault,) = lines(done)
    assert done.returncode == 1
    assert fault["topic"] == "segment://public/default/merged/0000-7fff-0"
    assert (fault["scalable_topic"], fault["ledger_id"]) == ("topic://public/default/merged", 35)
    assert run("verify-entries", "merged", "-o", "plain").stdout.endswith(f" ({fault['topic']})\n")


def version_of(run: Run, path: str) -> int:
    version: int = json.loads(run("get", path, "-o", "json").stdout)["version"]
    return version


def test_ls_get_and_tree_show_the_segments(run: Run, truth: Truth) -> None:
    segments = dict(scalable(truth))["topic://public/default/created"]
    cursors = lines(run("ls", "topic", "created", "-o", "ndjson"))
    expected = [(segment, cursor) for segment in segments for cursor in positions(truth, segment)]
    assert sorted((cursor["topic"], cursor["cursor"]) for cursor in cursors) == sorted(expected)
    shown = lines(run("get", "cursor", "topic://public/default/created", "stream", "-o", "ndjson"))
    assert [cursor["meaning"]["mark_delete"] for cursor in shown] == [
        positions(truth, segment)["stream"] for segment in segments
    ]
    ledgers = lines(run("get", "topic", "created", "-o", "ndjson"))
    assert [topic["meaning"]["ledger_count"] for topic in ledgers] == [
        len(truth[segment]["internalStats"]["ledgers"]) for segment in segments
    ]
    assert len(run("tree", "topic", "created").stdout.splitlines()) == 3 + len(expected)


def test_lines_about_a_segment_name_it_and_its_topic(run: Run, truth: Truth) -> None:
    """Tests the commands that don't read entries."""
    segments = dict(scalable(truth))[name := "topic://public/default/moved"]
    plans = [
        ["build-index", "moved", "--dry-run"],
        ["compress-ledgers", "--topic", "moved", "--compression", "zstd", "--threshold", "0", "--dry-run"],
        ["set-property", "moved", "45,46", "a=b", "--dry-run"],
    ]
    for words in (["tree", "topic", "moved"], ["get", "topic", "moved"], *plans):
        records = [
            line for line in lines(run(*words, "-o", "ndjson")) if "path" in line and "cursor" not in line
        ]
        named = [(line["topic"], line["scalable_topic"]) for line in records]
        # They are in the order of the tree. A property is set on the segment that has the ledgers.
        assert named == [(segment, name) for segment in segments[: 1 if words[0] == "set-property" else None]]
    for words in (
        ["ls", "topic", "moved"],
        ["get", "cursor", "moved", "keep"],
        ["ls", "topic", "moved", "-l"],
    ):
        (line,) = lines(run(*words, "-o", "ndjson"))
        assert (line["topic"], line["scalable_topic"], line["cursor"]) == (segments[0], name, "keep")
    (line,) = lines(
        run("compress-cursors", "--topic", "moved", "--compression", "lz4", "--dry-run", "-o", "ndjson")
    )[1:]
    assert (line["scalable_topic"], line["cursor"]) == (name, "keep")
    # An ordinary topic, and a value that belongs to no topic.
    assert "scalable_topic" not in lines(run("get", "topic", "__change_events", "-o", "ndjson"))[0]
    assert "topic" not in lines(run("get", "/admin/clusters/standalone", "-o", "ndjson"))[0]
    nodes = {node["path"]: node for node in lines(run("tree", "/", "-o", "ndjson"))}
    assert nodes["/topics/public/default/moved"]["topic"] == name
    for topic in segments:
        path = TopicName.parse(topic).path
        assert (nodes[path]["topic"], nodes[path]["scalable_topic"]) == (topic, name)


def test_whois_names_the_scalable_topic(run: Run) -> None:
    ledgers = {ledger["ledger_id"]: ledger for ledger in lines(run("whois", "35", "45", "2", "-o", "ndjson"))}
    assert ledgers[35]["scalable_topic"] == "topic://public/default/merged"
    assert ledgers[45]["scalable_topic"] == "topic://public/default/moved"
    assert "scalable_topic" not in ledgers[2]


def test_a_finding_names_the_scalable_topic(run: Run) -> None:
    path = "/managed-ledgers/public/default/segment/moved/0000-7fff-2"
    confirm = ("--confirm", "segment://public/default/moved/0000-7fff-2")
    assert run("rm", path, "--yes", *confirm, "--version", str(version_of(run, path))).returncode == 0
    findings = lines(run("check", "moved", "-o", "ndjson"))
    assert "segment-without-managed-ledger" in [finding["code"] for finding in findings]
    assert {finding["scalable_topic"] for finding in findings} == {"topic://public/default/moved"}
    assert {finding["topic"] for finding in findings} == {"segment://public/default/moved/0000-7fff-2"}


def test_plain_entries_name_their_segment(run: Run, truth: Truth) -> None:
    segments = dict(scalable(truth))["topic://public/default/merged"]
    for words in (["-o", "plain"], ["--deep", "-o", "plain"], ["--where", "region=eu", "-o", "plain"]):
        notes = [line.split("\t")[-1] for line in run("dump-entries", "merged", *words).stdout.splitlines()]
        assert list(dict.fromkeys(note.split(", ")[-1] for note in notes)) == segments


def test_transactions_can_be_combined_with_where(run: Run) -> None:
    shown = run("dump-entries", "txn", "--transactions", "-o", "ndjson")
    states = {
        (entry["ledger_id"], entry["entry_id"]): entry["transaction_state"]
        for entry in lines(shown)
        if "transaction" in entry
    }
    done = run("dump-entries", "txn", "--transactions", "--where", "region=eu", "-o", "ndjson")
    selected = [entry for entry in lines(done) if "transaction" in entry]
    assert done.returncode == 0
    assert {entry["transaction_state"] for entry in selected} == {"committed", "aborted"}
    assert all(
        entry["transaction_state"] == states[entry["ledger_id"], entry["entry_id"]] for entry in selected
    )
    assert all(entry["where"]["matches"] for entry in selected)


def test_ambiguous_names_are_explained_or_refused(run: Run) -> None:
    old = run("properties", "persistent://public/default/moved")
    assert old.returncode == 0
    assert "only the sealed old part of topic://public/default/moved, which has 3 more segments" in old.stderr
    assert "sealed" not in run("properties", "moved").stderr
    for command in (["properties"], ["dump-entries"], ["ls", "topic"], ["get", "topic"], ["check-index"]):
        done = run(*command, "both")
        assert (done.returncode, done.stdout) == (2, "")
        assert "two topics have this name" in done.stderr
    near = run("dump-entries", "topic://public/default/merg")
    assert near.returncode == 3
    assert "did you mean topic://public/default/merged?" in near.stderr
    for words in (
        ["seek", "--index", "0"],
        ["properties"],
        ["check"],
        ["export", "--to", "never", "-o", "csv"],
    ):
        done = run(words[0], "merg", *words[1:])
        assert (done.returncode, "topic://public/default/merged?" in done.stderr) == (3, True), words


def test_a_subscription_may_be_missing_in_some_segments(run: Run, truth: Truth) -> None:
    """`keep` was created before the migration, so only the migrated topic has it."""
    old = "persistent://public/default/moved"
    shown = run("show-cursor", "moved", "keep", "-o", "ndjson")
    (line,) = lines(shown)
    assert (shown.returncode, line["topic"], line["scalable_topic"]) == (
        0,
        old,
        "topic://public/default/moved",
    )
    assert line["position"] == positions(truth, old)["keep"] == "45:5"
    assert len(lines(run("get", "cursor", "moved", "keep", "-o", "ndjson"))) == 1
    sought = run("seek", "moved", "--time", "2026-01-01", "--cursor", "keep", "-o", "ndjson")
    (answer,) = lines(sought)
    assert (sought.returncode, answer["topic"]) == (0, old)
    assert f"{answer['ledger_id']}:{answer['entry_id']}" == "45:6"
    assert "3 of its segments have no cursor 'keep' and are left out" in sought.stderr
    missing = (["show-cursor", "moved", "gone"], ["get", "cursor", "moved", "gone"])
    for words in (*missing, ["seek", "moved", "--time", "2026-01-01", "--cursor", "gone"]):
        assert run(*words).returncode == 3


def test_writes_go_to_the_segments(run: Run) -> None:
    done = run("build-index", "public/default/moved", "--yes")
    assert done.returncode == 0, done.stderr
    properties = {row["ledger_id"]: row for row in lines(run("properties", "moved", "-o", "ndjson"))}
    assert [properties[ledger]["properties"] for ledger in (45, 46, 49, 50)] == [
        {"first-index": first} for first in ("0", "40", "0", "32")
    ]
    assert properties[49]["topic"] == "segment://public/default/moved/0000-ffff-1"
    assert {row["scalable_topic"] for row in properties.values()} == {"topic://public/default/moved"}
    assert run("set-property", "moved", "46,47", "a=b", "--yes").returncode == 0
    spread = run("set-property", "moved", "46,49", "a=b", "--yes")
    assert (spread.returncode, "no segment of" in spread.stderr) == (3, True)
    compressed = run(
        "compress-ledgers", "--topic", "moved", "--compression", "zstd", "--threshold", "0", "--yes"
    )
    assert compressed.returncode == 0, compressed.stderr
    assert run("check-index", "moved").returncode == 0
    refused = run("rm", "topic", "moved", "--yes", "--version", "0")
    assert (refused.returncode, "has 4 segments: name one" in refused.stderr) == (2, True)


def test_a_killed_cluster_is_read_as_it_was_left(capture: Callable[[str], Path], tmp_path: Path) -> None:
    folder = capture(f"{NAME}-running")
    truth = orjson.loads((folder / "truth.json").read_bytes())
    stated = environment(
        tmp_path,
        PULSAR_META_STORE=f"snapshot:{folder / 'metadata.ndjson'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )
    for segment in {segment for _, segments in scalable(truth) for segment in segments}:
        for cursor, position in positions(truth, segment).items():
            done = pulsar_meta_here("get", "cursor", segment, cursor, "-o", "json", env=stated)
            meaning = json.loads(done.stdout)["meaning"]
            state = meaning.get("ledger_state", meaning)
            assert (segment, cursor, state["mark_delete"]) == (segment, cursor, position)


def test_get_accepts_the_topics_that_ls_prints(run: Run, truth: Truth) -> None:
    listed = run("ls", "namespace", "public/default").stdout.splitlines()
    assert {name for name, _ in scalable(truth) if name.startswith("topic://public/default/")} <= set(listed)
    for name in listed:
        # M1 encodes some names twice and can't find these topics itself: record and segments differ.
        if name.startswith("topic://") and "/lost" not in name:
            assert run("get", "topic", name).returncode == 0, name
