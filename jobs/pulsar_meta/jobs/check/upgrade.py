"""The verdict about upgrading or downgrading a store to another release, with its reasons.

There are three kinds of reasons. Formats: records that brokers of the release don't know, by the table in
`rewrite.readable`, which notes for each row if it was tested or only read in the source. Damage: a change of
release loads every topic again, so damage that loading makes permanent should be repaired before. Unfinished
work: it would end under brokers of another release than it began with.

The verdict is `not-safe` if one reason is, else `unknown` if one is, else `safe`. A `note` does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.envelope import decode_cursor, managed_place
from pulsar_meta.codecs.metadata.ledger_metadata import HEADER
from pulsar_meta.codecs.names import (
    LEDGERS,
    MANAGED_LEDGERS,
    SCALABLE_TOPICS,
    TopicName,
    ledger_of_path,
    log_kind,
    snapshot_kind,
)
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.checkup import Checkup, checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.check.ledger_facts import STATES
from pulsar_meta.jobs.check.release_changes import (
    FORMS,
    SOURCES,
    Change,
    Decision,
    Reason,
    cluster_reasons,
    cursor_reason,
    source_of,
    topic_reason,
)
from pulsar_meta.jobs.check.scan import Passes
from pulsar_meta.jobs.rewrite.guards import MIGRATION, check_flag
from pulsar_meta.jobs.rewrite.readable import (
    TRIED,
    Form,
    Readability,
    Verdict,
    is_release,
    parse_version,
    registered_versions,
    verdict_of,
    version_text,
)
from pulsar_meta.jobs.topics.owners import bucket_ledgers
from pulsar_meta.jobs.topics.topic import Topic, topic_of
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.rocksdb import database_of, table_formats

Overall = Literal["safe", "not-safe", "unknown"]
# The most places that a reason names.
PLACES: Final = 10
UNDER_REPLICATED: Final = f"{LEDGERS}/underreplication/ledgers"
TRANSACTIONS: Final = "/txn/id"
_OVER: Final = ("COMMITTED", "ABORTED")
# Drivers that every release has an offloader for, which is a separate file of the same release.
_DRIVERS: Final = ("aws-s3", "google-cloud-storage", "filesystem")
_ROCKSDB: Final = "rocksdb:"
_SEGMENTED: Final = ("indexes", "segment")
# The reasons about the whole cluster are the first of their kind.
_FIRST: Final = ("store-unsupported", "store-migration", "release-untried")


class UpgradeReason(TypedDict):
    """A reason for or against an upgrade; `count` is the number of places, `places` names at most ten."""

    reason: str
    verdict: Decision
    message: str
    source: str
    count: NotRequired[int]
    places: NotRequired[list[str]]
    cure: NotRequired[str]


# `from`, which is a keyword in Python, has the releases of the registered brokers.
UpgradeVerdict = TypedDict(
    "UpgradeVerdict",
    {
        "version": str,
        "from": list[str],
        "verdict": Overall,
        "summary": str,
        "reasons": list[UpgradeReason],
    },
)


@dataclass(slots=True)
class _Reason:
    """A reason with the places that it was found at."""

    decision: Decision
    message: str
    cure: str = ""
    source: str = ""
    count: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, place: str, count: int = 1) -> None:
        self.count += count
        if place and len(self.places) < PLACES:
            self.places.append(place)


@dataclass(slots=True)
class Upgrade:
    """The survey of a store before a change of release; `run` is the check of the store."""

    version: str
    run: Checkup
    source: EntrySource | None
    advance: Callable[[int], None] = lambda count: None
    records: int = 0
    _reasons: dict[str, _Reason] = field(default_factory=dict)
    _change: Change = field(init=False)

    @property
    def not_checked(self) -> dict[str, str]:
        """Everything that was not checked, with the reasons."""
        return self.run.not_checked

    def verdict(self) -> UpgradeVerdict:
        """Check the store and return the verdict. Raises UnreachableError."""
        here = registered_versions(self.run.store)
        self._change = Change(self.run.store, self.version, here)
        self._of_release(here)
        self._findings(self.run.findings())
        self._unreadable()
        for record in self.run.store.scan(MANAGED_LEDGERS):
            self.advance(1)
            self._managed(record)
        self._ledgers()
        self._of_cluster()
        self._rest_of_store()
        self.not_checked["clients"] = "the store does not record their releases; topic stats do"
        reasons = [self._document(name) for name in sorted(self._reasons, key=self._order)]
        overall = self._overall()
        return {
            "version": self.version,
            "from": list(here),
            "verdict": overall,
            "summary": summary(overall, self.version, here, reasons),
            "reasons": reasons,
        }

    def _of_cluster(self) -> None:
        """Add what the release removed or changed."""
        for reason in cluster_reasons(self._change):
            self._note(reason)

    def _note(self, reason: Reason | None) -> None:
        if reason is not None:
            name, text = reason.name, reason.message
            self._add(name, reason.decision, text, reason.place, cure=reason.cure, source=reason.source)

    def _overall(self) -> Overall:
        decisions = {reason.decision for reason in self._reasons.values()}
        if "not-safe" in decisions:
            return "not-safe"
        return "unknown" if "unknown" in decisions else "safe"

    def _order(self, name: str) -> tuple[int, bool, str]:
        decision = self._reasons[name].decision
        return ("not-safe", "unknown", "note").index(decision), name not in _FIRST, name

    def _document(self, name: str) -> UpgradeReason:
        reason = self._reasons[name]
        document: UpgradeReason = {
            "reason": name,
            "verdict": reason.decision,
            "message": reason.message,
            "source": reason.source or source_of(name, reason.message),
        }
        if reason.count:
            document |= {"count": reason.count, "places": reason.places}
        if reason.cure:
            document["cure"] = reason.cure
        return document

    def _add(
        self,
        name: str,
        decision: Decision,
        message: str,
        place: str = "",
        *,
        cure: str = "",
        source: str = "",
    ) -> None:
        reason = self._reasons.setdefault(name, _Reason(decision, message, cure, source))
        reason.add(place, 1 if place else 0)

    def _of_release(self, here: Sequence[str]) -> None:
        """Check if the release, and the step to it from the running ones, were tested."""
        number = parse_version(self.version)
        if not TRIED[0] <= number <= TRIED[1]:
            self._add(
                "release-untried",
                "unknown",
                f"we tested releases from {version_text(TRIED[0])} to {version_text(TRIED[1])}, so it is"
                f" unknown if Pulsar {self.version} can read this store",
            )
        for running in filter(is_release, here):
            if not is_live_step(parse_version(running)[:2], number[:2]):
                self._add(
                    "release-step",
                    "unknown",
                    f"Pulsar's release policy does not support a live step from {running} to {self.version}:"
                    " since 3.0 you can step from one long-term release to the next, earlier through each",
                    running,
                )

    def _form(self, form: Form, place: str) -> None:
        """Add a format, unless the release certainly knows it."""
        verdict, evidence = verdict_of(form, self.version)
        if verdict is Verdict.LOADS or (verdict is Verdict.UNKNOWN and "release-untried" in self._reasons):
            return
        what, cure = FORMS[form]
        decision: Decision = "not-safe" if verdict is Verdict.CANNOT_LOAD else "unknown"
        if form is Form.BUCKETS:
            decision = "note"
        if form is Form.BATCHED_LOG:
            # The logs were not read, so they may have no batches.
            decision = "unknown"
        self._add(str(form), decision, f"{what}: {evidence}", place, cure=cure)

    def _findings(self, findings: Iterable[Finding]) -> None:
        """Add errors and unfinished work."""
        for finding in findings:
            place = finding.topic or finding.path or str(finding.ledger_id)
            if finding.code in ("leftover", "offload-unfinished"):
                source = f"`explain {finding.code}`"
                self._add(
                    finding.code, "note", "it began and did not finish, see `check`", place, source=source
                )
            elif finding.severity is Severity.ERROR and finding.code != "record-unreadable":
                text = "see `check`: every topic is loaded again, by brokers that may handle it differently"
                source = SOURCES.get(finding.code, f"`explain {finding.code}`")
                cure = finding.repair or "repair it first"
                self._add(finding.code, "not-safe", text, place, cure=cure, source=source)

    def _unreadable(self) -> None:
        """Add records that the release can't load, by the rules of check-readable."""
        readability = Readability(self.source)
        for document in readability.documents(self.run.store.scan(MANAGED_LEDGERS), (self.version,)):
            name = str(document["form"])
            if name == "undecodable":
                continue
            what, cure = FORMS[Form(name)]
            decision: Decision = "not-safe" if document["verdict"] == Verdict.CANNOT_LOAD else "unknown"
            place = document["topic"] + (f" {document['cursor']}" if "cursor" in document else "")
            self._add(name, decision, f"{what}: {document['reason']}", place, cure=cure)
        self.records = readability.topics + readability.cursors
        if readability.in_ledgers and verdict_of(Form.BIT_SETS, self.version)[0] is not Verdict.LOADS:
            why = "give --entries" if self.source is None else "no source has their last entries"
            reason = self._reasons.setdefault(
                "cursor-states-unseen",
                _Reason(
                    "unknown",
                    "cursors whose state is in their ledger and may have bit sets, which"
                    f" {self.version} does not know ({why})",
                    FORMS[Form.BIT_SETS][1],
                ),
            )
            reason.add("", readability.in_ledgers)

    def _managed(self, record: Versioned) -> None:
        place = managed_place(record.path, record.value)
        if place is None:
            return
        name, cursor = place
        # Records that can't be decoded are among the findings.
        with suppress(DecodeError):
            if cursor is None:
                self._topic(name, topic_of(record))
            else:
                self._cursor(f"{name} {cursor}", record.value)

    def _cursor(self, place: str, value: bytes) -> None:
        info = decode_cursor(value)
        if next(bucket_ledgers(info), None) is not None:
            self._form(Form.BUCKETS, place)
        reason = cursor_reason(self._change, place, value, info)
        if reason is not None:
            self._add(
                reason.name, reason.decision, reason.message, place, cure=reason.cure, source=reason.source
            )

    def _topic(self, name: TopicName, topic: Topic) -> None:
        text = str(name)
        if name.cluster is not None:
            self._form(Form.V1_NAME, text)
        if name.domain != "persistent":
            self._form(Form.SCALABLE, text)
        if self.run.context.shadows.of(name, topic.properties) is not None:
            self._form(Form.SHADOW, text)
        if any(ledger.properties for ledger in topic.ledgers):
            self._form(Form.LEDGER_PROPERTIES, text)
        if snapshot_kind(text) in _SEGMENTED:
            self._form(Form.SEGMENTED_SNAPSHOTS, text)
        if log_kind(text) is not None:
            self._form(Form.BATCHED_LOG, text)
        offloads = (ledger.offload for ledger in topic.ledgers)
        self._note(topic_reason(self._change, name))
        for driver in dict.fromkeys(offload.driver for offload in offloads if offload is not None):
            self._driver(driver, text)

    def _driver(self, driver: str, place: str) -> None:
        if driver in _DRIVERS:
            text = f"ledgers in tiered storage ({driver}): brokers need the offloader of {self.version}"
            self._add(f"offload-{driver}", "note", text, place)
        else:
            text = f"ledgers in tiered storage by {driver or 'an unnamed driver'}, which we did not test"
            self._add("offload-driver", "unknown", f"{text} with {self.version}", place)

    def _ledgers(self) -> None:
        """Add formats of BookKeeper's metadata, and its unfinished work."""
        if not self.run.context.bookkeeper:
            self._add(
                "ledgers-unseen", "unknown", "this store has no metadata of ledgers, which must be elsewhere"
            )
            return
        third = HEADER + b"3\n"
        for record in self.run.store.scan(LEDGERS):
            self.advance(1)
            if record.value.startswith(third) and ledger_of_path(record.path) is not None:
                self._form(Form.BOOKKEEPER_3, record.path)
        index = self.run.index
        recovering = index.ids[index.states == STATES.index("IN_RECOVERY")]
        for ledger_id in recovering.tolist():
            text = "ledgers whose recovery began: the next client that opens them completes it"
            self._add("ledgers-in-recovery", "note", text, f"ledger {ledger_id}")
        for record in filter(_is_marked, self.run.store.scan(UNDER_REPLICATED)):
            text = (
                "under-replicated ledgers: wait until BookKeeper has copied them before you stop"
                " bookies one by one"
            )
            self._add("replication-unfinished", "unknown", text, record.path)

    def _rest_of_store(self) -> None:
        """Add scalable topics, open transactions of Pulsar 5, a running migration, the store's format."""
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


def summary(overall: Overall, version: str, here: Sequence[str], reasons: Sequence[UpgradeReason]) -> str:
    """Return the verdict as a sentence with its first reason; `here` are the releases of running brokers."""
    releases = [parse_version(running) for running in filter(is_release, here)]
    moved = "downgraded" if releases and min(releases) > parse_version(version) else "upgraded"
    if overall == "safe":
        return f"This cluster can be {moved} to {version}, because no check found a reason against it"
    beginning = {
        "not-safe": f"This cluster cannot be {moved} to {version} as it is",
        "unknown": f"It is not known if this cluster can be {moved} to {version}",
    }[overall]
    against = [reason for reason in reasons if reason["verdict"] != "note"]
    first, more = against[0], f" (and {len(against) - 1} more)" if len(against) > 1 else ""
    # The message about a finding of `check` does not name it.
    name = f"{first['reason']}, " if first["message"].startswith("see `check`") else ""
    return f"{beginning}, because: {name}{first['message']}{more}"


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
    """Return the survey of a whole store before a change to `version`; the other arguments are `checkup`'s.

    Raises UsageError or UnreachableError.
    """
    parse_version(version)
    run = checkup(store, source, (), options, advance, urls=urls, passes=passes)
    return Upgrade(version, run, source, advance)


def is_live_step(before: Sequence[int], after: Sequence[int]) -> bool:
    """Return True if Pulsar's release policy supports a live step between two lines (major, minor)."""
    low, high = sorted((tuple(before), tuple(after)))
    if low < (3, 0):
        lines = [(2, minor) for minor in range(12)] + [(3, 0)]
        return low in lines and high in lines and lines.index(high) - lines.index(low) <= 1
    return high[0] - low[0] <= 1


def _is_marked(record: Versioned) -> bool:
    return record.path.rpartition("/")[2].startswith("urL")


def _is_open(value: bytes) -> bool:
    """Return True if a transaction is open, or its record can't be read."""
    if not value:
        return False
    with suppress(DecodeError):
        return read_json_object(value).get("state") not in _OVER
    return True
