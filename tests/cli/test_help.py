"""Help pages: names are never broken, only available formats are listed, and so is the environment."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_args
from unittest.mock import patch

import pytest
from typer.models import OptionInfo
from typer.testing import CliRunner

from pulsar_meta.cli.app import build_app, requested_command
from pulsar_meta.cli.commands import COMMANDS
from pulsar_meta.cli.options import check_form, expand_option_groups
from pulsar_meta.cli.render.help import ENVIRONMENT
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from tests.cli.program import environment, pulsar_meta_here

ROOT = Path(__file__).parent.parent.parent


def page(*command: str, width: int) -> list[str]:
    with patch.dict(os.environ, {"COLUMNS": str(width)}):
        words = [word for name in command for word in name.split()]
        result = CliRunner().invoke(build_app(requested_command(words)), [*words, "--help"])
    assert result.exit_code == 0
    return result.output.splitlines()


def spellings(command: str) -> Iterator[str]:
    module, _, function = COMMANDS[command].target.partition(":")
    called = expand_option_groups(getattr(import_module(module), function), COMMANDS[command].forms)
    for parameter in inspect.signature(called).parameters.values():
        for info in get_args(parameter.annotation):
            if isinstance(info, OptionInfo):
                for text in (info.default, *(info.param_decls or ())):
                    yield from str(text).split("/")


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("width", [40, 80, 140])
def test_names_are_not_broken_and_lines_fit(command: str, width: int) -> None:
    lines = page(command, width=width)
    words = {word.strip(",.:;()") for line in lines for word in line.split()}
    assert {word for word in spellings(command) if word.startswith("-")} <= words
    if width >= 80:
        assert all(len(line) < width for line in lines)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_has_a_short_summary_then_a_use_and_examples(command: str) -> None:
    module, _, function = COMMANDS[command].target.partition(":")
    text = inspect.getdoc(getattr(import_module(module), function)) or ""
    summary, use, *_ = text.split("\n\n")
    assert len(summary) <= 60
    assert use.startswith("Use it ")
    assert len(text.partition("Examples:\n")[2].splitlines()) >= 2


def test_each_command_is_one_line_in_the_list() -> None:
    lines = page(width=80)
    names = {name.partition(" ")[0] for name in COMMANDS}
    listed = [line for line in lines if line.startswith("  ") and line.split()[0] in names]
    assert len(listed) == len(names)
    assert all(line.endswith(".") for line in listed)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_value_of_every_option_has_a_name(command: str) -> None:
    lines = page(command, width=140)
    kinds = {"TEXT", "INTEGER", "FLOAT", "PATH", "FILENAME", "UUID"}
    assert not [
        line for line in lines if line.startswith(("  -", "      --")) and kinds & {*line.split()[1:3]}
    ]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_only_available_formats_are_listed_and_accepted(command: str) -> None:
    forms = COMMANDS[command].forms
    text = " ".join(page(command, width=140))
    if not forms:
        assert not re.search(r"--output\b|--output-format|--force", text)
        return
    listed = re.search(r"--output-format FORM +(?:One of|Always) ([a-z, ]+)\.", text)
    assert listed is not None
    assert listed[1].split(", ") == list(forms)
    for form in Format:
        if form in forms:
            check_form(Shell(form), forms)
        else:
            with pytest.raises(UsageError, match=f"invalid -o {form}: choose "):
                check_form(Shell(form), forms)


def test_an_unavailable_format_is_refused(tmp_path: Path) -> None:
    done = pulsar_meta_here("ls", "-o", "parquet", env=environment(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"invalid -o parquet: choose table, plain" in done.stderr


def test_an_unknown_format_is_answered_with_the_formats_of_the_command(tmp_path: Path) -> None:
    done = pulsar_meta_here("get", "topic", "orders", "-o", "xml", env=environment(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"invalid -o xml: choose table, plain, json, ndjson, csv or raw (see " in done.stderr
    assert b"parquet" not in done.stderr


def test_every_environment_variable_is_in_the_help() -> None:
    sources = [path.read_text("utf-8") for path in ROOT.glob("*/pulsar_meta/**/*.py")]
    used = {name for text in sources for name in re.findall(r"\"(PULSAR_META_[A-Z_]+)\"", text)}
    assert len(used) >= 6
    assert used <= set(ENVIRONMENT)
    text = "\n".join(page(width=80))
    assert all(name in text for name in ENVIRONMENT)


def test_the_program_without_arguments_shows_the_help(tmp_path: Path) -> None:
    done = pulsar_meta_here(env=environment(tmp_path))
    assert (done.returncode, done.stderr) == (2, b"")
    assert b"Usage: pulsar-meta" in done.stdout


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("compres-cursors", "compress-cursors"),
        ("dump-entires x", "dump-entries"),
        ("decode --stor x", "--store"),
        ("repair partitons x", "partitions"),
        ("decode --hexx x", "--hex"),
    ],
)
def test_a_misspelling_gets_a_suggestion(words: str, suggestion: str, tmp_path: Path) -> None:
    done = pulsar_meta_here(*words.split(), env=environment(tmp_path))
    assert done.returncode == 2
    assert re.search(rf"Did you mean .*{suggestion}\b.*\?", done.stderr.decode())


def test_a_missing_subcommand_is_named(tmp_path: Path) -> None:
    for words in (["repair"], ["repair", "--store", "dir:x"]):
        done = pulsar_meta_here(*words, env=environment(tmp_path))
        assert done.returncode == 2
        assert b"a subcommand is missing" in done.stderr
        assert b"choose adopt, compaction" in done.stderr


def test_an_option_with_the_name_of_an_argument_is_explained(tmp_path: Path) -> None:
    done = pulsar_meta_here("check", "--topic", "orders", env=environment(tmp_path))
    assert done.returncode == 2
    assert b"no option --topic: TOPIC is an argument" in done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("undo", "missing FILE (see pulsar-meta undo --help)"),
        ("convert-cursor marks", "missing option --to: choose ranges or bitset (see"),
        ("disk --by weight", "invalid --by weight: choose topic, subscription, log or bookie (see"),
        ("ls --nonsense", "unknown option --nonsense (see"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_to_type(
    command: str, message: str, tmp_path: Path
) -> None:
    done = pulsar_meta_here(*command.split(), env=environment(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert message in done.stderr.decode()


def test_a_file_that_is_no_undo_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"\0\1garbage")
    done = pulsar_meta_here("undo", tmp_path / "junk", env=environment(tmp_path))
    assert (done.returncode, done.stdout) == (4, b"")


def test_problems_and_their_repair_come_first() -> None:
    lines = page(width=100)
    named = [line.split()[0] for line in lines if re.match(r"  [a-z-]+ {2,}\S", line)]
    assert named[:2] == ["check", "explain"]
    assert named.index("repair") < named.index("undo") < named.index("decode")
