"""Registered brokers and their lookup properties: read, matched, and predicted from a broker.conf."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.jobs.brokers.registered import (
    STOCK,
    BrokerPlace,
    RegisteredBroker,
    broker_document,
    match_broker,
    match_notes,
    published_properties,
)
from tests.cli.program import as_text, pulsar_meta_here

MANAGER = "loadManagerClassName"

# The registration of a 4.2.4 broker with lookup.rack=A.
REGISTERED = {
    "webServiceUrl": "http://127.0.0.1:13272",
    "pulsarServiceUrl": "pulsar://127.0.0.1:27162",
    "advertisedListeners": {},
    "protocols": {},
    "persistentTopicsEnabled": True,
    "nonPersistentTopicsEnabled": True,
    "loadManagerClassName": STOCK,
    "startTimestamp": 1795251408388,
    "brokerVersion": "4.2.4",
    "properties": {"lookup.rack": "A"},
}


def document(**members: Any) -> RegisteredBroker:
    place: BrokerPlace = {"broker": "b", "path": "/b", "version": 0}
    return {**place, **broker_document(json.dumps(REGISTERED | members).encode())}


def test_a_registration_in_json_is_read() -> None:
    registration = document()
    assert (registration["kind"], registration["extensible"], registration["broker_version"]) == (
        "BrokerLookupData",
        True,
        "4.2.4",
    )
    assert registration["properties"] == {"lookup.rack": "A"}
    assert registration["value"] == REGISTERED


def test_an_older_registration_has_no_properties() -> None:
    older = {name: REGISTERED[name] for name in ("webServiceUrl", "pulsarServiceUrl", "brokerVersion")}
    registration = broker_document(json.dumps(older).encode())
    assert (registration["kind"], registration["properties"], registration["load_manager"]) == (
        "BrokerLookupData",
        {},
        None,
    )


@pytest.mark.parametrize("name", ["pulsar-2.8.2", "pulsar-3.0.7", "pulsar-4.2.4-killed", "pulsar-5.0.0-M1"])
def test_brokers_that_crashed_are_still_registered(capture: Callable[[str], Path], name: str) -> None:
    folder = capture(name)
    files = sorted(folder.glob("metadata*.ndjson"), key=lambda file: "killed" not in file.name)
    store = f"snapshot:{files[0]}"
    done = pulsar_meta_here("brokers", "--store", store, "--match", "rack=A", "-o", "json")
    assert done.returncode == 0
    (broker,) = json.loads(done.stdout)
    assert (broker["broker"], broker["kind"]) == ("127.0.0.1:18080", "LocalBrokerData")
    assert broker["match"]["could_be_chosen"] is None
    assert "ignores properties" in broker["match"]["why"]


@pytest.mark.parametrize(
    ("properties", "wanted", "chosen", "found_as", "why"),
    [
        ({"lookup.rack": "A"}, {"rack": "A"}, True, "lookup.rack", "rack=A (lookup.rack)"),
        ({"rack": "A"}, {"rack": "A"}, True, "rack", "rack=A (rack)"),
        ({"lookup.rack": "B", "rack": "A"}, {"rack": "A"}, False, "lookup.rack", "lookup.rack is B, not A"),
        ({}, {"rack": "A"}, False, None, "no rack"),
        ({"lookup.rack": ""}, {"rack": ""}, True, "lookup.rack", "rack= (lookup.rack)"),
    ],
)
def test_a_broker_is_matched_by_its_properties(
    properties: dict[str, str], wanted: dict[str, str], chosen: bool, found_as: str | None, why: str
) -> None:
    match = match_broker(document(properties=properties), wanted)
    assert (match["could_be_chosen"], match["why"]) == (chosen, why)
    assert [key["found_as"] for key in match["keys"]] == [found_as]


def test_every_reason_is_named() -> None:
    match = match_broker(document(), {"rack": "B", "zone": "1"})
    assert match["why"] == "lookup.rack is A, not B; no zone"
    other = match_broker(document(properties={"x.rack": "B"}), {"rack": "B"}, prefix="x.")
    assert other["keys"][0]["found_as"] == "x.rack"


def test_a_note_warns_if_the_load_manager_ignores_properties() -> None:
    assert any("does not use them" in note for note in match_notes([document()]))
    assert not match_notes([document(loadManagerClassName="com.example.RackAware")])


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b"{", b'{"pulsarServiceUrl": "x", "properties": 3}', b"\xff"]
)
def test_invalid_registrations_are_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        broker_document(value)


def brokers(tmp_path: Path, values: dict[str, bytes], *options: str) -> subprocess.CompletedProcess[str]:
    lines = [
        {"path": f"/loadbalance/brokers/{name}", "version": 0, "value": base64.b64encode(value).decode()}
        for name, value in values.items()
    ]
    file = tmp_path / "store.ndjson"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return as_text(pulsar_meta_here("brokers", "--store", f"snapshot:{file}", *options))


def test_each_outcome_has_its_exit_code(tmp_path: Path) -> None:
    good = json.dumps(REGISTERED).encode()
    assert brokers(tmp_path, {"a:1": good}).returncode == 0
    assert brokers(tmp_path, {}).returncode == 3
    assert brokers(tmp_path, {"a:1": good}, "--match", "rack=A").returncode == 0
    assert brokers(tmp_path, {"a:1": good}, "--match", "rack=B").returncode == 1
    assert brokers(tmp_path, {"a:1": good}, "--match", "rack").returncode == 2
    broken = brokers(tmp_path, {"a:1": good, "b:1": b"{"})
    assert broken.returncode == 4
    assert "a:1\tBrokerLookupData" in broken.stdout
    assert "/loadbalance/brokers/b:1" in broken.stderr


def test_the_properties_of_a_broker_conf_are_predicted() -> None:
    published = published_properties(
        f"# x\nlookup.rack = A\nlookupX=1\nlookup.zone:\\u00fc\nlookup.rack=B\n{MANAGER}={STOCK}\n".encode()
    )
    assert published["properties"] == {"lookup.rack": "B", "lookup.zone": "ü"}
    assert published["client_keys"] == ["rack", "zone"]
    assert (published["prefix"], published["prefix_is_default"]) == ("lookup.", True)
    assert published["warnings"] == ["lookup.rack is set 2 times; the last one counts"]


@pytest.mark.parametrize("name", ["ModularLoadManagerImpl", "SimpleLoadManagerImpl"])
def test_a_load_manager_that_publishes_nothing_is_reported(name: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"lookup.rack=A\n{MANAGER}=org.apache.pulsar.broker.loadbalance.impl.{name}\n")
    done = as_text(pulsar_meta_here("lookup-properties", file))
    assert (done.returncode, done.stdout) == (0, "lookup.rack=A\n")
    assert f"{name} publishes no lookup properties" in done.stderr
    assert published_properties(file.read_bytes())["published"] is False


def test_the_default_load_manager_publishes_nothing() -> None:
    default = published_properties(b"lookup.rack=A\n")
    assert "ModularLoadManagerImpl (Pulsar's default) publishes no" in default["warnings"][0]
    assert published_properties(b"other=A\n")["warnings"] == []
    other = published_properties(b"lookup.rack=A\nloadManagerClassName=com.example.RackAware\n")
    assert (other["warnings"], other["published"]) == ([], True)


def test_another_prefix_and_an_empty_one_are_used() -> None:
    other = published_properties(b"lookupPropertyPrefix=my_\nmy_rack=A\nlookup.rack=B\n")
    assert other["properties"] == {"my_rack": "A"}
    empty = published_properties(b"lookupPropertyPrefix=\nbrokerClientAuthenticationParameters=token:x\n")
    assert "brokerClientAuthenticationParameters" in empty["properties"]
    assert "including passwords" in empty["warnings"][0]


def test_the_command_reports_the_line_of_an_error(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"a=1\nlookup.rack=\\u12\n")
    done = as_text(pulsar_meta_here("lookup-properties", file))
    assert (done.returncode, done.stdout) == (4, "")
    assert "broker.conf: line 2" in done.stderr
