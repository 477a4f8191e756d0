"""What commands over entries say that they looked at, and what they could not look at."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.topics.bookkeeper import read_bookkeeper_ledger
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, pulsar_meta_here

Capture = Callable[[str], Path]
ELSEWHERE = "only bookies have them whose disks were not given"


def run(*arguments: object) -> CompletedProcess[str]:
    return as_text(pulsar_meta_here(*arguments))


def snapshot_without(folder: Path, target: Path, *prefixes: str) -> str:
    """Write the capture's snapshot without the values at or below some paths and return its URL."""

    def kept() -> Iterator[str]:
        for line in (folder / "metadata.ndjson").read_text(encoding="utf-8").splitlines():
            if not json.loads(line)["path"].startswith(prefixes):
                yield line

    target.write_text("\n".join(kept()) + "\n", encoding="utf-8")
    return f"snapshot:{target}"


@pytest.fixture
def folder(capture: Capture) -> Path:
    return capture("pulsar-4.2.4")


@pytest.fixture
def where(folder: Path) -> list[str]:
    return ["--store", f"snapshot:{folder}/metadata.ndjson", "--entries", f"bookie-disk:{folder}/bookie0"]


def test_missing_entries_of_a_terminated_topic_are_the_same_count_everywhere(
    folder: Path, where: list[str], tmp_path: Path
) -> None:
    frames = tmp_path / "frames"
    assert run("dump-entries", "terminated", *where, "-n", 3, "-o", "raw", "--output", frames).returncode == 0
    sources = [*where[:2], "--entries", f"frames:{frames}"]
    verified = run("verify-entries", "terminated", *sources, "-o", "json")
    assert verified.returncode == 1
    assert json.loads(verified.stdout) == [
        {
            "ledger_id": 46,
            "entry_id": 3,
            "layer": "missing",
            "fault": "no source has it, nor the 3 after it",
        }
    ]
    checked = run("check-index", "terminated", *sources, "-o", "json")
    assert (checked.returncode, [one["missing"] for one in json.loads(checked.stdout)]) == (1, [4])
    dumped = run("dump-entries", "terminated", *sources)
    assert (dumped.returncode, "no source has 4 of its entries 0 to 6" in dumped.stderr) == (3, True)


@pytest.mark.parametrize("with_store", [True, False])
def test_a_ledger_that_nobody_has_is_not_found(where: list[str], with_store: bool) -> None:
    done = run("verify-entries", "99999", *(where if with_store else where[2:]))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "pulsar-meta: no ledger 99999: no source has an entry of it\n"


@pytest.mark.parametrize("command", ["dump-entries", "verify-entries", "plan-batches --keys a"])
def test_sources_that_hold_nothing_of_what_is_asked_for(
    command: str, where: list[str], tmp_path: Path
) -> None:
    (tmp_path / "none").write_bytes(b"")
    sources = [*where[:2], "--entries", f"frames:{tmp_path / 'none'}"]
    named = run(*command.split(), "18", *sources)
    assert named.returncode == (1 if command == "verify-entries" else 3), named.stderr
    assert "no source has" in named.stderr + named.stdout
    if "plan" not in command:
        every = run(command, *sources)
        assert (every.returncode, "hold no ledger" in every.stderr) == (3, True)


def test_a_store_without_topics_is_nothing_to_check(tmp_path: Path) -> None:
    for command in ("check-readable --for-version 4.2.4", "check-index --all", "verify-entries --all"):
        (tmp_path / "frames").write_bytes(b"")
        words = [*command.split(), "--store", f"dir:{tmp_path}"]
        words += [] if "readable" in command else ["--entries", f"frames:{tmp_path / 'frames'}"]
        done = run(*words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1), command


def test_a_ledger_that_bookkeeper_does_not_know_is_a_fault(
    folder: Path, where: list[str], tmp_path: Path
) -> None:
    store = snapshot_without(folder, tmp_path / "without.ndjson", ledger_path(21))
    done = run("verify-entries", "orders", "--store", store, *where[2:])
    assert (done.returncode, done.stdout) == (
        1,
        "21:-1\tledger\tBookKeeper has no metadata of it: nobody can open it\n",
    )
    checked = run("check-index", "orders", "--store", store, *where[2:], "-o", "json")
    ledgers = {one["ledger_id"]: one for one in json.loads(checked.stdout)}
    assert (checked.returncode, ledgers[21]["ok"]) == (1, False)
    assert ledgers[21]["faults"] == [
        {"fault": "ledger", "why": "BookKeeper has no metadata of it: nobody can open it"}
    ]
    assert ledgers[23]["ok"]


def test_a_store_without_bookkeepers_metadata_is_no_fault_and_said(
    folder: Path, where: list[str], tmp_path: Path
) -> None:
    store = snapshot_without(folder, tmp_path / "without.ndjson", "/ledgers")
    for command in ("verify-entries", "check-index"):
        done = run(command, "terminated", "--store", store, *where[2:])
        assert done.returncode == 0, done.stderr
        assert done.stderr == (
            "checked: 1 topic, 1 ledger, 7 entries;"
            " not checked: BookKeeper's metadata (the store has none below /ledgers)\n"
        )


def test_entries_of_other_bookies_are_not_checked(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    store = ["--store", f"snapshot:{folder}/metadata.ndjson"]
    one = run("verify-entries", "orders", *store, "--entries", f"bookie-disk:{folder}/bookie0", "-o", "json")
    assert (one.returncode, json.loads(one.stdout)) == (3, [])
    assert json.loads(one.stderr)["not_checked"] == {"55 entries": ELSEWHERE}
    index = run("check-index", "orders", *store, "--entries", f"bookie-disk:{folder}/bookie0", "-o", "json")
    ledgers = json.loads(index.stdout)
    assert (sum(one["missing"] for one in ledgers), sum(one.get("not_checked", 0) for one in ledgers)) == (
        0,
        55,
    )
    # Write quorum 2 of 3: any two bookies have everything.
    two = [part for at in (0, 2) for part in ("--entries", f"bookie-disk:{folder}/bookie{at}")]
    done = run("verify-entries", "orders", *store, *two)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "checked: 1 topic, 6 ledgers, 163 entries\n"
    # All that a disk has was asked for, not what others have.
    alone = run("verify-entries", *store, "--entries", f"bookie-disk:{folder}/bookie0")
    assert (alone.returncode, alone.stdout) == (0, "")


def test_what_a_bookie_should_have_and_has_not_is_missing(capture: Capture, tmp_path: Path) -> None:
    folder, disk = capture("pulsar-4.2.4-3bookies"), tmp_path / "bookie0"
    shutil.copytree(folder / "bookie0", disk)
    for journal in disk.glob("current/*.txn"):
        journal.unlink()
    for log in disk.glob("current/*.log"):
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size // 2)
    url = f"snapshot:{folder}/metadata.ndjson"
    sources = ["--store", url, "--entries", f"bookie-disk:{disk}?index=scan"]
    done = run("verify-entries", "public/default", *sources, "-o", "ndjson")
    faults = [json.loads(line) for line in done.stdout.splitlines()]
    missing = [fault for fault in faults if fault["layer"] == "missing"]
    assert (done.returncode, bool(missing)) == (3, True)
    with open_store(url) as store:
        for fault in missing:
            ensembles = read_bookkeeper_ledger(store, fault["ledger_id"]).ensembles()
            assert "127.0.0.1:38911" in ensembles.replicas(fault["entry_id"])


@pytest.mark.parametrize("command", ["verify-entries", "dump-entries", "check-index"])
@pytest.mark.parametrize(
    ("names", "topics"), [(["public/zero"], 3), (["--all"], 45), (["public/default/t*"], 2)]
)
def test_topics_are_chosen_in_one_way(command: str, names: list[str], topics: int, where: list[str]) -> None:
    done = run(command, *names, *where, "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["checked"]["topics"] == topics


@pytest.mark.parametrize("command", ["verify-entries", "dump-entries", "check-index"])
@pytest.mark.parametrize("name", ["public/nowhere", "nowhere", "public/default/no*"])
def test_a_name_that_no_topic_has_is_not_found(command: str, name: str, where: list[str]) -> None:
    done = run(command, name, *where)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--from", "99999999999999999999999"], 2, "an entry id is at most 9223372036854775807"),
        (["--from", "99999999999999999999999:1"], 2, "expected ENTRY"),
        (["--to", "1:9223372036854775808"], 2, "expected ENTRY"),
        (["--ledger", "99999999999999999999999"], 2, "a ledger id is 0 to"),
        (["--from", "9223372036854775807"], 3, "no entry lies within"),
        (["--from", "242:999"], 3, "no entry lies within"),
    ],
)
def test_bounds_beyond_everything(arguments: list[str], code: int, says: str, where: list[str]) -> None:
    for command in ("dump-entries", "verify-entries"):
        done = run(command, "orders", *arguments, *where)
        assert (done.returncode, done.stdout) == (code, "")
        assert says in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("limit", ["-n", "--limit", "--count"])
def test_at_most_so_many_may_be_any_number(limit: str, where: list[str]) -> None:
    done = run("dump-entries", "orders", "--from", "-2", limit, "99999999999999999999999", *where)
    assert (done.returncode, done.stdout.count("\n")) == (0, 2)


def test_what_seek_prints_dump_entries_takes(where: list[str]) -> None:
    found = run("seek", "orders", "--index", 1234, *where).stdout.strip()
    assert found.count(":") == 2
    done = run("dump-entries", "orders", "--from", found, "-n", 1, *where, "-o", "json")
    (entry,) = json.loads(done.stdout)
    assert entry["first_index"] <= 1234 <= entry["last_index"]
    by_index = run("dump-entries", "orders", "--index", 1234, *where, "-o", "json")
    assert json.loads(by_index.stdout) == [entry]


def test_entries_from_a_time_on(where: list[str]) -> None:
    entries = json.loads(run("dump-entries", "orders", *where, "-o", "json").stdout)
    time = entries[100]["broker_timestamp"]
    expected = next(at for at, entry in enumerate(entries) if entry["broker_timestamp"] >= time)
    done = run("dump-entries", "orders", "--time", time, *where, "-o", "json")
    assert json.loads(done.stdout) == entries[expected:]
    late = run("dump-entries", "orders", "--time", "2999-01-01", *where)
    assert (late.returncode, late.stdout) == (3, "")
    assert "after-last" in late.stderr


def shown(*arguments: object) -> list[tuple[int, int]]:
    done = run("dump-entries", *arguments, "-o", "ndjson")
    assert done.returncode == 0, done.stderr
    return [(one["ledger_id"], one["entry_id"]) for one in map(json.loads, done.stdout.splitlines())]


@pytest.mark.parametrize("place", [["--index", 1234], ["--time"], ["--index", 5, "--index", 900]])
def test_entries_found_by_index_or_time_are_filtered(
    place: list[object], where: list[str], tmp_path: Path
) -> None:
    every = json.loads(run("dump-entries", "orders", *where, "-o", "json").stdout)
    if place == ["--time"]:
        place = ["--time", every[len(every) // 2]["broker_timestamp"]]
    matching = set(shown("orders", "--where", "region=eu", *where))
    found = shown("orders", *place, *where)
    assert 0 < len(found) < len(every)
    words, frames = ["orders", *place, "--where", "region=eu", *where], tmp_path / "frames"
    assert shown(*words) == [one for one in found if one in matching]
    assert run("dump-entries", *words, "-o", "raw", "--output", frames).returncode == 0
    kept = map(json.loads, (tmp_path / "frames.idx").read_text().splitlines())
    assert [(one["ledger"], one["entry"]) for one in kept] == shown(*words)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["orders", "--index", "1", "--from", "2"], "--from"),
        (["18", "--index", "1"], "in topics"),
        (["orders", "--time", "2026"], "write 2026-01-01"),
        (["orders", "--time", "1795240940"], "write 1795240940000"),
        (["orders", "--format", "{nothing}"], "no field 'nothing'"),
        (["orders", "--format", "{index}", "-o", "json"], "leave -o out"),
        (["--all", "orders"], "not both"),
    ],
)
def test_options_that_make_no_sense_together(arguments: list[str], says: str, where: list[str]) -> None:
    done = run("dump-entries", *arguments, *where)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


@pytest.mark.parametrize("time", ["2026", "1795240940", "20260820", "5"])
def test_seek_refuses_numbers_that_are_hardly_milliseconds(time: str, where: list[str]) -> None:
    done = run("seek", "orders", "--time", time, *where)
    assert (done.returncode, done.stdout) == (2, "")
    assert "milliseconds are 1970-01-" in done.stderr


def test_templates_understand_tabs_and_line_ends(where: list[str]) -> None:
    done = run("seek", "orders", "--index", 0, "--format", r"{topic}\t{ledger_id}\n{entry_id}\\", *where)
    assert done.stdout == f"{TopicName.parse('orders')}\t18\n0\\\n"
    dumped = run("dump-entries", "orders", "-n", 1, "--deep", "--format", r"{index}\t{batch_index}", *where)
    assert dumped.stdout == "0\t-\n" or dumped.stdout.splitlines()[0] in ("-", "0\t0")


def test_the_state_of_a_cursor_is_that_in_its_ledger(capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4-killed")
    words = ["get", "cursor", "last-words", "reader", "--store", f"snapshot:{folder}/metadata.ndjson"]
    without = run(*words, "-o", "json")
    assert without.returncode == 0
    assert "its state lies in ledger 375 and is not shown: give --entries URL" in without.stderr
    assert not {"acked_ranges", "ledger_state"} & json.loads(without.stdout)["meaning"].keys()
    done = run(*words, "--entries", f"bookie-disk:{folder}/bookie0", "-o", "json")
    state = json.loads(done.stdout)["meaning"]["ledger_state"]
    assert (done.returncode, done.stderr) == (0, "")
    assert (state["position"], state["mark_delete"], state["acked_ranges"]) == ("375:1", "354:-1", 3)
    assert len(state["batches"]) == 45
    assert (
        "acknowledged after it: 3 entries in 3 ranges"
        in run(*words, "--entries", f"bookie-disk:{folder}/bookie0").stdout
    )
    (tmp_path / "none").write_bytes(b"")
    lost = run(*words, "--entries", f"frames:{tmp_path / 'none'}")
    assert (lost.returncode, "ledger 375, of which no source has an entry" in lost.stderr) == (3, True)


@pytest.mark.parametrize("command", ["dump-entries", "verify-entries", "plan-batches --keys region"])
def test_a_ledger_is_looked_for_in_every_topic(command: str, where: list[str]) -> None:
    words = [*command.split(), "txn", "orders", "terminated", *where, "-o", "json"]
    done = run(*words, "--ledger", 21)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["checked"] | {"entries": 0} == {
        "topics": 1, "ledgers": 1, "entries": 0,
    }  # fmt: skip
    some = run(*words, "--ledger", 21, "--ledger", 46, "--ledger", 99999)
    assert (some.returncode, "none of 3 topics has ledger 99999" in some.stderr) == (3, True)
    assert json.loads(some.stderr.splitlines()[-1])["checked"]["ledgers"] == 2
    none = run(*words, "--ledger", 99999)
    assert (none.returncode, none.stderr.count("\n")) == (3, 1)


def test_plan_batches_says_what_it_looked_at(where: list[str], tmp_path: Path) -> None:
    done = run("plan-batches", "orders", "terminated", "--keys", "region", *where)
    assert (done.returncode, done.stderr) == (0, "checked: 2 topics, 7 ledgers, 170 entries\n")
    few = run("plan-batches", "orders", "--keys", "region", "-n", 5, *where, "-o", "json")
    assert json.loads(few.stderr)["checked"] == {"topics": 1, "ledgers": 1, "entries": 5}
    none = run("plan-batches", "orders", "--keys", "region", "--from", "242:999", *where)
    assert (none.returncode, "no entry lies within" in none.stderr) == (3, True)


@pytest.mark.parametrize("command", ["seek orders --index 5", "build-index orders --dry-run"])
def test_a_log_that_cannot_be_read_is_exit_4_and_the_answer_is_there(
    command: str, folder: Path, where: list[str], tmp_path: Path
) -> None:
    disk = tmp_path / "bookie"
    shutil.copytree(folder / "bookie0", disk)
    (disk / "current" / "80000000.log").write_bytes(b"")
    whole = run(*command.split(), *where)
    done = run(*command.split(), *where[:2], "--entries", f"bookie-disk:{disk}?index=scan")
    assert (whole.returncode, done.returncode) == (0, 4)
    assert done.stderr.count("80000000.log") == 1
    assert len(done.stdout.splitlines()) == len(whole.stdout.splitlines())


@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("check", "--all"),
        ("top",),
        ("snapshot", "FILE"),
        ("bundle", "FILE"),
        ("restore", "SOURCE", "--dry-run"),
        ("check-readable", "--for-version", "4.2.4"),
        ("compress-cursors", "--compression", "zstd", "--dry-run"),
        ("compress-ledgers", "--estimate"),
        ("compress-ledgers", "--compression", "zstd", "--yes"),
        ("convert-cursor", "--all", "--to", "ranges", "--dry-run"),
        ("unset-property", "key", "--all", "--yes"),
    ],
)
def test_an_empty_store_is_no_success(words: tuple[str, ...], tmp_path: Path) -> None:
    """As where the chroot is mistyped."""
    (tmp_path / "empty").mkdir()
    meant = {"FILE": str(tmp_path / "file"), "SOURCE": f"dir:{tmp_path / 'empty'}"}
    given = [meant.get(word, word) for word in words]
    done = run(*given, "--store", f"dir:{tmp_path / 'empty'}", "-o", "json")
    assert done.returncode == 3
    assert json.loads(done.stderr.splitlines()[-1])["error"] == "not-found"


def test_two_empty_stores_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run("diff", *[f"dir:{tmp_path / 'empty'}"] * 2)
    assert (done.returncode, "neither store has a value" in done.stderr) == (3, True)


@pytest.mark.parametrize("by", ["topic", "subscription", "log"])
def test_beside_an_empty_store_no_ledger_is_called_an_orphan(
    by: str, where: list[str], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    done = run("disk", "--by", by, "--store", f"dir:{tmp_path / 'empty'}", *where[2:])
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize(
    "words",
    [
        ("check", "public/no*"),
        ("compress-cursors", "--compression", "zstd", "--topic", "no-such*", "--dry-run"),
        ("compress-cursors", "--compression", "zstd", "--cursor", "no-such*", "--dry-run"),
        ("compress-ledgers", "--namespace", "public/no*", "--estimate"),
        ("convert-cursor", "no-such*", "--to", "ranges", "--dry-run"),
        ("unset-property", "key", "--tenant", "no*", "--dry-run"),
    ],
)
def test_a_pattern_that_fits_nothing_is_not_found(words: tuple[str, ...], where: list[str]) -> None:
    done = run(*words, *where[:2])
    assert (done.returncode, "nothing named" in done.stderr) == (3, True)


def test_topics_without_cursors_were_looked_at(where: list[str]) -> None:
    words = ("compress-cursors", "--compression", "zstd", "--topic", "plain", "--dry-run")
    assert run(*words, *where[:2]).returncode == 0


def test_what_no_release_was_tried_with_is_not_known(where: list[str]) -> None:
    done = run("check-readable", "--for-version", "4.2.9", *where[:2], "-o", "json")
    assert {one["verdict"] for one in json.loads(done.stdout)} == {"unknown"}
    assert done.returncode == 3


def test_every_line_of_stderr_is_an_object_beside_json(where: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for words in (
        ("get", "cursor", "plain-old", "s1"),
        ("compress-cursors", "--compression", "zstd", "--topic", "compacted", "--dry-run"),
        ("repair", "count", "plain", "--dry-run"),
        ("check", "plain", "--verbose"),
        ("seek", "plain", "--index", "3", *where[2:]),
        ("top", "/nowhere"),
        ("show-cursor", "compacted"),
    ):
        done = run(*words, *where[:2], "-o", "ndjson")
        for line in done.stderr.splitlines():
            found = json.loads(line)
            assert found.keys() & {"checked", "error"} or found.keys() == {"level", "message"}, line
