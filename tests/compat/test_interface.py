"""Names that others have written down are still those of the first release."""

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
    """Return the Spark sources by their names, as a session gets them."""
    found: list[Any] = []
    conf = SimpleNamespace(get=lambda name, default: default)
    session = SimpleNamespace(conf=conf, dataSource=SimpleNamespace(register=found.append))
    register(session)  # type: ignore[arg-type]
    return {source.name(): source for source in found}


def columns(schema: str) -> list[str]:
    return [column.split()[0] for column in schema.split(", ")]


def reader(name: str, options: Mapping[str, str], only: list[str] | None = None) -> Any:
    """Return a source's reader; Spark hands options over whatever their case."""
    source = sources()[name]({key.lower(): value for key, value in options.items()})
    return source.reader(SimpleNamespace(fieldNames=lambda: only or columns(source.schema())))


def test_spark_sources_have_the_old_columns() -> None:
    """What came later stands behind them."""
    for name, old in OLD["spark"].items():
        assert f"{sources()[name]({}).schema()}, ".startswith(f"{old}, ")


def test_spark_sources_take_the_old_options_of_entries() -> None:
    options = {"entries": FRAMES, "columns": "ledger_id,entry_id,frame_checksum", "verify": "true"}
    assert columns(sources()["pulsar_entries"](options).schema()) == options["columns"].split(",")
    asked = reader("pulsar_entries", {**options, "entriesPerPartition": "5"}, options["columns"].split(","))
    partitions = asked.partitions()
    assert len(partitions) == 3
    rows = [row for part in partitions for batch in asked.read(part) for row in batch.to_pylist()]
    positions = [json.loads(line) for line in (FILES / "frames.idx").read_text().splitlines()]
    assert [(row["ledger_id"], row["entry_id"]) for row in rows] == [
        (one["ledger"], one["entry"]) for one in positions
    ]
    assert len({row["frame_checksum"] for row in rows}) == 1
    assert rows[0]["frame_checksum"] is not None


def test_spark_sources_take_the_old_options_of_metadata() -> None:
    asked = reader("pulsar_cursors", {"store": STORE, "topics": "marks orders", "topicsPerPartition": "1"})
    partitions = asked.partitions()
    assert len(partitions) == 2
    rows = [row for part in partitions for row in asked.read(part)]
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
        found = {option for one in parameters for option in (*one.opts, *one.secondary_opts)}
        assert found >= set(options), name
