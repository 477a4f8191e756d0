"""How far a store's counters have to be, so that no id and no producer's name is given out twice.

Sources: apache/pulsar PulsarLedgerIdGenerator.java, DistributedIdGenerator.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pulsar_meta.jobs.rebuild.clues import DataClues
from pulsar_meta.jobs.rebuild.evidence import Rebuilt
from pulsar_meta.jobs.restore.survey import LedgerIds
from pulsar_meta.jobs.values.counters import IDGEN, PRODUCER_NAMES, bucket_path

# Above the highest one on the disks others were given out, to ledgers and producers of which nothing is left.
LEFT_NOTHING: Final = 1000
_name_re: Final = re.compile(r"-(\d{1,18})-\d{1,18}")


def counters(
    ledgers: Iterable[int], data: Iterable[DataClues], cluster: str, old: Mapping[str, int]
) -> Iterator[Rebuilt]:
    """Yield how far each counter has to be, as `next` in its facts; `old` is how far they were once."""
    ids = LedgerIds()
    for ledger_id in ledgers:
        ids.add(ledger_id)
    wanted = {
        IDGEN if bucket == 0 else bucket_path(bucket): ids.next_in(bucket) for bucket in (0, *ids.highest)
    }
    names = (name for clues in data for name in clues.producers)
    numbers = [int(match[1]) for name in names if (match := _number(name, cluster)) is not None]
    wanted[PRODUCER_NAMES] = max(numbers, default=-1) + 1
    for path in dict.fromkeys((*wanted, *old)):
        number = max(wanted.get(path, 0), old.get(path, 0)) + LEFT_NOTHING
        why = f"{LEFT_NOTHING} behind the highest that is known"
        yield Rebuilt(path, "likely", (why,), None, {"next": number})


def _number(name: str, cluster: str) -> re.Match[str] | None:
    """Return the broker's number in a producer's name that a broker of the cluster gave out."""
    return _name_re.fullmatch(name.removeprefix(cluster)) if name.startswith(cluster) else None
