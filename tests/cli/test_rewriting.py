from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.cli.render.rewriting import resume_command, undo_command
from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from pulsar_meta.jobs.rewrite.rules import put_document_rule
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.directory import DirectoryStore
from pulsar_meta.stores.snapshot import SnapshotStore
from tests.cli.program import MAIN, environment, limited, pulsar_meta_here, wait_until

ORDERS = "/managed-ledgers/public/default/persistent/orders"
CONFIRM = ("--confirm", "persistent://public/default/orders")
BUNDLE = "/namespace/public/default/0x00000000_0xffffffff"
MIGRATION = "/pulsar/migration-coordinator/migration"


class Place:
    """A `dir:` store with the metadata of Pulsar 4.2.4, and the program run on it."""

    def __init__(self, root: Path, capture: Path) -> None:
        self.root, self.url = root, f"dir:{root / 'store'}"
        self.state = root / "state"
        self.env = environment(self.state, PULSAR_META_STORE=self.url)
        with SnapshotStore(f"snapshot:{capture / 'metadata.ndjson'}") as snapshot:
            for value in snapshot.scan("/"):
                folder = root / f"store{value.path}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / ".value").write_bytes(value.value)
        self.store = DirectoryStore(self.url, read_only=False)

    def run(
        self, *words: str | Path, stdin: bytes = b"", code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        done = pulsar_meta_here(*words, env=self.env, stdin=stdin)
        assert done.returncode == code, (done.stdout[-2000:], done.stderr[-2000:])
        assert b"Traceback" not in done.stderr
        return done

    def json(self, *words: str | Path, stdin: bytes = b"", code: int = 0) -> Any:
        return json.loads(self.run(*words, "-o", "json", stdin=stdin, code=code).stdout)

    def values(self) -> dict[str, bytes]:
        return {value.path: value.value for value in self.store.scan("/")}


@pytest.fixture
def place(tmp_path: Path, capture: Callable[[str], Path]) -> Place:
    return Place(tmp_path, capture("pulsar-4.2.4"))


def test_a_plan_is_made_applied_and_undone(place: Place) -> None:
    before = place.values()
    words = ("compress-cursors", "--compression", "zstd", "--threshold", "300")
    dry = place.run(*words, "--dry-run")
    header, *lines = [json.loads(line) for line in dry.stdout.splitlines()]
    assert header["store"]["instance_id"] == "3bd56fad-fdde-43e4-8e23-2c7bbb2d005a"
    assert header["store"]["url"] == place.url
    promised = {line["path"]: line["size_after"] for line in lines if line["action"] == "rewrite"}
    assert len(lines) == 83
    assert promised
    assert place.values() == before
    assert not place.state.exists(), "the dry run created the state directory"

    plan = place.root / "plan.ndjson"
    plan.write_bytes(dry.stdout)
    summary = place.json("compress-cursors", "--plan", plan, "--yes")
    assert set(summary) >= {
        *("seen", "rewritten", "kept", "skipped", "conflicts", "undecodable"),
        *("bytes_before", "bytes_after", "undo_file"),
    }
    assert summary["rewritten"] == len(promised)
    after = place.values()
    assert {path: len(after[path]) for path in promised} == promised
    assert {path: value for path, value in after.items() if path not in promised} == {
        path: value for path, value in before.items() if path not in promised
    }
    assert Path(summary["undo_file"]).parent == place.state / "pulsar-meta" / "undo"
    assert place.json("compress-cursors", "--plan", plan, "--yes")["rewritten"] == 0
    assert place.json("undo", "--yes", summary["undo_file"])["rewritten"] == len(promised)
    assert place.values() == before


def test_values_under_the_threshold_are_counted(place: Place) -> None:
    done = place.run("compress-cursors", "--compression", "lz4", "--yes", "-o", "json")
    assert json.loads(done.stdout)["kept_for"]["threshold"] > 0
    assert b"--threshold" in done.stderr
    assert json.loads(done.stdout)["undo_file"] is None


def test_compression_settings_can_come_from_broker_conf(place: Place) -> None:
    conf = place.root / "broker.conf"
    conf.write_text(
        "managedCursorInfoCompressionType=ZSTD\nmanagedCursorInfoCompressionThresholdInBytes=300\n"
    )
    from_conf = place.run("compress-cursors", "--from-conf", conf, "--dry-run", "-o", "ndjson").stdout
    from_options = place.run(
        "compress-cursors", "--compression", "zstd", "--threshold", "300", "--dry-run"
    ).stdout
    assert from_conf == from_options
    place.run("compress-cursors", "--from-conf", conf, "--compression", "lz4", "--dry-run", code=2)


def test_compress_ledgers_decompresses_records_and_is_undone(place: Place) -> None:
    before = place.values()
    summary = place.json("compress-ledgers", "--compression", "none", "--yes")
    assert summary["rewritten"] > 0
    assert all(value[:2] != b"Gx" for path, value in place.values().items() if len(path.split("/")) == 6)
    place.run("undo", "--yes", summary["undo_file"])
    assert place.values() == before


def test_an_undecodable_record_is_reported_and_left_alone(place: Place) -> None:
    path = f"{ORDERS}/batch-idx"
    place.store.put(path, b"\xff broken", place.store.read(path).version)
    done = place.run("compress-cursors", "--compression", "none", "--yes", "-o", "json", code=1)
    assert json.loads(done.stdout)["undecodable"] == 1
    assert path.encode() in done.stderr
    assert place.store.read(path).value == b"\xff broken"
    assert place.run("compress-cursors", "--estimate", code=1).stdout
    assert place.run("compress-cursors", "--compression", "none", "--dry-run", code=1).stdout


def test_an_estimate_has_a_row_per_codec(place: Place) -> None:
    rows = place.json("compress-cursors", "--estimate", "--threshold", "64", "--by", "namespace")
    assert {row["codec"] for row in rows} == {"none", "lz4", "zlib", "zstd", "snappy"}
    assert {row["namespace"] for row in rows} >= {"public/default", "pulsar/system"}


def test_an_estimate_counts_the_values_under_the_threshold(place: Place) -> None:
    """Brokers don't compress values up to the threshold, so a ratio of 1.0 needs an explanation."""
    done = place.run("compress-cursors", "--estimate", "-o", "json")
    zstd = next(row for row in json.loads(done.stdout) if row["codec"] == "zstd")
    assert (zstd["rewritten"], zstd["under_threshold"]) == (1, 78)
    assert b"the threshold of 16384 bytes excludes 78 of 83 values" in done.stderr
    assert b"--threshold 0" in done.stderr
    no_threshold = place.run("compress-cursors", "--estimate", "--threshold", "0", "-o", "json")
    zstd = next(row for row in json.loads(no_threshold.stdout) if row["codec"] == "zstd")
    assert zstd["under_threshold"] == 0
    assert zstd["rewritten"] > 20
    assert b"excludes" not in no_threshold.stderr


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("--cursor", "batch-id"), b"batch-idx"),
        (("--cursor", "batch-id", "--topic", "orders"), b"batch-idx"),
        (("--topic", "oders"), b"persistent://public/default/orders"),
        (("--namespace", "public/defalt"), b"public/default"),
        (("--tenant", "pulic"), b"public"),
    ],
)
def test_a_mistyped_name_is_not_found(place: Place, words: tuple[str, ...], suggestion: bytes) -> None:
    for more in (("--dry-run",), ("--yes",), ("--estimate",)):
        codec = () if more == ("--estimate",) else ("--compression", "none")
        done = place.run("compress-cursors", *codec, *words, *more, code=3)
        assert b"did you mean " + suggestion + b"?" in done.stderr
        assert done.stdout == b""
    # An existing name gets no suggestion, and neither does a pattern without a match.
    place.run("compress-cursors", "--compression", "none", "--cursor", "batch-idx", "--dry-run")
    place.run("compress-cursors", "--compression", "none", "--cursor", "nothing-*", "--dry-run", code=3)


def test_topics_can_be_listed_on_stdin(place: Place) -> None:
    listed = b"fanout\npersistent://public/default/marks\n"
    assert (
        place.json("compress-cursors", "--compression", "none", "--stdin", "--yes", stdin=listed)["seen"]
        == 68
    )


WRITES = {
    ("compress-cursors", "--compression", "none"): b"write 37 values?",
    ("compress-ledgers", "--compression", "none"): b"write 2 values?",
    ("rm", f"{ORDERS}/batch-idx", *CONFIRM): b"remove 1 value?",
    ("put", "/new/value", "--create", "--file", "VALUE"): b"create 1 value?",
    ("set-property", "orders", "18", "n=1"): b"write 1 value?",
    ("unset-property", "orders", "21", "b"): b"write 1 value?",
}


@pytest.mark.parametrize("words", list(WRITES), ids=lambda w: w[0])
def test_a_script_needs_yes_to_write(place: Place, words: tuple[str, ...]) -> None:
    (place.root / "VALUE").write_bytes(b"x")
    words = tuple(word.replace("VALUE", str(place.root / "VALUE")) for word in words)
    before = place.values()
    assert b"--yes" in place.run(*words, code=2).stderr
    assert place.values() == before
    assert not place.state.exists()
    undo_file = place.json(*words, "--yes")["undo_file"]
    after = place.values()
    assert after != before
    assert b"--yes" in place.run("undo", undo_file, "--allow-unreadable", code=2).stderr
    assert place.values() == after
    place.run("undo", undo_file, "--allow-unreadable", "--yes")
    assert place.values() == before


def run_with_answer(place: Place, answer: str, *words: str) -> tuple[int, bytes]:
    """Run a command and answer its question; return its exit code and its messages."""
    done = pulsar_meta_here(*words, env=place.env, answers=answer.encode())
    assert not done.stdout.startswith(b" ")
    return done.returncode, done.stderr


def test_a_question_is_asked_on_a_terminal(place: Place) -> None:
    our_end, program_end = pty.openpty()
    child = subprocess.Popen(
        [*MAIN, "rm", f"{ORDERS}/batch-idx"],
        stdin=program_end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=place.env,
    )
    os.close(program_end)
    os.write(our_end, f"{CONFIRM[1]}\ny\n".encode())
    out, messages = child.communicate(timeout=60)
    os.close(our_end)
    assert b"Data becomes unreachable" in messages
    assert (child.returncode, out[:1], b"remove 1 value?" in messages) == (0, b"1", True)


def test_quiet_writes_print_no_advice(place: Place) -> None:
    words = ("set-property", "orders", "18", "n=1", "--yes")
    assert b"undo with" in place.run(*words).stdout
    assert place.run(*words[:-2], "n=2", "--yes", "--quiet").stdout.startswith(b"1 seen, 1 rewritten: ")
    assert b"undo with" not in place.run(*words[:-2], "n=3", "--yes", "--quiet").stdout


def test_an_answer_of_no_is_confirmed(place: Place) -> None:
    code, messages = run_with_answer(place, "n\n", "set-property", "orders", "18", "n=1")
    assert (code, messages.endswith(b"nothing was written\n")) == (0, True)
    assert b"1 seen, 1 to rewrite: " in messages


@pytest.mark.parametrize("words", list(WRITES), ids=lambda w: w[0])
def test_a_user_is_asked_before_writing(place: Place, words: tuple[str, ...]) -> None:
    (place.root / "VALUE").write_bytes(b"x")
    question = WRITES[words]
    words = tuple(word.replace("VALUE", str(place.root / "VALUE")) for word in words)
    before = place.values()
    for answer, written in (("n\n", False), ("y\n", True)):
        code, messages = run_with_answer(place, answer, *words)
        assert question in messages
        assert code == 0, messages
        assert (place.values() != before) is written
    assert (b"/batch-idx: " in messages) is (words[0] == "rm")


def test_a_dry_run_ends_with_the_same_code_as_the_run(place: Place) -> None:
    plain = ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString()
    place.store.put(f"{ORDERS}/later", wrap_envelope(plain, "lz4", unknown=b"\x98\x06\x07"), ABSENT)
    for last in ("--dry-run", "--yes"):
        summary = place.json("compress-cursors", "--compression", "none", last, code=1)
        assert summary["skipped_for"] == {"unknown-fields": 1}


def test_skipped_values_are_named_once_and_before_the_question(place: Place) -> None:
    place.store.put(f"{ORDERS}/broken", b"\xff\xff", ABSENT)
    words = ("compress-cursors", "--compression", "none")
    code, messages = run_with_answer(place, "y\n", *words)
    before, question, after = messages.partition(b"write 37 values?")
    assert (code, bool(question)) == (1, True)
    assert (before.count(b"/broken: "), after.count(b"/broken: ")) == (1, 0)
    # All values are converted now, so there is nothing to ask.
    code, messages = run_with_answer(place, "", *words)
    assert (code, messages.count(b"/broken: "), b"?" in messages) == (1, 1, False)


def test_a_user_is_not_asked_if_nothing_will_be_written(place: Place) -> None:
    code, messages = run_with_answer(place, "", "set-property", "orders", "21", "b=zwei €")
    assert (code, b"?" in messages) == (0, False)
    place.store.put(BUNDLE, b'{"nativeUrl":"pulsar://b:6650"}', ABSENT)
    assert run_with_answer(place, "", "set-property", "orders", "18", "n=1")[0] == 7
    place.store.put(MIGRATION, b'{"phase":"COPYING","targetUrl":"oxia://o"}', ABSENT)
    assert run_with_answer(place, "", "compress-cursors", "--compression", "none")[0] == 7


@pytest.mark.parametrize(
    "words",
    [
        ("compress-cursors", "--yes"),
        ("compress-cursors", "--compression", "gzip", "--yes"),
        ("compress-cursors", "--compression", "lz4", "--min-gain", "much", "--yes"),
        ("compress-cursors", "--compression", "lz4", "--for-version", "four", "--yes"),
        ("compress-cursors", "--compression", "lz4", "--resume", "--yes"),
        ("check-readable", "--for-version", "x"),
        ("set-property", "orders", "18", "novalue"),
        ("set-property", "orders", "eighteen", "a=b"),
        ("put", "relative", "--create"),
        ("put", ORDERS),
        ("compress-cursors", "--compression", "lz4", "--by", "tenant", "--dry-run"),
        ("compress-cursors", "--plan", "/dev/zero", "--yes"),
        ("undo", "/dev/zero"),
        ("compress-cursors", "--compression", "none", "--namespace", "public", "--yes"),
        ("compress-cursors", "--compression", "none", "--undo-file", "/dev/full", "--resume", "--yes"),
        ("rm", "topic"),
    ],
)
def test_invalid_arguments_are_usage_errors(place: Place, words: tuple[str, ...]) -> None:
    before = place.values()
    place.run(*words, code=2)
    assert place.values() == before


@pytest.mark.parametrize(
    "words",
    [
        ("undo", "/nowhere"),
        ("compress-cursors", "--plan", "/nowhere", "--yes"),
        ("set-property", "--yes", "orders", "99", "a=b"),
        ("unset-property", "--yes", "orders", "99", "a"),
        ("properties", "orders", "--ledger", "99"),
        ("properties", "no-such-topic"),
        ("set-property", "--yes", "no-such-topic", "1", "a=b"),
        ("rm", "--yes", "/nothing"),
        ("compress-cursors", "--compression", "none", "--topic", "no-such-topic", "--yes"),
        ("compress-cursors", "--compression", "none", "--namespace", "public/none", "--yes"),
        ("compress-ledgers", "--estimate", "--tenant", "no-such-tenant"),
    ],
)
def test_missing_things_are_not_found(place: Place, words: tuple[str, ...]) -> None:
    place.run(*words, code=3)


def test_guards_refuse_and_their_options_override(place: Place) -> None:
    words = ("compress-cursors", "--compression", "none", "--topic", "orders", "--yes")
    place.store.put(MIGRATION, b'{"phase":"COPYING","targetUrl":"oxia://o"}', ABSENT)
    assert b"oxia://o" in place.run(*words, code=7).stderr
    place.run("set-property", "--yes", "orders", "18", "a=b", code=7)
    place.run("put", "--yes", "/new", "--create", stdin=b"x", code=7)
    place.store.put(BUNDLE, b'{"nativeUrl":"pulsar://b:6650"}', ABSENT)
    refused = place.run(*words, "--allow-migration", "-o", "json", code=7)
    assert json.loads(refused.stdout)["skipped_for"] == {"loaded": 1}
    assert b"pulsar://b:6650" in refused.stderr
    assert b"fences the managed ledger" in refused.stderr
    stated = place.run("set-property", "--yes", "orders", "18", "a=b", "--allow-migration", code=7).stderr
    assert b"--allow-loaded" in stated
    summary = place.json(*words, "--allow-migration", "--allow-loaded")
    assert summary["rewritten"] == 1


def test_a_file_of_another_store_is_refused(place: Place) -> None:
    plan = place.root / "plan"
    plan.write_bytes(place.run("compress-cursors", "--compression", "none", "--dry-run").stdout)
    done = place.json("compress-cursors", "--plan", plan, "--yes")
    instance = place.store.read("/ledgers/INSTANCEID")
    place.store.put(instance.path, b"another", instance.version)
    place.run("undo", "--yes", done["undo_file"], code=7)
    place.run("compress-cursors", "--plan", plan, "--yes", code=7)
    words = ("--allow-other-store", "--allow-unreadable")
    assert place.json("undo", "--yes", done["undo_file"], *words)["rewritten"] == 37


def test_put_accepts_documents_of_decode(place: Place) -> None:
    before = place.store.read(ORDERS)
    path = place.root / "orders.json"
    document = {
        "kind": "ManagedLedgerInfo",
        "version": str(before.version),
        "envelope": None,
        "value": {"ledgerInfo": [{"ledgerId": 18, "timestamp": 0}]},
    }
    path.write_text(json.dumps(document))
    words = ("put", "--yes", "topic", "orders", "--file", path)
    assert b"at least 113 entries in 5 ledgers" in place.run(*words, code=2).stderr
    done = place.json(*words, *CONFIRM)
    assert place.store.read(ORDERS).value == b"\x0a\x04\x08\x12\x20\x00"
    place.run("put", "--yes", "topic", "orders", "--file", path, code=5)
    place.run("undo", "--yes", done["undo_file"])
    assert place.store.read(ORDERS).value == before.value


TRANSACTION = (
    b'{"state":"OPEN","timeout":60.000000000,"createdAt":1795292202.248324148,"id":9007199254740993}'
)


def test_put_changes_only_the_edited_part_of_json(place: Place) -> None:
    path = "/txn/id/1_0"
    place.run("put", "--yes", "--raw", "--create", path, stdin=TRANSACTION)
    shown = place.run("get", path, "-o", "json").stdout
    assert b'"createdAt": 1795292202.248324148' in shown
    assert place.json("put", "--yes", path, stdin=shown)["kept_for"] == {"already": 1}
    # Pass the document through a program like jq 1.6, in which numbers are doubles.
    document = json.loads(shown)
    for dropped in ((), ("stored_text",)):
        for name in dropped:
            document.pop(name)
        done = place.run("put", "--yes", path, stdin=json.dumps(document).encode())
        assert b"1 kept: already 1" in done.stdout
        assert b"value.createdAt: rounded to a double" in done.stderr
    document["value"]["state"] = "ABORTED"
    done = place.json("put", "--yes", path, stdin=json.dumps(document).encode())
    assert place.store.read(path).value == TRANSACTION.replace(b"OPEN", b"ABORTED")
    place.run("undo", "--yes", done["undo_file"])
    assert place.store.read(path).value == TRANSACTION


def test_putting_back_an_unedited_value_changes_nothing(place: Place) -> None:
    before = place.values()
    shown = place.run("decode", "--store", place.url, "-o", "ndjson", "--show-passwords").stdout
    for line in shown.splitlines():
        document = json.loads(line)
        rule = put_document_rule(document, 1)
        stored = Versioned(document["path"], before[document["path"]], 1)
        assert (rule(stored).action, rule(stored).reason) == ("keep", "already"), document["path"]


def test_an_ambiguous_edit_is_refused(place: Place) -> None:
    place.run("put", "--yes", "--raw", "--create", "/x", stdin=b'{"a":1,"a":2}')
    document = place.json("get", "/x")
    document["value"]["a"] = 3
    refused = place.run("put", "--yes", "/x", stdin=json.dumps(document).encode(), code=4)
    assert b"put value.a: the stored text has this member twice" in refused.stderr
    assert place.store.read("/x").value == b'{"a":1,"a":2}'


def test_an_unusual_field_order_is_kept_until_the_record_is_edited(place: Place) -> None:
    path = f"{ORDERS}/odd"
    place.run("put", "--yes", "--raw", "--create", path, stdin=bytes.fromhex("48070801"))
    document = place.json("get", path)
    assert place.json("put", "--yes", path, stdin=json.dumps(document).encode())["rewritten"] == 0
    document["value"]["cursorsLedgerId"] = 2
    done = place.run("put", "--yes", *CONFIRM, path, stdin=json.dumps(document).encode())
    assert b"another order" in done.stderr
    assert place.store.read(path).value == bytes.fromhex("08024807")


def test_put_and_rm_check_versions_and_can_be_undone(place: Place) -> None:
    done = place.json("put", "--yes", "/new/value", "--create", stdin=b'{"a":1}')
    assert place.store.read("/new/value").value == b'{"a":1}'
    place.run("put", "--yes", "/new/value", "--create", stdin=b"x", code=5)
    place.run("put", "--yes", "/new/value", "--version", "1", stdin=b"x", code=5)
    version = str(place.store.read("/new/value").version)
    # Empty input may come from a failed command before the pipe, so it is refused without --raw.
    place.run("put", "--yes", "/new/value", "--version", version, stdin=b"", code=2)
    place.run("put", "--yes", "/new/value", "--version", version, "--raw", stdin=b"")
    assert place.store.read("/new/value").value == b""
    place.run("rm", "--yes", "/new/value", "--version", version, code=5)
    removed = place.json("rm", "--yes", "/new/value")
    assert "/new/value" not in place.values()
    place.run("undo", "--yes", removed["undo_file"])
    assert place.store.read("/new/value").value == b""
    place.run("undo", "--yes", done["undo_file"], code=1)
    place.run("rm", "--yes", "topic", "orders", code=7)
    place.run("put", "--yes", *CONFIRM, "cursor", "orders", "batch-idx", "--version",
              str(place.store.read(f"{ORDERS}/batch-idx").version), stdin=b"\xff", code=7)  # fmt: skip


def test_properties_are_set_shown_and_removed(place: Place) -> None:
    before = place.values()
    dry = place.run("set-property", "orders", "18,334", "n=1", "--dry-run")
    assert len(dry.stdout.splitlines()) == 2
    assert place.values() == before
    done = place.run("set-property", "--yes", "orders", "18,334", "n=1", "first-index=7", "-o", "json")
    assert b"ledger 334 is the last" in done.stderr
    assert b"ledger 18" not in done.stderr
    shown = {row["ledger_id"]: row["properties"] for row in place.json("properties", "orders")}
    assert shown[18] == shown[334] == {"n": "1", "first-index": "7"}
    assert shown[21] == {"b": "zwei €"}
    assert [row["ledger_id"] for row in place.json("properties", "orders", "--ledger", "21")] == [21]
    unchanged = place.json("unset-property", "--yes", "orders", "18", "never", "there")
    assert (unchanged["rewritten"], unchanged["undo_file"]) == (0, None)
    assert place.json("unset-property", "--yes", "orders", "334", "n", "first-index")["rewritten"] == 1
    place.run("unset-property", "--yes", "orders", "18", "n")
    place.run("set-property", "--yes", "orders", "18", "first-index=0")
    assert place.values() == before


@pytest.fixture
def many(place: Place) -> Place:
    for number in range(400):
        info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=number)
        for entry in range(40):
            hole = info.individualDeletedMessages.add()
            hole.lowerEndpoint.ledgerId = hole.upperEndpoint.ledgerId = number
            hole.lowerEndpoint.entryId, hole.upperEndpoint.entryId = 2 * entry, 2 * entry + 1
        place.store.put(f"{ORDERS}/many-{number:03}", info.SerializeToString(), ABSENT)
    return place


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_after_the_group_and_tells_how_to_resume(
    many: Place, number: int, code: int
) -> None:
    before = many.values()
    words = ["compress-cursors", "--compression", "zstd", "--threshold", "64", "--cursor", "many-*", "--yes"]
    child = subprocess.Popen(
        [*MAIN, *words, "--rate", "100", "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=many.env,
    )
    first = f"{ORDERS}/many-000"
    wait_until(lambda: many.store.read(first).value != before[first], 120)
    child.send_signal(number)
    out, messages = child.communicate(timeout=120)
    assert child.returncode == code, messages
    summary = json.loads(out)
    changed = [path for path, value in many.values().items() if value != before[path]]
    assert 0 < summary["rewritten"] == len(changed) < 400
    assert f"--undo-file {summary['undo_file']} --resume".encode() in messages
    resumed = many.json(*words, "--resume")
    assert resumed["undo_file"] == summary["undo_file"]
    assert resumed["rewritten"] + summary["rewritten"] == 400
    many.run(*words, "--resume", code=2)
    many.run("undo", "--yes", summary["undo_file"])
    assert many.values() == before


def test_errors_show_no_credentials(place: Place) -> None:
    words = ("compress-cursors", "--compression", "none", "--yes", "--store", "zk://me:geheim@127.0.0.1:1/x")
    done = pulsar_meta_here(*words, env=place.env)
    assert done.returncode == 2
    assert b"geheim" not in done.stderr + done.stdout
    done = pulsar_meta_here(
        *words[:4],
        "--store",
        "zk://127.0.0.1:1/x?timeout=1&auth=env:SECRET",
        env=place.env | {"SECRET": "a:geheim"},
    )
    assert done.returncode == 6
    assert b"geheim" not in done.stderr + done.stdout


def test_the_steps_of_the_documentation_fix_an_outage(place: Place) -> None:
    """These are the commands of docs/rewriting.md."""
    before = place.values()
    check = ("check-readable", "--for-version", "4.2.4")
    assert len(place.run(*check, code=1).stdout.splitlines()) == 3
    plan = place.root / "plan.ndjson"
    words = ("compress-cursors", "--compression", "none", "--only-with-properties")
    plan.write_bytes(place.run(*words, "--dry-run").stdout)
    summary = place.json("compress-cursors", "--plan", plan, "--yes")
    assert summary["rewritten"] == 3
    assert place.run(*check).stdout == b""
    place.run("undo", "--yes", summary["undo_file"], code=7)
    assert place.run(*check).stdout == b""
    place.run("undo", "--yes", summary["undo_file"], "--allow-unreadable")
    assert place.values() == before


@pytest.mark.parametrize("form", ["html", "raw", "parquet", "csv"])
def test_formats_without_a_summary_are_refused_before_writing(place: Place, form: str) -> None:
    before = place.values()
    done = place.run("compress-cursors", "--compression", "none", "--yes", "-o", form, code=2)
    assert f"-o {form}".encode() in done.stderr
    assert place.values() == before
    assert not place.state.exists()


@pytest.mark.parametrize(
    "more", [("--topic", "orders"), ("--threshold", "5"), ("--stdin",), ("--min-gain", "5%")]
)
def test_a_plan_cannot_be_combined_with_other_options(place: Place, more: tuple[str, ...]) -> None:
    plan, before = place.root / "plan", place.values()
    plan.write_bytes(place.run("compress-cursors", "--compression", "none", "--dry-run").stdout)
    place.run("compress-cursors", "--plan", plan, "--yes", *more, code=2)
    assert place.values() == before


def test_missing_topics_of_a_list_are_named_and_the_others_rewritten(place: Place) -> None:
    listed = b"orders\nno-such-topic\nno-such-*\nord*s\n"
    words = ("compress-cursors", "--compression", "none", "--stdin")
    done = place.run(*words, "--yes", "-o", "json", stdin=listed, code=3)
    summary = json.loads(done.stdout)
    assert (summary["seen"], summary["rewritten"], summary["skipped_for"]) == (3, 1, {"not-there": 2})
    assert b"no-such-topic: listed, but not there" in done.stderr
    place.run(*words, "--dry-run", stdin=listed, code=3)


def test_a_run_is_not_resumed_with_another_codec(many: Place) -> None:
    undo_file = many.root / "undo"
    words = ("compress-cursors", "--threshold", "64", "--cursor", "many-*", "--yes", "--undo-file", undo_file)
    child = subprocess.Popen(
        [*MAIN, *map(str, words), "--compression", "zstd", "--rate", "100"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=many.env,
    )
    # Until its first undo record a run has written nothing, so a run with another codec may follow.
    wait_until(lambda: undo_file.exists() and undo_file.read_bytes().count(b"\n") > 1)
    child.kill()
    child.wait(120)
    messages = many.run(*words, "--compression", "lz4", "--resume", code=2).stderr
    assert b"of the codec 'zstd', not 'lz4'" in messages
    many.run(*words, "--compression", "zstd", "--resume")


def test_a_run_ends_if_the_undo_file_cannot_be_written(place: Place) -> None:
    """A limit on the size of files simulates a full disk."""
    before, undo_file = place.values(), place.root / "undo"
    words = [*MAIN, "compress-cursors", "--compression", "none", "--yes", "--undo-file", str(undo_file)]
    # The limit is 16 blocks of 512 bytes.
    done = subprocess.run(limited("-f", 16, *words), env=place.env, capture_output=True, timeout=60)
    assert done.returncode == 6, done.stderr
    first, second = done.stderr.decode().splitlines()
    assert "resume with: pulsar-meta compress-cursors" in first
    assert f"{undo_file}: the undo file cannot be written" in second
    assert place.values() == before
    assert place.json(*words[len(MAIN) :], "--resume")["rewritten"] == 37
    place.run("undo", "--yes", undo_file, "--allow-unreadable")
    assert place.values() == before


def test_the_undo_file_is_named_if_the_summary_cannot_be_written(place: Place) -> None:
    words = [*MAIN, "compress-cursors", "--compression", "none", "--yes", "-o", "json"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, env=place.env, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 6
    messages = [json.loads(line).get("message", "") for line in done.stderr.decode().splitlines()]
    line = next(line for line in messages if "37 values were written" in line)
    place.run("undo", "--yes", line.rpartition(" ")[2], "--allow-unreadable")


def test_a_version_must_be_a_number(place: Place) -> None:
    document = b'{"kind": "ManagedLedgerInfo", "version": "abc", "envelope": null, "value": {}}'
    before = place.values()
    place.run("put", "--yes", "topic", "orders", stdin=document, code=2)
    assert place.values() == before


def test_the_resume_command_has_no_credentials() -> None:
    command = resume_command(["compress-cursors", "--store", "zk://me:secret@h/p q", "--yes"], Path("/u f"))
    assert (
        command == "pulsar-meta compress-cursors --store 'zk://***@h/p q' --yes --undo-file '/u f' --resume"
    )
    assert (
        resume_command(["x", "--undo-file=/a", "--resume"], Path("/a"))
        == "pulsar-meta x --undo-file=/a --resume"
    )


def test_cursors_with_properties_that_stay_compressed_are_named(place: Place) -> None:
    """Pulsar 4.2.4 can't load the three lz4 cursors, so a warning must tell that they stay compressed."""
    unreadable = [f["path"] for f in place.json("check-readable", "--for-version", "4.2.4", code=1)]
    assert len(unreadable) == 3
    for codec in ("lz4", "zstd"):
        words = ("compress-cursors", "--compression", codec, "--threshold", "0", "--dry-run")
        for form in ("json", "table"):
            messages = place.run(*words, "-o", form, "--quiet").stderr.decode()
            assert "3 cursors with properties still compressed" in messages
            assert all(path in messages for path in unreadable)
            assert "check-readable" in messages
        assert "left uncompressed" not in messages
        assert place.json(*words)["left_unreadable"] == 3
        messages = place.run(*words, "-o", "json", "--for-version", "4.0.7").stderr.decode()
        assert "still compressed" not in messages
    place.run("compress-cursors", "--compression", "none", "--yes")
    done = place.run("compress-cursors", "--compression", "zstd", "--threshold", "0", "--yes")
    assert b"still compressed" not in done.stderr
    assert b"left uncompressed" in done.stderr


def test_an_untested_release_has_the_verdict_unknown(place: Place) -> None:
    for version in ("4.1.3", "4.2.5", "5.0.0"):
        done = place.run("check-readable", "--for-version", version, "-o", "json", code=3)
        verdicts = json.loads(done.stdout)
        assert {row["verdict"] for row in verdicts} == {"unknown"}
        assert version in verdicts[0]["reason"]
        summary = json.loads(done.stderr)
        assert summary["checked"]["cursors"] == 83
        assert summary["not_checked"]
        assert b"unknown" in place.run("check-readable", "--for-version", version, code=3).stdout
    both = place.json("check-readable", "--for-version", "4.1.3", "--for-version", "4.2.4", code=1)
    assert [row["verdict"] for row in both].count("cannot-load") == 3
    fine = place.run("check-readable", "--for-version", "4.0.7", "-o", "json")
    assert json.loads(fine.stdout) == []
    assert json.loads(fine.stderr)["not_checked"] == {}


def test_the_printed_undo_command_works(place: Place) -> None:
    before = place.values()
    del place.env["PULSAR_META_STORE"]
    words = ("rm", f"{ORDERS}/batch-idx", "--yes", *CONFIRM, "--store", place.url)
    line = place.run(*words).stdout.decode().splitlines()[-1]
    assert line.startswith("undo with: pulsar-meta undo ")
    typed = shlex.split(line.removeprefix("undo with: pulsar-meta "))
    assert typed[2:] == ["--store", place.url]
    place.run(*typed, "--yes")
    assert place.values() == before
    # The undo file also names its store.
    undo_file = place.json(*words)["undo_file"]
    place.run("undo", undo_file, "--yes")
    assert place.values() == before
    secret = ["rm", "/x", "--store", "zk://me:geheim@h", "--profile=p"]
    assert undo_command(secret, "/u f") == "pulsar-meta undo '/u f' --store 'zk://***@h' --profile=p"


@pytest.mark.parametrize("begun", [b"", b'{"un', b'{"undo":1,"command":"compress-cur'])
def test_an_empty_or_unfinished_undo_file_means_no_change(place: Place, begun: bytes) -> None:
    """A run that is killed right after it created the undo file leaves such a file."""
    before, undo_file = place.values(), place.root / "undo"
    words = ("compress-cursors", "--compression", "none", "--yes", "--undo-file", undo_file)
    undo_file.write_bytes(begun)
    done = place.run("undo", undo_file, "-o", "json")
    assert json.loads(done.stdout)["seen"] == 0
    assert b"nothing to undo" in done.stderr
    for more in ((), ("--resume",)):
        undo_file.write_bytes(begun)
        assert place.json(*words, *more)["rewritten"] == 37
        place.run("undo", undo_file, "--yes", "--allow-unreadable")
        assert place.values() == before
    place.run(*words, code=2)
    directory = place.state / "pulsar-meta" / "undo"
    for old in directory.glob("*"):
        old.unlink()
    (directory / "20260101T000000.0-compress-cursors-1.ndjson").write_bytes(begun)
    assert place.json("compress-cursors", "--compression", "none", "--yes", "--resume")["rewritten"] == 37


def test_an_undo_file_has_one_writer(place: Place) -> None:
    undo_file = place.root / "undo"
    undo_file.write_bytes(b"")
    with undo_file.open("rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        words = ("compress-cursors", "--compression", "none", "--yes", "--undo-file", undo_file)
        before = place.values()
        assert b"another run" in place.run(*words, code=2).stderr
        assert place.values() == before


def test_a_plan_names_removals_and_creations(place: Place) -> None:
    size = len(place.store.read(f"{ORDERS}/batch-idx").value)
    rm = ("rm", f"{ORDERS}/batch-idx", *CONFIRM)
    assert b"remove" in place.run(*rm, "--dry-run", "-o", "table").stdout.split()
    assert json.loads(place.run(*rm, "--dry-run").stdout.splitlines()[1])["effect"] == "remove"
    done = place.run(*rm, "--yes").stdout.decode()
    assert done.startswith(f"1 seen, 1 removed: {size} bytes\n")
    undo_file = shlex.split(done.splitlines()[-1])[-1]
    done = place.run("undo", undo_file, "--yes").stdout.decode()
    assert done.startswith(f"1 seen, 1 created: {size} bytes\n")
    assert "x)" not in done


@pytest.mark.parametrize("name", ["plan", "undo"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"undo":1,"plan":1,"store":1e999}'])
def test_a_hostile_file_is_a_one_line_error(place: Place, name: str, text: str) -> None:
    path = place.root / "file"
    path.write_text(text + "\n")
    words = ("undo", path) if name == "undo" else ("compress-cursors", "--plan", path)
    assert len(place.run(*words, "--yes", code=4).stderr.splitlines()) == 1


def test_hostile_undo_records_are_refused(place: Place) -> None:
    undo_file = Path(place.json("rm", f"{ORDERS}/batch-idx", "--yes", *CONFIRM)["undo_file"])
    header, record, *_ = undo_file.read_text().splitlines()
    for more in ("[" * 100_000, record.replace('"version":', '"version":1e999,"v":'), '{"sent":[1,2,3]}'):
        path = place.root / "forged"
        path.write_text(f"{header}\n{more}\n")
        place.run("undo", path, "--yes", code=4)


def test_unreadable_broker_registrations_block_nothing(place: Place) -> None:
    place.store.put("/loadbalance/brokers/evil:8080", b"[" * 100_000, ABSENT)
    place.store.put("/loadbalance/brokers/odd:8080", b'{"brokerVersion":"master"}', ABSENT)
    place.run("compress-cursors", "--compression", "none", "--dry-run")


def test_a_closed_stdin_needs_yes(place: Place) -> None:
    command, before = shlex.join([*MAIN, "compress-cursors", "--compression", "none"]), place.values()
    for more, code in (("", 2), ("--yes", 0)):
        shell = ["bash", "-c", f"{command} {more} <&-"]
        done = subprocess.run(shell, env=place.env, capture_output=True, timeout=60)
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr
        assert (place.values() != before) is (code == 0)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_loses_no_undo_file(place: Place, closed: str) -> None:
    command = shlex.join([*MAIN, "compress-cursors", "--compression", "none", "--yes"])
    before = place.values()
    shell = ["bash", "-c", f"{command} {closed}"]
    done = subprocess.run(shell, env=place.env, capture_output=True, timeout=60)
    assert b"Traceback" not in done.stderr
    if place.values() != before and "2>" not in closed:
        assert b"pulsar-meta undo " in done.stderr
    undo_files = list((place.state / "pulsar-meta" / "undo").glob("*"))
    assert len(undo_files) == (place.values() != before)


def test_a_snapshot_is_refused_as_a_target(place: Place, capture: Callable[[str], Path]) -> None:
    snapshot = f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}"
    done = place.run("set-property", "orders", "18", "n=1", "--yes", "--store", snapshot, code=7)
    assert b"is read-only" in done.stderr
    assert b"restore" not in done.stderr
