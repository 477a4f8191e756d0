"""Leave out the disks of other clusters, because their entries have the ids of this cluster's entries.

A bookie writes the instance id of its cluster into its cookie, on its disks and in the store. Releases before
2.9 did not write it. A disk without an id is only read if the store has a cookie of its bookie. A disk with
the id of the bookie's cookie in the store is read, because then only the store's instance id is wrong.

Source: apache/bookkeeper Cookie.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.ledger_metadata import decode_cookie
from pulsar_meta.codecs.names import LEDGERS
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import JoinedEntries
from pulsar_meta.stores.base import Store

INSTANCE_ID: Final = f"{LEDGERS}/INSTANCEID"
COOKIES: Final = f"{LEDGERS}/cookies"
OTHER_CLUSTER: Final = "they belong to another cluster"
NO_COOKIE: Final = "the store has no cookie of it, so they may belong to another cluster"


def split_disks(store: Store, source: EntrySource | None) -> tuple[EntrySource | None, dict[str, str]]:
    """Return the source without the disks of other clusters, and why the disks of a bookie are left out.

    The source is None if nothing is left.
    """
    if source is None or not source.cookies:
        return source, {}
    record, names = store.find(INSTANCE_ID), store.children(COOKIES)
    instance = "" if record is None else record.value.decode("utf-8", "replace")
    stored = {
        name: _instance_of(cookie.value)
        for name, cookie in zip(names, store.read_many([f"{COOKIES}/{name}" for name in names]), strict=True)
        if cookie is not None
    }
    kept, left_out = list[EntrySource](), dict[str, str]()
    for part in source.parts:
        reasons = {
            bookie: why
            for bookie, cookie in part.cookies.items()
            if (why := _reason(bookie, _instance_of(cookie), instance, stored)) is not None
        }
        left_out |= reasons
        kept += [] if reasons else [part]
    if not left_out:
        return source, {}
    return (JoinedEntries(kept) if kept else None), left_out


def _reason(bookie: str, on_disk: str, instance: str, stored: Mapping[str, str]) -> str | None:
    """Return why a bookie's disk is not read, None if it is; `stored` has the instance ids in its cookies."""
    if on_disk and on_disk in (instance, stored.get(bookie)):
        return None
    if on_disk and instance:
        return OTHER_CLUSTER
    return NO_COOKIE if stored and bookie not in stored else None


def _instance_of(cookie: bytes) -> str:
    try:
        return decode_cookie(cookie).fields.instanceId
    except DecodeError:
        return ""
