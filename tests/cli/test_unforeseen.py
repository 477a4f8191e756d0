"""An unforeseen error ends with one line, a report file and exit code 70; Ctrl-C is silent."""

from __future__ import annotations

import json
import pwd
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from pulsar_meta.cli import errors
from pulsar_meta.cli.errors import report_unforeseen
from pulsar_meta.cli.settings import read_profile
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.rewrite.run import undo_directory
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
def test_an_unforeseen_error_is_one_line_and_ends_with_70(error: BaseException, tmp_path: Path) -> None:
    with broken(error):  # type: ignore[attr-defined]
        done = pulsar_meta_here("decode", "x", "--store", "zk://u:pw@h", env=environment(tmp_path))
    message = done.stderr.decode()
    assert (done.returncode, done.stdout, message.count("\n")) == (70, b"", 1)
    assert "please report it" in message
    (file,) = (tmp_path / "pulsar-meta").glob("unforeseen-*.txt")
    assert str(file) in message
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "Traceback" in text
    assert type(error).__name__ in text
    assert "decode" in text
    assert not {"s3cret", "hunter2", "pw"} & set(text.replace("@", ":").replace("=", ":").split(":"))
    assert "s3cret" not in message
    assert "hunter2" not in message


def test_an_unforeseen_error_can_be_json_and_names_the_undo_file(tmp_path: Path) -> None:
    with (
        broken(ZeroDivisionError("by zero")),  # type: ignore[attr-defined]
        patch.object(errors, "undo_files", [tmp_path / "undo.ndjson"]),
    ):
        done = pulsar_meta_here("decode", "x", "-o", "json", env=environment(tmp_path))
        message = pulsar_meta_here("decode", "x", env=environment(tmp_path)).stderr.decode()
    document = json.loads(done.stderr)
    assert document["error"] == "unforeseen"
    assert document["undo_file"] == str(tmp_path / "undo.ndjson")
    assert Path(document["traceback"]).exists()
    assert f"pulsar-meta undo {tmp_path / 'undo.ndjson'}" in message


def test_the_report_is_a_temporary_file_if_the_state_directory_cannot_be_written(tmp_path: Path) -> None:
    state, other = tmp_path / "state", tmp_path / "tmp"
    state.write_text("no directory")
    other.mkdir()
    with broken(ZeroDivisionError("by zero")), patch("tempfile.gettempdir", lambda: str(other)):  # type: ignore[attr-defined]
        pulsar_meta_here("decode", "x", env=environment(state))
    assert len(list(other.iterdir())) == 1


def test_a_user_without_a_home_directory_can_read_and_is_asked_for_a_place_of_undo_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process keeps its user, so the entry of the user is hidden."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "PULSAR_META_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert read_profile(None) == {}
    with pytest.raises(UsageError, match="set XDG_STATE_HOME"):
        undo_directory()
    with patch("tempfile.gettempdir", lambda: str(tmp_path)):
        report_unforeseen(ZeroDivisionError("by zero"), [], as_json=False)
    assert len(list(tmp_path.iterdir())) == 1


# Interrupts the program while it looks for a module.
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
    "module", ["pulsar_meta.cli.app", "typer", "pulsar_meta.cli.commands.decode", "pulsar_meta.codecs.errors"]
)
def test_an_interrupt_during_start_up_is_silent(module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "encode", module],
        input=b"", capture_output=True, env=environment(tmp_path), timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


# Modules written in C, such as NumPy's, turn Ctrl-C while they load into an error of their own.
SWALLOWED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "pulsar_meta.cli.commands.decode":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise {} from None
sys.meta_path.insert(0, Finder())
from pulsar_meta.cli.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "error", ["SystemError('x')", "ImportError('x')", "ModuleNotFoundError('x', name='x')"]
)
def test_an_interrupt_that_a_library_turns_into_an_error_is_silent(error: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED.format(error), "decode", "x"],
        capture_output=True, env=environment(tmp_path), timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("piece", ["a", "a.", "a://", "password ", "token", "= "])
def test_the_time_to_hide_secrets_in_a_traceback_grows_with_its_length(piece: str) -> None:
    assert errors._without_secrets(piece * 300_000)
