"""JSON Schemas: every command that prints JSON has a valid one, and files match theirs.

`tests.cli.documents` checks every document that a run in these tests prints against its schema.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest
from jsonschema import Draft202012Validator

from pulsar_meta.cli.commands import COMMANDS
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.schemas import COMMAND_TYPES, NAMES, document_schema, schema_of
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.documents.kinds import KINDS
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.codecs.json_text import dumps
from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.codecs.protobuf.parse import bytes_field
from pulsar_meta.codecs.wire.commands import encode_command
from pulsar_meta.proto.DataFormats_pb2 import BookieServiceInfoFormat, LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, MessageMetadata
from tests.cli.documents import check_document, check_documents, closed
from tests.cli.program import environment, pulsar_meta_here

ROOT = Path(__file__).parents[2]
RELEASE = ROOT / "fixtures" / "release-0.1"
# `export` writes rows to files; docs/export.md describes their columns.
IN_FILES = {"export"}


def test_every_command_that_prints_json_has_a_schema() -> None:
    printing = {name for name, command in COMMANDS.items() if {Format.JSON, Format.NDJSON} & {*command.forms}}
    assert {name.split()[0] for name in printing} - IN_FILES == set(COMMAND_TYPES)


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_is_valid(name: str) -> None:
    Draft202012Validator.check_schema(schema_of(name))


def test_the_command_prints_the_schemas_of_the_documentation(tmp_path: Path) -> None:
    env = environment(tmp_path)
    printed = pulsar_meta_here("schema", "seek", env=env).stdout.decode()
    assert json.loads(printed) == schema_of("seek")
    assert json.loads(printed) == json.loads((ROOT / "docs" / "schemas" / "seek.json").read_text())
    names = json.loads(pulsar_meta_here("schema", "-o", "json", env=env).stdout)
    assert [row["name"] for row in names] == list(NAMES)
    wrong = pulsar_meta_here("schema", "nothing", env=env)
    assert (wrong.returncode, wrong.stdout) == (3, b"")
    assert b"no schema 'nothing'" in wrong.stderr


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_files_match_their_schemas(capture: Callable[[str], Path], tmp_path: Path) -> None:
    folder, to = capture("pulsar-4.2.4"), tmp_path / "export"
    env = environment(
        tmp_path,
        PULSAR_META_STORE=f"snapshot:{folder / 'metadata.ndjson'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )
    assert pulsar_meta_here("snapshot", tmp_path / "s.ndjson", env=env).returncode == 0
    assert pulsar_meta_here("export", "plain", "--to", to, env=env).returncode == 0
    files = {
        "snapshot-file": lines_of(tmp_path / "s.ndjson"),
        "plan-file": lines_of(RELEASE / "plan.ndjson"),
        "undo-file": [line for path in RELEASE.glob("undo-*.ndjson") for line in lines_of(path)],
        "export-manifest": lines_of(to / "_manifest.jsonl")[1:],
    }
    for name, lines in files.items():
        check = Draft202012Validator(closed(schema_of(name)))
        assert lines
        assert [error.message for line in lines for error in check.iter_errors(line)] == []


def test_a_document_that_its_schema_does_not_allow_is_detected() -> None:
    fault = {"ledger_id": 1, "entry_id": 2, "layer": "digest", "fault": "x"}
    for wrong in (
        {"more": 1},
        {"layer": "elsewhere"},
        {"entry_id": 2.5},
        {"entry_id": "two"},
        {"fault": None},
    ):
        text = json.dumps(fault | wrong).encode()
        words = ["verify-entries", "-o", "ndjson"]
        check_documents(subprocess.CompletedProcess(words, 1, json.dumps(fault).encode(), b""))
        with pytest.raises(AssertionError):
            check_documents(subprocess.CompletedProcess(words, 1, text, b""))
        with pytest.raises(AssertionError):
            check_documents(subprocess.CompletedProcess(words, 1, b"", b'{"error": "usage"}'))


def test_every_kind_has_its_own_schema() -> None:
    document = schema_of("decode")["$defs"]["DecodedDocument"]
    cases = {case["if"]["properties"]["kind"]["const"]: case["then"] for case in document["allOf"]}
    # Values that are stored as JSON but have no kind of their own may be anything.
    assert set(KINDS) - set(cases) == {"Json"}


def test_a_value_fits_only_the_schema_of_its_kind() -> None:
    check = Draft202012Validator(closed(schema_of("decode")))
    ledgers = ManagedLedgerInfo(ledgerInfo=[{"ledgerId": 2**63 - 1}]).SerializeToString()
    # The record has a secret, invalid UTF-8, and a field of a later release.
    pair = bytes_field(1, b"\xff") + bytes_field(2, b"v")
    secret = ManagedLedgerInfo(properties=[{"key": "password", "value": "x"}]).SerializeToString()
    connect = BaseCommand(type="CONNECT", connect={"client_version": "1", "auth_data": b"secret"})
    ledger = LedgerMetadataFormat(quorumSize=2, ensembleSize=2, length=0, state="OPEN", password=b"x")
    values = {
        "ManagedLedgerInfo": ledgers + secret + bytes_field(3, pair) + bytes_field(99, b"x"),
        "LedgerMetadata": encode_ledger_metadata(LedgerMetadata(3, ledger)),
        "BookieServiceInfo": BookieServiceInfoFormat(properties={"token": "v"}).SerializeToString(),
        "Command": encode_command(connect),
        "Frame": encode_frame(MessageMetadata(producer_name="p", sequence_id=1, publish_time=2), b"x"),
        "Text": b"password=x",
        "Counter": bytes(16),
    }
    for kind, data in values.items():
        decoded = decode_document(data, source="x", options=DecodeOptions(kind))
        document = json.loads(dumps(decoded.document))
        assert document["value"] is not None
        assert [error.message for error in check.iter_errors(document)] == [], kind
        assert not check.is_valid(document | {"value": {"more": 1}}), kind


def test_evidence_must_fit_its_code() -> None:
    finding: dict[str, Any] = {"code": "record-near-limit", "severity": "warning", "message": "x"}
    finding["page"] = "findings/#x"
    finding |= {"evidence": {"size": 9}}
    check_document("check", finding)
    for wrong in ({"form": "x"}, {"size": "x"}, {"size": 9, "more": 1}):
        with pytest.raises(AssertionError):
            check_document("check", finding | {"evidence": wrong})


class Tree(TypedDict, total=False):
    """Branches upon
    branches."""

    branches: NotRequired[list[Tree]]
    sizes: tuple[int, int]


class Named(Tree):
    name: str | None
    by: dict[str, float]


def test_a_typed_dict_becomes_a_schema() -> None:
    schema = document_schema("x", [Named])
    definition = schema["$defs"]["Named"]
    assert definition["required"] == ["name", "by"]
    assert definition["properties"]["name"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert definition["properties"]["by"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert schema["$defs"]["Tree"]["description"] == "Branches upon branches."
    check = Draft202012Validator(schema)
    good: dict[str, Any] = {
        "name": None,
        "by": {"a": 1.5},
        "branches": [{"branches": []}],
        "sizes": [1, str(2**63)],
    }
    assert check.is_valid([good, good | {"later": 1}])
    for wrong in ({"branches": [1]}, {"sizes": [1]}, {"by": 1}, {"name": 1}):
        assert not check.is_valid(good | wrong)
    with pytest.raises(TypeError):
        document_schema("x", [bytes])
