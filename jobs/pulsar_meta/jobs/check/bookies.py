"""Bookies: whether those that ledgers lie on are known, and running.

Sources: apache/bookkeeper Cookie.java, ZKRegistrationManager, RoundRobinDistributionSchedule; apache/pulsar
PulsarRegistrationManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.facts import read_facts
from pulsar_meta.jobs.check.listing import AVAILABLE, COOKIES, Listing
from pulsar_meta.jobs.check.sight import Cluster
from pulsar_meta.stores.base import Store

UNKNOWN: Final = Code(
    "bookie-unknown",
    Severity.ERROR,
    "A bookie that ledgers lie on and that never registered",
    means="Ledgers' metadata names a bookie of which there is no cookie: no bookie can be started under"
    " that name with its old data.",
    broker="Where no other bookie has a copy: reading stalls at a ledger in the middle; with the last one"
    " the topic does not load.",
    errors=("Bookie handle is not available", "Error while recovering ledger error code: -10"),
    comes="The cookie was deleted before its ledgers were copied to others, the bookie was given another"
    " name, or the metadata was edited.",
    cure="Write the right bookie's name into the metadata, or bring the bookie back with its cookie; where"
    " other copies are left, have them replicated (`bookkeeper shell recover`).",
    unless="Where every entry has a copy on a known bookie it is a warning.",
    evidence={"bookie": str, "ledgers": int, "without_copy": int, "some": list[int]},
)
UNREACHABLE: Final = Code(
    "bookie-unreachable",
    Severity.ERROR,
    "A bookie that ledgers lie on and that is not registered",
    means="The bookie has a cookie, and is not among those that run. What it holds is not lost.",
    broker="It reads from other copies; where there are none reading waits until the bookie is back.",
    errors=("Bookie handle is not available", "BKNotEnoughBookiesException"),
    comes="The bookie is stopped, or cannot reach the store.",
    cure="Start it. If its disks are lost, have its ledgers replicated from other copies (`bookkeeper shell"
    " recover`).",
    unless="Where no bookie is registered at all the cluster is stopped: a note. A warning where every"
    " entry has a copy on a bookie that runs.",
    evidence={"bookies": list[str], "bookie": str, "ledgers": int, "without_other_copy": int},
)
CODES: Final = (UNKNOWN, UNREACHABLE)
# So many ledgers are named in a finding.
NAMED: Final = 10


@dataclass(slots=True)
class _Bookie:
    """The ledgers that a bookie has some of; of `alone` some entries have no other copy."""

    ledgers: int = 0
    alone: int = 0
    some: list[int] = field(default_factory=list)


def bookie_findings(store: Store, cluster: Cluster, listing: Listing) -> Iterator[Finding]:
    """Yield a finding for each bookie that is not known, or not running."""
    if not cluster.cookies:
        return
    members = {one for found, _ in listing.ensembles() for one in found.all}
    unknown = members - cluster.cookies
    stopped = members - unknown - cluster.registered
    for bookie, held in _held(listing, unknown, unknown).items():
        yield _unknown(store, bookie, held)
    if stopped and not cluster.registered:
        yield UNREACHABLE.found(
            f"none of {len(cluster.cookies)} bookies is registered: the cluster was stopped",
            severity=Severity.NOTE,
            path=AVAILABLE.rstrip("/"),
            evidence={"bookies": sorted(stopped)[:NAMED]},
        )
        return
    for bookie, held in _held(listing, stopped, stopped | unknown).items():
        yield _stopped(bookie, held)


def _stopped(bookie: str, held: _Bookie) -> Finding:
    text = f"{held.ledgers} ledgers lie on the bookie {bookie}, which is not running"
    text += f"; {held.alone} of them have entries on no other that is" if held.alone else ""
    return UNREACHABLE.found(
        text,
        severity=Severity.ERROR if held.alone else Severity.WARNING,
        path=f"{COOKIES}{bookie}",
        evidence={"bookie": bookie, "ledgers": held.ledgers, "without_other_copy": held.alone},
    )


def _held(listing: Listing, wanted: set[str], gone: set[str]) -> dict[str, _Bookie]:
    found: dict[str, _Bookie] = {}
    for members, ids in listing.ensembles() if wanted else ():
        alone = members.without_copy(gone)
        for bookie in sorted(members.all & wanted):
            held = found.setdefault(bookie, _Bookie())
            held.ledgers += len(ids)
            held.alone += len(ids) if alone else 0
            held.some += ids[: NAMED - len(held.some)].tolist()
    return found


def _unknown(store: Store, bookie: str, held: _Bookie) -> Finding:
    text = f"{held.ledgers} ledgers lie on the bookie {bookie}, of which there is no cookie"
    text += f"; {held.alone} of them have entries that no known bookie has" if held.alone else ""
    where: dict[str, object] = {"path": f"{COOKIES}{bookie}"}
    if held.ledgers == 1:
        ledger_id = held.some[0]
        owner = read_facts(store, [ledger_id])[ledger_id].owner
        where = {"path": ledger_path(ledger_id), "ledger_id": ledger_id}
        if owner is not None and "://" in owner.name:
            where |= {"topic": owner.name, "cursor": owner.cursor}
    evidence = {"bookie": bookie, "ledgers": held.ledgers, "without_copy": held.alone, "some": held.some}
    return UNKNOWN.found(
        text,
        severity=Severity.ERROR if held.alone else Severity.WARNING,
        evidence=evidence,
        **where,
    )
