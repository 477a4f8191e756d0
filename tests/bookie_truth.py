"""What a bookie served, against what `bookie-disk:` reads on the same disk."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.registry import open_entries


def digest(data: bytes | memoryview) -> str:
    """Return what stands for an entry in served.json."""
    return sha256(data).hexdigest()[:16]


def differences(folder: Path, *, scan: bool) -> list[str]:
    """Return in which ledgers the entries read differ from those served; deleted ones may still be there."""
    stated = json.loads((folder / "served.json").read_text())
    with open_entries([f"bookie-disk:{folder}{'?index=scan' if scan else ''}"]) as source:
        found = {
            str(ledger_id): [
                digest(decode_bookie_entry(entry.data).data) for entry in source.read_many(ledger_id)
            ]
            for ledger_id in source.ledgers()
        }
    wrong = [
        f"ledger {ledger_id}: {len(entries)} served, {len(found.get(ledger_id, []))} read"
        for ledger_id, entries in stated["served"].items()
        if found.get(ledger_id) != entries
    ]
    more = set(found) - set(stated["served"]) - set(map(str, stated["deleted"]))
    return wrong + [f"ledger {ledger_id}: nobody wrote it" for ledger_id in sorted(more)]
