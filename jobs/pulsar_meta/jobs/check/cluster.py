"""What concerns a whole namespace or the whole store: blocked namespaces, the generator of ledger ids.

Sources: apache/pulsar SystemTopicBasedTopicPoliciesService, PulsarLedgerIdGenerator; tried on 4.0.7 and
4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, SHORT_LEDGER_LIMIT
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.ledgers import WITHOUT_METADATA
from pulsar_meta.jobs.check.listing import Listing
from pulsar_meta.jobs.check.pointers import POINTER_LOST
from pulsar_meta.jobs.check.records import LEFTOVER
from pulsar_meta.jobs.check.sight import Sight
from pulsar_meta.stores.base import Store

SYSTEM_TOPIC: Final = Code(
    "system-topic-unreadable",
    Severity.ERROR,
    "A system topic that blocks its namespace",
    means="A topic that brokers themselves read when they load any topic of the namespace cannot be read:"
    " the topics' policies (`__change_events`), or the state of transactions.",
    broker="No topic of the namespace loads: clients time out. Where only the last ledger is lost it loads,"
    " with policies that are **silently older**.",
    errors=("Timed out after 60 seconds initializing the topic policies cache",),
    comes="Ledgers of the system topic were lost; apache/pulsar#15891, #22013, #24436, #24553.",
    cure="Repair the system topic as the other finding about it says. What is lost may go out of its list:"
    " then the policies that it held are gone, and have to be set again.",
    evidence={"namespace": str, "topics": int, "because": str},
)
ID_AHEAD: Final = Code(
    "ledger-id-ahead",
    Severity.ERROR,
    "Ledgers with higher ids than the generator has given out",
    means="The next id that the store would give is not above every id that is used.",
    broker="Where an id is taken, creating a ledger fails, and each try burns one. **Where an id below is"
    " free it is used again**: the new ledger sorts before the others of its topic, all above it is"
    " invisible, cursors jump back; bookies may still hold entries of the old ledger of that id.",
    errors=("Bad ledger metadata version error code: -17",),
    comes="A store that was restored, or copied, without its counter.",
    cure="Raise the generator above every id ever used, before a broker runs (in RocksDB the key"
    " `__metadata_sequentialId_key`).",
    unless="A snapshot: its counter is older than its values.",
    evidence={"next": int, "highest": int},
)
CODES: Final = (SYSTEM_TOPIC, ID_AHEAD)
_POLICIES: Final = "/admin/policies/"
_LOCAL_POLICIES: Final = "/admin/local-policies/"
_SCHEMAS: Final = "/schemas/"
_BY_NAMESPACE: Final = (
    *(_POLICIES, _LOCAL_POLICIES, _SCHEMAS),
    *("/admin/partitioned-topics/", f"{MANAGED_LEDGERS}/"),
)
_DOMAINS: Final = ("persistent", "non-persistent", "topic", "segment")
# Heartbeats of brokers lie in namespaces that nobody made.
_OWN_TENANTS: Final = ("pulsar", "sla-monitor")
GENERATOR: Final = f"{LEDGERS}/idgen"
_SYSTEM: Final = (
    "__change_events",
    "__transaction_buffer_snapshot",
    "__transaction_log_",
    "__transaction_pending_ack",
)


def is_system(sight: Sight) -> bool:
    """Return whether brokers read the topic when they load others."""
    return any(mark in sight.name.local for mark in _SYSTEM)


def blocked(sight: Sight, found: Sequence[Finding], store: Store) -> Iterator[Finding]:
    """Yield that a namespace is blocked, where errors were `found` in a system topic."""
    errors = [one for one in found if one.severity is Severity.ERROR and one.code != POINTER_LOST.name]
    if not errors or not is_system(sight):
        return
    topics = len(store.children(sight.path.rpartition("/")[0]))
    name = sight.name.namespace_name
    last = sight.ledgers[-1].ledger_id if sight.ledgers else None
    older = last is not None and all(
        one.code == WITHOUT_METADATA.name and one.ledger_id == last for one in errors
    )
    what = "they load, with what it said before its last ledger" if older else "they may not load"
    yield SYSTEM_TOPIC.found(
        f"brokers read it when they load topics of {name}, which has {topics}: {what}",
        evidence={"namespace": name, "topics": topics, "because": errors[0].code},
        **sight.where(),
    )


@dataclass(slots=True)
class Namespaces:
    """The namespaces that have policies, and those that have anything else, each with a path of it."""

    with_policies: set[str] = field(default_factory=set)
    others: dict[str, str] = field(default_factory=dict)

    def note(self, path: str, value: bytes) -> None:
        """Take a record: that of a schema, or one below /admin."""
        for parent in _BY_NAMESPACE if value else ():
            if path.startswith(parent):
                name = _namespace_of(path.removeprefix(parent), parent)
                if name is not None and parent == _POLICIES:
                    self.with_policies.add(name)
                elif name is not None:
                    self.has(name, path)

    def has(self, name: str, path: str) -> None:
        """Note that a namespace has something at a path; the first of all paths stays."""
        if path <= self.others.get(name, path):
            self.others[name] = path

    def merge(self, other: Namespaces) -> None:
        """Take what another part of the store has."""
        self.with_policies |= other.with_policies
        for name, path in other.others.items():
            self.has(name, path)

    def findings(self, store: Store) -> Iterator[Finding]:
        """Yield the namespaces that have no policies and still something, also at a second look."""
        if not self.with_policies:
            return
        for name, path in sorted(self.others.items()):
            if name in self.with_policies or name.partition("/")[0] in _OWN_TENANTS:
                continue
            policies, left = store.read_many([f"{_POLICIES}{name}", path])
            if policies is None and left is not None:
                yield LEFTOVER.found(
                    f"the namespace {name} has no policies, and there still is {path}",
                    path=f"{_POLICIES}{name}",
                    evidence={"namespace": name, "there": path},
                )


def _namespace_of(below: str, parent: str) -> str | None:
    """Return the namespace of a path below one of the parents, None for a tenant's."""
    parts = below.split("/")
    if parent in (_POLICIES, _LOCAL_POLICIES):
        # A namespace of V1 has its cluster between, and lies itself below what looks like one.
        return below if len(parts) in (2, 3) else None
    if parent == _SCHEMAS:
        return "/".join(parts[:-1]) if len(parts) in (3, 4) else None
    at = next((at for at, part in enumerate(parts) if part in _DOMAINS and at >= 2), None)
    return None if at is None or at > 3 or len(parts) <= at + 1 else "/".join(parts[:at])


def generator(store: Store, listing: Listing) -> Iterator[Finding]:
    """Yield that ids are used that the generator has still to give; it is read last."""
    if store.origin or not len(listing):
        return
    ids = listing.ids
    short = ids[ids < SHORT_LEDGER_LIMIT]
    following = store.next_sequence(GENERATOR)
    if following is None or not len(short) or len(short) < len(ids):
        return
    highest = int(short[-1])
    if following <= highest:
        yield ID_AHEAD.found(
            f"the next ledger would be {following}, and there is {highest} already: free ids below are"
            f" used again",
            path=GENERATOR,
            evidence={"next": following, "highest": highest},
        )
