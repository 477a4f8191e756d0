"""Checks each JSON document that a run prints against its command's schema, without additional fields."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import fastjsonschema
import orjson

from pulsar_meta.cli.errors import is_json_requested
from pulsar_meta.cli.schemas import COMMAND_TYPES, schema_of

# With these options the program prints selected fields or no document at all.
_OTHER_OUTPUT: Final = {"--format", "--help"}
_ON_STDERR: Final = {b'{"checked"': "counts", b'{"left"': "counts", b'{"level"': "notes"}


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
