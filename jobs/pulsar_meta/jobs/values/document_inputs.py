"""Where `encode` gets its documents from: JSON text in a file or on stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from pulsar_meta.codecs.errors import DecodeError, UsageError, unreadable
from pulsar_meta.codecs.json_text import read_json_sequence

STDIN: Final = "-"


def read_documents(text: str, source: str) -> Iterator[object]:
    """Yield the documents in JSON text: one, a list of them, or one after the other (NDJSON).

    DecodeError, with the offset in characters, where it is not JSON.
    """
    for found in read_json_sequence(text, source=source):
        if isinstance(found, list):
            yield from found
        else:
            yield found


def read_text(file: str | None) -> str:
    """Return the text of a file, or of stdin for None and `-`."""
    name = file or STDIN
    try:
        data = _stdin().read() if name == STDIN else Path(name).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise unreadable(error, name) from error
    except UnicodeDecodeError as error:
        raise DecodeError("not JSON: not UTF-8", offset=error.start, source=name) from error


def _stdin() -> IO[bytes]:
    if sys.stdin.isatty():
        raise UsageError("nothing to encode: name a file with the JSON of decode, or pipe it in")
    return sys.stdin.buffer
