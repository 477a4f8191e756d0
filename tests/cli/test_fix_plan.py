"""`check --fix-plan` and `repair --plan` as users run them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.cli.test_repair import written
from tests.damage import damaged, healthy_store, ledger_damage, record_damage

KINDS = (record_damage.topic_gone, ledger_damage.metadata_garbage, ledger_damage.foreign)


def test_one_plan_repairs_a_store_and_is_undone_as_one(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    url = written(damaged(healthy_store(capture("pulsar-4.2.4")), Random(5), KINDS).store, tmp_path / "store")
    plan, env = tmp_path / "fixes.ndjson", environment(tmp_path)

    def run(*words: object, code: int = 0) -> tuple[str, str]:
        done = as_text(pulsar_meta_here(*words, "--store", url, env=env))
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    before = run("snapshot", tmp_path / "before.ndjson", "-o", "json")[0]
    _, messages = run("check", "--severity", "error", "--fix-plan", plan, "-o", "ndjson", code=1)
    assert f"preview it with: pulsar-meta repair --plan {plan} --dry-run" in messages
    lines = list(map(json.loads, plan.read_text().splitlines()))
    names = {line["confirm"] for line in lines if line.get("confirm")}
    confirm = [word for name in sorted(names) for word in ("--confirm", name)]
    preview, _ = run("repair", "--plan", plan, "--dry-run", "-o", "ndjson")
    changed = [line["path"] for line in map(json.loads, preview.splitlines()[1:])]
    assert sorted(changed) == sorted(line["path"] for line in lines if "path" in line)
    if names:
        assert "refusing to write" in run("repair", "--plan", plan, "--yes", code=2)[1]
    summary = json.loads(run("repair", f"--plan={plan}", "--yes", *confirm, "-o", "json")[0])
    assert summary["rewritten"] == len(changed)
    stays = sorted((line["stays"]["code"], line["stays"]["message"]) for line in lines if "stays" in line)
    left = json.loads(
        run(
            "check",
            "-o",
            "json",
            code=int(any(line["stays"]["severity"] == "error" for line in lines if "stays" in line)),
        )[0]
    )
    assert sorted((finding["code"], finding["message"]) for finding in left) == stays
    run("undo", summary["undo_file"], "--yes", "--allow-unreadable", "--confirm", "2 topics")
    after = run("snapshot", tmp_path / "after.ndjson", "-o", "json")[0]
    assert json.loads(before)["sum"] == json.loads(after)["sum"]


@pytest.mark.parametrize("text", ["", "{}", '{"fix_plan":2,"store":{}}', "[]", "\xff"])
def test_a_file_that_is_no_plan_is_a_one_line_error(
    capture: Callable[[str], Path], tmp_path: Path, text: str
) -> None:
    plan = tmp_path / "plan"
    plan.write_text(text)
    words = ("repair", "--plan", plan, "--store", f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}")
    done = as_text(pulsar_meta_here(*words, "--dry-run", env=environment(tmp_path)))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1)
