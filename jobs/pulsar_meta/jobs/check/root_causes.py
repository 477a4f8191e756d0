"""Groups findings that one cause explains: a missing log, directory or disk, or a lost part of the store.

The cause is one finding that counts the topics and ledgers it affects. Its consequences are not listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, TopicName, ledger_path
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.check.disks import MisplacedCookie, Unindexed, misplaced_cookies
from pulsar_meta.jobs.topics.completeness import Gap, MissingLog, first_missing_logs
from pulsar_meta.jobs.topics.evidence import EvidenceReader
from pulsar_meta.stores.base import Store

# If nothing is left below a path, this many findings about it are one lost part of the store.
LOST_PART: Final = 5
# The most topics that a finding names.
_NAMED: Final = 3


@dataclass(slots=True)
class _Group:
    """The findings that one cause explains."""

    topics: set[str] = field(default_factory=set)
    ledgers: set[int] = field(default_factory=set)
    codes: Counter[str] = field(default_factory=Counter)
    severity: Severity = Severity.NOTE
    why: str = ""

    def add(self, consequence: Finding) -> None:
        if consequence.topic is not None:
            self.topics.add(consequence.topic)
        if consequence.ledger_id is not None:
            self.ledgers.add(consequence.ledger_id)
        self.codes[consequence.code] += 1
        if consequence.severity.rank < self.severity.rank:
            self.severity = consequence.severity

    def note_why(self, why: str) -> None:
        """Keep why a log is damaged. Other bytes in it say more than an early end."""
        if not self.why or self.why.startswith("ends"):
            self.why = why

    @property
    def numbers(self) -> dict[str, int]:
        return {"topics": len(self.topics), "ledgers": len(self.ledgers), "consequences": self.codes.total()}

    @property
    def text(self) -> str:
        return f"{_count(len(self.ledgers), 'ledger')} of {_count(len(self.topics), 'topic')}"


@dataclass(slots=True)
class _Unindexed:
    """The findings about entries in a directory to which the bookie's index does not lead.

    `renamed` has the entry logs whose entries are at the same offsets in another log, which is the value.
    `misplaced` are ledgers whose first or last entry is not where the index places it.
    """

    findings: list[Finding] = field(default_factory=list)
    misplaced: set[int] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def group(self) -> _Group:
        group = _Group()
        for each in self.findings:
            group.add(each)
        group.ledgers |= self.misplaced
        return group

    @property
    def is_few(self) -> bool:
        """Whether the findings can be listed one by one."""
        return len(self.findings) < LOST_PART and not self.renamed


@dataclass(slots=True)
class RootCauses:
    """Causes, and the findings that they explain. `not_checked` are the missing parts of bookies."""

    store: Store
    consequences: list[Finding] = field(default_factory=list)
    not_checked: dict[str, str] = field(default_factory=dict)
    _logs: dict[tuple[str | None, str], _Group] = field(default_factory=dict)
    _gaps: dict[Gap, _Group] = field(default_factory=dict)
    _bookies: dict[str, _Group] = field(default_factory=dict)
    _lost: dict[str, _Group] = field(default_factory=dict)
    _unknown: _Group = field(default_factory=_Group)
    _cookies: dict[MisplacedCookie, _Group] = field(default_factory=dict)
    _unindexed: dict[tuple[str | None, str], _Unindexed] = field(default_factory=dict)

    def add_missing(self, reader: EvidenceReader, is_damaged: Callable[[MissingLog], bool]) -> None:
        """Add everything that is known to be missing, whether or not a finding depends on it."""
        for gap in reader.complete.every_gap:
            self._gaps.setdefault(gap, _Group())
        for cookie in misplaced_cookies(reader):
            self._cookies.setdefault(cookie, _Group())
        misplaced = []
        for log in (
            () if reader.source is None or reader.complete.lives else first_missing_logs(reader.source)
        ):
            if is_damaged(log):
                group = self._logs.setdefault((log.bookie, log.file), _Group())
                group.ledgers.add(log.ledger_id)
                group.note_why(log.why)
            else:
                misplaced.append(log)
        for log in misplaced:
            # A damaged log explains its ledgers, even those that another log has, too.
            if (log.bookie, log.file) not in self._logs:
                self._unindexed_in(log.bookie, log.directory).misplaced.add(log.ledger_id)

    def add_log(self, logs: Sequence[MissingLog], consequence: Finding) -> None:
        """Count a finding that missing entry logs explain."""
        for log in logs:
            group = self._logs.setdefault((log.bookie, log.file), _Group())
            group.add(consequence)
            group.note_why(log.why)
        self.consequences.append(consequence)

    def add_gap(self, gaps: Sequence[Gap], consequence: Finding) -> None:
        """Count a finding that proves nothing as long as a part of the disks is not given."""
        for gap in gaps:
            self._gaps.setdefault(gap, _Group()).add(consequence)
        self.consequences.append(consequence)

    def add_cookie(self, bookies: Sequence[str], consequence: Finding) -> bool:
        """Count a finding about copies if the disks of one of the bookies have the wrong VERSION."""
        cookies = [each for each in self._cookies if {each.bookie, each.owner} & {*bookies}]
        for cookie in cookies:
            self._cookies[cookie].add(consequence)
        if cookies:
            self.consequences.append(consequence)
        return bool(cookies)

    def add_bookie(self, bookie: str, consequence: Finding) -> None:
        """Count a finding that is explained by a bookie that has lost everything."""
        self._bookies.setdefault(bookie, _Group()).add(consequence)
        self.consequences.append(consequence)

    def add_unindexed(self, log: Unindexed, consequence: Finding) -> None:
        """Keep a finding about entries in a log to which the bookie's index does not lead."""
        group = self._unindexed_in(log.bookie, log.directory)
        group.findings.append(consequence)
        if log.instead_of is not None:
            group.renamed[log.instead_of] = log.file

    def _unindexed_in(self, bookie: str | None, directory: str) -> _Unindexed:
        return self._unindexed.setdefault((bookie, directory), _Unindexed())

    def gather_unindexed(self) -> Iterator[Finding]:
        """Yield the findings of directories with few entries to which the index does not lead."""
        for place, group in list(self._unindexed.items()):
            if not group.is_few:
                self.consequences += group.findings
                continue
            yield from group.findings
            if group.misplaced <= {each.ledger_id for each in group.findings}:
                del self._unindexed[place]

    def gather_lost_parts(self, judged: Sequence[Finding]) -> list[Finding]:
        """Return the findings that no lost part of the store explains; count the others."""
        parts: dict[str, list[Finding]] = {}
        for each in judged:
            path = _part_of(each)
            if path is not None:
                parts.setdefault(path, []).append(each)
        lost = {path for path, some in parts.items() if len(some) >= LOST_PART and self._is_lost(path, some)}
        left = []
        for each in judged:
            path = _part_of(each)
            if path in lost:
                self._lost.setdefault(str(path), _Group()).add(each)
                self.consequences.append(each)
            else:
                left.append(each)
        return left

    def gather_unknown_topics(self, judged: Sequence[Finding], without_trace: Set[str]) -> list[Finding]:
        """Return the findings except lost records of many topics that left no trace; count those."""
        unknown, left = list[Finding](), list[Finding]()
        for each in judged:
            is_unknown = each.code == "topic-record-lost" and each.topic in without_trace
            (unknown if is_unknown else left).append(each)
        if len(unknown) < LOST_PART:
            return list(judged)
        for each in unknown:
            self._unknown.add(each)
            self._unknown.ledgers.update(each.evidence.get("ledgers", ()))
        self.consequences.extend(unknown)
        return left

    def _is_lost(self, path: str, some: Sequence[Finding]) -> bool:
        """Return True if everything that is left of a part belongs to the lost topics."""
        names = set(map(_last_name, some))
        return all(name in names for name in self.store.children(path))

    def findings(self) -> Iterator[Finding]:
        """Yield a finding for each cause."""
        for (bookie, file), group in sorted(
            self._logs.items(), key=lambda item: (item[0][0] or "", item[0][1])
        ):
            yield _log_finding(bookie, file, group)
        for (bookie, directory), unindexed in sorted(
            self._unindexed.items(), key=lambda item: (item[0][0] or "", item[0][1])
        ):
            yield _unindexed_finding(bookie, directory, unindexed)
        for gap, group in self._gaps.items():
            entries = f"entries of {group.text}" if group.codes else "entries that may be there"
            self.not_checked[str(gap)] = entries
            if group.codes and gap.part == "directory":
                yield _directory_finding(gap, group)
        for cookie, group in self._cookies.items():
            self.not_checked[f"copies on bookies {cookie.bookie} and {cookie.owner}"] = (
                "a VERSION is misplaced"
            )
            yield _cookie_finding(cookie, group)
        for bookie, group in sorted(self._bookies.items()):
            yield _bookie_finding(bookie, group)
        for path, group in sorted(self._lost.items()):
            yield _lost_part_finding(path, group)
        if self._unknown.codes:
            yield _unknown_topics_finding(self._unknown)


def _log_finding(bookie: str | None, file: str, group: _Group) -> Finding:
    whose = "a bookie's index" if bookie is None else f"the index of bookie {bookie}"
    text = f"refers to entry log {file}, which does not exist"
    if group.why:
        text = f"places entries in entry log {file} that it does not have: it {group.why}"
    return finding(
        "entry-log-damaged" if group.why else "entry-log-missing",
        f"{whose} {text}; this affects {group.text}",
        severity=Severity.ERROR if group.severity is Severity.ERROR else Severity.WARNING,
        path=file,
        evidence={"bookie": bookie, "file": file, **group.numbers},
    )


def _unindexed_finding(bookie: str | None, directory: str, unindexed: _Unindexed) -> Finding:
    whose, group = "a bookie" if bookie is None else f"bookie {bookie}", unindexed.group
    if unindexed.renamed:
        names = [f"{right} has the entries of {file}" for file, right in sorted(unindexed.renamed.items())]
        return finding(
            "entry-log-damaged",
            f"entry logs of {whose} have the names of others: {', '.join(names)}; this affects {group.text}",
            path=min(unindexed.renamed),
            evidence={"bookie": bookie, "file": min(unindexed.renamed), **group.numbers},
        )
    return finding(
        "bookie-index-damaged",
        f"the index of {whose} does not lead to entries that its entry logs have, so the bookie does not"
        f" serve them; this affects {group.text}",
        path=directory,
        evidence={"bookie": bookie, "part": "index", **group.numbers},
    )


def _directory_finding(gap: Gap, group: _Group) -> Finding:
    return finding(
        "bookie-directory-missing",
        f"directory {gap.place} of bookie {gap.bookie} was not given, so entries of {group.text} are"
        " not checked",
        severity=Severity.WARNING,
        path=gap.place,
        evidence={"bookie": gap.bookie, "directory": gap.place, **group.numbers},
    )


def _cookie_finding(cookie: MisplacedCookie, group: _Group) -> Finding:
    text = (
        f"the file VERSION in {cookie.directory} is that of bookie {cookie.bookie}, but the entries there"
        f" are those that bookie {cookie.owner} should have"
    )
    if cookie.other is not None:
        text += f", and the other way round in {cookie.other}: they are swapped"
    affects = f"; this affects {group.text}" if group.codes else ""
    return finding(
        "cookie-differs",
        f"{text}{affects}",
        path=f"{cookie.directory}/VERSION",
        evidence={
            "directory": cookie.directory,
            "bookie": cookie.bookie,
            "owner": cookie.owner,
            "other": cookie.other,
            **group.numbers,
        },
    )


def _bookie_finding(bookie: str, group: _Group) -> Finding:
    return finding(
        "bookie-emptied",
        f"bookie {bookie} has no entry of any ledger, and should have copies of {group.text}",
        severity=Severity.ERROR if group.severity is Severity.ERROR else Severity.WARNING,
        path=f"{LEDGERS}/cookies/{bookie}",
        evidence={"bookie": bookie, **group.numbers},
    )


def _lost_part_finding(path: str, group: _Group) -> Finding:
    return finding(
        "store-part-lost",
        f"nothing is left below {path}; this affects {group.text}",
        severity=group.severity,
        path=path,
        evidence=dict(group.numbers),
    )


def _unknown_topics_finding(group: _Group) -> Finding:
    some = sorted(group.topics)[:_NAMED]
    return finding(
        "topics-without-trace",
        f"{group.text} were created in this BookKeeper, and nothing else in this store names these topics"
        f" ({', '.join(some)}, …): either another cluster uses the same BookKeeper (name its store with"
        " --other-store URL), or their records are lost",
        severity=group.severity,
        path=MANAGED_LEDGERS,
        evidence=group.numbers | {"some": some},
    )


def _part_of(judged: Finding) -> str | None:
    """Return the part of the store that should have the missing record; None for other findings."""
    if judged.code == "ledger-without-metadata" and judged.ledger_id is not None and judged.ledger_id >= 0:
        return ledger_path(judged.ledger_id).rpartition("/")[0]
    if judged.code == "topic-record-lost" and judged.topic is not None:
        return TopicName.parse(judged.topic).path.rpartition("/")[0]
    return None


def _last_name(judged: Finding) -> str:
    """Return the last part of a missing topic record's path."""
    if judged.code == "topic-record-lost" and judged.topic is not None:
        return TopicName.parse(judged.topic).path.rpartition("/")[2]
    return ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
