"""set-property writes what Pulsar 4.2.4 itself writes through asyncAddLedgerProperty, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.ledger_metadata import Edit, edit_properties, ledger_ids
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.protobuf.parse import split_fields
from pulsar_meta.stores.registry import open_store
from tests.cli.program import environment, pulsar_meta
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop

VERSION = "4.2.4"
ORDERS = TopicName.parse("public/default/orders")
KEYS = ["first-index", "a", "b", "Aa", "BB", "AaAa", "BBBB", "schlüssel", "鍵", "🔑", "", "x" * 300]
KEYS += [f"key-{number}" for number in range(20)]


def pieces(payload: bytes) -> list[bytes]:
    return [payload[field.start : field.end] for field in split_fields(payload)]


def test_pulsar_writes_the_same_bytes(capture: Callable[[str], Path]) -> None:
    plain = {"managedLedgerInfoCompressionType": "NONE"}
    with PulsarStandalone(VERSION, data=capture(f"pulsar-{VERSION}"), settings=plain) as pulsar:
        inside = "tests.servers.inside"
        pulsar.admin("GET", "persistent/public/default/orders/internalStats")
        for ledger, keys in ((18, KEYS[:4]), (21, KEYS), (22, KEYS[:14])):
            edits = [Edit(key, f"value of {key}") for key in keys] + [Edit(keys[0], "again")]
            edits += [Edit(key, None) for key in [*keys[1:3], "never there"]]
            for edit in edits:
                before = pulsar.call("tests.interop.broker_store:stored", ORDERS.path)
                if edit.value is None:
                    pulsar.call(f"{inside}:remove_ledger_property", str(ORDERS), ledger, edit.key)
                else:
                    pulsar.call(f"{inside}:add_ledger_property", str(ORDERS), ledger, edit.key, edit.value)
                after = pulsar.call("tests.interop.broker_store:stored", ORDERS.path)
                ours = edit_properties(before, {ledger: [edit]})
                if edit.key == "never there":
                    # Pulsar writes all the same, and its HashMap may have shrunk meanwhile.
                    assert ours == before
                    continue
                # Pulsar writes the list of ledgers in the order of a HashMap, we leave it as it is.
                assert sorted(pieces(ours)) == sorted(pieces(after)), edit
        assert sorted(ledger_ids(ours)) == sorted(ledger_ids(after))


def test_a_broker_shows_what_was_set_while_it_was_down(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    env = environment(tmp_path)
    with PulsarStandalone(VERSION, data=capture(f"pulsar-{VERSION}")) as pulsar:
        pulsar.stop()
        store = pulsar.store_url
        done = pulsar_meta(
            "set-property", "--yes", str(ORDERS), "18,23", "n=1", "ö=zwei", "--store", store, env=env
        )
        assert done.returncode == 0, done.stderr
        shown = pulsar_meta("properties", str(ORDERS), "--store", store, "-o", "json", env=env)
        promised = {entry["ledger_id"]: entry["properties"] for entry in json.loads(shown.stdout)}
        assert promised[18] == {"first-index": "0", "n": "1", "ö": "zwei"}
        pulsar.start()
        stats = pulsar.admin("GET", "persistent/public/default/orders/internalStats")
        stated = {entry["ledgerId"]: entry.get("properties") or {} for entry in stats["ledgers"]}
        assert {ledger: stated[ledger] for ledger in promised if ledger in stated} == {
            ledger: promised[ledger] for ledger in promised if ledger in stated
        }
        assert stated[18] == promised[18]
        pulsar.stop()
        with open_store(store) as opened:
            assert ledger_ids(opened.read(ORDERS.path).value)
