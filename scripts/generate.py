"""Generates the protobuf modules (--proto), and the reference pages and JSON Schemas (--docs).

`--check` generates into a temporary directory and fails on any difference with the tree.
"""

from __future__ import annotations

import argparse
import filecmp
import io
import json
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from api_page import api_page
from findings_page import findings_page

ROOT = Path(__file__).parent.parent
# Generates from this checkout, even if another one is installed.
sys.path[:0] = sorted(str(package.parent) for package in ROOT.glob("*/pulsar_meta"))
PROTO = ROOT / "proto"
REFERENCE = Path("docs") / "commands.md"
FINDINGS = Path("docs") / "findings.md"
SCHEMAS = Path("docs") / "schemas"
API = Path("docs") / "api.md"


def generate_proto(into: Path) -> list[Path]:
    """Write the modules of each .proto file to `into`; return their relative paths."""
    sources = sorted(path.relative_to(PROTO) for path in PROTO.rglob("*.proto"))
    subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", "-I", str(PROTO)),
            *(f"--python_out={into}", f"--pyi_out={into}", *map(str, sources)),
        ],
        check=True,
        cwd=PROTO,
    )
    return [source.with_name(f"{source.stem}_pb2{end}") for source in sources for end in (".py", ".pyi")]


@cache
def program() -> Any:
    """Return the program's command with all subcommands. It is cached because building it is slow."""
    from typer.main import get_command

    from pulsar_meta.cli.app import build_app

    return get_command(build_app())


def help_of(command: list[str]) -> str:
    """Return the output of `pulsar-meta COMMAND --help` in the width of a page."""
    settings = {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1", "TERM": "dumb"}
    with patch.dict("os.environ", settings), redirect_stdout(io.StringIO()) as out, suppress(SystemExit):
        program().main([*command, "--help"], prog_name="pulsar-meta")
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())


def generate_docs() -> str:
    """Return the command reference."""
    table = import_module("pulsar_meta.cli.commands")
    nouns = {name: [name] for name in table.COMMAND_GROUPS}
    commands = {name: name.split() for name in table.COMMANDS}
    parts = [
        "# Commands\n\nEvery command with its options, as `pulsar-meta COMMAND --help` prints them."
        " [Output and exit codes](contract.md)\ndescribes what commands print.\n"
    ]
    for name in ([], *nouns.values(), *commands.values()):
        title = " ".join(["pulsar-meta", *name])
        parts.append(f"## {title}\n\n```text\n{help_of(list(name))}\n```\n")
    return "\n".join(parts)


def generate_schemas() -> dict[Path, str]:
    """Return the JSON Schemas and the page that lists them, by path."""
    schemas = import_module("pulsar_meta.cli.schemas")
    made = {
        SCHEMAS / f"{name}.json": json.dumps(schemas.schema_of(name), indent=1, ensure_ascii=False) + "\n"
        for name in schemas.NAMES
    }
    rows = "".join(
        f"| [{name}](schemas/{name}.json) | {schemas.description_of(name)} |\n" for name in schemas.NAMES
    )
    head = (
        "# JSON Schemas\n\nUse these schemas to validate or generate types for JSON that pulsar-meta prints."
        " `pulsar-meta schema NAME` prints the same schemas. [Output and exit codes](contract.md) explains"
        " the fields.\n\n| schema | document |\n|---|---|\n"
    )
    return {SCHEMAS.with_suffix(".md"): head + rows, **made}


def pages() -> dict[Path, str]:
    """Return the generated pages by path."""
    written = {REFERENCE: generate_docs(), FINDINGS: findings_page(), API: api_page()}
    return {**written, **generate_schemas()}


def check() -> list[Path]:
    """Return the generated files that are out of date."""
    with tempfile.TemporaryDirectory() as directory:
        fresh = Path(directory)
        stale = [
            Path("proto") / path
            for path in generate_proto(fresh)
            if not (PROTO / path).exists() or not filecmp.cmp(fresh / path, PROTO / path, shallow=False)
        ]
    wanted = pages()
    stale += [
        Path(path).relative_to(ROOT)
        for path in (ROOT / SCHEMAS).iterdir()
        if Path(path).relative_to(ROOT) not in wanted
    ]
    for path, text in wanted.items():
        if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != text:
            stale.append(path)
    return stale


def main() -> None:
    """Generate or check, as the options tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--proto", "--docs", "--check"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args()
    if options.proto:
        generate_proto(PROTO)
    if options.docs:
        for path, text in pages().items():
            (ROOT / path).parent.mkdir(exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8")
    if options.check and (stale := check()):
        sys.exit(f"generated files are stale (make proto, make docs): {', '.join(map(str, stale))}")


if __name__ == "__main__":
    main()
