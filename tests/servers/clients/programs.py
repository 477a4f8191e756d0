"""Clients that are separate programs: C++ (through Python) and Go."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from tests.servers.jars import cache_directory

_GO: Final = Path(__file__).parent / "go"
_REPOSITORY: Final = Path(__file__).parents[3]
BUILD_SECONDS: Final = 600


def produce_cpp(url: str, topic: str, compression: str, batch: int, count: int, chunk: int = 0) -> None:
    """Publish with the C++ client; see `tests.servers.clients.cpp`."""
    command = [
        sys.executable,
        "-m",
        "tests.servers.clients.cpp",
        url,
        topic,
        compression,
        str(batch),
        str(count),
    ]
    _run([*command, str(chunk)] if chunk else command)


def produce_go(url: str, topic: str, compression: str, batch: int, count: int) -> None:
    """Publish with the Go client, which is built at the first call."""
    _run([str(go_client()), url, topic, compression, str(batch), str(count)])


def why_no_go() -> str | None:
    """Return why the Go client can't be built here, or None if it can."""
    if shutil.which("go") is None:
        return "the Go client needs Go, and there is no `go` here"
    try:
        go_client()
    except subprocess.CalledProcessError as error:
        return f"the Go client cannot be built: {error.stderr.strip().splitlines()[-1:]}"
    except subprocess.TimeoutExpired:
        return f"the Go client was not built in {BUILD_SECONDS} seconds"
    return None


@cache
def go_client() -> Path:
    """Return the program built from go/main.go, which is kept next to the jars."""
    sources = {name: (_GO / name).read_bytes() for name in ("go.mod", "main.go")}
    digest = hashlib.sha256(b"".join(sources.values())).hexdigest()[:16]
    home = cache_directory().parent / "go-client" / digest
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "goclient").exists():
            for name, content in sources.items():
                (home / name).write_bytes(content)
            subprocess.run(
                ["go", "build", "-mod=mod", "-o", "goclient", "."],
                cwd=home, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS,
                env={**os.environ, "GOFLAGS": "", "GOTOOLCHAIN": "local"},
            )  # fmt: skip
    return home / "goclient"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
