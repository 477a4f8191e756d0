"""Which broker serves a topic, as the store tells it.

A namespace's topics are divided into bundles, ranges of the CRC-32 of the topic's full name; the owner of
a bundle registers itself, ephemeral, at `/namespace/TENANT/NAMESPACE/0xLOWER_0xUPPER`. The upper end is
excluded, but for 0xffffffff. Source: apache/pulsar NamespaceBundleFactory.java, NamespaceBundles.java,
OwnershipCache.java.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.stores.base import Store

OWNERS = "/namespace"
LAST_HASH = 0xFFFFFFFF

_bundle_re = re.compile(r"^0x([0-9a-fA-F]{8})_0x([0-9a-fA-F]{8})$")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A range of hashes of one namespace, by its name in the store."""

    name: str
    lower: int
    upper: int

    def holds(self, number: int) -> bool:
        """Tell whether a topic of that hash belongs to it."""
        return self.lower <= number and (number < self.upper or number == self.upper == LAST_HASH)


def topic_hash(topic: TopicName) -> int:
    """Return the hash by which a topic (a single partition) is given to a bundle."""
    return zlib.crc32(str(topic).encode())


def owners_path(namespace: str) -> str:
    """Return below which path the owned bundles of `tenant/namespace` are registered."""
    return f"{OWNERS}/{namespace}"


def bundles_named(names: Iterable[str]) -> list[Bundle]:
    """Return the bundles among the names that are registered as owned."""
    found = []
    for name in names:
        match = _bundle_re.match(name)
        if match:
            found.append(Bundle(name, int(match[1], 16), int(match[2], 16)))
    return found


def bundle_of(bundles: list[Bundle], topic: TopicName) -> Bundle | None:
    """Return which of the owned bundles serves `topic`; for domains of unknown hash, any of them."""
    if topic.domain != "persistent":
        return bundles[0] if bundles else None
    number = topic_hash(topic)
    return next((bundle for bundle in bundles if bundle.holds(number)), None)


def owner_of(store: Store, namespace: str, bundle: Bundle) -> str:
    """Return the address of the broker that owns a bundle, for people."""
    try:
        told = json.loads(store.read(f"{owners_path(namespace)}/{bundle.name}").value)
        return str(told.get("nativeUrl") or told.get("nativeUrlTls") or "a broker")
    except (NotFoundError, ValueError, AttributeError):
        return "a broker"
