"""Runs the program like a user or a script does."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
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
from tests.cli.documents import check_documents, check_exit_code

MAIN: Final = (sys.executable, "-c", "from pulsar_meta.cli.app import main; main()")


def environment(state: Path, **more: str) -> dict[str, str]:
    """Return an environment with `state` as the state directory and without this user's settings."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULSAR_META_", "XDG_"))
    }
    return inherited | {"XDG_STATE_HOME": str(state), "XDG_CONFIG_HOME": str(state / "config")} | more


def pulsar_meta(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    folder: Path | None = None,
    seconds: float = 120,
) -> subprocess.CompletedProcess[bytes]:
    """Run the program to its end in a process of its own."""
    words, environment = [*MAIN, *map(str, arguments)], None if env is None else dict(env)
    done = subprocess.run(
        words, input=stdin, capture_output=True, env=environment, cwd=folder, timeout=seconds
    )
    check_exit_code(done, words[len(MAIN) :])
    return done


class Terminal(io.TextIOWrapper):
    """A standard input or output that passes for a terminal."""

    def isatty(self) -> bool:
        return True


def pulsar_meta_here(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    folder: Path | None = None,
    answers: bytes | None = None,
    screen: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run the program in this process, which saves its start-up time.

    `env` is the complete environment (None: that of the tests), `folder` the working directory, and `answers`
    the user's input, as stdin that passes for a terminal. With `screen`, stdout passes for a terminal. Tests
    of the process itself (signals, closed pipes, terminals, limits, imports) need `pulsar_meta`.
    """
    words, code = list(map(str, arguments)), 0
    out = (Terminal if screen else io.TextIOWrapper)(io.BytesIO(), "utf-8")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8")
    kind = io.TextIOWrapper if answers is None else Terminal
    keyboard = kind(io.BytesIO(stdin if answers is None else answers), "utf-8")
    streams = (patch("sys.stdin", keyboard), patch("sys.stdout", out), patch("sys.stderr", err))
    with ExitStack() as stack:
        for change in (
            *streams,
            patch("sys.argv", ["pulsar-meta", *words]),
            patch.object(app, "build_app", _build_cached),
            # Otherwise the help shows `python -m pytest` as the program's name.
            patch.object(sys.modules["__main__"], "__package__", None),
            patch.dict(os.environ, {} if env is None else env, clear=env is not None),
            contextlib.chdir(folder or Path.cwd()),
        ):
            stack.enter_context(change)
        try:
            app.main()
        except SystemExit as exited:
            code = exited.code if isinstance(exited.code, int) else int(exited.code is not None)
        out.flush()
        err.flush()
    done = subprocess.CompletedProcess(words, code, _written(out), _written(err))
    check_exit_code(done, words)
    check_documents(done)
    return done


# Typer spends most of a short run on building its commands.
_build_app: Final = app.build_app


@cache
def _build_cached(only: str | None = None) -> Any:
    return get_command(_build_app(only))


def limited(option: str, amount: int, *words: object) -> list[str]:
    """Return a command that runs under a limit of `ulimit` ("-d": KiB of data, "-f": blocks of files).

    A limit set between fork and exec would apply to a copy of the test process, which may exceed it already.
    """
    return ["sh", "-c", f'ulimit {option} {amount} && exec "$@"', "sh", *map(str, words)]


def as_text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """Return the run with its outputs as text."""
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def _written(stream: io.TextIOWrapper) -> bytes:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until `done` returns True; raise AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def confirmation(done: subprocess.CompletedProcess[Any]) -> tuple[str, ...]:
    """Return the option that confirms what a refused command makes unreachable, () if nothing is refused."""
    text = done.stderr if isinstance(done.stderr, str) else done.stderr.decode()
    last = text.rstrip().rpartition("\n")[2]
    message = json.loads(last)["message"] if last.startswith('{"error"') else last
    _, option, name = message.partition("then add --confirm ")
    return ("--confirm", *shlex.split(name)) if option else ()
