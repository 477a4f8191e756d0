"""What nobody foresaw ends in one line, a file to report, and exit code 70; Ctrl-C in nothing at all."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from pulsar_meta.cli import unforeseen
from tests.cli.program import environment, pulsar_meta_here

SECRETS = "zk://admin:s3cret@host:2181 password=hunter2"


def broken(error: BaseException) -> object:
    def run(*arguments: object, **options: object) -> None:
        raise error

    return patch("pulsar_meta.cli.commands.decode._text_form", run)


@pytest.mark.parametrize(
    "error",
    [RuntimeError(SECRETS), RecursionError("too deep"), MemoryError(), KeyError("x"), StopIteration()],
)
def test_an_unforeseen_error_is_one_line_and_exit_70(error: BaseException, tmp_path: Path) -> None:
    with broken(error):  # type: ignore[attr-defined]
        done = pulsar_meta_here("decode", "x", "--store", "zk://u:pw@h", env=environment(tmp_path))
    said = done.stderr.decode()
    assert (done.returncode, done.stdout, said.count("\n")) == (70, b"", 1)
    assert "please report it" in said
    (file,) = (tmp_path / "pulsar-meta").glob("unforeseen-*.txt")
    assert str(file) in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "Traceback" in text
    assert type(error).__name__ in text
    assert "decode" in text
    assert not {"s3cret", "hunter2", "pw"} & set(text.replace("@", ":").replace("=", ":").split(":"))
    assert "s3cret" not in said
    assert "hunter2" not in said


def test_it_is_json_where_json_was_asked_for_and_names_the_undo_file(tmp_path: Path) -> None:
    with (
        broken(ZeroDivisionError("by zero")),  # type: ignore[attr-defined]
        patch.object(unforeseen, "undo_files", [tmp_path / "undo.ndjson"]),
    ):
        done = pulsar_meta_here("decode", "x", "-o", "json", env=environment(tmp_path))
        said = pulsar_meta_here("decode", "x", env=environment(tmp_path)).stderr.decode()
    document = json.loads(done.stderr)
    assert document["error"] == "unforeseen"
    assert document["undo_file"] == str(tmp_path / "undo.ndjson")
    assert Path(document["traceback"]).exists()
    assert f"pulsar-meta undo {tmp_path / 'undo.ndjson'}" in said


def test_where_the_state_directory_cannot_be_written_it_is_among_temporary_files(tmp_path: Path) -> None:
    state, other = tmp_path / "state", tmp_path / "tmp"
    state.write_text("no directory")
    other.mkdir()
    with broken(ZeroDivisionError("by zero")), patch("tempfile.gettempdir", lambda: str(other)):  # type: ignore[attr-defined]
        pulsar_meta_here("decode", "x", env=environment(state))
    assert len(list(other.iterdir())) == 1


# Ctrl-C at the moment when a module is looked for.
INTERRUPTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from pulsar_meta.cli.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "module", ["pulsar_meta.cli.app", "typer", "pulsar_meta.cli.commands.encode", "pulsar_meta.codecs.errors"]
)
def test_an_interrupt_while_starting_is_quiet(module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "encode", module],
        input=b"", capture_output=True, env=environment(tmp_path), timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
