"""Generates protobuf modules (--proto), and reference pages, man pages, JSON Schemas and recipes (--docs).

`--check` generates into a temporary directory and fails on any difference with the tree.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from api_page import api_page
from command_pages import command_pages
from findings_page import findings_page
from man_pages import MAN, man_pages
from recipes import recipes

ROOT = Path(__file__).parent.parent
# Generates from this checkout, even if another one is installed.
sys.path[:0] = sorted(str(package.parent) for package in ROOT.glob("*/pulsar_meta"))
PROTO = ROOT / "proto"
COMMANDS = Path("docs") / "commands"
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
    written = {**command_pages(program()), FINDINGS: findings_page(), API: api_page()}
    return {**written, **generate_schemas(), **man_pages(program()), **recipes()}


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
        for folder in (SCHEMAS, COMMANDS, MAN)
        for path in (ROOT / folder).iterdir()
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
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8")
    if options.check and (stale := check()):
        sys.exit(f"generated files are stale (make proto, make docs): {', '.join(map(str, stale))}")


if __name__ == "__main__":
    main()
