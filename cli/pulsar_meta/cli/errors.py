"""One line on stderr for an error: words for people, the same as JSON where the output is JSON."""

from __future__ import annotations

import json
import sys

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError, UnreachableError


def wants_json(arguments: list[str]) -> bool:
    """Tell whether the command line asked for JSON output, also where parsing it failed."""
    for at, argument in enumerate(arguments):
        value = arguments[at + 1] if argument in ("-o", "--output-format") and at + 1 < len(arguments) else ""
        if argument.startswith("-o") and len(argument) > 2:
            value = argument[2:].lstrip("=")
        if value in ("json", "ndjson"):
            return True
    return False


def report(error: PulsarMetaError, *, as_json: bool) -> None:
    """Write `error` to stderr as one line."""
    if not as_json:
        print(f"pulsar-meta: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        return
    told: dict[str, object] = {"error": error.kind, "message": error.message}
    if error.source is not None:
        told["source"] = error.source
    if isinstance(error, DecodeError) and error.offset is not None:
        told["offset"] = error.offset
    print(json.dumps(told, ensure_ascii=False), file=sys.stderr)  # noqa: T201


def os_failure(error: OSError) -> PulsarMetaError:
    """Return what the operating system refused as an error of ours: a missing file is 3, the rest is 6."""
    source = str(error.filename) if error.filename is not None else None
    kind = NotFoundError if isinstance(error, FileNotFoundError) else UnreachableError
    return kind(error.strerror or str(error), source=source)
