from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import (
    DecodeError,
)
from pulsar_meta.jobs.rewrite.batches import Batches
from pulsar_meta.jobs.rewrite.decision import Summary, digest
from pulsar_meta.jobs.rewrite.plan import leave_moved, plan_header, plan_line, planned, read_plan
from pulsar_meta.jobs.rewrite.rules import MinGain, Recompression, with_codec
from pulsar_meta.jobs.rewrite.run import Terms, preview, rewrite_values
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from tests.jobs.rewrite.conftest import MakeRun, values_of

REVERT = Recompression("cursor", "none")


def write_plan(store: MemoryStore, path: Path, rule: Recompression) -> None:
    lines = [plan_header("compress-cursors", read_identity(store))]
    lines += [plan_line(v, rule(v)) for v in select(store, Scope(), rule.kind)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_plan_is_applied_exactly(captured: MemoryStore, make_run: MakeRun, tmp_path: Path) -> None:
    rule = Recompression("cursor", "zstd", threshold=100, min_gain=MinGain.parse("5%"))
    write_plan(captured, tmp_path / "plan", rule)
    promised = {line["path"]: line for line in read_plan(tmp_path / "plan")[1] if line["action"] == "rewrite"}
    assert promised
    victim, other = sorted(promised)[0], sorted(promised)[-1]
    held = captured.read(victim)
    captured.put(victim, held.value + b"", held.version)
    before = values_of(captured)
    run = make_run(captured)
    decisions = planned(read_plan(tmp_path / "plan")[1], Batches(captured, 1), with_codec)
    tally = run.apply(decisions, leave_moved)
    # The same bytes under another version are not what was planned.
    assert (tally.rewritten, tally.conflicts) == (len(promised) - 1, 1)
    for path, value in values_of(captured).items():
        if path in promised and path != victim:
            assert digest(value) == promised[path]["new_sha256"]
            assert len(value) == promised[path]["size_after"]
        else:
            assert value == before[path]
    again = make_run(captured, resume=True)
    tally = again.apply(
        planned(read_plan(tmp_path / "plan")[1], Batches(captured, 1), with_codec), leave_moved
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
        '{"plan": 1, "store": {}}\n{"action":"rewrite","path":"/a","version":"x","old_sha256":'
        '"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb","new_sha256":"y"}\n',
        '{"plan": 1, "store": {}}\n{"action":"rewrite","path":"/a","version":0,"new":"%","old_sha256":'
        '"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb","new_sha256":"y"}\n',
    ],
)
def test_a_broken_plan_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    store = MemoryStore()
    store.put("/a", b"a", ABSENT)
    (tmp_path / "plan").write_text(text)
    with pytest.raises(DecodeError):
        list(planned(read_plan(tmp_path / "plan")[1], Batches(store, 1), with_codec))


def test_a_plan_foresees_what_guards_refuse(captured: MemoryStore) -> None:
    captured.put("/namespace/public/default/0x00000000_0xffffffff", b"{}", ABSENT)
    tally, told = Summary(), []  # type: ignore[var-annotated]
    rewrite = rewrite_values("test", lambda: select(captured, Scope(), "cursor"), REVERT)
    lines = list(preview(captured, rewrite, Terms(), tally, told.append))
    assert tally.skipped_for["loaded"] == len(told) == sum(d.reason == "loaded" for _, d in lines) > 30
    assert tally.refused == len(told)
