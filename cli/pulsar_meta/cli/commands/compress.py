"""`compress-cursors` and `compress-ledgers`: give stored records the codec that the brokers should find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from pulsar_meta.cli.options import SCOPE, ScopeOptions, StoreUrl
from pulsar_meta.cli.render.rewriting import estimate_table, estimate_view
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.rewriting import AllowOtherStore, BulkOptions, WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.rewrite.plan import apply_plan
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.rules import (
    DEFAULT_THRESHOLD,
    MinGain,
    Recompression,
    WhereThere,
    estimate,
    read_broker_conf,
)
from pulsar_meta.jobs.rewrite.run import rewrite_values
from pulsar_meta.jobs.topics.scope import Kind, Scope, check_named, check_selected
from pulsar_meta.stores.base import Store, Versioned

CursorOption = Annotated[
    list[str] | None, typer.Option("--cursor", rich_help_panel=SCOPE, help="Name or glob (repeatable).")
]


@dataclass(frozen=True)
class CompressOptions:
    """What is to be done with them."""

    compression: Annotated[
        str | None,
        typer.Option(
            "--compression", help="lz4, zlib, zstd (smallest), snappy; none stores them uncompressed."
        ),
    ] = None
    threshold: Annotated[
        int | None,
        typer.Option("--threshold", min=0, help="Compress what is larger, in bytes. Default: 16384."),
    ] = None
    min_gain: Annotated[
        str, typer.Option("--min-gain", help="Least saving for each value: BYTES or PERCENT%.")
    ] = "1"
    from_conf: Annotated[
        Path | None, typer.Option("--from-conf", help="Take codec and threshold from this broker.conf.")
    ] = None
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Show what each codec would save; write nothing.")
    ] = False
    by: Annotated[
        Literal["tenant", "namespace"] | None,
        typer.Option("--by", help="With --estimate: a row for each of these."),
    ] = None
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Apply exactly this plan, made by --dry-run.")
    ] = None
    allow_other_store: AllowOtherStore = False


def compress_cursors(
    shell: Shell,
    where: ScopeOptions,
    how: CompressOptions,
    bulk: BulkOptions,
    writing: WriteOptions,
    store: StoreUrl = None,
    cursor: CursorOption = None,
    only_with_properties: Annotated[
        bool, typer.Option("--only-with-properties", help="Only cursors that have properties.")
    ] = False,
) -> None:
    """Compress stored cursors, or store them uncompressed: all of them, or those chosen.

    Brokers compress a cursor only when they next write it. Cursors with properties are not compressed, since
    Pulsar 4.2.4 and 5.0.0-M1 cannot load them so, unless all releases of --for-version can; those that are
    compressed already are named, and --compression none writes them plain.

    Examples:
      pulsar-meta compress-cursors --estimate --by namespace --store zk://zk1:2181
      pulsar-meta compress-cursors --compression zstd --dry-run > plan.ndjson
      pulsar-meta compress-cursors --plan plan.ndjson --yes
    """
    rule = _rule("cursor", how, only_with_properties=only_with_properties)
    _compress(shell, store, _Request(rule, where, tuple(cursor or ()), how), writing, bulk)


def compress_ledgers(
    shell: Shell,
    where: ScopeOptions,
    how: CompressOptions,
    bulk: BulkOptions,
    writing: WriteOptions,
    store: StoreUrl = None,
) -> None:
    """Compress the stored ledger lists of topics, or store them uncompressed: of all, or of those chosen.

    Examples:
      pulsar-meta compress-ledgers --estimate --store etcd://etcd1:2379
      pulsar-meta compress-ledgers --from-conf broker.conf --dry-run
    """
    request = _Request(_rule("ledger", how), where, (), how)
    _compress(shell, store, request, writing, bulk)


@dataclass(frozen=True, slots=True)
class _Request:
    rule: Recompression
    where: ScopeOptions
    cursors: tuple[str, ...]
    how: CompressOptions

    @property
    def command(self) -> str:
        return f"compress-{self.rule.kind}s"

    @property
    def scope(self) -> Scope:
        return self.where.scope(self.cursors)

    def values(self, store: Store) -> Iterator[Versioned]:
        return self.where.values(store, self.rule.kind, self.cursors)


def _rule(kind: Kind, how: CompressOptions, *, only_with_properties: bool = False) -> Recompression:
    """Return the rule that the options ask for; UsageError where they clash."""
    codec, threshold = how.compression, how.threshold
    if how.by is not None and not how.estimate:
        raise UsageError("--by is for --estimate")
    if how.from_conf is not None:
        if codec is not None or threshold is not None:
            raise UsageError("--from-conf takes type and threshold; leave --compression, --threshold away")
        codec, threshold = read_broker_conf(how.from_conf, kind)
    if codec is None and how.plan is None and not how.estimate:
        raise UsageError("--compression lz4|zlib|zstd|snappy|none, or --from-conf broker.conf")
    over = DEFAULT_THRESHOLD if threshold is None else threshold
    return Recompression(kind, codec or "none", over, MinGain.parse(how.min_gain), only_with_properties)


def _check_plan_alone(request: _Request) -> None:
    """Raise UsageError where a plan is to be applied and something else says what is meant, too."""
    how = request.how
    alone = CompressOptions(plan=how.plan, allow_other_store=how.allow_other_store)
    if how != alone or request.where.is_given or request.cursors or request.rule.only_with_properties:
        raise UsageError("--plan says what is to be done to which values: no other option may")


def _compress(
    shell: Shell, url: str | None, request: _Request, writing: WriteOptions, bulk: BulkOptions
) -> None:
    how = request.how
    if how.plan is not None:
        _check_plan_alone(request)
    if how.estimate:
        writing = replace(writing, dry_run=True)
    request.where.ensure_can_ask(writing)
    with open_for_writing(shell, url, writing) as store:
        readers = Readers.of(store, tuple(writing.for_version or ()))
        rule = replace(request.rule, readers=readers)
        if how.plan is not None or request.where.stdin:
            check_named(store, request.scope)
        else:
            check_selected(store, request.scope, rule.kind)
        shell.warn_of_old_parts(store, request.scope.topics)
        if how.estimate:
            _estimate(shell, store, replace(request, rule=rule))
            return
        if how.plan is not None:
            other = how.allow_other_store
            rewrite = apply_plan(store, how.plan, request.rule.kind, other_store=other)
        else:
            rewrite = rewrite_values(
                request.command,
                lambda: request.values(store),
                rule,
                first=WhereThere(rule),
                codec=rule.codec,
            )
        write(shell, store, rewrite, writing, bulk)


def _estimate(shell: Shell, store: Store, request: _Request) -> None:
    by = request.how.by
    rows = list(estimate(request.values(store), request.rule, by))
    shell.emit(rows, estimate_table(by) if shell.format is Format.TABLE else estimate_view(by))
    _explain(shell, rows, request.rule.threshold)
    if any(row["undecodable"] for row in rows):
        raise typer.Exit(Exit.FAULT)


def _explain(shell: Shell, rows: Sequence[Document], threshold: int) -> None:
    """Say what the threshold kept out of the numbers: as brokers do, values up to it stay plain."""
    of_codec = [[row for row in rows if row["codec"] == codec] for codec in CODECS]
    values = sum(row["values"] for row in of_codec[0])
    # What has a codec already is not looked at further under that codec.
    under = max(sum(row["under_threshold"] for row in some) for some in of_codec)
    more = f": {under} of {counted(values, 'values')} are no larger and stay as they are" if under else ""
    hint = " (--threshold 0 shows what each codec makes of all)" if under else ""
    shell.note(f"with a threshold of {threshold} bytes{more}{hint}")
