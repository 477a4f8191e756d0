"""Output on a terminal: tables fit, and no progress bar appears among printed lines."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest

from pulsar_meta.cli.render.tables import View, table_lines
from tests.cli.program import MAIN, environment, pulsar_meta

Capture = Callable[[str], Path]
_escape_re = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run_in_terminal(*arguments: str, env: dict[str, str], columns: int) -> str:
    """Return everything that the program writes to a terminal, on stdout and stderr."""
    our_end, program_end = pty.openpty()
    ioctl(program_end, TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    program = subprocess.Popen(
        [*MAIN, *arguments], stdin=program_end, stdout=program_end, stderr=program_end, env=env
    )
    os.close(program_end)
    sent = b""
    # Reading from a terminal whose last process has ended fails with EIO.
    with suppress(OSError):
        while part := os.read(our_end, 65536):
            sent += part
    os.close(our_end)
    assert program.wait(60) in (0, 1)
    return sent.decode().replace("\r\n", "\n")


@pytest.fixture
def env(capture: Capture, tmp_path: Path) -> dict[str, str]:
    folder = capture("pulsar-4.2.4")
    return environment(
        tmp_path,
        PULSAR_META_STORE=f"snapshot:{folder / 'metadata.ndjson'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("top -n 3", "361 values, "),
        ("check-index public/default/orders -o ndjson", '{"topic"'),
        ("check-index public/default/orders -o csv", "topic,"),
        ("seek orders --index 1 --index 2 --index 3 -o plain", "18:1:0"),
        ("check-readable --for-version 4.2.4 -o json", "[{"),
        ("compress-cursors --estimate -o csv", "codec,"),
    ],
)
def test_no_progress_bar_is_drawn_after_the_first_line(words: str, first: str, env: dict[str, str]) -> None:
    text = _escape_re.sub("", run_in_terminal(*words.split(), env=env, columns=120))
    before, match, after = text.partition(first)
    assert match
    assert re.search("[━⠋]", before)
    assert not re.search("[━⠋]", after)


@pytest.mark.parametrize("columns", [40, 80, 140])
@pytest.mark.parametrize(
    "words",
    [
        "compress-cursors --estimate --by namespace",
        "ls topic marks -l",
        "properties orders",
        "dump-entries orders -n 3",
        "check-index orders",
    ],
)
def test_tables_fit_the_terminal(words: str, columns: int, env: dict[str, str]) -> None:
    text = _escape_re.sub("", run_in_terminal(*words.split(), env=env, columns=columns))
    lines = [line for line in text.splitlines() if "━" not in line]
    if any("──" in line for line in lines):
        # The terminal folds the summary line, so only the table's width is checked.
        table = [line for line in lines if "checked" not in line and "threshold" not in line]
        assert max(map(len, table)) < columns
    elif columns >= 80:
        assert words.startswith("dump-entries")
    if columns == 80 and "--estimate" in words:
        assert len([line for line in lines if line.startswith("public/default")]) == 5


def test_messages_during_a_rewrite_are_complete_lines(tmp_path: Path) -> None:
    broken = f"managed-ledgers/public/default/persistent/{'long-name-' * 9}/cursor"
    value = tmp_path / "store" / broken / ".value"
    value.parent.mkdir(parents=True)
    value.write_bytes(b"\xff\xff")
    words = ["compress-cursors", "--compression", "zstd", "--yes", "--store", f"dir:{tmp_path / 'store'}"]
    text = _escape_re.sub("", run_in_terminal(*words, env=environment(tmp_path), columns=60))
    (line,) = (line for line in text.splitlines() if f"/{broken}" in line)
    assert line.endswith("broken protobuf")


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        ("seek orders --index 5 --index 1234", 80),
        ("top -n 3", 80),
        ("top -n 3", 60),
    ],
)
def test_narrow_tables_break_only_between_words(words: str, columns: int, env: dict[str, str]) -> None:
    text = _escape_re.sub("", run_in_terminal(*words.split(), env=env, columns=columns))
    rows = [line for line in text.splitlines() if "━" not in line and "checked" not in line]
    assert any("──" in line for line in rows)
    if words.startswith("seek"):
        heading = next(line.split() for line in rows if "topic" in line)
        assert heading == ["topic", "index", "status", "position", "indexes", "broker", "time", "entries"]
        assert any("2026-11-21T  " in line for line in rows)
        assert any("06:02:20.186Z" in line for line in rows)
    assert not any("#…" in line or "…#" in line for line in rows)
    assert not re.search(r"indiv\S*…", text)


REPAIR = (
    "pulsar-meta compress-cursors --topic persistent://public/default/marks --cursor with-props"
    " --compression none"
)


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_the_fix_of_a_finding_is_never_shortened(columns: int, env: dict[str, str]) -> None:
    text = _escape_re.sub("", run_in_terminal("check", "marks", env=env, columns=columns))
    lines = text.splitlines()
    assert f"  fix:        {REPAIR}" in lines
    assert "  explain:    pulsar-meta explain record-unreadable" in lines
    start, end = lines.index("warning  record-unreadable"), lines.index(f"  fix:        {REPAIR}")
    prose = lines[start:end]
    assert all(len(line) < columns or " " not in line.strip() for line in prose)


@pytest.mark.parametrize(
    ("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)]
)
def test_severities_are_coloured_unless_no_color_is_set(
    more: dict[str, str], coloured: bool, env: dict[str, str]
) -> None:
    env = {name: value for name, value in env.items() if name != "NO_COLOR"} | more
    text = run_in_terminal("check", "marks", env=env, columns=100)
    assert ("\x1b[1;33mwarning\x1b[0m" in text) == coloured
    assert ("warning  record-unreadable\n" in text) != coloured


def test_a_clean_check_says_so_and_lists_what_was_not_checked(env: dict[str, str]) -> None:
    text = _escape_re.sub("", run_in_terminal("check", "orders", env=env, columns=100))
    lines = text[text.index("no problems") :].splitlines()
    assert lines[:3] == ["no problems found", "checked: 6 ledgers, 1 topic, 1 cursor", "not checked:"]
    assert all(line.startswith("  ") for line in lines[3:])


def test_verified_entries_without_faults_are_confirmed(env: dict[str, str]) -> None:
    text = _escape_re.sub("", run_in_terminal("verify-entries", "orders", env=env, columns=100))
    assert "no faults found\nchecked: 1 topic, 6 ledgers, 163 entries\n" in text
    assert "position" not in text


def test_a_text_that_needs_many_lines_in_a_table_is_in_a_paragraph() -> None:
    view = View(("topic", "position", "backlog", "state"), lambda row: row["cells"])
    reason = " ".join(["the record refers to a ledger that is gone"] * 4)
    row = ["persistent://public/default/orders", "1234:56", "9999999", reason]
    single, many = (
        list(table_lines([{"cells": cells} for cells in rows], view, 60))
        for rows in ([row], [row, *[[*row[:3], "record"]] * 20])
    )
    assert single[0].lstrip() == "topic  persistent://public/default/orders"
    assert many[1].startswith("────")


def test_a_check_of_a_store_shows_its_stages(env: dict[str, str]) -> None:
    text = _escape_re.sub("", run_in_terminal("check", "--only", "orphan-ledger", env=env, columns=100))
    assert "2/3 ledgers" in text
    assert "3/3 schemas, topics and cursors" in text


def test_a_table_of_findings_in_a_pipe_has_no_colours(env: dict[str, str]) -> None:
    done = pulsar_meta("check", "marks", "-o", "table", env=env)
    assert b"\x1b" not in done.stdout
    assert f"  fix:        {REPAIR}\n".encode() in done.stdout


def test_a_plan_without_compression_has_no_column_for_codecs(env: dict[str, str]) -> None:
    words = ("repair", "cursor", "marks", "first-hole", "--latest", "--dry-run")
    shown = _escape_re.sub("", run_in_terminal(*words, env=env, columns=120))
    assert "/managed-ledgers/public/default/persistent/marks/first-hole" in shown
    assert "codec" not in shown
