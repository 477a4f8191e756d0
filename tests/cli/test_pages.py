"""`-o html` writes a page with the same content as the command's table."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from pulsar_meta.cli.commands.snapshot import HISTORY
from pulsar_meta.cli.render.pages import page, table
from pulsar_meta.cli.render.tables import View
from tests.cli.program import as_text, pulsar_meta_here
from tests.servers.restartable import skip_or_fail

Capture = Callable[[str], Path]
COMMANDS = {
    "check": ["check"],
    "disk": ["disk"],
    "subscriptions": ["disk", "--by", "subscription"],
    "logs": ["disk", "--by", "log"],
    "cursors": ["show-cursor", "marks"],
    "cursor": ["show-cursor", "marks", "holes"],
    "top": ["top"],
}
WITH_ENTRIES = {"disk", "show-cursor"}


def ask(folder: Path, name: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = COMMANDS[name]
    places = ["--store", f"snapshot:{folder}/metadata.ndjson"]
    if command[0] in WITH_ENTRIES:
        places += ["--entries", f"bookie-disk:{folder}/bookie0"]
    return as_text(pulsar_meta_here(*command, *places, *more))


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_page_has_the_content_of_the_table(capture: Capture, name: str) -> None:
    folder = capture("pulsar-4.2.4")
    page, table = ask(folder, name, "-o", "html"), ask(folder, name, "-o", "plain")
    assert page.returncode == table.returncode
    text = unescape(re.sub("<wbr>|</?span[^>]*>", "", page.stdout))
    assert text.startswith("<!DOCTYPE html>")
    for line in table.stdout.splitlines() if name != "top" else ():
        for cell in line.split("\t"):
            assert cell == "-" or cell.strip() in text
    for forbidden in ("<script", "http:", "https:", " src=", " style="):
        assert forbidden not in page.stdout
    assert page.stdout.count(" href=") == page.stdout.count(' href="#')


def test_short_texts_and_options_are_not_broken_and_code_is_marked() -> None:
    command = "pulsar-meta repair cursor a/b --dry-run"
    section = table(["change", "repair"], [["only-right", command]])
    assert [column.kind for column in section.columns] == ["short", "command"]
    shown = page("Title", [], [replace(section, notes=["use `a < b`"])])
    assert '<td data-label="change" class="short">only-right</td>' in shown
    assert 'a/<wbr>b <span class="option">--dry-run</span></td>' in shown
    assert "<p>use <code>a &lt; b</code></p>" in shown


def test_the_bars_of_a_table_have_one_scale() -> None:
    rows = [["1", "2"], ["4", "0"]]
    section = table(["bytes", "dead"], rows, bars={"bytes": [1, 4], "dead": [2, None]})
    widths = [[part.width for cell in row.cells for part in cell.parts] for row in section.rows]
    assert widths == [[0.25, 0.5], [1.0]]


def test_a_page_leaves_out_rare_columns_without_content() -> None:
    view = View(["name", "lost"], lambda row: row["cells"], rare=frozenset({"lost"}))
    for cells, headings in (["a", "0"], ["name"]), (["a", "1"], ["name", "lost"]):
        [section] = view.sections([{"cells": cells}])
        assert [column.heading for column in section.columns] == headings


def test_changed_values_are_json(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    stores = [f"snapshot:{folder}/metadata{part}.ndjson" for part in ("", "-after-step-1")]
    page = unescape(as_text(pulsar_meta_here("diff", *stores, "-o", "html")).stdout.replace("<wbr>", ""))
    assert 'properties: [{"key": "index", "value": "-1"}] -> (none)' in page


def test_findings_link_to_the_explanations_of_their_codes(capture: Capture) -> None:
    page = ask(capture("pulsar-4.2.4"), "check", "-o", "html").stdout
    linked = set(re.findall(r'<a href="#([^"]+)">', page))
    assert linked == set(re.findall(r'<h2 id="([^"]+)">', page))
    assert "record-unreadable" in linked
    assert "<h2>Summary</h2>" in page
    assert re.search(r"<h2>By namespace</h2>.*public/<wbr>default</td>.*>3</td>", page, re.DOTALL)
    assert "Pulsar 4.2.4 can&#39;t load some records that it wrote itself." in page
    logged = "IllegalReferenceCountException: refCnt: 0"
    assert f"<p>in logs: <code>{logged}</code>, <code>Error while recovering cursor</code></p>" in page


@pytest.mark.parametrize("name", ["check", "cursors", "disk"])
def test_a_page_has_the_summary_of_the_checks(capture: Capture, name: str) -> None:
    done = ask(capture("pulsar-4.2.4"), name, "-o", "html")
    [summary] = [line for line in done.stderr.splitlines() if line.startswith("checked: ")]
    assert f"<p>{summary}</p>" in done.stdout


def test_a_strip_shows_the_acknowledged_ranges(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    page = ask(folder, "cursor", "-o", "html").stdout
    [document] = json.loads(ask(folder, "cursor", "-o", "json").stdout)
    runs = [run for ledger in document["record"]["acked"] for run in ledger["entries"]]
    assert page.count('class="bar"') == len(runs)
    assert page.count('class="pale"') == len(document["record"]["acked"])


def test_a_treemap_covers_the_bytes_of_the_disk(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    page, rows = (
        ask(folder, "disk", "-o", "html").stdout,
        json.loads(ask(folder, "disk", "-o", "json").stdout),
    )
    picture = page.partition('class="tiles"')[2].partition("</ul>")[0]
    tiles = re.findall(r'width="([\d.]+)%" height="([\d.]+)%"><title>([^<]+)</title>', picture)
    areas = {title.partition(":")[0]: float(wide) * float(high) / 1e4 for wide, high, title in tiles}
    assert sum(areas.values()) == pytest.approx(1, abs=1e-3)
    total = sum(row["size"] for row in rows)
    for row in rows[:10]:
        name = (row["name"] or "(no topic)").removeprefix("persistent://")
        assert areas[f"{name}, {row['role']}"] == pytest.approx(row["size"] / total, abs=1e-4)
    assert re.search(r'role="img" aria-label="3 MiB by topic, .*public/default/marks 1.2 MiB', page)


def test_a_heat_map_adds_up_to_the_backlogs(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    page = ask(folder, "cursors", "-o", "html").stdout
    lines = json.loads(ask(folder, "cursors", "-o", "json").stdout)
    table = page.partition('<table class="map">')[2].partition("</table>")[0]
    rows = re.findall(r"<tr><th scope=.row. [^>]+>(.*?)</th>(.*)</tr>", table)
    assert len(rows) == len(lines)
    for line, (_, row) in zip(lines, rows, strict=True):
        cells = re.findall(r'<td class="heat h(\d)">([^<]+)</td>', row)
        assert sum(int(text) for _, text in cells if text != "·") == line["backlog"]
        assert {level for level, text in cells if text == "·"} <= {"0"}
    assert "by_ledger" not in lines[0]


def test_a_plan_shows_sizes_before_and_after_on_one_scale(capture: Capture) -> None:
    store = f"snapshot:{capture('pulsar-4.2.4')}/metadata.ndjson"
    words = ("compress-cursors", "--compression", "none", "--topic", "marks", "--store", store)
    done = as_text(pulsar_meta_here(*words, "--dry-run", "-o", "html"))
    assert done.returncode == 0
    assert "8 seen, 4 to rewrite: 18403 -&gt; 32372 bytes" in done.stdout
    [row] = [row for row in done.stdout.split("<tr>") if "huge<" in row.replace("<wbr>", "")]
    assert re.findall(r'class="bar" x="0.000" width="([\d.]+)"', row) == ["56.141", "100.000"]
    actions = re.findall(r'<td data-label="action"[^>]*>(\w+)</td>', done.stdout)
    assert actions == ["rewrite"] * 4 + ["keep"] * 4


def test_a_page_of_a_plan_needs_a_dry_run(tmp_path: Path) -> None:
    value = tmp_path / "store" / "x" / ".value"
    value.parent.mkdir(parents=True)
    value.write_bytes(b"1")
    words = ("rm", "/x", "--version", "0", "--store", f"dir:{tmp_path / 'store'}", "--yes", "-o", "html")
    refused = as_text(pulsar_meta_here(*words))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "-o html shows a plan: add --dry-run" in refused.stderr
    assert value.exists()


def test_the_history_of_a_cursor_is_drawn_as_its_progress() -> None:
    means = [{}, {"acknowledged": 30}, {"again": 20}, {"acknowledged": 40}]
    changes = [
        {"path": "/a", "change": "changed", "differences": [], "means": {"text": "x", **each}}
        for each in means
    ]
    [section] = HISTORY.sections(changes)
    widths = [part.width for row in section.rows for cell in row.cells for part in cell.parts]
    assert widths == [0, 0.6, 0.2, 1.0]


def differing(folder: Path, tmp_path: Path) -> list[str]:
    """Return the arguments that compare a capture's store with a copy that differs in two values."""
    store = folder / "metadata.ndjson"
    lines = store.read_text(encoding="utf-8").splitlines(keepends=True)
    evil = json.dumps({"path": "/admin/<b>&x", "version": 0, "value": "aGk="}) + "\n"
    (tmp_path / "other.ndjson").write_text("".join([*lines[1:], evil]), encoding="utf-8")
    return ["diff", f"snapshot:{store}", f"snapshot:{tmp_path}/other.ndjson", "-o", "html"]


def test_differences_are_shown_on_a_page(capture: Capture, tmp_path: Path) -> None:
    done = as_text(pulsar_meta_here(*differing(capture("pulsar-4.2.4"), tmp_path)))
    assert done.returncode == 1
    assert 'class="path">/<wbr>admin/<wbr>&lt;b&gt;&amp;x</td>' in done.stdout


@pytest.mark.interop
@pytest.mark.parametrize("name", ["check", "disk", "cursor", "top", "diff"])
def test_a_browser_shows_a_page_without_console_messages(capture: Capture, name: str, tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        skip_or_fail("chromium", "chromium is not installed (Debian: chromium)")
    file = tmp_path / "page.html"
    folder = capture("pulsar-4.2.4")
    if name == "diff":
        pulsar_meta_here(*differing(folder, tmp_path), "--output", file)
    else:
        ask(folder, name, "-o", "html", "--output", str(file))
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    switches += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    switches += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    shown = subprocess.run(
        ["chromium", *switches, file.as_uri()], capture_output=True, text=True, timeout=300, check=False
    )
    assert "<h1>" in shown.stdout
    assert "CONSOLE" not in shown.stderr
