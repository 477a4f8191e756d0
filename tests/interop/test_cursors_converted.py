"""Going back to a release that knows no bit sets of single acknowledgements, before and after converting."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import as_text, pulsar_meta_here
from tests.servers.batch_acks import LONG_ARRAYS, TOPIC, make
from tests.servers.pulsar import PulsarStandalone
from tests.servers.versions import why_not

pytestmark = pytest.mark.interop
# The last one tried that is older than apache/pulsar#9292.
OLDER = "3.0.7"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what a killed 4.2.4 left, the states of its cursors as bit sets in their ledgers."""
    for version in ("4.2.4", OLDER):
        why = why_not(version)
        if why is not None:
            pytest.skip(why)
    directory = tmp_path_factory.mktemp("bit-sets")
    make("4.2.4", directory, LONG_ARRAYS)
    return directory / "killed"


def loaded_by_older(data: Path) -> dict[str, Any]:
    """Return what the older broker says of the subscriptions when it has loaded the topic."""
    with PulsarStandalone(OLDER, data=data) as pulsar:
        stats = pulsar.admin("GET", f"{TOPIC.replace('://', '/')}/internalStats")
    cursors: dict[str, Any] = stats["cursors"]
    return cursors


def test_the_older_broker_loses_bit_sets_and_reads_what_was_converted(killed: Path, tmp_path: Path) -> None:
    stated = json.loads((killed / "truth.json").read_text())[TOPIC]["internalStats"]["cursors"]
    lost = loaded_by_older(killed)
    copy = tmp_path / "converted"
    shutil.copytree(killed, copy)
    for path in copy.rglob("*"):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    words = ("convert-cursor", "--all", "--to", "ranges", "--for-version", OLDER, "--yes", "-o", "json")
    where = ("--store", f"rocksdb:{copy / 'rocksdb'}", "--entries", f"bookie-disk:{copy / 'bookie0'}")
    done = as_text(pulsar_meta_here(*words, *where))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rewritten"] > 0
    kept = loaded_by_older(copy)
    fields = ("markDeletePosition", "individuallyDeletedMessages", "messagesConsumedCounter")
    for name, said in stated.items():
        if said["totalNonContiguousDeletedMessagesRange"]:
            assert lost[name]["totalNonContiguousDeletedMessagesRange"] == 0
            assert {field: kept[name][field] for field in fields} == {field: said[field] for field in fields}
    assert any(said["totalNonContiguousDeletedMessagesRange"] for said in stated.values())
