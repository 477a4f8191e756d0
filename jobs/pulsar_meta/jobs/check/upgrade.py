"""Whether a store can go to another release, up or down: one verdict, with all that decides it.

Three kinds of reasons. Forms: what lies in the store that brokers of the release do not know, by the table of
`rewrite.releases`, which says of each row whether it was run or only read. Wounds: a change of release loads
every topic anew, and what loading destroys should be repaired before. Unfinished things: they end under
brokers of another release than they began with.

A verdict is `not-safe` where one reason is, else `unknown` where one is, else `safe`; a `note` decides
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.cursor import decode_cursor
from pulsar_meta.codecs.metadata.ledger_metadata import HEADER
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, SCALABLE_TOPICS, TopicName, ledger_of_path
from pulsar_meta.codecs.transactions.log_entries import log_kind
from pulsar_meta.codecs.transactions.snapshots import snapshot_kind
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.facts import STATES
from pulsar_meta.jobs.check.known import CheckOptions
from pulsar_meta.jobs.check.passes import Passes
from pulsar_meta.jobs.check.records import LEFTOVER, UNREADABLE
from pulsar_meta.jobs.check.run import Checkup, checkup
from pulsar_meta.jobs.check.tiered import UNFINISHED
from pulsar_meta.jobs.rewrite.guards import MIGRATION, check_flag
from pulsar_meta.jobs.rewrite.readable import Readability, registered_versions
from pulsar_meta.jobs.rewrite.releases import TRIED, Form, Verdict, is_release, parse_version, verdict_of
from pulsar_meta.jobs.topics.owners import bucket_ledgers
from pulsar_meta.jobs.topics.topic import Topic, topic_of
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.rocksdb import database_of
from pulsar_meta.stores.rocksdb_tables import table_formats

Decision = Literal["not-safe", "unknown", "note"]
# So many places are named of each reason.
PLACES: Final = 10
UNDER_REPLICATED: Final = f"{LEDGERS}/underreplication/ledgers"
TRANSACTIONS: Final = "/txn/id"
_OVER: Final = ("COMMITTED", "ABORTED")
# Those that every release has an offloader for: a file of its own beside the broker, of the same release.
_DRIVERS: Final = ("aws-s3", "google-cloud-storage", "filesystem")
_ROCKSDB: Final = "rocksdb:"
_SEGMENTED: Final = ("indexes", "segment")

# What a form is, and the way out.
_FORMS: Final[dict[Form, tuple[str, str]]] = {
    Form.LEDGER: ("compressed records of topics", "compress-ledgers --compression none"),
    Form.CURSOR: ("compressed cursors", "compress-cursors --compression none"),
    Form.CURSOR_WITH_PROPERTIES: (
        "compressed cursors with properties",
        "compress-cursors --compression none --only-with-properties, and no managedCursorInfoCompressionType",
    ),
    Form.BIT_SETS: (
        "single acknowledgements as bit sets in cursors' ledgers",
        "convert-cursor --to ranges, once the brokers are stopped",
    ),
    Form.LEDGER_PROPERTIES: (
        "properties of ledgers (PIP-404), which may be dropped at the next write of the record",
        "note them (properties --all); build-index makes an index again",
    ),
    Form.SEGMENTED_SNAPSHOTS: (
        "segmented snapshots of transaction buffers: aborted transactions would count as committed",
        "transactionBufferSegmentedSnapshotEnabled=false, and new snapshots, before",
    ),
    Form.BATCHED_LOG: (
        "logs of transactions, which may have records in batches",
        "transactionLogBatchedWriteEnabled=false, transactionPendingAckBatchedWriteEnabled=false long before",
    ),
    Form.BUCKETS: (
        "indexes of delayed messages in ledgers: the messages are delivered, the ledgers stay",
        "",
    ),
    Form.SHADOW: (
        "shadow topics, which would be taken for owners of their sources' ledgers and trim them",
        "delete the shadows before",
    ),
    Form.SCALABLE: ("scalable topics and their segments, which no client could reach", "none is known"),
    Form.TRANSACTION_RECORDS: (
        "transactions that the store has as records and that are not over",
        "end them before",
    ),
    Form.V1_NAME: (
        "topics with V1 names (tenant/cluster/namespace)",
        "copy them to topics with V2 names before",
    ),
    Form.BOOKKEEPER_3: ("metadata of ledgers in BookKeeper's third form", "none is known"),
    Form.ROCKSDB_6: (
        "tables of RocksDB in a format that the release's RocksDB does not open",
        "snapshot, and restore into a database that the release made",
    ),
}


class UpgradeReason(TypedDict):
    """What decides about an upgrade; `places` are ten at most, `count` all of them."""

    reason: str
    verdict: Decision
    message: str
    count: NotRequired[int]
    places: NotRequired[list[str]]
    cure: NotRequired[str]


# `from`, which is no name of Python's: the releases of the brokers that are registered.
UpgradeVerdict = TypedDict(
    "UpgradeVerdict",
    {
        "version": str,
        "from": list[str],
        "verdict": Literal["safe", "not-safe", "unknown"],
        "reasons": list[UpgradeReason],
    },
)


@dataclass(slots=True)
class _Reason:
    """Something that decides, and where it was seen."""

    decision: Decision
    message: str
    cure: str = ""
    count: int = 0
    places: list[str] = field(default_factory=list)

    def seen(self, place: str, count: int = 1) -> None:
        self.count += count
        if place and len(self.places) < PLACES:
            self.places.append(place)


@dataclass(slots=True)
class Upgrade:
    """The survey of a store before it goes to another release.

    `run` is the check of the store; `not_checked` has, beside what that left out, what was not seen here.
    """

    version: str
    run: Checkup
    source: EntrySource | None
    advance: Callable[[int], None] = lambda count: None
    records: int = 0
    _reasons: dict[str, _Reason] = field(default_factory=dict)

    @property
    def not_checked(self) -> dict[str, str]:
        """What was left out, and why."""
        return self.run.not_checked

    def verdict(self) -> UpgradeVerdict:
        """Look at everything, and return what it comes to; UnreachableError."""
        here = registered_versions(self.run.store)
        self._of_release(here)
        self._findings(self.run.findings())
        self._unreadable()
        for record in self.run.store.scan(MANAGED_LEDGERS):
            self.advance(1)
            self._managed(record)
        self._ledgers()
        self._rest_of_store()
        return {
            "version": self.version,
            "from": list(here),
            "verdict": self._decided(),
            "reasons": [self._document(name) for name in sorted(self._reasons, key=self._order)],
        }

    def _decided(self) -> Literal["safe", "not-safe", "unknown"]:
        decisions = {reason.decision for reason in self._reasons.values()}
        if "not-safe" in decisions:
            return "not-safe"
        return "unknown" if "unknown" in decisions else "safe"

    def _order(self, name: str) -> tuple[int, str]:
        return ("not-safe", "unknown", "note").index(self._reasons[name].decision), name

    def _document(self, name: str) -> UpgradeReason:
        reason = self._reasons[name]
        found: UpgradeReason = {"reason": name, "verdict": reason.decision, "message": reason.message}
        if reason.count:
            found |= {"count": reason.count, "places": reason.places}
        if reason.cure:
            found["cure"] = reason.cure
        return found

    def _add(self, name: str, decision: Decision, message: str, place: str = "", *, cure: str = "") -> None:
        reason = self._reasons.setdefault(name, _Reason(decision, message, cure))
        reason.seen(place, 1 if place else 0)

    def _of_release(self, here: Sequence[str]) -> None:
        """Whether anything is known of the release, and of the step to it from those that run."""
        number = parse_version(self.version)
        if not TRIED[0] <= number <= TRIED[1]:
            self._add(
                "release-untried",
                "unknown",
                f"no release before {_text(TRIED[0])} or after {_text(TRIED[1])} was tried: what Pulsar"
                f" {self.version} makes of this store nobody here knows",
            )
        for one in (one for one in here if is_release(one)):
            if not is_live_step(parse_version(one)[:2], number[:2]):
                self._add(
                    "release-step",
                    "unknown",
                    f"the project promises no step from a running {one} to {self.version}: from 3.0 on from"
                    " one long-term release to the next, before through each release (its release policy)",
                    one,
                )

    def _form(self, form: Form, place: str) -> None:
        """Note a form, if the release does not surely know it."""
        verdict, evidence = verdict_of(form, self.version)
        if verdict is Verdict.LOADS or (verdict is Verdict.UNKNOWN and "release-untried" in self._reasons):
            return
        what, cure = _FORMS[form]
        decision: Decision = "not-safe" if verdict is Verdict.CANNOT_LOAD else "unknown"
        if form is Form.BUCKETS:
            decision = "note"
        if form is Form.BATCHED_LOG:
            # Whether there are batches in them was not read.
            decision = "unknown"
        self._add(str(form), decision, f"{what}: {evidence}", place, cure=cure)

    def _findings(self, findings: Iterable[Finding]) -> None:
        """What is wrong anyway: errors, and what has not ended."""
        for one in findings:
            place = one.topic or one.path or str(one.ledger_id)
            if one.code in (LEFTOVER.name, UNFINISHED.name):
                self._add(one.code, "note", "begun and not ended: see `check`", place)
            elif one.severity is Severity.ERROR and one.code != UNREADABLE.name:
                text = "see `check`: every topic is loaded anew, by brokers that may treat it otherwise"
                self._add(one.code, "not-safe", text, place, cure=one.repair or "repair it before")

    def _unreadable(self) -> None:
        """Records that the release cannot load, by the rules of check-readable."""
        found = Readability(self.source)
        for document in found.documents(self.run.store.scan(MANAGED_LEDGERS), (self.version,)):
            name = str(document["form"])
            if name == "undecodable":
                continue
            what, cure = _FORMS[Form(name)]
            decision: Decision = "not-safe" if document["verdict"] == Verdict.CANNOT_LOAD else "unknown"
            place = document["topic"] + (f" {document['cursor']}" if "cursor" in document else "")
            self._add(name, decision, f"{what}: {document['reason']}", place, cure=cure)
        self.records = found.topics + found.cursors
        if found.in_ledgers and verdict_of(Form.BIT_SETS, self.version)[0] is not Verdict.LOADS:
            why = "give --entries" if self.source is None else "no source has their last entries"
            reason = self._reasons.setdefault(
                "cursor-states-unseen",
                _Reason(
                    "unknown",
                    "cursors whose state lies in their ledger, and may have bit sets there, which"
                    f" {self.version} does not know ({why})",
                    _FORMS[Form.BIT_SETS][1],
                ),
            )
            reason.seen("", found.in_ledgers)

    def _managed(self, record: Versioned) -> None:
        place = managed_place(record.path, record.value)
        if place is None:
            return
        name, cursor = place
        # What cannot be decoded is among the findings.
        with suppress(DecodeError):
            if cursor is None:
                self._topic(name, topic_of(record))
            elif next(bucket_ledgers(decode_cursor(record.value)), None) is not None:
                self._form(Form.BUCKETS, f"{name} {cursor}")

    def _topic(self, name: TopicName, topic: Topic) -> None:
        text = str(name)
        if name.cluster is not None:
            self._form(Form.V1_NAME, text)
        if name.domain != "persistent":
            self._form(Form.SCALABLE, text)
        if self.run.cluster.shadows.of(name, topic.properties) is not None:
            self._form(Form.SHADOW, text)
        if any(ledger.properties for ledger in topic.ledgers):
            self._form(Form.LEDGER_PROPERTIES, text)
        if snapshot_kind(text) in _SEGMENTED:
            self._form(Form.SEGMENTED_SNAPSHOTS, text)
        if log_kind(text) is not None:
            self._form(Form.BATCHED_LOG, text)
        for driver in dict.fromkeys(one.offload.driver for one in topic.ledgers if one.offload is not None):
            self._driver(driver, text)

    def _driver(self, driver: str, place: str) -> None:
        if driver in _DRIVERS:
            text = f"ledgers in tiered storage ({driver}): brokers need the offloader of {self.version}"
            self._add(f"offload-{driver}", "note", text, place)
        else:
            text = f"ledgers in tiered storage by {driver or 'no driver that is named'}, which nobody tried"
            self._add("offload-driver", "unknown", f"{text} with {self.version}", place)

    def _ledgers(self) -> None:
        """The forms of BookKeeper's metadata, and what of its own work is not over."""
        if not self.run.cluster.bookkeeper:
            self._add("ledgers-unseen", "unknown", "this store has no ledger's metadata: it lies elsewhere")
            return
        third = HEADER + b"3\n"
        for record in self.run.store.scan(LEDGERS):
            self.advance(1)
            if record.value.startswith(third) and ledger_of_path(record.path) is not None:
                self._form(Form.BOOKKEEPER_3, record.path)
        listing = self.run.listing
        recovering = listing.ids[listing.states == STATES.index("IN_RECOVERY")]
        for ledger_id in recovering.tolist():
            text = "ledgers that somebody began to recover: whoever opens them next ends it"
            self._add("ledgers-in-recovery", "note", text, f"ledger {ledger_id}")
        marked = [one for one in self.run.store.scan(UNDER_REPLICATED) if _is_marked(one)]
        for record in marked:
            text = (
                "ledgers that BookKeeper has still to copy: let it end before bookies are stopped one by one"
            )
            self._add("replication-unfinished", "unknown", text, record.path)

    def _rest_of_store(self) -> None:
        """Scalable topics and transactions of Pulsar 5, a change of the store, the store's own format."""
        store = self.run.store
        for record in store.scan(SCALABLE_TOPICS):
            if record.value:
                self._form(Form.SCALABLE, record.path)
        for record in store.scan(TRANSACTIONS):
            if _is_open(record.value):
                self._form(Form.TRANSACTION_RECORDS, record.path)
        with suppress(NotFoundError):
            try:
                check_flag(store.read(MIGRATION).value, "this store", "end that first")
            except GuardError as error:
                self._add("store-migration", "not-safe", error.message, MIGRATION)
        if store.url.startswith(_ROCKSDB) and 6 in table_formats(database_of(store.url)):
            self._form(Form.ROCKSDB_6, store.url)


def survey(
    store: Store,
    source: EntrySource | None,
    version: str,
    options: CheckOptions,
    advance: Callable[[int], None] = lambda count: None,
    *,
    urls: Sequence[str] = (),
    passes: Passes | None = None,
) -> Upgrade:
    """Return the survey of a whole store before it goes to `version`; the others are those of `checkup`.

    UsageError, UnreachableError.
    """
    parse_version(version)
    run = checkup(store, source, (), options, advance, urls=urls, passes=passes)
    return Upgrade(version, run, source, advance)


def is_live_step(before: Sequence[int], after: Sequence[int]) -> bool:
    """Return whether the project promises that running brokers can go from one release line to another.

    Both are (major, minor). Source: apache/pulsar's release policy.
    """
    low, high = sorted((tuple(before), tuple(after)))
    if low < (3, 0):
        lines = [(2, minor) for minor in range(12)] + [(3, 0)]
        return low in lines and high in lines and lines.index(high) - lines.index(low) <= 1
    return high[0] - low[0] <= 1


def _text(version: tuple[int, int, int, int]) -> str:
    return ".".join(map(str, version[:3])) + ("" if version[3] else "-M1")


def _is_marked(record: Versioned) -> bool:
    return record.path.rpartition("/")[2].startswith("urL")


def _is_open(value: bytes) -> bool:
    """Return whether a transaction is not over, or says nothing that can be read."""
    if not value:
        return False
    with suppress(DecodeError):
        return read_json_object(value).get("state") not in _OVER
    return True
