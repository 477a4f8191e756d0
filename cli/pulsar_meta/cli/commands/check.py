"""`check`: find problems in a store, explain them, and print the commands that repair them.

`check-readable` lists the records that brokers of a release can't load.
"""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import Engine, EngineOptions, EntriesUrls, OtherStores, StoreUrl
from pulsar_meta.cli.render.findings import VIEW, GivenPlaces, given_places, with_places
from pulsar_meta.cli.render.metrics import FindingCounts
from pulsar_meta.cli.render.tables import Format, View
from pulsar_meta.cli.render.text import checked_text, counted
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import MANAGED_LEDGERS
from pulsar_meta.codecs.times import parse_duration
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.checkup import Checkup, checkup
from pulsar_meta.jobs.check.codes import Finding, FindingDocument, Severity, chosen_codes
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.check.scan import Passes
from pulsar_meta.jobs.cursors.subscriptions import Limits
from pulsar_meta.jobs.engine import choose_engine
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.rewrite.readable import Form, Readability, Readers, Verdict, parse_version
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    # Checking one topic does not need it, and should start fast.
    from pulsar_meta.jobs.check.upgrade import Upgrade


@dataclass(frozen=True)
class FindingOptions:
    """Options that select findings and set the limits from which on something is a finding."""

    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Check the whole store. With topics, also find their ledgers that no record refers to, which"
            " reads the metadata of all ledgers.",
        ),
    ] = False
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CODE", help="Report only these codes or groups.")
    ] = None
    excluded: Annotated[
        list[str] | None, typer.Option("--except", metavar="CODE", help="Don't report these codes or groups.")
    ] = None
    severity: Annotated[
        Severity,
        typer.Option(
            "--severity",
            help="Show only findings of at least this severity; the exit code counts all findings.",
        ),
    ] = Severity.NOTE
    min_age: Annotated[
        str,
        typer.Option(
            "--min-age",
            metavar="TIME",
            help="Report an unreferenced ledger only if it is older than this: 90s, 12h, 7d.",
        ),
    ] = "1d"
    idle: Annotated[
        str,
        typer.Option(
            "--idle", metavar="TIME", help="Report a subscription as idle after this time: 12h, 30d."
        ),
    ] = "30d"
    for_version: Annotated[
        list[str] | None,
        typer.Option(
            "--for-version", metavar="V", help="A Pulsar release that has to load every record (repeatable)."
        ),
    ] = None
    from_conf: Annotated[
        Path | None,
        typer.Option("--from-conf", help="Take the limits for acknowledgements from this broker.conf."),
    ] = None
    before_upgrade: Annotated[
        str | None,
        typer.Option(
            "--before-upgrade",
            metavar="V",
            help="Print one verdict instead: can this store be upgraded or downgraded to a Pulsar release?",
        ),
    ] = None
    consequences: Annotated[
        bool,
        typer.Option("--consequences", help="Also list the findings that a reported cause explains."),
    ] = False
    fix_plan: Annotated[
        Path | None,
        typer.Option(
            "--fix-plan",
            metavar="FILE",
            help="Also write all printed repairs as a plan for repair --plan, and list the rest.",
        ),
    ] = None
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False

    @property
    def hidden(self) -> list[Severity]:
        """The severities that are not shown."""
        return [severity for severity in Severity if severity.rank > self.severity.rank]

    def ensure_valid(self, shell: Shell, names: Sequence[str]) -> None:
        """Raise UsageError for options that can't be combined with --before-upgrade."""
        if self.before_upgrade is None:
            return
        if self.fix_plan is not None:
            raise UsageError("--before-upgrade prints no repairs: remove --fix-plan")
        if names or self.for_version or self.only or self.excluded:
            raise UsageError(
                "--before-upgrade checks the whole store: remove topics, --for-version, --only and --except"
            )
        if shell.format in (Format.OPENMETRICS, Format.HTML):
            raise UsageError(
                f"-o {shell.format} is not available with --before-upgrade: choose another format"
            )

    def check_options(self) -> CheckOptions:
        """Return the options of a run. Raises UsageError for an invalid code, time or release."""
        releases = self.for_version or ([] if self.before_upgrade is None else [self.before_upgrade])
        return CheckOptions(
            chosen_codes(self.only or (), self.excluded or ()),
            _milliseconds(self.min_age),
            _releases(releases),
            _milliseconds(self.idle),
            self.everything,
            self.consequences,
            Limits.of(self.from_conf),
        )


def check(
    shell: Shell,
    engine: EngineOptions,
    options: FindingOptions,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC|NAMESPACE",
            help="Topics, or tenant/namespace. Default: the whole store.",
            show_default=False,
        ),
    ] = None,
    store: StoreUrl = None,
    entries: Annotated[
        list[str] | None,
        typer.Option(
            "--entries",
            metavar="URL",
            help="Also check entries in this source: bookie-disk:, bookie:, offload: (repeatable).",
        ),
    ] = None,
    other_stores: OtherStores = None,
) -> None:
    """Find damaged topics and lost data, with their repairs.

    Use it when topics fail to load, before you restart brokers, and before an upgrade. It only reads, and you
    can run it while the cluster is up. Prints one line per finding: severity, code, place, description and
    repair command. The page Findings explains each code. Exits with 1 if there is an error.

    With --before-upgrade, prints one verdict: safe, not-safe (exit code 1), or unknown (exit code 3: we did
    not test this release with the store's records). The reasons follow, each with its source: a store or
    records that the release can't use, features that it removed or changed, and unfinished work. Errors of a
    normal check are reasons, too, because the new brokers load every topic again.

    Examples:
      pulsar-meta check --store zk://zk1:2181
      pulsar-meta check public/default/orders --entries bookie:
      pulsar-meta check --engine spark --store rocksdb:data/metadata -o ndjson
      pulsar-meta check --store snapshot:all.ndjson --severity error -o ndjson
      pulsar-meta check --entries bookie: --from-conf broker.conf
      pulsar-meta check --entries bookie: --fix-plan fixes.ndjson
      pulsar-meta check -o openmetrics --output pulsar_check.prom
      pulsar-meta check --entries bookie: --before-upgrade 4.0.7
    """
    names = topics or ()
    options.ensure_valid(shell, names)
    choice, spark = options.check_options(), _choose_spark(shell, engine, names)
    urls, counts = list(entries or shell.settings.entries), Counter[Severity]()
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        progress = stack.enter_context(shell.progress(unit="values"))
        advance = progress.advance
        passes = _spark_passes(shell, engine, stack, opened, urls, advance) if spark else None
        if options.before_upgrade is not None:
            from pulsar_meta.jobs.check.upgrade import survey

            release = options.before_upgrade
            _show_upgrade(shell, survey(opened, source, release, choice, advance, urls=urls, passes=passes))
            return
        shell.warn_of_old_parts(opened, names)
        others = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
        run = checkup(opened, source, names, choice, advance, urls=urls, passes=passes, others=others)
        run.stage = progress.stage
        given = given_places(store, entries, ledger_store=shell.ledger_store, other_stores=other_stores)
        shown = _shown(run.findings(), options.hidden, counts, given)
        _emit(shell, run, shown, redact(opened.url), options.hidden)
        run.ensure_found()
        for text in () if source is None else (*source.notes, *map(str, source.faults)):
            shell.warn(text)
        if options.fix_plan is not None:
            again = lambda view: checkup(view, source, names, choice, urls=urls, others=others).findings()  # noqa: E731
            _plan_fixes(shell, options.fix_plan, opened, source, others, again, options.for_version or ())
    _report_hidden(shell, {severity: counts[severity] for severity in options.hidden if counts[severity]})
    if shell.is_on_terminal and shell.format is Format.TABLE and not counts.total():
        shell.note("no problems found")
    _finish(shell, run, failed=bool(counts[Severity.ERROR] or (options.strict and counts[Severity.WARNING])))


def _finish(shell: Shell, run: Checkup, *, failed: bool) -> None:
    """Print the summary, then exit with 6 if a bookie did not answer, or with 1 if `failed`."""
    shell.summary(run.counts, run.not_checked)
    if run.unreachable is not None:
        raise run.unreachable
    if failed:
        raise typer.Exit(Exit.FAULT)


def _plan_fixes(
    shell: Shell,
    file: Path,
    store: Store,
    source: EntrySource | None,
    others: Sequence[Store],
    findings_of: Callable[[Store], Iterable[Finding]],
    releases: Sequence[str],
) -> None:
    """Write the plan of all repairs, and print a summary of it."""
    from pulsar_meta.jobs.repair.fix_plan import Planner, write_plan

    planner = Planner(store, source, Readers.of(store, releases), lambda error: None, others)
    plan = planner.plan(findings_of)
    write_plan(plan, file)
    for command, reason in plan.left_out.items():
        shell.note(f"not in the plan: {command}: {reason}")
    values = counted(sum(1 for _ in plan.decided()), "values")
    shell.note(
        f"the plan in {file} has {counted(len(plan.steps), 'repairs')} and changes {values};"
        f" {counted(len(plan.stays), 'findings')} would stay; preview it with: pulsar-meta repair --plan"
        f" {shlex.quote(str(file))} --dry-run"
    )


def _choose_spark(shell: Shell, engine: EngineOptions, names: Sequence[str]) -> bool:
    """Return True if Spark is to scan the store. Raises UsageError if topics are named."""
    if names and engine.engine is Engine.SPARK:
        raise UsageError("--engine spark checks a whole store: remove the topics")
    chosen, reason = choose_engine(str(engine.engine), 0, None if names else engine.master)
    if reason:
        shell.note(reason)
    return chosen == "spark"


def _spark_passes(
    shell: Shell,
    engine: EngineOptions,
    stack: ExitStack,
    store: Store,
    urls: Sequence[str],
    advance: Callable[[int], None],
) -> Passes:
    from pulsar_meta.jobs.spark.check import passes_by_spark

    settings = replace(engine.spark_settings(Faults(shell)), report=lambda error: shell.warn(str(error)))
    return stack.enter_context(passes_by_spark(store, urls, settings, advance))


def _emit(
    shell: Shell, run: Checkup, findings: Iterable[Document], source: str, hidden: Iterable[Severity]
) -> None:
    """Write findings as they are found; with -o openmetrics, only their counts at the end."""
    if shell.format is not Format.OPENMETRICS:
        shell.emit(findings, VIEW, about=lambda: (source, checked_text(run.counts, run.not_checked)))
        return
    counts = FindingCounts([str(severity) for severity in Severity if severity not in hidden])
    deque(counts.counting(findings), maxlen=0)
    with shell.text_out() as out:
        out.write(counts.text(run.counts, run.not_checked, time.time()))


def _show_upgrade(shell: Shell, upgrade: Upgrade) -> None:
    """Print the verdict. Exits with 1 if it is not safe, 3 if unknown, 6 if a bookie did not answer."""
    verdict = upgrade.verdict()
    head = {"reason": "verdict", "verdict": verdict["verdict"], "message": verdict["summary"]}
    shell.emit([verdict] if shell.is_json else [head, *verdict["reasons"]], REASONS, single=True)
    shell.summary(upgrade.run.counts, upgrade.run.not_checked)
    if upgrade.run.unreachable is not None:
        raise upgrade.run.unreachable
    if verdict["verdict"] != "safe":
        raise typer.Exit(Exit.FAULT if verdict["verdict"] == "not-safe" else Exit.NOT_FOUND)


def _reason_row(reason: Document) -> list[str]:
    places, count = reason.get("places", []), reason.get("count", 0)
    more = f" and {count - len(places)} more" if places and count > len(places) else ""
    return [
        reason["verdict"],
        reason["reason"],
        str(count or ""),
        reason["message"],
        ", ".join(places) + more,
        reason.get("cure", ""),
        reason.get("source", ""),
    ]


REASONS = View(
    ["verdict", "reason", "count", "what", "where", "before it", "source"],
    _reason_row,
    frozenset({"count"}),
    fields=("verdict", "reason", "count", "message", "places", "cure", "source"),
)


def _milliseconds(text: str) -> int:
    return 0 if re.fullmatch("0+[smhd]?", text) else parse_duration(text) * 1000


def _releases(versions: Iterable[str]) -> tuple[str, ...]:
    releases = tuple(versions)
    for version in releases:
        parse_version(version)
    return releases


def _shown(
    findings: Iterable[Finding],
    hidden: Sequence[Severity],
    counts: Counter[Severity],
    given: GivenPlaces,
) -> Iterator[FindingDocument]:
    for finding in findings:
        counts[finding.severity] += 1
        if finding.severity not in hidden:
            yield with_places(finding.document(), given)


def _report_hidden(shell: Shell, counts: Mapping[Severity, int]) -> None:
    """Report how many findings --severity hides, because they may be the reason for exit code 1."""
    if counts:
        hidden = ", ".join(counted(count, f"{severity}s") for severity, count in counts.items())
        shell.note(f"hidden by --severity: {hidden}")


def check_readable(
    shell: Shell,
    for_version: Annotated[
        list[str], typer.Option("--for-version", metavar="V", help="A Pulsar release (repeatable).")
    ],
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """List records that a given Pulsar release can't load.

    Use it before a downgrade, or before you enable compression. Exits with 1 if there are any. If we did not
    test that release with such a record, the verdict is unknown; if there is nothing worse, the exit code is
    then 3, as for a store without topics. With --entries, it also checks the states in cursors' ledgers:
    older releases don't know bit sets of acknowledgements there and would redeliver those messages
    (convert-cursor converts them to ranges).

    Examples:
      pulsar-meta check-readable --store rocksdb:data/metadata --for-version 4.2.4
      pulsar-meta check-readable --entries bookie: --for-version 2.11.0 -o ndjson
    """
    for version in for_version:
        parse_version(version)
    reads_bits = Readers(tuple(for_version)).verdict(Form.BIT_SETS)[0] is Verdict.LOADS
    urls = [] if reads_bits else list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        readability = Readability(source)
        progress = stack.enter_context(shell.progress(unit="values"))
        values = progress.counting(opened.scan(MANAGED_LEDGERS))
        shell.emit(readability.documents(values, for_version), FAULTS)
        if not readability.topics and not readability.cursors:
            raise missing(opened, MANAGED_LEDGERS)
    unknown = {}
    if readability.unknown:
        unknown[counted(readability.unknown, "records")] = "unknown if these releases can load them"
    if readability.in_ledgers:
        reason = "add --entries" if source is None else "no source has their last entries"
        unknown[f"the state of {counted(readability.in_ledgers, 'cursors')} in their ledgers"] = reason
    shell.summary({"topics": readability.topics, "cursors": readability.cursors}, unknown)
    if readability.faults:
        raise typer.Exit(Exit.FAULT)
    if readability.unknown or (readability.in_ledgers and source is not None):
        raise typer.Exit(Exit.NOT_FOUND)


def _row(fault: Document) -> list[str]:
    return [fault["topic"], fault.get("cursor", ""), fault["form"], fault["reason"], fault["verdict"]]


FAULTS = View(
    ["topic", "cursor", "form", "reason", "verdict"],
    _row,
    fields=("path", "version", "topic", "cursor", "form", "reason", "verdict"),
)
