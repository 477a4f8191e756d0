"""Names that users wrote down for the first release still work."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

from pulsar_meta.cli.app import build_app
from pulsar_meta.jobs.spark.datasources import register

ROOT = Path(__file__).parents[2]
FILES = ROOT / "fixtures" / "release-0.1"
OLD = json.loads((FILES / "interface.json").read_text())
STORE = f"snapshot:{FILES / 'before.ndjson'}"
FRAMES = f"frames:{FILES / 'frames'}"


def sources() -> dict[str, Any]:
    """Register the Spark sources with a stub session and return them by name."""
    registered: list[Any] = []
    conf = SimpleNamespace(get=lambda name, default: default)
    session = SimpleNamespace(conf=conf, dataSource=SimpleNamespace(register=registered.append))
    register(session)  # type: ignore[arg-type]
    return {source.name(): source for source in registered}


def columns(schema: str) -> list[str]:
    return [column.split()[0] for column in schema.split(", ")]


def reader(name: str, options: Mapping[str, str], only: list[str] | None = None) -> Any:
    """Create a reader of a Spark source. Spark passes options in lower case."""
    source = sources()[name]({key.lower(): value for key, value in options.items()})
    return source.reader(SimpleNamespace(fieldNames=lambda: only or columns(source.schema())))


def test_spark_sources_begin_with_the_old_columns() -> None:
    for name, old in OLD["spark"].items():
        assert f"{sources()[name]({}).schema()}, ".startswith(f"{old}, ")


def test_spark_sources_take_the_old_options_of_entries() -> None:
    options = {"entries": FRAMES, "columns": "ledger_id,entry_id,frame_checksum", "verify": "true"}
    assert columns(sources()["pulsar_entries"](options).schema()) == options["columns"].split(",")
    entries = reader("pulsar_entries", {**options, "entriesPerPartition": "5"}, options["columns"].split(","))
    partitions = entries.partitions()
    assert len(partitions) == 3
    rows = [row for part in partitions for batch in entries.read(part) for row in batch.to_pylist()]
    positions = [json.loads(line) for line in (FILES / "frames.idx").read_text().splitlines()]
    assert [(row["ledger_id"], row["entry_id"]) for row in rows] == [
        (position["ledger"], position["entry"]) for position in positions
    ]
    assert len({row["frame_checksum"] for row in rows}) == 1
    assert rows[0]["frame_checksum"] is not None


def test_spark_sources_take_the_old_options_of_metadata() -> None:
    cursors = reader("pulsar_cursors", {"store": STORE, "topics": "marks orders", "topicsPerPartition": "1"})
    partitions = cursors.partitions()
    assert len(partitions) == 2
    rows = [row for part in partitions for row in cursors.read(part)]
    assert {row[0].rpartition("/")[2] for row in rows} == {"marks", "orders"}
    everything = reader("pulsar_ledgers", {"store": STORE})
    topics = {row[0] for part in everything.partitions() for row in everything.read(part)}
    assert {topic.rpartition("/")[2] for topic in topics} >= {"orders", "marks", "with-properties"}


def test_extras_and_programs_have_the_old_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) >= set(OLD["extras"])
    assert set(project["scripts"]) == set(OLD["scripts"])


def test_commands_have_the_old_options() -> None:
    commands: Any = typer.main.get_command(build_app())
    for name, options in OLD["options"].items():
        parameters = commands.commands[name].params
        current = {
            option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert current >= set(options), name
