"""`check`: what is wrong in a store, why, and the way out."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.engine_options import Engine, EngineOptions
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.render.findings import VIEW, given_places, with_places
from pulsar_meta.cli.render.metrics import FindingCounts
from pulsar_meta.cli.render.tables import Format, View
from pulsar_meta.cli.render.text import counted, looked_at
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import parse_duration
from pulsar_meta.jobs.check.catalogue import chosen_codes
from pulsar_meta.jobs.check.codes import Finding, FindingDocument, Severity
from pulsar_meta.jobs.check.known import CheckOptions
from pulsar_meta.jobs.check.passes import Passes
from pulsar_meta.jobs.check.run import Checkup, checkup
from pulsar_meta.jobs.check.scope import check_there
from pulsar_meta.jobs.engine import choose_engine
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.rewrite.releases import parse_version
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    # Not needed for the answer about a topic, which should come at once.
    from pulsar_meta.jobs.check.upgrade import Upgrade


def check(
    shell: Shell,
    engine: EngineOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC|NAMESPACE",
            help="Topics, or tenant/namespace; default: everything.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="All that the store has; of topics that are named also ledgers that no record names, for"
            " which all ledgers are listed.",
        ),
    ] = False,
    store: StoreUrl = None,
    entries: Annotated[
        list[str] | None,
        typer.Option(
            "--entries", help="Also look whether entries are there: bookie-disk:, bookie: (repeatable)."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CODE", help="Only these codes or groups of them.")
    ] = None,
    excluded: Annotated[
        list[str] | None, typer.Option("--except", metavar="CODE", help="All but these codes or groups.")
    ] = None,
    severity: Annotated[
        Severity,
        typer.Option(
            "--severity", help="Show this severity and graver ones; the exit code is that of all findings."
        ),
    ] = Severity.NOTE,
    min_age: Annotated[
        str,
        typer.Option(
            "--min-age", metavar="TIME", help="How old a ledger is that nobody names: 90s, 12h, 7d."
        ),
    ] = "1d",
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="How long a subscription may go unused: 12h, 30d.")
    ] = "30d",
    for_version: Annotated[
        list[str] | None,
        typer.Option(
            "--for-version", metavar="V", help="A Pulsar release that has to load it all (repeatable)."
        ),
    ] = None,
    before_upgrade: Annotated[
        str | None,
        typer.Option(
            "--before-upgrade",
            metavar="V",
            help="One verdict instead: can all of it go to that release, up or down, and what decides it.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 with warnings, too.")] = False,
) -> None:
    """Report what is wrong in a store: topics that do not load, lost data, what loading would destroy.

    A line a finding: severity, code, where, what. docs/findings.md has for each code what it means, how
    brokers behave, and what to do. Nothing is changed. Exit 1 where there is an error.

    With --before-upgrade: safe, not-safe (exit 1) or, where nobody tried, unknown (exit 3), with the reasons:
    records and states that the release does not know, what is wrong anyway, since every topic is loaded anew,
    and what has not ended.

    Examples:
      pulsar-meta check --store zk://zk1:2181
      pulsar-meta check public/default/orders --entries bookie:
      pulsar-meta check --engine spark --store rocksdb:data/metadata -o ndjson
      pulsar-meta check --store snapshot:all.ndjson --severity error -o ndjson
      pulsar-meta check -o openmetrics --output pulsar_check.prom
      pulsar-meta check --entries bookie: --before-upgrade 4.0.7
    """
    if before_upgrade is not None and (names or for_version or only or excluded):
        raise UsageError(
            "--before-upgrade is about all of the store: no topics, --for-version, --only, --except"
        )
    if before_upgrade is not None and shell.format in (Format.OPENMETRICS, Format.HTML):
        raise UsageError(f"-o {shell.format}: --before-upgrade is one verdict: choose another form")
    options = CheckOptions(
        chosen_codes(only or (), excluded or ()),
        _age(min_age),
        _releases(for_version or ([] if before_upgrade is None else [before_upgrade])),
        _age(idle),
        everything,
    )
    urls = list(entries or shell.settings.entries)
    spark = _worth_spark(shell, engine, names or ())
    counts: Counter[Severity] = Counter()
    hidden = [one for one in Severity if one.rank > severity.rank]
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        advance = stack.enter_context(shell.progress(unit="values")).advance
        passes = _by_spark(shell, engine, stack, opened, urls, advance) if spark else None
        if before_upgrade is not None:
            from pulsar_meta.jobs.check.upgrade import survey

            upgrade = survey(opened, source, before_upgrade, options, advance, urls=urls, passes=passes)
            _show_upgrade(shell, upgrade)
            return
        shell.warn_of_old_parts(opened, names or ())
        run = checkup(opened, source, names or (), options, advance, urls=urls, passes=passes)
        given = given_places(store, entries)
        _emit(shell, run, _shown(run.findings(), hidden, counts, given), redact(opened.url), hidden)
        check_there(opened, run.scope, sum(counts.values()) + run.looked_at["topics"])
        for text in () if source is None else (*source.notes, *map(str, source.faults)):
            shell.warn(text)
    _say_hidden(shell, {one: counts[one] for one in hidden if counts[one]})
    _account(shell, run)
    if run.unreachable is not None:
        raise run.unreachable
    if counts[Severity.ERROR] or (strict and counts[Severity.WARNING]):
        raise typer.Exit(Exit.FAULT)


def _worth_spark(shell: Shell, how: EngineOptions, names: Sequence[str]) -> bool:
    """Return whether Spark makes the passes; UsageError where it cannot: for some topics only."""
    if names and how.engine is Engine.SPARK:
        raise UsageError("--engine spark is for all of a store: name no topics")
    chosen, why = choose_engine(str(how.engine), 0, None if names else how.master)
    if why:
        shell.say(why)
    return chosen == "spark"


def _by_spark(
    shell: Shell,
    how: EngineOptions,
    stack: ExitStack,
    store: Store,
    urls: Sequence[str],
    advance: Callable[[int], None],
) -> Passes:
    from pulsar_meta.jobs.spark.check import passes_by_spark

    settings = replace(how.spark(Faults(shell)), report=lambda error: shell.warn(str(error)))
    return stack.enter_context(passes_by_spark(store, urls, settings, advance))


def _emit(
    shell: Shell, run: Checkup, findings: Iterable[Document], source: str, hidden: Iterable[Severity]
) -> None:
    """Write the findings as they come; as metrics, their counts at the end, but for those that are hidden."""
    if shell.format is not Format.OPENMETRICS:
        shell.emit(findings, VIEW, about=lambda: (source, looked_at(run.looked_at, run.not_checked)))
        return
    found = FindingCounts([str(one) for one in Severity if one not in hidden])
    deque(found.counting(findings), maxlen=0)
    with shell.text_out() as out:
        out.write(found.text(run.looked_at, run.not_checked, time.time()))


def _show_upgrade(shell: Shell, upgrade: Upgrade) -> None:
    """Show the verdict; exit 1 where it is not safe, 3 where nobody knows, 6 where bookies did not answer."""
    found = upgrade.verdict()
    head = {"reason": "verdict", "verdict": found["verdict"], "message": f"to Pulsar {upgrade.version}"}
    shell.emit([found] if shell.speaks_json else [head, *found["reasons"]], REASONS, single=True)
    _account(shell, upgrade.run)
    if upgrade.run.unreachable is not None:
        raise upgrade.run.unreachable
    if found["verdict"] != "safe":
        raise typer.Exit(Exit.FAULT if found["verdict"] == "not-safe" else Exit.NOT_FOUND)


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
    ]


REASONS = View(
    ["verdict", "reason", "count", "what", "where", "before it"],
    _reason_row,
    frozenset({"count"}),
    fields=("verdict", "reason", "count", "message", "places", "cure"),
)


def _age(text: str) -> int:
    """Return milliseconds."""
    return 0 if text == "0" else parse_duration(text) * 1000


def _releases(versions: Iterable[str]) -> tuple[str, ...]:
    given = tuple(versions)
    for version in given:
        parse_version(version)
    return given


def _shown(
    findings: Iterable[Finding],
    hidden: Sequence[Severity],
    counts: Counter[Severity],
    given: tuple[list[str], list[str]],
) -> Iterator[FindingDocument]:
    for finding in findings:
        counts[finding.severity] += 1
        if finding.severity not in hidden:
            yield with_places(finding.document(), *given)


def _say_hidden(shell: Shell, counts: Mapping[Severity, int]) -> None:
    """Say how many findings --severity left out: they may be why the exit code is 1."""
    if counts:
        found = ", ".join(counted(count, f"{severity}s") for severity, count in counts.items())
        shell.say(f"not shown by --severity: {found}")


def _account(shell: Shell, run: Checkup) -> None:
    shell.account(run.looked_at, run.not_checked)
