"""Every command hides the same secrets, and files with values are readable by their owner only."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, environment, pulsar_meta_here

SECRET = "hunter2-7f3a"
TOPIC = "/managed-ledgers/public/default/persistent/t"
LEDGER = "/ledgers/00/0000/L0005"
EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a store in which each kind of value has a secret."""
    ledger = ManagedLedgerInfo(
        ledgerInfo=[{"ledgerId": 5, "properties": [{"key": "note", "value": f"password={SECRET}"}]}],
        properties=[{"key": "sink", "value": f"jdbc:postgresql://u:{SECRET}@db/x"}],
    )
    cursor = ManagedCursorInfo(
        cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=-1,
        cursorProperties=[{"name": "dbPwd", "value": SECRET}],
    )  # fmt: skip
    metadata = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=1, length=0, state=LedgerMetadataFormat.OPEN,
        segment=[{"firstEntryId": 0, "ensembleMember": ["bookie:3181"]}],
        customMetadata=[{"key": "x", "value": f"Params: password={SECRET}".encode()}],
    )  # fmt: skip
    broker = {
        "webServiceUrl": "http://broker:8080", "pulsarServiceUrl": "pulsar://broker:6650",
        "properties": {"rack": "a", "apiToken": SECRET}, "loadManagerClassName": EXTENSIBLE,
    }  # fmt: skip
    values = {
        TOPIC: ledger.SerializeToString(),
        f"{TOPIC}/c": cursor.SerializeToString(),
        LEDGER: encode_ledger_metadata(LedgerMetadata(3, metadata)),
        "/loadbalance/brokers/broker:8080": json.dumps(broker).encode(),
        "/admin/clusters/c": json.dumps({"serviceUrl": f"http://admin:{SECRET}@h"}).encode(),
        "/admin/policies/a": f"Authorization: Bearer {SECRET}{SECRET}".encode(),
    }
    (tmp_path / "store").mkdir()
    with open_store(f"dir:{tmp_path / 'store'}", read_only=False) as store:
        for path, value in values.items():
            store.put(path, value, ABSENT)
    return environment(tmp_path / "state", PULSAR_META_STORE=f"dir:{tmp_path / 'store'}")


@pytest.mark.parametrize("form", ["json", "plain"])
@pytest.mark.parametrize(
    "command",
    [
        ("get", TOPIC), ("get", f"{TOPIC}/c"), ("get", LEDGER), ("get", "/admin/clusters/c"),
        ("get", "/admin/policies/a"), ("show-cursor", "t", "c"), ("properties", "t"), ("brokers",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_secret_is_shown_only_on_request(command: tuple[str, ...], form: str, env: dict[str, str]) -> None:
    hidden = as_text(pulsar_meta_here(*command, "-o", form, env=env))
    assert SECRET not in hidden.stdout + hidden.stderr
    shown = as_text(pulsar_meta_here(*command, "-o", form, "--show-secrets", env=env))
    assert shown.returncode == hidden.returncode
    if command[0] != "get":
        assert SECRET in shown.stdout


def test_lookup_properties_hides_secrets_of_a_broker_conf(tmp_path: Path, env: dict[str, str]) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"lookup.apiToken={SECRET}\nlookup.rack=a\n")
    done = as_text(pulsar_meta_here("lookup-properties", conf, env=env))
    assert SECRET not in done.stdout
    assert "rack=a" in done.stdout
    assert SECRET in as_text(pulsar_meta_here("lookup-properties", conf, "--show-secrets", env=env)).stdout


def test_a_redacted_snapshot_and_a_bundle_have_no_secret(tmp_path: Path, env: dict[str, str]) -> None:
    snapshot, bundle = tmp_path / "s.ndjson", tmp_path / "b.tar.gz"
    assert pulsar_meta_here("snapshot", snapshot, "--redact", env=env).returncode == 0
    assert pulsar_meta_here("bundle", bundle, env=env).returncode == 0
    with tarfile.open(bundle) as packed:
        packed.extractall(tmp_path / "b")
    for file in (snapshot, *(tmp_path / "b").iterdir()):
        store = {**env, "PULSAR_META_STORE": f"snapshot:{file}"}
        if file.suffix == ".ndjson" or file.name.endswith(".zst"):
            if "findings" in file.name:
                assert SECRET not in file.read_text()
                continue
            done = as_text(pulsar_meta_here("decode", "--store", store["PULSAR_META_STORE"], "-o", "json"))
            assert done.returncode == 0
            assert SECRET not in done.stdout
            assert len(json.loads(done.stdout)) == 6
        else:
            assert SECRET not in file.read_text()


def test_a_bundle_replaces_unknown_text_by_its_length(tmp_path: Path, env: dict[str, str]) -> None:
    bundle = tmp_path / "b.tar.gz"
    assert pulsar_meta_here("bundle", bundle, env=env).returncode == 0
    with tarfile.open(bundle) as packed:
        packed.extractall(tmp_path / "b")
    store = f"snapshot:{tmp_path / 'b' / 'snapshot.ndjson.zst'}"
    done = as_text(pulsar_meta_here("get", TOPIC, "--store", store, "-o", "json", "--show-secrets"))
    value = json.loads(done.stdout)["value"]
    assert value["ledgerInfo"][0]["ledgerId"] == 5
    assert value["ledgerInfo"][0]["properties"][0]["value"].startswith("<text, ")


def test_files_with_values_are_readable_by_their_owner_only(tmp_path: Path, env: dict[str, str]) -> None:
    snapshot, bundle = tmp_path / "s.ndjson.zst", tmp_path / "b.tar.gz"
    pulsar_meta_here("snapshot", snapshot, env=env)
    pulsar_meta_here("bundle", bundle, env=env)
    assert [oct(file.stat().st_mode & 0o777) for file in (snapshot, bundle)] == ["0o600", "0o600"]


def test_put_refuses_a_document_with_a_hidden_secret(tmp_path: Path, env: dict[str, str]) -> None:
    document = tmp_path / "value.json"
    document.write_bytes(pulsar_meta_here("get", "/admin/clusters/c", "-o", "json", env=env).stdout)
    done = as_text(pulsar_meta_here("put", "/admin/clusters/c", "--file", document, "--yes", env=env))
    assert done.returncode == 4
    assert "--show-secrets" in done.stderr
