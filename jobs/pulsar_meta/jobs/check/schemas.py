"""Schemas: whether the ledgers that hold them are there.

Sources: apache/pulsar BookkeeperSchemaStorage, SchemaStorageFormat.proto; tried on 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.listing import Listing, read_facts
from pulsar_meta.jobs.check.sight import Cluster
from pulsar_meta.jobs.topics.owners import SCHEMAS, Owner, named_by
from pulsar_meta.stores.base import Store, Versioned

LEDGER_MISSING: Final = Code(
    "schema-ledger-missing",
    Severity.WARNING,
    "The ledger with a schema is gone",
    means="A schema's record names a ledger that BookKeeper does not know.",
    broker="The topic loads. **When the schema is used the broker deletes it and registers it anew**:"
    " earlier versions are gone, and messages that were written with them cannot be decoded by it.",
    errors=("Put schema failed", "No such ledger exists on Metadata Server"),
    comes="The ledger was taken for an orphan, or lost with the store.",
    cure="None needed for producing; take versions whose ledger is lost out of the record, or remove the"
    " record, to decide it yourself.",
)
CODES: Final = (LEDGER_MISSING,)


def schema_ledgers(record: Versioned, store: Store, cluster: Cluster, listing: Listing) -> Iterator[Finding]:
    """Yield the ledgers of a schema that are gone: by the listing, and by a second look."""
    if not cluster.bookkeeper or not record.path.startswith(f"{SCHEMAS}/"):
        return
    missing = [one for one in _named(record) if listing.facts(one.ledger_id).metadata == "absent"]
    if not missing:
        return
    facts = read_facts(store, [one.ledger_id for one in missing])
    with suppress(NotFoundError):
        still = {one.ledger_id for one in _named(store.read(record.path))}
        for owner in missing:
            if facts[owner.ledger_id].metadata == "absent" and owner.ledger_id in still:
                yield LEDGER_MISSING.found(
                    "BookKeeper has no metadata of its ledger: when it is used the broker deletes the"
                    " schema and"
                    " registers it anew",
                    topic=f"persistent://{owner.name}",
                    ledger_id=owner.ledger_id,
                    path=record.path,
                )


def _named(record: Versioned) -> list[Owner]:
    try:
        return list(named_by(record, None, lambda path, why: None))
    except DecodeError:
        return []
