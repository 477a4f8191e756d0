"""Which topics and subscriptions ledgers were made for, by what brokers wrote into their logs.

    … [public/default/persistent/orders] Created ledger 18 after closed 12          (4.1 on)
    … [public/default/persistent/orders] Created new ledger 22
    … [public/default/persistent/orders] Updated cursor work with ledger id 31 md-position=18:4 …
    … [public/default/persistent/orders] Cursor work meta-data recover from ledger 31
    … [public/default/persistent/orders] Opened ledger 31 for cursor work. rc=0

Names of topics and cursors stand there as in the store, URL-encoded. Pulsar 5 writes other lines.

Source: apache/pulsar ManagedLedgerImpl.java (initializeBookKeeper, createComplete), ManagedCursorImpl.java
(recover, recoverFromLedger, switchToNewLedger), as 4.2.4 ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName, decode_name
from pulsar_meta.jobs.rebuild.names import Named

SAYS: Final = "a broker's log has its name"
_ledger: Final = r"(?P<ledger>\d{1,19})"
_cursor: Final = r"(?P<cursor>\S+)"
_line_re: Final = re.compile(
    r"\[(?P<name>[^\s\[\]]+/[^\s\[\]]+)\] (?P<said>(?:Created|Updated|Cursor|Opened) .*)"
)
_said: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Created (?:new )?ledger {_ledger}(?:$| after closed)",
        rf"Updated cursor {_cursor} with ledger id {_ledger} ",
        rf"Cursor {_cursor} meta-data recover from ledger {_ledger}$",
        rf"Opened ledger {_ledger} for cursor {_cursor}\. rc=0$",
    )
)


def names_in_log(lines: Iterable[str]) -> dict[int, Named]:
    """Return the topics and subscriptions of ledgers that the lines of a broker's log name."""
    names: dict[int, Named] = {}
    for line in lines:
        found = _line_re.search(line.rstrip())
        if found is None:
            continue
        for pattern in _said:
            said = pattern.match(found["said"])
            named = None if said is None else _named(found["name"], said.groupdict().get("cursor"))
            if said is not None and named is not None:
                names[int(said["ledger"])] = named
    return names


def _named(managed_ledger: str, cursor: str | None) -> Named | None:
    topic = TopicName.from_path(f"{MANAGED_LEDGERS}/{managed_ledger}")
    try:
        name = None if cursor is None else decode_name(cursor)
    except DecodeError:
        return None
    return None if topic is None else Named(topic, SAYS, name)
