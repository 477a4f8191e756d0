"""The latest message of each key of a topic, as compaction would leave it.

A message without payload takes its key away; messages without a key stay out (PIP-318, Pulsar 3.2 on).
Source: apache/pulsar AbstractTwoPhaseCompactor.java (phaseOne), PIP-14.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pulsar_meta.jobs.entries.entry_choice import Range
from pulsar_meta.jobs.messages.counts import MessageCounts
from pulsar_meta.jobs.messages.reading import MessageReader

_COLUMNS: Final = ("ledger_id", "entry_id", "batch_index", "key", "payload", "error")


def latest_positions(reader: MessageReader, parts: Iterable[Range]) -> frozenset[tuple[int, int, int]]:
    """Return the positions (ledger, entry, batch index or -1) of the latest message of each key.

    `parts` are in reading order. A message that cannot be read has no key, and removes none.
    """
    options = replace(reader.options, columns=_COLUMNS, where=None, from_index=None)
    first = replace(reader, options=options, counts=MessageCounts())
    latest: dict[str, tuple[int, int, int]] = {}
    for part in parts:
        for batch in first.read(part):
            columns = (batch.column(name).to_pylist() for name in _COLUMNS)
            for ledger_id, entry_id, batch_index, key, payload, error in zip(*columns, strict=True):
                if key is None:
                    continue
                if payload or error is not None:
                    latest[key] = (ledger_id, entry_id, -1 if batch_index is None else batch_index)
                else:
                    latest.pop(key, None)
    return frozenset(latest.values())
