"""The cost of a question about one thing does not grow with its topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.directory import DirectoryStore
from tests.cli.program import pulsar_meta_here

TOPIC = TopicName.parse("orders")
ABOUT_ONE = (
    *("whois 7", f"get topic {TOPIC}", f"get cursor {TOPIC} cursor-1", "get ledger 7"),
    *(f"show-cursor {TOPIC} cursor-1", f"properties {TOPIC}", f"top topic {TOPIC}"),
    *(f"repair count {TOPIC} 7 --dry-run", f"repair cursor {TOPIC} cursor-1 --dry-run"),
    *(f"repair termination {TOPIC} --dry-run", f"repair missing-ledger {TOPIC} 7 --dry-run"),
    *(f"set-property {TOPIC} 7 a=b --dry-run", f"unset-property {TOPIC} 7 a --dry-run"),
    *("rm ledger 7 --dry-run", f"rm cursor {TOPIC} cursor-1 --dry-run"),
)


def records(ledgers: int) -> Iterator[tuple[str, bytes]]:
    """Yield the (path, value) of a topic, its ledgers, of which the last one is open, and two cursors."""
    info = ManagedLedgerInfo()
    for ledger_id in range(7, 7 + ledgers):
        is_open = ledger_id == 6 + ledgers
        metadata = LedgerMetadataFormat(
            quorumSize=1, ackQuorumSize=1, ensembleSize=1, length=400, digestType=LedgerMetadataFormat.CRC32C,
            state=LedgerMetadataFormat.OPEN if is_open else LedgerMetadataFormat.CLOSED,
        )  # fmt: skip
        metadata.segment.add(firstEntryId=0, ensembleMember=["bookie:3181"])
        if is_open:
            info.ledgerInfo.add(ledgerId=ledger_id)
        else:
            metadata.lastEntryId = 3
            info.ledgerInfo.add(ledgerId=ledger_id, entries=4, size=400, timestamp=1_795_000_000_000)
        yield ledger_path(ledger_id), encode_ledger_metadata(LedgerMetadata(3, metadata))
    yield TOPIC.path, info.SerializeToString()
    for name in ("cursor-0", "cursor-1"):
        cursor = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=7, markDeleteEntryId=1)
        yield TOPIC.cursor_path(name), cursor.SerializeToString()


def values_read(place: Path, ledgers: int, command: str) -> list[str]:
    """Run a command on a new store; return the paths of the values that it read."""
    store = f"dir:{place / str(ledgers)}"
    with DirectoryStore(store, read_only=False) as made:
        for path, value in records(ledgers):
            made.put(path, value, ABSENT)
    paths: list[str] = []
    read, scan = DirectoryStore.read, DirectoryStore.scan

    def counting_read(self: DirectoryStore, path: str) -> Versioned:
        paths.append(path)
        return read(self, path)

    def counting_scan(
        self: DirectoryStore, prefix: str = "/", *, after: str | None = None
    ) -> Iterator[Versioned]:
        for record in scan(self, prefix, after=after):
            paths.append(record.path)
            yield record

    with (
        patch.object(DirectoryStore, "read", counting_read),
        patch.object(DirectoryStore, "scan", counting_scan),
    ):
        done = pulsar_meta_here(*command.split(), "--store", store)
    assert done.returncode == 0, done.stderr
    return paths


@pytest.mark.parametrize("command", ABOUT_ONE)
def test_a_command_about_one_thing_reads_the_same_number_of_values_of_a_large_topic(
    command: str, tmp_path: Path
) -> None:
    small, large = (values_read(tmp_path, ledgers, command) for ledgers in (10, 60))
    assert 0 < len(large) <= len(small), large
