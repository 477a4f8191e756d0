"""The entries that a bookie served, compared with those that `bookie-disk:` reads on the same disk."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.sources import open_entries


def digest(data: bytes | memoryview) -> str:
    """Return the digest of an entry in served.json."""
    return sha256(data).hexdigest()[:16]


def differences(folder: Path, *, scan: bool) -> list[str]:
    """Describe the ledgers whose entries differ from those served. Deleted ledgers may still be there."""
    served = json.loads((folder / "served.json").read_text())
    with open_entries([f"bookie-disk:{folder}{'?index=scan' if scan else ''}"]) as source:
        read = {
            str(ledger_id): [
                digest(decode_bookie_entry(entry.data).data) for entry in source.read_many(ledger_id)
            ]
            for ledger_id in source.ledgers()
        }
    wrong = [
        f"ledger {ledger_id}: {len(entries)} served, {len(read.get(ledger_id, []))} read"
        for ledger_id, entries in served["served"].items()
        if read.get(ledger_id) != entries
    ]
    more = set(read) - set(served["served"]) - set(map(str, served["deleted"]))
    return wrong + [f"ledger {ledger_id}: it was never written" for ledger_id in sorted(more)]
