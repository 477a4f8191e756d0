"""The program as a person or a script runs it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from typer.main import get_command

from pulsar_meta.cli import app
from tests.cli.documents import check_documents

MAIN: Final = (sys.executable, "-c", "from pulsar_meta.cli.app import main; main()")


def environment(state: Path, **more: str) -> dict[str, str]:
    """Return the environment of a run whose state directory is `state`, without settings of this user."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULSAR_META_", "XDG_"))
    }
    return kept | {"XDG_STATE_HOME": str(state), "XDG_CONFIG_HOME": str(state / "config")} | more


def pulsar_meta(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    folder: Path | None = None,
    seconds: float = 120,
) -> subprocess.CompletedProcess[bytes]:
    """Run the program in a process of its own to its end."""
    words, environment = [*MAIN, *map(str, arguments)], None if env is None else dict(env)
    return subprocess.run(
        words, input=stdin, capture_output=True, env=environment, cwd=folder, timeout=seconds
    )


class Keyboard(io.TextIOWrapper):
    """What a person writes."""

    def isatty(self) -> bool:
        return True


def pulsar_meta_here(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    folder: Path | None = None,
    answers: bytes | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run the program in this process, which saves its start.

    `env` is all of its environment (None: ours), `folder` where it runs, `answers` what a person writes, as
    stdin that passes for a terminal. What is about the process itself (signals, closed pipes, terminals,
    limits, what it imports) needs `pulsar_meta`.
    """
    words, code = list(map(str, arguments)), 0
    out, stated = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    kind = io.TextIOWrapper if answers is None else Keyboard
    given = kind(io.BytesIO(stdin if answers is None else answers), "utf-8")
    streams = (patch("sys.stdin", given), patch("sys.stdout", out), patch("sys.stderr", stated))
    with ExitStack() as stack:
        for change in (
            *streams,
            patch("sys.argv", ["pulsar-meta", *words]),
            patch.object(app, "build_app", _built_once),
            # Else the help says `python -m pytest` where that runs the tests.
            patch.object(sys.modules["__main__"], "__package__", None),
            patch.dict(os.environ, {} if env is None else env, clear=env is not None),
            contextlib.chdir(folder or Path.cwd()),
        ):
            stack.enter_context(change)
        try:
            app.main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        out.flush()
        stated.flush()
    done = subprocess.CompletedProcess(words, code, _written(out), _written(stated))
    check_documents(done)
    return done


# What Typer makes of a command is most of the time of a short run.
_build_app: Final = app.build_app


@cache
def _built_once(only: str | None = None) -> Any:
    return get_command(_build_app(only))


def limited(option: str, amount: int, *words: object) -> list[str]:
    """Return a command line under a limit of the shell's `ulimit` ("-d": KiB of data, "-f": blocks of files).

    A limit that is set between fork and exec would be one on the tests' own process, which may be past it.
    """
    return ["sh", "-c", f'ulimit {option} {amount} && exec "$@"', "sh", *map(str, words)]


def as_text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """Return a run with its outputs as text."""
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def _written(stream: io.TextIOWrapper) -> bytes:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    """Return when `done` says so; AssertionError after so many seconds."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)
