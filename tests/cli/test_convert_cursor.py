"""`convert-cursor` on bit sets that a broker wrote before it was killed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_cursor, is_enveloped, wrap_envelope
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.stores.directory import DirectoryStore
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, environment, pulsar_meta_here

Capture = Callable[[str], Path]
MARKS = TopicName.parse("marks")
LONGS = MARKS.cursor_path("longs")
# The fields of show-cursor that must not change when the state moves.
SHOWN = ("position", "backlog", "acked_ranges", "acked_entries", "partial_batches")


class Place:
    """A `dir:` store as a killed broker left it, after its session ended, and its bookies' disks."""

    def __init__(self, root: Path, capture: Path) -> None:
        self.name, self.url, self.state = capture.name, f"dir:{root / 'store'}", root / "state"
        # The cursor ledgers were deleted later, so they are missing from the index but still in the logs.
        disks = " ".join(f"bookie-disk:{path}?index=scan" for path in sorted(capture.glob("bookie*")))
        self.env = environment(self.state, PULSAR_META_STORE=self.url, PULSAR_META_ENTRIES=disks)
        for line in (capture / "metadata-after-step-3-killed.ndjson").read_text().splitlines():
            value = json.loads(line)
            if not value.get("ephemeral"):
                folder = root / f"store{value['path']}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / ".value").write_bytes(base64.b64decode(value["value"]))
        self.store = DirectoryStore(self.url, read_only=False)

    def run(self, *words: str, code: int = 0, entries: bool = True) -> CompletedProcess[str]:
        env = self.env if entries else self.env | {"PULSAR_META_ENTRIES": ""}
        done = as_text(pulsar_meta_here(*words, env=env))
        assert done.returncode == code, done.stderr[-2000:]
        return done

    def shown(self) -> dict[str, dict[str, Any]]:
        lines = map(json.loads, self.run("show-cursor", "marks", "-o", "ndjson").stdout.splitlines())
        return {line["cursor"]: line for line in lines}

    def values(self) -> dict[str, bytes]:
        return {value.path: value.value for value in self.store.scan("/")}


@pytest.fixture(params=["pulsar-4.2.4-3bookies", "pulsar-4.0.7"])
def place(request: pytest.FixtureRequest, tmp_path: Path, capture: Capture) -> Place:
    return Place(tmp_path, capture(request.param))


@pytest.fixture
def three(tmp_path: Path, capture: Capture) -> Place:
    return Place(tmp_path, capture("pulsar-4.2.4-3bookies"))


def test_records_get_the_state_of_the_cursor_ledgers(place: Place) -> None:
    before, shown = place.values(), place.shown()
    assert shown["longs"]["state"] == "ledger"
    done = place.run("convert-cursor", "marks", "--to", "ranges", "--yes", "-o", "json")
    summary = json.loads(done.stdout)
    changed = {path for path, value in place.values().items() if value != before[path]}
    assert LONGS in changed
    assert (summary["rewritten"], len(changed)) == (len(changed), summary["rewritten"])
    assert summary["skipped"] == 0
    after = place.shown()
    assert {after[name]["state"] for name in ("longs", "huge", "holes")} == {"record"}
    for name, line in shown.items():
        assert {field: after[name][field] for field in SHOWN} == {field: line[field] for field in SHOWN}
    assert "stay in BookKeeper" in done.stderr
    place.run("undo", "--yes", summary["undo_file"])
    assert place.values() == before


def test_the_records_equal_those_that_the_broker_wrote(place: Place, capture: Capture) -> None:
    """The broker loaded the bit sets at its next start, and wrote records when it was stopped."""
    place.run("convert-cursor", "marks", "--to", "ranges", "--yes", "-o", "json")
    with open_store(f"snapshot:{capture(place.name) / 'metadata.ndjson'}") as stopped:
        for name in ("longs", "huge", "holes"):
            converted, written_by_broker = (
                decode_cursor(store.read(MARKS.cursor_path(name)).value) for store in (place.store, stopped)
            )
            assert len(converted.individualDeletedMessages) > 200
            for record in (converted, written_by_broker):
                record.ClearField("lastActive")
            assert converted == written_by_broker


def test_a_note_tells_that_partial_batches_are_redelivered(three: Place) -> None:
    done = three.run("convert-cursor", "orders", "--to", "ranges", "--yes", "-o", "json")
    assert "orders/batch-idx: 34 partly acknowledged batches will be redelivered completely" in done.stderr
    assert done.stderr.count("redelivered completely") == 1
    record = decode_cursor(three.store.read(TopicName.parse("orders").cursor_path("batch-idx")).value)
    assert len(record.batchedEntryDeletionIndexInfo) == 34


def test_a_dry_run_writes_nothing(three: Place) -> None:
    before = three.values()
    lines = three.run("convert-cursor", "--all", "--to", "ranges", "--dry-run").stdout.splitlines()
    actions = [json.loads(line) for line in lines[1:]]
    assert sum(line["action"] == "rewrite" for line in actions) == 4
    assert {line["reason"] for line in actions if line["action"] == "keep"} == {"already", "readable"}
    assert (three.values(), three.state.exists()) == (before, False)
    all_states = three.run(
        "convert-cursor", "--all", "--to", "ranges", "--every-state", "--dry-run", "-o", "json"
    )
    assert json.loads(all_states.stdout)["rewritten"] > 4


def test_cursors_can_be_selected(three: Place) -> None:
    done = three.run(
        "convert-cursor", "public/default", "--cursor", "lo*", "--to", "ranges", "--yes", "-o", "json"
    )
    assert json.loads(done.stdout)["rewritten"] == 1


def test_a_record_keeps_its_codec_unless_a_release_cannot_read_it(three: Place) -> None:
    seen = three.store.read(LONGS)
    three.store.put(LONGS, wrap_envelope(seen.value, "zlib"), seen.version)
    packed = three.run("convert-cursor", "marks", "--to", "ranges", "--yes", "-o", "json")
    assert is_enveloped(three.store.read(LONGS).value)
    three.run("undo", "--yes", json.loads(packed.stdout)["undo_file"])
    three.run("convert-cursor", "marks", "--to", "ranges", "--for-version", "2.8.2", "--yes")
    assert not is_enveloped(three.store.read(LONGS).value)


def test_releases_that_cannot_read_bit_sets_are_named(three: Place) -> None:
    def verdicts(version: str, code: int) -> list[tuple[str, str]]:
        words = ("check-readable", "--for-version", version, "-o", "json")
        rows = json.loads(three.run(*words, code=code).stdout)
        return sorted((row["cursor"], row["verdict"]) for row in rows if row["form"].startswith("bit-sets"))

    assert verdicts("4.0.7", 0) == []
    three.env["PULSAR_META_ENTRIES"], disks = "bookie-disk:/nowhere", three.env["PULSAR_META_ENTRIES"]
    assert verdicts("4.0.7", 0) == [], "entries are read although the release reads bit sets"
    three.run("check-readable", "--for-version", "2.11.0", code=3)
    three.env["PULSAR_META_ENTRIES"] = disks
    unreadable = [(name, "cannot-load") for name in ("batch-idx", "holes", "huge", "longs")]
    for version in ("2.11.0", "3.0.9", "3.3.4"):
        assert verdicts(version, 1) == unreadable
    upgrade = json.loads(three.run("check", "--before-upgrade", "3.0.9", "-o", "json", code=1).stdout)
    assert [
        reason["count"] for reason in upgrade["reasons"] if reason["reason"] == "bit-sets-in-cursor-ledger"
    ] == [4]
    done = three.run("check-readable", "--for-version", "2.11.0", entries=False)
    assert "not checked: the state of 6 cursors in their ledgers (add --entries)" in done.stderr
    three.run("convert-cursor", "--all", "--to", "ranges", "--yes")
    assert verdicts("2.11.0", 0) == []


def test_a_cursor_with_unknown_state_is_skipped_and_named(three: Place) -> None:
    before = three.values()
    done = three.run(
        "convert-cursor", "marks", "--to", "ranges", "--yes", "-o", "json", code=1, entries=False
    )
    assert json.loads(done.stdout)["skipped_for"] == {"state-unknown": 4}
    assert f"{LONGS}: ledger 260 not given" in done.stderr
    three.store.delete(ledger_path(260), three.store.read(ledger_path(260)).version)
    without_ledger = three.run(
        "convert-cursor", "marks", "--cursor", "longs", "--to", "ranges", "--yes", code=1
    )
    assert (
        "ledger 260, for which BookKeeper has no metadata, so the cursor goes back to the record's position"
        in without_ledger.stderr
    )
    assert three.store.read(LONGS).value == before[LONGS]


def test_loaded_topics_are_refused(three: Place) -> None:
    owner = "/namespace/public/default/0x00000000_0xffffffff"
    three.store.put(owner, b'{"nativeUrl": "pulsar://b1:6650"}', -1)
    done = three.run("convert-cursor", "marks", "--to", "ranges", "--yes", code=7)
    assert "may be loaded: pulsar://b1:6650 owns its bundle" in done.stderr
    assert decode_cursor(three.store.read(LONGS).value).cursorsLedgerId == 260


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["marks", "--to", "bitset", "--yes"], 2, "invalid --to bitset: choose ranges"),
        (["--to", "ranges", "--yes"], 2, "no topics given"),
        (["marks", "--all", "--to", "ranges", "--yes"], 2, "no topics given"),
        (["marsk", "--to", "ranges", "--yes"], 3, "did you mean persistent://public/default/marks?"),
        (["marks", "--cursor", "logns", "--to", "ranges", "--yes"], 3, "did you mean longs?"),
        (["marks", "--to", "ranges"], 2, "refusing to write: stdin is not a terminal; add --yes"),
    ],
)
def test_invalid_arguments_are_explained(words: list[str], code: int, message: str, three: Place) -> None:
    before = three.values()
    done = three.run("convert-cursor", *words, code=code)
    assert message in done.stderr
    assert three.values() == before
