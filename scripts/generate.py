"""Generate what is generated: protobuf modules (--proto), the references of commands and findings (--docs).

`--check` generates into a temporary directory and fails on any difference with the tree.
"""

from __future__ import annotations

import argparse
import filecmp
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROTO = ROOT / "proto"
REFERENCE = Path("docs") / "commands.md"
FINDINGS = Path("docs") / "findings.md"


def generate_proto(into: Path) -> list[Path]:
    """Write the modules of every .proto file below `into`; return their paths below it."""
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


def help_of(command: list[str]) -> str:
    """Return what `pulsar-meta COMMAND --help` prints, as wide as a page."""
    from unittest.mock import patch

    from typer.testing import CliRunner

    from pulsar_meta.cli.app import build_app

    settings = {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1", "TERM": "dumb"}
    with patch.dict("os.environ", settings):
        result = CliRunner().invoke(build_app(), [*command, "--help"], prog_name="pulsar-meta")
    return "\n".join(line.rstrip() for line in result.output.strip("\n").splitlines())


def generate_docs() -> str:
    """Return the command reference."""
    table = import_module("pulsar_meta.cli.commands")
    nouns = {name: [name] for name in table.NOUNS}
    commands = {name: name.split() for name in table.COMMANDS}
    parts = ["# Commands\n\nGenerated from `--help` by `make docs`.\n"]
    for name in ([], *nouns.values(), *commands.values()):
        title = " ".join(["pulsar-meta", *name])
        parts.append(f"## {title}\n\n```text\n{help_of(list(name))}\n```\n")
    return "\n".join(parts)


def generate_findings() -> str:
    """Return the reference of what `check` finds."""
    page: str = import_module("pulsar_meta.jobs.check.catalogue").findings_page()
    return page


def pages() -> dict[Path, str]:
    """Return the generated pages by their paths in the tree."""
    return {REFERENCE: generate_docs(), FINDINGS: generate_findings()}


def check() -> list[Path]:
    """Return the generated files in the tree that differ from what would be generated."""
    with tempfile.TemporaryDirectory() as directory:
        fresh = Path(directory)
        stale = [
            Path("proto") / path
            for path in generate_proto(fresh)
            if not (PROTO / path).exists() or not filecmp.cmp(fresh / path, PROTO / path, shallow=False)
        ]
    for path, text in pages().items():
        if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != text:
            stale.append(path)
    return stale


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--proto", "--docs", "--check"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args()
    if options.proto:
        generate_proto(PROTO)
    if options.docs:
        for path, text in pages().items():
            (ROOT / path).write_text(text, encoding="utf-8")
    if options.check and (stale := check()):
        sys.exit(f"generated files are stale (make proto, make docs): {', '.join(map(str, stale))}")


if __name__ == "__main__":
    main()
