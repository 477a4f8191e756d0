"""Commands on entries report what they checked and what they could not check."""

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
COPIES = {"copies on other bookies": "their disks were not given"}


def run(*arguments: object) -> CompletedProcess[str]:
    return as_text(pulsar_meta_here(*arguments))


def snapshot_without(folder: Path, target: Path, *prefixes: str) -> str:
    """Write the capture's snapshot without the values at or below some paths, and return its URL."""

    def remaining() -> Iterator[str]:
        for line in (folder / "metadata.ndjson").read_text(encoding="utf-8").splitlines():
            if not json.loads(line)["path"].startswith(prefixes):
                yield line

    target.write_text("\n".join(remaining()) + "\n", encoding="utf-8")
    return f"snapshot:{target}"


@pytest.fixture
def folder(capture: Capture) -> Path:
    return capture("pulsar-4.2.4")


@pytest.fixture
def sources(folder: Path) -> list[str]:
    return ["--store", f"snapshot:{folder}/metadata.ndjson", "--entries", f"bookie-disk:{folder}/bookie0"]


def test_every_command_counts_the_same_missing_entries(
    folder: Path, sources: list[str], tmp_path: Path
) -> None:
    frames = tmp_path / "frames"
    assert (
        run("dump-entries", "terminated", *sources, "-n", 3, "-o", "raw", "--output", frames).returncode == 0
    )
    incomplete = [*sources[:2], "--entries", f"frames:{frames}"]
    verified = run("verify-entries", "terminated", *incomplete, "-o", "json")
    assert verified.returncode == 1
    assert json.loads(verified.stdout) == [
        {
            "ledger_id": 46,
            "entry_id": 3,
            "layer": "missing",
            "fault": "no source has it, nor the 3 after it",
        }
    ]
    checked = run("check-index", "terminated", *incomplete, "-o", "json")
    assert (checked.returncode, [row["missing"] for row in json.loads(checked.stdout)]) == (1, [4])
    dumped = run("dump-entries", "terminated", *incomplete)
    assert (dumped.returncode, "no source has 4 of its entries 0 to 6" in dumped.stderr) == (3, True)


@pytest.mark.parametrize("with_store", [True, False])
def test_a_ledger_without_entries_is_not_found(sources: list[str], with_store: bool) -> None:
    done = run("verify-entries", "99999", *(sources if with_store else sources[2:]))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "pulsar-meta: no ledger 99999: no source has an entry of it\n"


@pytest.mark.parametrize("command", ["dump-entries", "verify-entries", "plan-batches --keys a"])
def test_sources_without_the_requested_entries_are_reported(
    command: str, sources: list[str], tmp_path: Path
) -> None:
    (tmp_path / "none").write_bytes(b"")
    empty = [*sources[:2], "--entries", f"frames:{tmp_path / 'none'}"]
    named = run(*command.split(), "18", *empty)
    assert named.returncode == (1 if command == "verify-entries" else 3), named.stderr
    assert "no source has" in named.stderr + named.stdout
    if "plan" not in command:
        all_ledgers = run(command, *empty)
        assert (all_ledgers.returncode, "have no ledger" in all_ledgers.stderr) == (3, True)


def test_a_store_without_topics_is_not_found(tmp_path: Path) -> None:
    for command in ("check-readable --for-version 4.2.4", "check-index --all", "verify-entries --all"):
        (tmp_path / "frames").write_bytes(b"")
        words = [*command.split(), "--store", f"dir:{tmp_path}"]
        words += [] if "readable" in command else ["--entries", f"frames:{tmp_path / 'frames'}"]
        done = run(*words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1), command


def test_a_ledger_without_metadata_is_a_fault(folder: Path, sources: list[str], tmp_path: Path) -> None:
    store = snapshot_without(folder, tmp_path / "without.ndjson", ledger_path(21))
    done = run("verify-entries", "orders", "--store", store, *sources[2:])
    assert (done.returncode, done.stdout) == (
        1,
        "21:-1\tledger\tBookKeeper has no metadata of it, so it can't be opened\n",
    )
    checked = run("check-index", "orders", "--store", store, *sources[2:], "-o", "json")
    ledgers = {row["ledger_id"]: row for row in json.loads(checked.stdout)}
    assert (checked.returncode, ledgers[21]["ok"]) == (1, False)
    assert ledgers[21]["faults"] == [
        {"fault": "ledger", "why": "BookKeeper has no metadata of it, so it can't be opened"}
    ]
    assert ledgers[23]["ok"]


def test_a_store_without_bookkeepers_metadata_is_reported_and_no_fault(
    folder: Path, sources: list[str], tmp_path: Path
) -> None:
    store = snapshot_without(folder, tmp_path / "without.ndjson", "/ledgers")
    for command in ("verify-entries", "check-index"):
        done = run(command, "terminated", "--store", store, *sources[2:])
        assert done.returncode == 0, done.stderr
        assert done.stderr == (
            "checked: 1 topic, 1 ledger, 7 entries;"
            " not checked: BookKeeper's metadata (the store has none below /ledgers)\n"
        )


def test_entries_of_other_bookies_are_not_checked(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    store = ["--store", f"snapshot:{folder}/metadata.ndjson"]
    one_disk = run(
        "verify-entries", "orders", *store, "--entries", f"bookie-disk:{folder}/bookie0", "-o", "json"
    )
    assert (one_disk.returncode, json.loads(one_disk.stdout)) == (3, [])
    assert json.loads(one_disk.stderr)["not_checked"] == {"55 entries": ELSEWHERE} | COPIES
    index = run("check-index", "orders", *store, "--entries", f"bookie-disk:{folder}/bookie0", "-o", "json")
    ledgers = json.loads(index.stdout)
    assert (sum(row["missing"] for row in ledgers), sum(row.get("not_checked", 0) for row in ledgers)) == (
        0,
        55,
    )
    # The write quorum is 2 of 3, so any two bookies have all entries.
    two_disks = [part for at in (0, 2) for part in ("--entries", f"bookie-disk:{folder}/bookie{at}")]
    done = run("verify-entries", "orders", *store, *two_disks)
    assert (done.returncode, done.stdout) == (0, "")
    assert "6 ledgers, 163 entries, 219 copies; not checked: copies on other bookies" in done.stderr
    # Without names, only the ledgers of the disk are checked, not those of other bookies.
    unnamed = run("verify-entries", *store, "--entries", f"bookie-disk:{folder}/bookie0")
    assert (unnamed.returncode, unnamed.stdout) == (0, "")


def test_entries_that_a_bookie_should_have_are_missing(capture: Capture, tmp_path: Path) -> None:
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
def test_topics_are_selected_the_same_way_everywhere(
    command: str, names: list[str], topics: int, sources: list[str]
) -> None:
    done = run(command, *names, *sources, "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["checked"]["topics"] == topics


@pytest.mark.parametrize("command", ["verify-entries", "dump-entries", "check-index"])
@pytest.mark.parametrize("name", ["public/nowhere", "nowhere", "public/default/no*"])
def test_a_name_without_topics_is_not_found(command: str, name: str, sources: list[str]) -> None:
    done = run(command, name, *sources)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--from", "99999999999999999999999"], 2, "an entry id is at most 9223372036854775807"),
        (["--from", "99999999999999999999999:1"], 2, "expected ENTRY"),
        (["--to", "1:9223372036854775808"], 2, "expected ENTRY"),
        (["--ledger", "99999999999999999999999"], 2, "expected a number from 0 to"),
        (["--from", "9223372036854775807"], 3, "no entries between"),
        (["--from", "242:999"], 3, "no entries between"),
    ],
)
def test_impossible_bounds_are_refused(
    arguments: list[str], code: int, message: str, sources: list[str]
) -> None:
    for command in ("dump-entries", "verify-entries"):
        done = run(command, "orders", *arguments, *sources)
        assert (done.returncode, done.stdout) == (code, "")
        assert message in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("limit", ["-n", "--limit", "--count"])
def test_a_limit_may_be_any_number(limit: str, sources: list[str]) -> None:
    done = run("dump-entries", "orders", "--from", "-2", limit, "99999999999999999999999", *sources)
    assert (done.returncode, done.stdout.count("\n")) == (0, 2)


def test_dump_entries_accepts_positions_of_seek(sources: list[str]) -> None:
    position = run("seek", "orders", "--index", 1234, *sources).stdout.strip()
    assert position.count(":") == 2
    done = run("dump-entries", "orders", "--from", position, "-n", 1, *sources, "-o", "json")
    (entry,) = json.loads(done.stdout)
    assert entry["first_index"] <= 1234 <= entry["last_index"]
    by_index = run("dump-entries", "orders", "--index", 1234, *sources, "-o", "json")
    assert json.loads(by_index.stdout) == [entry]


def test_entries_can_be_dumped_from_a_time_on(sources: list[str]) -> None:
    entries = json.loads(run("dump-entries", "orders", *sources, "-o", "json").stdout)
    time = entries[100]["broker_timestamp"]
    expected = next(at for at, entry in enumerate(entries) if entry["broker_timestamp"] >= time)
    done = run("dump-entries", "orders", "--time", time, *sources, "-o", "json")
    assert json.loads(done.stdout) == entries[expected:]
    late = run("dump-entries", "orders", "--time", "2999-01-01", *sources)
    assert (late.returncode, late.stdout) == (3, "")
    assert "after-last" in late.stderr


def shown(*arguments: object) -> list[tuple[int, int]]:
    done = run("dump-entries", *arguments, "-o", "ndjson")
    assert done.returncode == 0, done.stderr
    return [(entry["ledger_id"], entry["entry_id"]) for entry in map(json.loads, done.stdout.splitlines())]


@pytest.mark.parametrize("place", [["--index", 1234], ["--time"], ["--index", 5, "--index", 900]])
def test_where_filters_entries_found_by_index_or_time(
    place: list[object], sources: list[str], tmp_path: Path
) -> None:
    entries = json.loads(run("dump-entries", "orders", *sources, "-o", "json").stdout)
    if place == ["--time"]:
        place = ["--time", entries[len(entries) // 2]["broker_timestamp"]]
    matching = set(shown("orders", "--where", "region=eu", *sources))
    selected = shown("orders", *place, *sources)
    assert 0 < len(selected) < len(entries)
    words, frames = ["orders", *place, "--where", "region=eu", *sources], tmp_path / "frames"
    assert shown(*words) == [position for position in selected if position in matching]
    assert run("dump-entries", *words, "-o", "raw", "--output", frames).returncode == 0
    written = map(json.loads, (tmp_path / "frames.idx").read_text().splitlines())
    assert [(position["ledger"], position["entry"]) for position in written] == shown(*words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["orders", "--index", "1", "--from", "2"], "--from"),
        (["orders", "--time", "2026"], "write 2026-01-01"),
        (["orders", "--time", "1795240940"], "write 1795240940000"),
        (["orders", "--format", "{nothing}"], "no field 'nothing'"),
        (["orders", "--format", "{index}", "-o", "json"], "remove -o"),
        (["--all", "orders"], "not both"),
    ],
)
def test_conflicting_options_are_refused(arguments: list[str], message: str, sources: list[str]) -> None:
    done = run("dump-entries", *arguments, *sources)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize("time", ["2026", "1795240940", "20260820", "5"])
def test_seek_refuses_numbers_that_are_no_plausible_milliseconds(time: str, sources: list[str]) -> None:
    done = run("seek", "orders", "--time", time, *sources)
    assert (done.returncode, done.stdout) == (2, "")
    assert "milliseconds are 1970-01-" in done.stderr


def test_templates_understand_tabs_and_line_ends(sources: list[str]) -> None:
    done = run("seek", "orders", "--index", 0, "--format", r"{topic}\t{ledger_id}\n{entry_id}\\", *sources)
    assert done.stdout == f"{TopicName.parse('orders')}\t18\n0\\\n"
    dumped = run("dump-entries", "orders", "-n", 1, "--deep", "--format", r"{index}\t{batch_index}", *sources)
    assert dumped.stdout == "0\t-\n" or dumped.stdout.splitlines()[0] in ("-", "0\t0")


def test_get_shows_a_cursors_state_from_its_ledger(capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4-killed")
    words = ["get", "cursor", "last-words", "reader", "--store", f"snapshot:{folder}/metadata.ndjson"]
    without = run(*words, "-o", "json")
    assert without.returncode == 0
    assert "its state is in ledger 375 and is not shown; add --entries URL" in without.stderr
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
    without_ledger = run(*words, "--entries", f"frames:{tmp_path / 'none'}")
    assert (
        without_ledger.returncode,
        "ledger 375, but no source has entries of it" in without_ledger.stderr,
    ) == (3, True)


@pytest.mark.parametrize("command", ["dump-entries", "verify-entries", "plan-batches --keys region"])
def test_a_ledger_is_searched_in_every_topic(command: str, sources: list[str]) -> None:
    words = [*command.split(), "txn", "orders", "terminated", *sources, "-o", "json"]
    done = run(*words, "--ledger", 21)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["checked"] | {"entries": 0} == {
        "topics": 1, "ledgers": 1, "entries": 0,
    }  # fmt: skip
    partial = run(*words, "--ledger", 21, "--ledger", 46, "--ledger", 99999)
    assert (partial.returncode, "none of 3 topics has ledger 99999" in partial.stderr) == (3, True)
    assert json.loads(partial.stderr.splitlines()[-1])["checked"]["ledgers"] == 2
    unknown = run(*words, "--ledger", 99999)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (3, 1)


def test_plan_batches_counts_what_it_checked(sources: list[str], tmp_path: Path) -> None:
    done = run("plan-batches", "orders", "terminated", "--keys", "region", *sources)
    assert (done.returncode, done.stderr) == (0, "checked: 2 topics, 7 ledgers, 170 entries\n")
    few = run("plan-batches", "orders", "--keys", "region", "-n", 5, *sources, "-o", "json")
    assert json.loads(few.stderr)["checked"] == {"topics": 1, "ledgers": 1, "entries": 5}
    none = run("plan-batches", "orders", "--keys", "region", "--from", "242:999", *sources)
    assert (none.returncode, "no entries between" in none.stderr) == (3, True)


@pytest.mark.parametrize("command", ["seek orders --index 5", "build-index orders --dry-run"])
def test_an_unreadable_log_ends_with_4_although_the_answer_is_complete(
    command: str, folder: Path, sources: list[str], tmp_path: Path
) -> None:
    disk = tmp_path / "bookie"
    shutil.copytree(folder / "bookie0", disk)
    (disk / "current" / "80000000.log").write_bytes(b"")
    intact = run(*command.split(), *sources)
    done = run(*command.split(), *sources[:2], "--entries", f"bookie-disk:{disk}?index=scan")
    assert (intact.returncode, done.returncode) == (0, 4)
    assert done.stderr.count("80000000.log") == 1
    assert len(done.stdout.splitlines()) == len(intact.stdout.splitlines())


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
def test_an_empty_store_ends_with_3(words: tuple[str, ...], tmp_path: Path) -> None:
    """A store looks empty if its chroot is misspelled."""
    (tmp_path / "empty").mkdir()
    paths = {"FILE": str(tmp_path / "file"), "SOURCE": f"dir:{tmp_path / 'empty'}"}
    arguments = [paths.get(word, word) for word in words]
    done = run(*arguments, "--store", f"dir:{tmp_path / 'empty'}", "-o", "json")
    assert done.returncode == 3
    assert json.loads(done.stderr.splitlines()[-1])["error"] == "not-found"


def test_two_empty_stores_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run("diff", *[f"dir:{tmp_path / 'empty'}"] * 2)
    assert (done.returncode, "neither store has values" in done.stderr) == (3, True)


@pytest.mark.parametrize("by", ["topic", "subscription", "log"])
def test_disk_calls_no_ledger_an_orphan_if_the_store_is_empty(
    by: str, sources: list[str], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    done = run("disk", "--by", by, "--store", f"dir:{tmp_path / 'empty'}", *sources[2:])
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
def test_a_pattern_without_match_is_not_found(words: tuple[str, ...], sources: list[str]) -> None:
    done = run(*words, *sources[:2])
    assert (done.returncode, "nothing matches" in done.stderr) == (3, True)


def test_topics_without_cursors_are_no_error(sources: list[str]) -> None:
    words = ("compress-cursors", "--compression", "zstd", "--topic", "plain", "--dry-run")
    assert run(*words, *sources[:2]).returncode == 0


def test_an_untested_release_has_unknown_verdicts(sources: list[str]) -> None:
    done = run("check-readable", "--for-version", "4.2.9", *sources[:2], "-o", "json")
    assert {row["verdict"] for row in json.loads(done.stdout)} == {"unknown"}
    assert done.returncode == 3


def test_every_line_of_stderr_is_json_if_the_output_is(sources: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for words in (
        ("get", "cursor", "plain-old", "s1"),
        ("compress-cursors", "--compression", "zstd", "--topic", "compacted", "--dry-run"),
        ("repair", "count", "plain", "--dry-run"),
        ("check", "plain", "--verbose"),
        ("seek", "plain", "--index", "3", *sources[2:]),
        ("top", "/nowhere"),
        ("show-cursor", "compacted"),
    ):
        done = run(*words, *sources[:2], "-o", "ndjson")
        for line in done.stderr.splitlines():
            message = json.loads(line)
            assert message.keys() & {"checked", "error"} or message.keys() == {"level", "message"}, line
