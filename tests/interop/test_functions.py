"""What a real functions worker writes into its topics, decoded, against what it says of its functions."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import pulsar_meta_here
from tests.servers import functions
from tests.servers.functions import FUNCTION

pytestmark = pytest.mark.interop

Records = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module", params=[False, True], ids=["requests", "compacted"])
def stored(
    request: pytest.FixtureRequest, version: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Records, dict[str, Any]]:
    """The records of both topics, in order, and the function `shout` as the worker describes it."""
    place = tmp_path_factory.mktemp(f"functions-{version}")
    jar = functions.package(version, place / "shout.jar")
    with functions.standalone(version, compacted=request.param) as pulsar:
        functions.put(pulsar, "POST", {**FUNCTION, "name": "shout"}, jar)
        functions.put(pulsar, "PUT", {**FUNCTION, "name": "shout", "parallelism": 2}, jar)
        await_instances(pulsar, 2)
        functions.ask(pulsar, "POST", "shout/0/stop")
        functions.put(pulsar, "POST", {**FUNCTION, "name": "gone"}, jar)
        functions.ask(pulsar, "DELETE", "gone")
        described = functions.ask(pulsar, "GET", "shout")
        # The scheduler writes assignments a moment after the function.
        time.sleep(3)
        pulsar.stop()
        pulsar.save_data(place)
    kind = "FunctionMetaData" if request.param else "FunctionRequest"
    return {
        "metadata": decoded(place, "metadata", kind),
        "assignments": decoded(place, "assignments", "FunctionAssignment"),
    }, described


def await_instances(pulsar: Any, count: int) -> None:
    deadline = time.monotonic() + 60
    while functions.ask(pulsar, "GET", "shout/status")["numInstances"] != count:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def decoded(place: Path, topic: str, kind: str) -> list[dict[str, Any]]:
    """Dump the payloads of a topic, decode them, and check that no secret is shown and encoding fits."""
    where = ["--store", f"rocksdb:{place / 'rocksdb'}", "--entries", f"bookie-disk:{place / 'bookie0'}"]
    payloads = place / topic
    done = pulsar_meta_here(
        "dump-entries", f"public/functions/{topic}", *where, "--payload", f"dir:{payloads}"
    )
    assert done.returncode == 0, done.stderr.decode()
    files = sorted(payloads.iterdir(), key=lambda file: int(file.stem.split("-")[1]))
    hidden = pulsar_meta_here("decode", *files, "--type", kind, "-o", "ndjson")
    assert hidden.returncode == 0, hidden.stderr.decode()
    assert b"hunter" not in hidden.stdout
    shown = pulsar_meta_here("decode", *files, "--type", kind, "-o", "ndjson", "--show-secrets")
    assert b"hunter2" in shown.stdout
    assert b"hunter3" in shown.stdout
    values = [json.loads(line)["value"] for line in shown.stdout.splitlines()]
    assert not any("unknown_fields" in json.dumps(value) for value in values)
    return values


def test_the_newest_record_is_what_the_worker_describes(stored: tuple[Records, dict[str, Any]]) -> None:
    records, described = stored
    function = [value for value in map(function_of, records["metadata"]) if name_of(value) == "shout"][-1]
    details = function["functionDetails"]
    assert {name: details[name] for name in ("tenant", "namespace", "className", "parallelism")} == {
        name: described[name] for name in ("tenant", "namespace", "className", "parallelism")
    }
    assert json.loads(details["userConfig"]) == described["userConfig"] == FUNCTION["userConfig"]
    assert json.loads(details["secretsMap"]) == described["secrets"] == FUNCTION["secrets"]
    assert details["sink"]["topic"] == described["output"]
    assert details["resources"] == described["resources"]
    inputs = {entry["key"]: entry["value"]["schemaType"] for entry in details["source"]["inputSpecs"]}
    assert inputs == {name: each["schemaType"] for name, each in described["inputSpecs"].items()}
    assert function["instanceStates"] == [{"key": 0, "value": "STOPPED"}, {"key": 1, "value": "RUNNING"}]


def function_of(value: dict[str, Any]) -> dict[str, Any]:
    """The function of a request. Compacted topics have the function itself."""
    inner: dict[str, Any] = value.get("functionMetaData", value)
    return inner


def name_of(function: dict[str, Any]) -> str:
    name: str = function.get("functionDetails", {}).get("name", "")
    return name


def test_each_instance_has_an_assignment(stored: tuple[Records, dict[str, Any]]) -> None:
    records, _ = stored
    assigned = {
        (name_of(value["instance"]["functionMetaData"]), value["instance"].get("instanceId", 0))
        for value in records["assignments"]
        if "instance" in value
    }
    assert {("shout", 0), ("shout", 1)} <= assigned
    assert all(value["workerId"] for value in records["assignments"] if "instance" in value)


def test_a_deleted_function_has_a_record_that_says_so(stored: tuple[Records, dict[str, Any]]) -> None:
    records, _ = stored
    last = records["metadata"][-1]
    if "requestId" in last:
        assert last["serviceRequestType"] == "DELETE"
        assert name_of(last["functionMetaData"]) == "gone"
    else:
        assert last == {}
