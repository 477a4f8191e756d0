"""Problems of a whole cluster: bookies, cookies, system topics, the generator of ledger ids.

Sources: apache/bookkeeper Cookie.java (verify), AbstractZkLedgerManager (ledgerListToSet),
LegacyCookieValidation, ZKRegistrationManager, RoundRobinDistributionSchedule; apache/pulsar
PulsarRegistrationManager, SystemTopicBasedTopicPoliciesService, PulsarLedgerIdGenerator. Tested with 4.0.7
and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pulsar_meta.access.files import read_regular
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.ledger_metadata import Cookie, decode_cookie
from pulsar_meta.codecs.names import LEDGERS, SHORT_LEDGER_LIMIT, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_layout import LARGEST_COOKIE, BookieLayout
from pulsar_meta.jobs.check.broker_records import BROKERS, OWNERS
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.check.context import Context
from pulsar_meta.jobs.check.foreign_disks import INSTANCE_ID
from pulsar_meta.jobs.check.ledger_facts import read_facts
from pulsar_meta.jobs.check.ledger_index import AVAILABLE, COOKIES, BookieRecords, LedgerIndex
from pulsar_meta.jobs.check.topic_view import TopicView
from pulsar_meta.jobs.values.places import IDGEN
from pulsar_meta.stores.base import Store

# The most ledgers or bookies that a finding names.
_NAMED: Final = 10
LAYOUT: Final = f"{LEDGERS}/LAYOUT"
# Sources: apache/bookkeeper LedgerLayout.parseLayout.
_LAYOUT_VERSIONS: Final = (1, 2)
_WITH_SESSIONS: Final = ("zk", "zk-files", "etcd", "rocksdb")
_SYSTEM_TOPICS: Final = (
    "__change_events",
    "__transaction_buffer_snapshot",
    "__transaction_log_",
    "__transaction_pending_ack",
)
# Errors of a topic that its broker loads nevertheless.
_LOADS_WITH: Final = (
    *("compaction-pointer-lost", "compaction-horizon-differs"),
    *("transaction-coordinator-missing", "transaction-ids-behind"),
)
_COOKIE_FIELDS: Final = ("bookieHost", "journalDir", "ledgerDirs", "indexDirs", "instanceId")


@dataclass(slots=True)
class _BookieLedgers:
    """The ledgers of a bookie: how many there are, how many have entries without another copy, some ids."""

    count: int = 0
    without_copy: int = 0
    some: list[int] = field(default_factory=list)


def bookie_findings(store: Store, context: Context, index: LedgerIndex) -> Iterator[Finding]:
    """Yield a finding for each bookie with ledgers that is not known, or not running."""
    if not context.cookies:
        return
    members = {bookie for each, _ in index.ensembles() for bookie in each.all}
    unknown = members - context.cookies
    stopped = members - unknown - context.registered
    for bookie, ledgers in _ledgers_of(index, unknown, unknown).items():
        yield _unknown(store, bookie, ledgers)
    if stopped and not context.registered:
        yield finding(
            "bookie-unreachable",
            "no bookie is registered, so the cluster is stopped",
            severity=Severity.NOTE,
            path=AVAILABLE.rstrip("/"),
            evidence={"bookies": sorted(stopped)[:_NAMED]},
        )
        return
    for bookie, ledgers in _ledgers_of(index, stopped, stopped | unknown).items():
        yield _stopped(bookie, ledgers)


def _stopped(bookie: str, ledgers: _BookieLedgers) -> Finding:
    text = f"the bookie {bookie} has {ledgers.count} ledgers and is not running"
    text += (
        f"; {ledgers.without_copy} of them have entries on no running bookie" if ledgers.without_copy else ""
    )
    return finding(
        "bookie-unreachable",
        text,
        severity=Severity.ERROR if ledgers.without_copy else Severity.WARNING,
        path=f"{COOKIES}{bookie}",
        evidence={"bookie": bookie, "ledgers": ledgers.count, "without_other_copy": ledgers.without_copy},
    )


def _ledgers_of(index: LedgerIndex, bookies: set[str], gone: set[str]) -> dict[str, _BookieLedgers]:
    found: dict[str, _BookieLedgers] = {}
    for members, ids in index.ensembles() if bookies else ():
        without_copy = members.without_copy(gone)
        for bookie in sorted(members.all & bookies):
            ledgers = found.setdefault(bookie, _BookieLedgers())
            ledgers.count += len(ids)
            ledgers.without_copy += len(ids) if without_copy else 0
            ledgers.some += ids[: _NAMED - len(ledgers.some)].tolist()
    return found


def _unknown(store: Store, bookie: str, ledgers: _BookieLedgers) -> Finding:
    text = f"the bookie {bookie} has {ledgers.count} ledgers and no cookie"
    text += (
        f"; {ledgers.without_copy} of them have entries on no known bookie" if ledgers.without_copy else ""
    )
    place: dict[str, object] = {"path": f"{COOKIES}{bookie}"}
    if ledgers.count == 1:
        ledger_id = ledgers.some[0]
        owner = read_facts(store, [ledger_id])[ledger_id].owner
        place = {"path": ledger_path(ledger_id), "ledger_id": ledger_id}
        if owner is not None and "://" in owner.name:
            place |= {"topic": owner.name, "cursor": owner.cursor}
    evidence = {
        "bookie": bookie,
        "ledgers": ledgers.count,
        "without_copy": ledgers.without_copy,
        "some": ledgers.some,
    }
    severity = Severity.ERROR if ledgers.without_copy else Severity.WARNING
    return finding("bookie-unknown", text, severity=severity, evidence=evidence, **place)


def cookie_findings(disks: Sequence[BookieLayout], around: BookieRecords) -> Iterator[Finding]:
    """Yield the directories of these disks whose cookie differs from the store's."""
    for bookie in disks if around.cookies or INSTANCE_ID in around.other else ():
        for directory in dict.fromkeys((*bookie.ledger_dirs, *bookie.index_dirs, *bookie.journal_dirs)):
            try:
                cookie = _cookie_on_disk(directory)
            except DecodeError as error:
                yield _broken_cookie(directory, error)
                continue
            if cookie is not None and cookie.fields.bookieHost:
                yield from _compare_cookie(cookie, directory, around)


def _broken_cookie(directory: Path, error: DecodeError) -> Finding:
    text = f"the file VERSION can't be decoded, so the bookie does not start with this disk: {error.message}"
    return finding("cookie-differs", text, path=str(directory), evidence={"directory": str(directory)})


def _compare_cookie(cookie: Cookie, directory: Path, around: BookieRecords) -> Iterator[Finding]:
    name = cookie.fields.bookieHost
    path = f"{COOKIES}{name}"
    record = around.other.get(path)
    if record is None:
        text = f"the disk belongs to bookie {name}, for which the store has no cookie"
        yield finding("cookie-differs", text, path=path, evidence={"directory": str(directory)})
        return
    try:
        stored = decode_cookie(record.value).fields
    except DecodeError:
        # The record is reported on its own.
        return
    wrong = [name for name in _COOKIE_FIELDS if getattr(stored, name) != getattr(cookie.fields, name)]
    instance = around.other.get(INSTANCE_ID)
    held = "" if instance is None else instance.value.decode("utf-8", "replace")
    if cookie.fields.instanceId not in ("", held):
        # Without a record, a starting cluster makes a new id.
        wrong.append("INSTANCEID")
    if wrong:
        yield finding(
            "cookie-differs",
            f"the cookie on the disk differs from the store's: {', '.join(dict.fromkeys(wrong))}",
            path=path,
            evidence={"directory": str(directory), "fields": wrong, "disk": cookie.fields.instanceId},
        )


def record_findings(around: BookieRecords) -> Iterator[Finding]:
    """Yield the cookies in the store, and the layout, that can't be decoded."""
    for path, record in around.other.items():
        try:
            if path.startswith(COOKIES):
                decode_cookie(record.value)
            elif path == LAYOUT:
                _check_layout(record.value)
        except DecodeError as error:
            text = f"{error.message}: bookies don't start with it"
            yield finding("record-undecodable", text, path=path, evidence={"size": len(record.value)})


def unknown_paths(store: Store, around: BookieRecords) -> Iterator[Finding]:
    """Yield the first records below `/ledgers` that BookKeeper does not read, if they are still there."""
    for record in filter(None, store.read_many(list(around.unknown))):
        yield finding(
            "record-undecodable",
            "its path is neither that of a ledger nor that of another record of BookKeeper, which ignores it"
            " or takes it for a ledger with another number",
            severity=Severity.NOTE,
            path=record.path,
            evidence={"size": len(record.value)},
        )


def _check_layout(value: bytes) -> None:
    """Check for a version in the first line, and a ledger manager with its version in the second."""
    lines = value.decode("utf-8", "replace").split("\n")
    manager, _, version = lines[1].rpartition(":") if len(lines) > 1 else ("", "", "")
    if not (lines[0].isdecimal() and manager and version.isdecimal()):
        raise DecodeError("not the layout of ledgers in a store")
    if int(lines[0]) not in _LAYOUT_VERSIONS:
        raise DecodeError(f"its layout has version {lines[0]}, and BookKeeper knows 1 and 2")


def _cookie_on_disk(directory: Path) -> Cookie | None:
    """Return the cookie of a directory, None without one. Raises DecodeError."""
    try:
        return decode_cookie(read_regular(directory / "VERSION", LARGEST_COOKIE))
    except OSError:
        # A directory without a cookie was recognized by its files, and there is nothing to compare.
        return None


def registration_findings(store: Store, around: BookieRecords) -> Iterator[Finding]:
    """Yield registrations of brokers and bookies that don't end with their session.

    Only stores that mark records of sessions are checked.
    """
    if store.url.partition(":")[0] not in _WITH_SESSIONS:
        return
    brokers = store.read_many([f"{BROKERS}{name}" for name in store.children(BROKERS.rstrip("/"))])
    bookies = (record for path, record in around.other.items() if path.startswith(AVAILABLE))
    owners = (record for record in store.scan(OWNERS) if record.value)
    for record in (*filter(None, brokers), *bookies, *owners):
        if not record.ephemeral and not record.path.endswith("/readonly"):
            yield finding(
                "registration-persistent",
                "it does not belong to a session, so it stays when its broker or bookie stops",
                path=record.path,
                evidence={"size": len(record.value)},
            )


def is_system(view: TopicView) -> bool:
    """Return True if brokers read the topic when they load other topics."""
    return any(part in view.name.local for part in _SYSTEM_TOPICS)


def blocked(view: TopicView, findings: Sequence[Finding], store: Store) -> Iterator[Finding]:
    """Yield a finding for the namespace if there are errors in a system topic."""
    errors = [each for each in findings if each.severity is Severity.ERROR and each.code not in _LOADS_WITH]
    if not errors or not is_system(view):
        return
    topics = len(store.children(view.path.rpartition("/")[0]))
    name = view.name.namespace_name
    last = view.ledgers[-1].ledger_id if view.ledgers else None
    outdated = last is not None and all(
        each.code == "ledger-without-metadata" and each.ledger_id == last for each in errors
    )
    effect = "they load with its state before its last ledger" if outdated else "they may not load"
    yield finding(
        "system-topic-unreadable",
        f"brokers read it when they load topics of {name}, which has {topics}: {effect}",
        evidence={"namespace": name, "topics": topics, "because": errors[0].code},
        **view.place(),
    )


def older_store(store: Store, source: EntrySource, index: LedgerIndex) -> Iterator[Finding]:
    """Yield a finding if disks have ledgers that the store doesn't know, with ids that are still to come."""
    following = None if store.origin else store.next_sequence(IDGEN)
    if following is None or any(part.bookies is None for part in source.parts):
        return
    if len(index) and following <= int(index.ids[-1]):
        # Only the generator was set back.
        return
    above = [
        ledger_id
        for ledger_id in source.ledgers()
        if following <= ledger_id < SHORT_LEDGER_LIMIT and index.facts(ledger_id).metadata == "absent"
    ]
    if above:
        yield finding(
            "store-older-than-disks",
            f"the next id of the store is {following}, but the disks have ledgers up to {above[-1]}: it is"
            " from before they were created",
            path=IDGEN,
            evidence={"highest": above[-1], "next": following, "ledgers": len(above)},
        )


def generator(store: Store, index: LedgerIndex) -> Iterator[Finding]:
    """Yield a finding if ids are in use that the generator has not issued, reading it after the ledgers."""
    if store.origin or not len(index):
        return
    ids = index.ids
    short = ids[ids < SHORT_LEDGER_LIMIT]
    following = store.next_sequence(IDGEN)
    if following is None or not len(short) or len(short) < len(ids):
        return
    highest = int(short[-1])
    if following <= highest:
        yield finding(
            "ledger-id-ahead",
            f"the next ledger would get id {following}, but {highest} exists: free ids below it would be used"
            " again",
            path=IDGEN,
            evidence={"next": following, "highest": highest},
        )
