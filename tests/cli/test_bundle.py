"""`bundle` writes a file with everything that a supporter needs, and without secrets."""

from __future__ import annotations

import json
import tarfile
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

from tests.cli.program import as_text, pulsar_meta_here

Capture = Callable[[str], Path]


def unpack(file: Path, folder: Path) -> list[str]:
    """Write the files of a bundle to `folder` and return their names."""
    with tarfile.open(file) as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        for name, data in members.items():
            assert data is not None
            (folder / name).write_bytes(data.read())
    return sorted(members)


def test_a_bundle_has_the_store_its_findings_and_versions(capture: Capture, tmp_path: Path) -> None:
    store = f"snapshot:{capture('pulsar-4.2.4')}/metadata.ndjson"
    file = tmp_path / "report.tar.gz"
    done = as_text(pulsar_meta_here("bundle", str(file), "--store", store, "-o", "json"))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert unpack(file, tmp_path) == ["findings.ndjson", "snapshot.ndjson.zst", "versions.json"]
    lines = [json.loads(line) for line in (tmp_path / "findings.ndjson").read_text().splitlines()]
    listed = as_text(pulsar_meta_here("check", "--store", store, "-o", "json"))
    assert lines[:-1] == json.loads(listed.stdout)
    assert lines[-1] == json.loads(listed.stderr.splitlines()[-1]) == json.loads(done.stderr.splitlines()[-1])
    bundled = as_text(
        pulsar_meta_here("tree", "--store", f"snapshot:{tmp_path}/snapshot.ndjson.zst", "-o", "ndjson")
    )
    original = as_text(pulsar_meta_here("tree", "--store", store, "-o", "ndjson"))
    paths = [[json.loads(line)["path"] for line in done.stdout.splitlines()] for done in (bundled, original)]
    assert paths[0] == paths[1]
    assert (summary["values"], summary["findings"]) == (361, len(lines) - 1)
    versions = json.loads((tmp_path / "versions.json").read_text())
    assert {"pulsar-meta", "python", "platform", "store", "packages"} == versions.keys()
    assert "protobuf" in versions["packages"]


def test_a_bundle_has_no_secrets(tmp_path: Path) -> None:
    ledger = (
        "BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nstate: CLOSED\n"
        'lastEntryId: -1\ndigestType: CRC32C\npassword: "hush-hush"\nackQuorumSize: 1\n'
    )
    store = tmp_path / "store"
    value = store / "ledgers" / "00" / "0000" / "L0007" / ".value"
    value.parent.mkdir(parents=True)
    value.write_text(ledger)
    file = tmp_path / "report.tar.gz"
    done = as_text(pulsar_meta_here("bundle", str(file), "--store", f"dir:{store}"))
    assert done.returncode == 0, done.stderr
    unpack(file, tmp_path)
    shown = as_text(
        pulsar_meta_here(
            "snapshot", str(tmp_path / "plain.ndjson"), "--store", f"snapshot:{tmp_path}/snapshot.ndjson.zst"
        )
    )
    assert shown.returncode == 0, shown.stderr
    values = [json.loads(line).get("value") for line in (tmp_path / "plain.ndjson").read_text().splitlines()]
    assert [b"quorumSize" in b64decode(value) for value in values if value] == [True]
    assert not any(b"hush-hush" in b64decode(value) for value in values if value)
    assert "hush-hush" not in (tmp_path / "findings.ndjson").read_text()


def test_a_file_that_cannot_be_written_is_a_one_line_error(capture: Capture, tmp_path: Path) -> None:
    store = f"snapshot:{capture('pulsar-4.2.4')}/metadata.ndjson"
    done = as_text(pulsar_meta_here("bundle", str(tmp_path / "no" / "report.tar.gz"), "--store", store))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
