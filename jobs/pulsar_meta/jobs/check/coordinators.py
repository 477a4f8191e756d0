"""Transaction coordinators: that each log has one, and that it continues after the ids in its log.

A client finds a coordinator as a partition of the topic `transaction_coordinator_assign`, so the record with
the number of partitions decides which coordinators exist. A coordinator continues after the last entry in the
last ledger of its log. If that is empty, it continues after the property `max_local_txn_id` of the log.

Sources: apache/pulsar MLTransactionSequenceIdGenerator, MLTransactionLogImpl,
TransactionMetadataStoreService, TransactionCoordinatorClientImpl. Tested with brokers 4.0.7 and 4.2.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.transactions.log_entries import decode_log_entry, txn_of
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.check.topic_view import Rule, TopicView
from pulsar_meta.proto.TransactionLogs_pb2 import TransactionMetadataEntry

MAX_LOCAL_TXN_ID: Final = "max_local_txn_id"
ASSIGNED: Final = "transaction_coordinator_assign"
_log_re: Final = re.compile(r"__transaction_log_([0-9]{1,9})")


def coordinator_of(name: TopicName) -> int | None:
    """Return the number of the coordinator whose log a topic is, None for other topics."""
    if name.namespace_name != "pulsar/system" or name.domain != "persistent":
        return None
    match = _log_re.fullmatch(name.local)
    return None if match is None else int(match[1])


def counted_as(name: TopicName) -> TopicName:
    """Return the partition that stands for a coordinator if a topic is its log, else the topic itself."""
    number = coordinator_of(name)
    return name if number is None else TopicName("pulsar", "system", f"{ASSIGNED}-partition-{number}")


def without_coordinator(view: TopicView) -> Iterator[Finding]:
    """Check that the record of the coordinators counts the one that writes this log."""
    number, count = coordinator_of(view.name), view.partitions
    if count is None and not view.context.has_configuration:
        return
    if number is None or view.topic is None or count == 0 or (count is not None and number < count):
        return
    entries = sum(ledger.entries or 0 for ledger in view.ledgers)
    has = f"{ASSIGNED} has no record" if count is None else f"the record of {ASSIGNED} has {count} partitions"
    yield finding(
        "transaction-coordinator-missing",
        f"{has}, so coordinator {number} does not start, and its transactions stay open",
        severity=Severity.ERROR if entries else Severity.WARNING,
        evidence={"coordinator": number, "partitions": count, "entries": entries},
        **view.place(),
    )


def ids_in_use(view: TopicView) -> Iterator[Finding]:
    """Check that the coordinator would not give out ids that its log already has."""
    if coordinator_of(view.name) is None or view.topic is None:
        return
    value = next(iter(view.topic.values(MAX_LOCAL_TXN_ID)), None)
    if value is not None and not re.fullmatch(r"-?[0-9]{1,19}", value):
        text = f"the property {MAX_LOCAL_TXN_ID} is {value!r}, so the coordinator does not start"
        yield finding("transaction-ids-behind", text, evidence={"value": value}, **view.place())
        return
    if view.context.source is None or not view.ledgers:
        return
    last, highest = view.ledgers[-1].ledger_id, _highest_in(view)
    following = int(value or -1) + 1
    if highest is None or highest[0] == last or following > highest[1]:
        # If the last ledger has entries, the coordinator continues after them.
        return
    yield finding(
        "transaction-ids-behind",
        f"its next transaction would get id {following}, but its log has ids up to {highest[1]}: a new"
        " transaction can be taken for an old one that was aborted",
        evidence={"value": value, "highest": highest[1]},
        **view.place(highest[0]),
    )


def _highest_in(view: TopicView) -> tuple[int, int] | None:
    """Return the last ledger with entries and the highest id in its last entry, None if it is unknown."""
    source = view.context.source
    for ledger in reversed(view.ledgers):
        last = None if source is None else source.last_entry(ledger.ledger_id)
        last = ledger.entries - 1 if last is None and ledger.entries else last
        if source is None or last is None:
            continue
        try:
            raw = source.read(ledger.ledger_id, last)
            data = decode_bookie_entry(raw.data).data if raw.bookie else raw.data
            records = decode_log_entry("transaction-log", data).records
        except (NotFoundError, DecodeError):
            # Other rules report missing and damaged entries.
            return None
        ids = [
            max(txn_of(record).least, record.max_local_txn_id)
            for record in records
            if isinstance(record, TransactionMetadataEntry)
        ]
        return (ledger.ledger_id, max(ids)) if ids else None
    return None


RULES: Final[tuple[Rule, ...]] = (without_coordinator, ids_in_use)
