"""`schema`: what the documents of commands look like, for other programs."""

from __future__ import annotations

import json
from typing import Annotated, TypedDict

import typer

from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.schemas import NAMES, schema_of, what
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError


class SchemaName(TypedDict):
    """A schema that there is, and what it is of: what a command prints, or what else the contract names."""

    name: str
    of: str


def schema(
    shell: Shell,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A command, or another of the names that there are.")
    ] = None,
) -> None:
    """Print the JSON Schema of what a command prints with -o json or ndjson; without a name which there are.

    It fits one document, and a list of them. More fields may come with a release; those that are there keep
    their names and types until the next major version (docs/contract.md).

    Examples:
      pulsar-meta schema check > check.json
      pulsar-meta check -o json | check-jsonschema --schemafile check.json -
    """
    if name is None:
        names: list[SchemaName] = [{"name": one, "of": what(one)} for one in NAMES]
        shell.emit(names, VIEW)
        return
    if name not in NAMES:
        raise NotFoundError(f"no schema of {name!r}: pulsar-meta schema lists them")
    with shell.text_out() as out:
        out.write(json.dumps(schema_of(name), indent=2) + "\n")


VIEW = View(["name", "of"], lambda row: [row["name"], row["of"]], fields=("name", "of"))
