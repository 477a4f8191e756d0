"""Errors that are faults of this program: one line that asks for a report, and a file to send with it.

Imported when there is one: no other run should pay for it.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, NotRequired, TypedDict

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.errors import undo_files
from pulsar_meta.cli.outputs import talk, talk_json
from pulsar_meta.jobs.rewrite.undo_paths import undo_directory

# The text of an error that is no sentence of ours may hold a whole value.
_LONGEST_WHAT: Final = 300
_url_re = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"]+")
_secret_re = re.compile(
    r"([\w.-]*(?:passw(?:or)?d|secret|token|credential|api_?key)['\"]?\s*[=:]\s*)[^\s,;&)}\]]+", re.IGNORECASE
)


class UnforeseenDocument(TypedDict):
    """A fault of pulsar-meta itself; `traceback` is a file for a report, `undo_file` has what was written."""

    error: Literal["unforeseen"]
    message: str
    traceback: NotRequired[str]
    undo_file: NotRequired[str]


def report_unforeseen(error: BaseException, arguments: Sequence[str], *, as_json: bool) -> None:
    """Write one line about an error that is a fault of this program; its traceback goes into a file."""
    what = " ".join(f"{type(error).__name__}: {_without_secrets(str(error))}".split())[:_LONGEST_WHAT]
    file = _keep_traceback(error, arguments)
    if as_json:
        document: UnforeseenDocument = {"error": "unforeseen", "message": what}
        if file is not None:
            document["traceback"] = str(file)
        if undo_files:
            document["undo_file"] = str(undo_files[-1])
        talk_json(document)
        return
    report_it = f"please report it with {file}" if file is not None else "please report it"
    undo = f"; values were written, undo with: pulsar-meta undo {undo_files[-1]}" if undo_files else ""
    talk(f"pulsar-meta: a fault of pulsar-meta itself, {report_it}: {what}{undo}")


def _keep_traceback(error: BaseException, arguments: Sequence[str]) -> Path | None:
    """Return a new file for this user only, in the state directory or else among temporary files."""
    call = shlex.join(["pulsar-meta", *arguments])
    about = f"pulsar-meta {version('pulsar-meta')}, Python {sys.version}, {sys.platform}"
    text = _without_secrets("\n".join((call, about, "", "".join(traceback.format_exception(error)))))
    for directory in (undo_directory().parent, Path(tempfile.gettempdir())):
        with suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened, name = tempfile.mkstemp(prefix="unforeseen-", suffix=".txt", dir=directory)
            with open(opened, "w", encoding="utf-8", errors="backslashreplace") as out:
                out.write(text)
            return Path(name)
    return None


def _without_secrets(text: str) -> str:
    """Return `text` without credentials in URLs and values that are called password or the like."""
    text = _url_re.sub(lambda found: redact(found[0]), text)
    return _secret_re.sub(r"\1***", text)
