"""Which topics ledgers in tiered storage are of: an offload keeps BookKeeper's metadata with the entries.

A broker notes there, when it creates a ledger, for which topic it does (`pulsar/managed-ledger`).

Source: apache/pulsar OffloadIndexBlockImpl.java (buildLedgerMetadataFormat),
FileSystemManagedLedgerOffloader.java, LedgerMetadataUtils.java.
"""

from __future__ import annotations

from typing import Final

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.offload_files import OffloadedLedgers
from pulsar_meta.jobs.rebuild.names import Named
from pulsar_meta.jobs.topics.owners import owner_in_custom
from pulsar_meta.jobs.topics.topic import Report

SAYS: Final = "its copy in tiered storage has its name"


def names_in_objects(objects: OffloadedLedgers, report: Report) -> dict[int, Named]:
    """Return the topics of offloaded ledgers that say so; broken objects go to `report`. UnreachableError."""
    names: dict[int, Named] = {}
    for ledger_id in objects.ledgers():
        try:
            owner = owner_in_custom(ledger_id, objects.custom_metadata(ledger_id))
            if owner is not None and owner.role == "data":
                names[ledger_id] = Named(TopicName.parse(owner.name), SAYS)
        except DecodeError as error:
            report(error)
        except UsageError:
            # A name that cannot be one says nothing.
            continue
    return names
