"""Behaviour that all commands share: output formats, profiles, complete files and exit codes."""

from __future__ import annotations

import csv
import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from pulsar_meta.cli import streams
from pulsar_meta.cli.commands import COMMAND_GROUPS, COMMANDS
from pulsar_meta.cli.errors import is_json_requested
from pulsar_meta.cli.render import tables
from pulsar_meta.cli.render.text import counted, folded
from pulsar_meta.cli.settings import load_settings
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from tests.cli.program import MAIN, as_text, pulsar_meta_here

PROGRAM = Path(sys.executable).with_name("pulsar-meta")
VIEW = tables.View(
    ["ledger", "name"], lambda document: [str(document["l"]), document["n"]], fields=("l", "n")
)
DOCUMENTS = [{"l": 7, "n": "a\tb"}, {"l": 2**63 - 1, "n": "[bold]"}]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the installed program; if an environment is given, it replaces ours."""
    return subprocess.run(
        [PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment or None,
    )


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    return as_text(pulsar_meta_here(*arguments))


def test_json_is_a_list_and_keeps_big_numbers_as_digits() -> None:
    out = io.StringIO()
    tables.write_json(DOCUMENTS, out, single=False)
    assert json.loads(out.getvalue()) == [{"l": 7, "n": "a\tb"}, {"l": str(2**63 - 1), "n": "[bold]"}]


def test_json_without_documents_is_an_empty_list() -> None:
    out = io.StringIO()
    tables.write_json([], out, single=False)
    assert json.loads(out.getvalue()) == []


def test_json_stays_valid_when_the_source_fails_midway() -> None:
    def broken() -> Iterator[Document]:
        yield {"l": 1}
        raise UsageError("no more")

    out = io.StringIO()
    with pytest.raises(UsageError):
        tables.write_json(broken(), out, single=False)
    assert json.loads(out.getvalue()) == [{"l": 1}]


def test_plain_output_keeps_each_row_on_one_line() -> None:
    out = io.StringIO()
    tables.write_plain(DOCUMENTS, out, VIEW)
    assert out.getvalue() == f"7\ta\\tb\n{2**63 - 1}\t[bold]\n"


def test_plain_output_shows_a_dash_for_an_empty_cell() -> None:
    out = io.StringIO()
    tables.write_plain([{"l": 7, "n": ""}], out, VIEW)
    assert out.getvalue() == "7\t-\n"


def test_a_table_shows_markup_literally() -> None:
    out = io.StringIO()
    tables.write_table(DOCUMENTS, out, VIEW)
    assert "[bold]" in out.getvalue()
    assert str(2**63 - 1) in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_that_breaks_elsewhere_is_an_error() -> None:
    """Only the reader of the output may leave; a connection to a server is a pipe too."""
    lost = "import pulsar_meta.cli.app as app\ndef lost(name): raise BrokenPipeError(32, 'Broken pipe')\n"
    code = f"{lost}app.build_app = lost\n{MAIN[2]}"
    done = subprocess.run([*MAIN[:2], code, "ls"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (6, "pulsar-meta: Broken pipe\n")


def test_a_table_has_no_empty_columns() -> None:
    view = tables.View(columns=["a", "b", "c"], row=lambda document: ["1", "-", document["n"]])
    out = io.StringIO()
    tables.write_table([{"n": ""}, {"n": "x" * 300}], out, view)
    heading = out.getvalue().splitlines()[0]
    assert heading.split() == ["a", "c"]
    assert "x" * 300 in out.getvalue()
    out = io.StringIO()
    tables.write_table([], out, view)
    assert out.getvalue() == ""


@pytest.mark.parametrize("columns", [20, 40, 63, 64, 80, 95, 96, 140])
def test_a_table_fits_its_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    topic, time = "persistent://public/default/" + "t" * 20, "2026-11-21T06:02:20.167Z"
    view = tables.View(columns=["topic", "ledger", "time"], row=lambda document: [topic, str(2**62), time])
    out = Terminal()
    tables.write_table([{}, {}], out, view)
    lines = out.getvalue().splitlines()
    if columns < 53:
        # Below this width each row becomes a paragraph, whose lines the terminal folds.
        assert lines[0] == f" topic  {topic}"
    else:
        assert max(map(len, lines)) < columns
        # Below 64 columns the times are folded.
        assert len(lines) == (6 if columns < 64 else 4)
        shown = lines[2].split()[0]
        assert shown == topic if columns > 95 else re.fullmatch("persi.*….*tttttttt", shown)
    # Numbers and times are never shortened.
    assert out.getvalue().count(str(2**62)) == 2
    date, hour = time[:11], time[11:]
    assert out.getvalue().count(date) == out.getvalue().count(hour) == 2


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("persistent://public/default/orders", 16, ["persi…ult/orders"]),
        ("a 日本語日本語日本語", 9, ["a", "日…日本語"]),
        ("short", 5, ["short"]),
    ],
)
def test_texts_are_folded_between_words_and_names_lose_their_middle(
    text: str, width: int, lines: list[str]
) -> None:
    assert folded(text, width) == lines


def test_a_rare_column_is_shown_only_if_it_has_values() -> None:
    view = tables.View(
        ("a", "faults"), lambda document: ["x", str(document["n"])], rare=frozenset({"faults"})
    )
    for numbers, shown in (((0, 0), False), ((0, 2), True)):
        out = io.StringIO()
        tables.write_table([{"n": number} for number in numbers], out, view)
        assert ("faults" in out.getvalue()) is shown


def test_csv_has_the_field_names_and_values_of_json() -> None:
    view = tables.View((), lambda document: (), fields=("a", "b.c", "d", "e", "f"))
    out = io.StringIO()
    tables.write_csv([{"a": 1, "b": {"c": "-"}, "d": True, "e": {"x": 2**60}}], out, view)
    assert list(csv.DictReader(io.StringIO(out.getvalue()))) == [
        {"a": "1", "b.c": "-", "d": "true", "e": '{"x": "1152921504606846976"}', "f": ""}
    ]


def test_csv_needs_columns() -> None:
    with pytest.raises(UsageError):
        tables.write_csv(DOCUMENTS, io.StringIO(), tables.Detail(lines=lambda document: []))


def test_a_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")
    with pytest.raises(UsageError), streams.atomic_file(target, "w") as out:
        out.write("half")
        raise UsageError("broken midway")
    assert target.read_text() == "old"
    with streams.atomic_file(target, "w") as out:
        out.write("new")
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_the_environment_overrides_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        '[default]\nstore = "dir:/d"\n[profiles.p]\nstore = "dir:/p"\nentries = ["frames:a", "frames:b"]\n'
    )
    monkeypatch.setenv("PULSAR_META_CONFIG", str(config))
    for variable in ("PULSAR_META_STORE", "PULSAR_META_ENTRIES", "PULSAR_META_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    assert load_settings(None).store == "dir:/d"
    assert load_settings("p").store == "dir:/p"
    assert load_settings("p").entries == ("frames:a", "frames:b")
    monkeypatch.setenv("PULSAR_META_STORE", "dir:/e")
    assert load_settings("p").store == "dir:/e"


def test_a_named_config_file_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSAR_META_CONFIG", str(tmp_path / "confg.toml"))
    with pytest.raises(UsageError, match="does not exist"):
        load_settings(None)


@pytest.mark.parametrize("text", ["[default]\nstroe = 'x'\n", "[[[", "[profiles.q]\n"])
def test_a_wrong_profile_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text)
    monkeypatch.setenv("PULSAR_META_CONFIG", str(config))
    with pytest.raises(UsageError):
        load_settings("p")


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["-o", "json"], True),
        (["-ojson"], True),
        (["-o", "table"], False),
        (["--output-format", "ndjson"], True),
    ],
)
def test_the_wish_for_json_is_recognized(arguments: list[str], answer: bool) -> None:
    assert is_json_requested(arguments) is answer


def test_version_is_printed() -> None:
    assert run("--version").stdout.startswith("pulsar-meta ")


def test_windows_is_not_supported() -> None:
    """Runs the entry point without the modules that Windows lacks. Only the platform's name is made up."""
    code = (
        "import sys; sys.platform = 'win32'; sys.modules.update(fcntl=None, resource=None, termios=None);"
        "from pulsar_meta.cli.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "pulsar-meta: Windows is not supported: use the Windows Subsystem for Linux (WSL)\n"
    )


def test_a_usage_error_is_json_if_the_output_is() -> None:
    result = run_here("decode", "--no-such-option", "-o", "json")
    assert result.returncode == 2
    assert json.loads(result.stderr)["error"] == "usage"
    assert result.stdout == ""


def test_a_missing_file_is_a_one_line_error() -> None:
    result = run_here("decode", "/no/such/file")
    assert result.returncode == 3
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = run_here(*command.split(), "--help")
    assert result.returncode == 0
    assert f"pulsar-meta {command}" in result.stdout
    assert "Example" in result.stdout


def test_an_option_before_a_subcommand_lists_the_subcommands() -> None:
    result = run_here("repair", "--store", "x")
    assert (result.returncode, result.stdout) == (2, "")
    assert (
        "a subcommand is missing before --store: choose adopt, compaction, count, cursor, " in result.stderr
    )


def test_help_lists_every_command() -> None:
    stated = run("--help").stdout
    assert all(command.split()[0] in stated for command in COMMANDS)
    of_two_words = [command.split() for command in COMMANDS if " " in command]
    assert {noun for noun, _ in of_two_words} == set(COMMAND_GROUPS)
    assert all(verb in run_here(noun, "--help").stdout for noun, verb in of_two_words)


@pytest.mark.parametrize("noun", sorted(COMMAND_GROUPS))
def test_a_group_without_command_names_its_help(noun: str) -> None:
    result = run_here(noun)
    assert (result.returncode, result.stdout) == (2, "")
    assert f"pulsar-meta {noun} --help" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_offered(shell: str) -> None:
    # Sets the variable of the shell's start-up file; --show-completion looks for a shell among our parents.
    assert (
        "_PULSAR_META_COMPLETE" in run(PATH="/usr/bin:/bin", _PULSAR_META_COMPLETE=f"source_{shell}").stdout
    )


def test_a_shell_completes_commands() -> None:
    env = {"_PULSAR_META_COMPLETE": "complete_bash", "COMP_WORDS": "pulsar-meta comp", "COMP_CWORD": "1"}
    assert run(PATH="/usr/bin:/bin", **env).stdout.split() == ["compress-cursors", "compress-ledgers"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_examples_are_lines_that_fit_a_terminal(command: str) -> None:
    module, _, function = COMMANDS[command].target.partition(":")
    text = inspect.cleandoc(getattr(import_module(module), function).__doc__)
    _, _, examples = text.partition("\n\nExamples:\n")
    assert f"pulsar-meta {command}" in examples
    for line in examples.splitlines():
        assert "pulsar-meta " in line
        assert len(line) <= 78


def test_data_cannot_control_a_terminal() -> None:
    hostile = [{"l": 1, "n": "a\x1b[2J\rb\x9b"}]
    for write in (tables.write_plain, tables.write_table):
        out = io.StringIO()
        write(hostile, out, VIEW)
        assert "a\\x1b[2J" in out.getvalue()
        assert not {"\x1b", "\r", "\x9b"} & set(out.getvalue())
    out = io.StringIO()
    tables.write_plain(hostile, out, tables.Detail(lines=lambda document: [document["n"] + "\tc"]))
    assert out.getvalue() == "a\\x1b[2J\\x0db\\x9b\tc\n"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["nope"], "nope"),
        (["seek", "--engine", "rar"], "rar"),
        (["decode", "--nope"], "--nope"),
        (["undo"], "undo"),
    ],
)
def test_a_usage_error_is_one_line_that_names_the_help(arguments: list[str], names: str) -> None:
    result = run_here(*arguments)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert names in result.stderr
    assert "--help" in result.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["seek", "--help"]])
def test_help_ends_quietly_if_its_reader_closes_the_pipe(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as broken:
        result = subprocess.run(
            [PROGRAM, *arguments], stdout=broken, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert result.returncode == 0
    assert result.stderr == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_data_is_utf8_whatever_the_locale(encoding: str, tmp_path: Path) -> None:
    name = "größe 日本 \udcff.bin"
    (tmp_path / name).write_bytes(bytes.fromhex("0a090807100a18e8072001"))
    env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
    done = subprocess.run(
        [PROGRAM, "decode", tmp_path, "-o", "json"], capture_output=True, check=False, env=env, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)[0]["source"] == str(tmp_path / name)
    subprocess.run([PROGRAM, "decode", tmp_path / name, "--output", tmp_path / "o"], check=True, env=env)
    assert "größe 日本 \\udcff.bin" in (tmp_path / "o").read_text("utf-8")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("profiles = 3", "[profiles.NAME]"),
        ('default = "x"\n[profiles.p]', "[default]"),
        ("[profiles]\np = 3", "[profiles.NAME]"),
        ('[profile.p]\nstore = "x"', "unknown key 'profile'"),
        ("[profiles.p]\nstore = 3", "store: expected text"),
        ("[profiles.p]\nentries = [1]", "entries: expected text"),
        ('[profiles.p]\nstor = "x"', "unknown key 'stor'"),
        ("\x00", "not a valid TOML"),
        ("x = " + "[" * 100_000, "not a valid TOML"),
        ("#" * ((1 << 20) + 1), "larger than 1048576 bytes"),
        ('[profiles.p]\nstore = ["zk://u:s3cret@h"]', "store: expected text in quotes, found a list"),
        ('default = "zk://u:s3cret@h"\n[profiles.p]', "found text"),
    ],
)
def test_an_invalid_config_is_a_usage_error(
    config: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(config)
    monkeypatch.setenv("PULSAR_META_CONFIG", str(file))
    with pytest.raises(UsageError) as caught:
        load_settings("p")
    assert words in caught.value.message
    assert "s3cret" not in caught.value.message
    assert caught.value.source == str(file)


@pytest.mark.parametrize(
    ("shell", "not_checked", "line"),
    [
        (Shell(), {}, "checked: 7 ledgers, 1 entry\n"),
        (
            Shell(),
            {"offload": "no --entries"},
            "checked: 7 ledgers, 1 entry; not checked: offload (no --entries)\n",
        ),
        (Shell(quiet=True), {}, ""),
        (Shell(quiet=True), {"a": "b"}, "checked: 7 ledgers, 1 entry; not checked: a (b)\n"),
        (
            Shell(tables.Format.NDJSON),
            {"a": "b"},
            '{"checked": {"ledgers": 7, "entries": 1}, "not_checked": {"a": "b"}}\n',
        ),
    ],
)
def test_the_summary_is_one_line_on_stderr(
    shell: Shell, not_checked: dict[str, str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.summary({"ledgers": 7, "entries": 1}, not_checked)
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (1, "batches", "1 batch"),
        (1, "indexes", "1 index"),
        (1, "values", "1 value"),
        (0, "entries", "0 entries"),
    ],
)
def test_a_count_of_one_is_singular(number: int, nouns: str, text: str) -> None:
    assert counted(number, nouns) == text


@pytest.mark.linux
@pytest.mark.parametrize("words", ["--version", "schema decode", "ls --help"])
def test_a_full_disk_is_a_one_line_error(words: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*MAIN, *words.split()], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (6, b"pulsar-meta: No space left on device\n")
