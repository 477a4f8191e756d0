"""docs/contract.md names everything that scripts may rely on."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.cli.commands import COMMANDS
from pulsar_meta.cli.commands.seek import FIELDS
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.codecs import errors
from pulsar_meta.codecs.documents.kinds import KINDS
from pulsar_meta.entries.sources import SCHEMES as ENTRY_SCHEMES
from pulsar_meta.stores.registry import STORES as STORE_SCHEMES
from tests.cli.program import environment, pulsar_meta_here

ROOT = Path(__file__).parent.parent.parent
CONTRACT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
ERRORS = [
    cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.PulsarMetaError)
]
# Fields whose members have names that a schema, a user or a reason determines.
OTHERS_NAMES = {
    "value", "metadata", "properties", "cursor_properties", "custom", "holds", "kept_for", "skipped_for",
    "breaks", "breaking_keys",
}  # fmt: skip
# Fields of MessageMetadata that have their own columns.
METADATA = {
    "publish_time",
    "producer_name",
    "sequence_id",
    "num_messages_in_batch",
    "event_time",
    "compression",
}
Capture = Callable[[str], Path]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_in_the_contract(command: str) -> None:
    assert re.search(rf"\*\*`{command}\b", CONTRACT)


def test_kinds_errors_and_schemes_are_in_the_contract() -> None:
    named = set(re.findall(r"[A-Za-z-]+", CONTRACT))
    assert set(KINDS) <= named
    assert set(re.findall(r"[a-z_]+", CONTRACT)) >= FIELDS
    for error in ERRORS:
        if error is not errors.PulsarMetaError:
            assert error.kind in named
            assert f"\n| {error.exit_code} |" in CONTRACT
    for scheme in {*STORE_SCHEMES, *ENTRY_SCHEMES}:
        assert f"`{scheme}:" in CONTRACT


def test_options_of_urls_are_in_the_contract() -> None:
    sources = [
        *ROOT.glob("access/**/*.py"),
        *ROOT.glob("stores/**/*.py"),
        *ROOT.glob("entries/**/bookie_layout.py"),
    ]
    texts = [path.read_text(encoding="utf-8") for path in sources]
    lists = [match for text in texts for match in re.findall(r"(?:options=|OPTIONS\b[^=\n]*= )[^\n]+", text)]
    options = {name for match in lists for name in re.findall(r'"([a-z_]+)"', match)}
    assert {"timeout", "auth", "sasl", "jute_maxbuffer", "max_request_bytes", "journal", "index"} <= options
    assert options <= set(re.findall(r"[a-z_]+", CONTRACT))


def fields(document: Any) -> Iterator[str]:
    """Yield the names of a document's fields, except those inside OTHERS_NAMES."""
    for part in document if isinstance(document, list) else [document]:
        if isinstance(part, dict):
            for name, member in part.items():
                yield name
                if name not in OTHERS_NAMES:
                    yield from fields(member)


ANSWERED = (
    "decode pulsar-4.2.4/metadata.ndjson",
    "get topic marks",
    "ls -l",
    "tree -d 2",
    "top",
    "properties orders",
    "dump-entries orders --from -3 --deep --payload hash",
    "dump-entries orders -n 3 --where region=eu",
    "seek orders --index 7 --time 1795241017000 --expired 1d",
    "check-index public/default",
    "verify-entries plain",
    "plan-batches orders --keys region",
    "check-readable --for-version 4.2.4",
    "compress-cursors --compression zstd --dry-run",
    "compress-cursors --estimate --by namespace",
)


@pytest.mark.parametrize("words", ANSWERED)
def test_every_field_is_in_the_contract(words: str, capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4")
    env = environment(
        tmp_path,
        PULSAR_META_STORE=f"snapshot:{folder / 'metadata.ndjson'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )
    arguments = [
        str(folder / "metadata.ndjson") if "/" in word and "." in word else word for word in words.split()
    ]
    done = pulsar_meta_here(*arguments, "-o", "ndjson", env=env)
    assert done.returncode in (0, 1, 3), done.stderr
    names = {name for line in done.stdout.splitlines() for name in fields(json.loads(line))}
    assert names or words.startswith("verify")
    assert names <= set(re.findall(r"[a-z_0-9]+", CONTRACT))


@pytest.mark.parametrize(
    "words", [words for words in ANSWERED if Format.CSV in COMMANDS[words.split()[0]].forms]
)
def test_every_csv_column_is_in_the_contract(words: str, capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4")
    env = environment(
        tmp_path,
        PULSAR_META_STORE=f"snapshot:{folder / 'metadata.ndjson'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )
    done = pulsar_meta_here(*words.split(), "-o", "csv", env=env)
    assert done.returncode in (0, 1, 3), done.stderr
    heading, *rows = csv.reader(io.StringIO(done.stdout.decode()))
    assert rows or words.startswith("verify")
    assert all(len(row) == len(heading) and "-" not in row for row in rows)
    names = {part for name in heading for part in name.split(".")}
    assert names - {"message"} <= set(re.findall(r"[a-z_0-9]+", CONTRACT)) | METADATA
