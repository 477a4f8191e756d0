from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import (
    DecodeError,
    GuardError,
)
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.rewrite.apply import Batches
from pulsar_meta.jobs.rewrite.decision import Summary, digest
from pulsar_meta.jobs.rewrite.guards import Overrides
from pulsar_meta.jobs.rewrite.plan import (
    apply_plan,
    leave_moved,
    named_lines,
    plan_header,
    plan_line,
    planned,
    read_plan,
    rewrites,
)
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.rules import MinGain, Recompression
from pulsar_meta.jobs.rewrite.run import Listener, Terms, preview, rewrite_values, run
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from tests.jobs.rewrite.conftest import MakeRun, values_of

REVERT = Recompression("cursor", "none")


CURSOR = "/managed-ledgers/public/default/persistent/orders/batch-idx"
PLAN_LINE = (
    '{"plan":1,"command":"compress-cursors","store":{}}\n{"action":"rewrite","path":"' + CURSOR + '",'
    '"version":0,"codec_after":"lz4","old_sha256":"00","new_sha256":"11"}\n'
)


def write_plan(store: MemoryStore, path: Path, rule: Recompression) -> None:
    lines: list[Document] = [plan_header("compress-cursors", read_identity(store))]
    lines += [plan_line(v, rule(v)) for v in select(store, Scope(), rule.kind)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_only_lines_of_segments_name_a_topic(captured: MemoryStore) -> None:
    decided = [(seen, REVERT(seen)) for seen in select(captured, Scope(), REVERT.kind)]
    lines = list(named_lines(captured, decided))
    assert [line["path"] for line in lines] == [seen.path for seen, _ in decided]
    assert not any("topic" in line for line in lines)


def test_a_plan_is_applied_exactly(captured: MemoryStore, make_run: MakeRun, tmp_path: Path) -> None:
    rule = Recompression("cursor", "zstd", threshold=100, min_gain=MinGain.parse("5%"))
    write_plan(captured, tmp_path / "plan", rule)
    promised = {line["path"]: line for line in read_plan(tmp_path / "plan")[1] if line["action"] == "rewrite"}
    assert promised
    victim, other = sorted(promised)[0], sorted(promised)[-1]
    record = captured.read(victim)
    captured.put(victim, record.value + b"", record.version)
    before = values_of(captured)
    first = make_run(captured)
    decisions = planned(rewrites(tmp_path / "plan", "cursor"), Batches(captured, 1), "cursor")
    tally = first.apply(decisions, leave_moved)
    # The plan does not apply to the same bytes under another version.
    assert (tally.rewritten, tally.conflicts) == (len(promised) - 1, 1)
    for path, value in values_of(captured).items():
        if path in promised and path != victim:
            assert digest(value) == promised[path]["new_sha256"]
            assert len(value) == promised[path]["size_after"]
        else:
            assert value == before[path]
    first.undo.close()
    again = make_run(captured, resume=True)
    tally = again.apply(
        planned(rewrites(tmp_path / "plan", "cursor"), Batches(captured, 1), "cursor"), leave_moved
    )
    assert (tally.rewritten, tally.kept_for["already"]) == (0, len(promised) - 1)
    assert other in promised


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"plan": 1}',
        '{"plan": 1, "store": {}}\n{}\n',
        '{"plan": 1, "store": {}}\nx\n',
        '{"plan": 1, "store": {}}\n{"action": "rewrite", "path": "/a"}\n',
        '{"plan": 1, "store": {}}\n{"action": "melt", "path": "/a"}\n',
        PLAN_LINE.replace('"version":0', '"version":"x"'),
        PLAN_LINE.replace('"version":0', '"version":1e999'),
        PLAN_LINE.replace('"version":0', f'"version":"{"9" * 5000}"'),
        PLAN_LINE.replace('"lz4"', '"gzip"'),
        PLAN_LINE.replace('"lz4"', '["lz4"]'),
        "[" * 100_000,
        '{"plan": 1, "store": {}}\n' + "[" * 100_000 + "\n",
    ],
)
def test_a_broken_plan_is_a_decode_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan").write_text(text)
    with pytest.raises(DecodeError):
        list(rewrites(tmp_path / "plan", "cursor"))


def test_a_plan_lists_what_guards_will_refuse(captured: MemoryStore) -> None:
    captured.put("/namespace/public/default/0x00000000_0xffffffff", b"{}", ABSENT)
    tally, warnings = Summary(), []  # type: ignore[var-annotated]
    rewrite = rewrite_values("test", lambda: select(captured, Scope(), "cursor"), REVERT)
    lines = list(preview(captured, rewrite, Terms(), tally, warnings.append))
    assert tally.skipped_for["loaded"] == len(warnings) == sum(d.reason == "loaded" for _, d in lines) > 30
    assert tally.refused == len(warnings)


@pytest.mark.parametrize(
    "forged",
    [
        {"path": "/admin/evil"},
        {"path": "/managed-ledgers/public/default/persistent/orders"},
        {"path": "/managed-ledgers"},
        {"path": ["/managed-ledgers/a/b/persistent/c/d"]},
        {"new": "AA=="},
        {"new": None},
        {"new_sha256": None},
        {"old_sha256": None, "version": -1},
    ],
)
def test_a_forged_plan_is_refused(captured: MemoryStore, tmp_path: Path, forged: dict[str, object]) -> None:
    write_plan(captured, tmp_path / "plan", REVERT)
    *lines, last = (tmp_path / "plan").read_text().splitlines()
    (tmp_path / "plan").write_text("\n".join([*lines, json.dumps(rewriting(last) | forged)]) + "\n")
    with pytest.raises(GuardError, match=f"line {len(lines) + 1}: "):
        apply_plan(captured, tmp_path / "plan", "cursor")


def rewriting(line: str) -> dict[str, object]:
    fields: dict[str, object] = json.loads(line)
    wanted = {"action": "rewrite", "codec_after": "none", "old_sha256": "00", "new_sha256": "11"}
    return fields | wanted


def test_a_plan_cannot_write_other_bytes(captured: MemoryStore, make_run: MakeRun, tmp_path: Path) -> None:
    """The plan promises other bytes, but only the same payload in another codec is ever written."""
    record = captured.read(CURSOR)
    evil = b"\x08\x01\x10\x02"
    line = {"path": CURSOR, "version": record.version, "action": "rewrite", "codec_after": "none"}
    line |= {"old_sha256": digest(record.value), "new_sha256": digest(evil)}
    header = plan_header("compress-cursors", read_identity(captured))
    (tmp_path / "plan").write_text(json.dumps(header) + "\n" + json.dumps(line) + "\n")
    rewrite = apply_plan(captured, tmp_path / "plan", "cursor")
    done = run(captured, rewrite, Terms(undo_file=tmp_path / "undo"), Listener()).summary
    assert (done.rewritten, done.seen) == (0, 1)
    assert captured.read(CURSOR) == record


def test_a_plan_for_other_brokers_is_checked_against_those_at_hand(
    captured: MemoryStore, tmp_path: Path
) -> None:
    """The plan was made for brokers that load cursors with properties, but the registered broker does not."""
    captured.put("/loadbalance/brokers/b:8080", b'{"brokerVersion":"4.2.4"}', ABSENT)
    plain = run(captured, rewrite_values("test", lambda: select(captured, Scope(), "cursor"), REVERT),
                Terms(undo_file=tmp_path / "a", overrides=Overrides(loaded=True)), Listener())  # fmt: skip
    assert plain.summary.rewritten == 37
    rule = Recompression("cursor", "lz4", threshold=0, readers=Readers(("4.0.7",)))
    write_plan(captured, tmp_path / "plan", rule)
    rewrite = apply_plan(captured, tmp_path / "plan", "cursor")
    terms = Terms(undo_file=tmp_path / "undo", overrides=Overrides(loaded=True))
    assert run(captured, rewrite, terms, Listener()).summary.skipped_for["unreadable"] >= 1
