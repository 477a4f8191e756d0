"""Checks each run against its documentation: the exit code, and the schema of each JSON document.

A document may not have fields that its schema lacks.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import fastjsonschema
import orjson

from pulsar_meta.cli.errors import is_json_requested
from pulsar_meta.cli.schemas import COMMAND_TYPES, schema_of

# With these options the program prints selected fields or no document at all.
_OTHER_OUTPUT: Final = {"--format", "--help"}
_ON_STDERR: Final = {b'{"checked"': "counts", b'{"left"': "counts", b'{"level"': "notes"}

_PAGES: Final = Path(__file__).parents[2] / "docs" / "commands"
# No page lists what any command may end with: a bug, and a signal.
_ON_NO_PAGE: Final = {70, 130, 143}


def check_exit_code(done: subprocess.CompletedProcess[bytes], words: Sequence[str]) -> None:
    """Raise AssertionError if a run of a command ended with a code that the command's page does not list."""
    listed = documented_codes("-".join(words[:2])) or documented_codes(words[0]) if words else None
    ended_itself = done.returncode >= 0 and done.returncode not in _ON_NO_PAGE
    if listed and ended_itself and done.returncode not in listed:
        raise AssertionError(
            f"{words}: exit code {done.returncode} is not on its page: {done.stderr[-500:]!r}"
        )


@cache
def documented_codes(page: str) -> frozenset[int]:
    """Return the exit codes on a command's page in docs/commands, none if there is no such page."""
    path = _PAGES / f"{page}.md"
    if "/" in page or not path.is_file():
        return frozenset()
    table = path.read_text(encoding="utf-8").partition("## Exit codes")[2]
    return frozenset(map(int, re.findall(r"(?m)^\| (\d+) \|", table)))


def check_documents(done: subprocess.CompletedProcess[bytes]) -> None:
    """Raise AssertionError if a run with -o json or ndjson printed more or other than its schema allows."""
    words = done.args
    if (
        not words
        or not is_json_requested(words)
        or any(word.partition("=")[0] in _OTHER_OUTPUT for word in words)
    ):
        return
    if words[0] in COMMAND_TYPES and not (words[0] == "schema" and len(words) > 1 and words[1][0] != "-"):
        _check(words[0], done.stdout, words)
    for line in done.stderr.splitlines():
        if line.startswith(b"{"):
            _check(
                next((name for begins, name in _ON_STDERR.items() if line.startswith(begins)), "errors"),
                line,
                words,
            )


def check_document(name: str, document: Any, by: object = None) -> None:
    """Raise AssertionError if a document does not match the schema `name`."""
    try:
        _validator(name)(document)
    except fastjsonschema.JsonSchemaException as error:
        raise AssertionError(f"{by}: {str(error)[:300]}: {json.dumps(document)[:2000]}") from error


def _check(name: str, text: bytes, words: list[str]) -> None:
    for document in _documents(text) if text else ():
        check_document(name, document, words)


def _documents(text: bytes) -> Iterator[Any]:
    """Yield the document of -o json, or the documents of -o ndjson."""
    try:
        yield orjson.loads(text)
    except orjson.JSONDecodeError:
        yield from map(_parsed, text.splitlines() if text.startswith(b'{"') else [text])


def _parsed(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        # orjson refuses lone surrogates and large integers.
        return json.loads(text)


@cache
def _validator(name: str) -> Callable[[Any], Any]:
    validate: Callable[[Any], Any] = fastjsonschema.compile(closed(schema_of(name)))
    return validate


def closed(schema: Any) -> Any:
    """Return a copy of a schema that allows no additional fields."""
    if isinstance(schema, list):
        return [closed(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    members = {name: closed(member) for name, member in schema.items()}
    return members | (
        {"additionalProperties": False} if schema.get("type") == "object" and "properties" in schema else {}
    )
