"""`compress-cursors` and `compress-ledgers`: change the codec of stored records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from pulsar_meta.cli.options import SCOPE, ScopeOptions, StoreUrl
from pulsar_meta.cli.render.rewriting import estimate_table, estimate_view
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.rewriting import (
    AllowOtherStore,
    BulkOptions,
    CopyTo,
    ValueFiles,
    WriteOptions,
    file_values,
    open_values,
    write,
    write_copies,
    write_overlaid,
)
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.rewrite.decision import Rule
from pulsar_meta.jobs.rewrite.plan import apply_plan
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.rules import (
    ANY_GAIN,
    DEFAULT_THRESHOLD,
    MinGain,
    OfKind,
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
    """Options for the codec, an estimate, or a plan."""

    compression: Annotated[
        str | None,
        typer.Option("--compression", metavar="CODEC", help="lz4, zlib, zstd (smallest), snappy or none."),
    ] = None
    threshold: Annotated[
        int | None,
        typer.Option("--threshold", min=0, metavar="BYTES", help="Compress larger values. Default: 16384."),
    ] = None
    min_gain: Annotated[
        str, typer.Option("--min-gain", metavar="BYTES|PERCENT%", help="Least saving per value.")
    ] = "1"
    any_gain: Annotated[
        bool,
        typer.Option("--any-gain", help="Give all values the codec, even if they are small or grow by it."),
    ] = False
    from_conf: Annotated[
        Path | None, typer.Option("--from-conf", help="Take codec and threshold from this broker.conf.")
    ] = None
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Show the savings of each codec; write nothing.")
    ] = False
    by: Annotated[
        Literal["tenant", "namespace"] | None,
        typer.Option("--by", help="With --estimate, print a row for each of these."),
    ] = None
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Apply this plan, which --dry-run has printed.")
    ] = None
    allow_other_store: AllowOtherStore = False


def compress_cursors(
    shell: Shell,
    scope: ScopeOptions,
    options: CompressOptions,
    bulk: BulkOptions,
    writing: WriteOptions,
    files: ValueFiles = None,
    store: StoreUrl = None,
    cursor: CursorOption = None,
    only_with_properties: Annotated[
        bool, typer.Option("--only-with-properties", help="Only cursors that have properties.")
    ] = False,
    copy_to: CopyTo = None,
) -> None:
    """Compress stored cursors, or store them uncompressed.

    Use it after you changed managedCursorInfoCompressionType, because brokers compress a cursor only when
    they next write it. By default, it rewrites all cursors. Cursors with properties stay uncompressed unless
    all releases of --for-version can load them compressed, because Pulsar 4.2.4 and 5.0.0-M1 can't. The
    command lists those that are already compressed; --compression none fixes them. With FILE arguments, it
    rewrites these files, each of which has the bytes of one value.

    Examples:
      pulsar-meta compress-cursors --estimate --by namespace --store zk://zk1:2181
      pulsar-meta compress-cursors --compression zstd --dry-run > plan.ndjson
      pulsar-meta compress-cursors --plan plan.ndjson --yes
      pulsar-meta compress-cursors --compression none --copy-to plain.ndjson
    """
    rule = _rule("cursor", options, only_with_properties=only_with_properties)
    request = _Request(rule, scope, tuple(cursor or ()), options, tuple(files or ()), copy_to)
    _compress(shell, store, request, writing, bulk)


def compress_ledgers(
    shell: Shell,
    scope: ScopeOptions,
    options: CompressOptions,
    bulk: BulkOptions,
    writing: WriteOptions,
    files: ValueFiles = None,
    store: StoreUrl = None,
    copy_to: CopyTo = None,
) -> None:
    """Compress stored ledger lists, or store them uncompressed.

    Use it after you changed managedLedgerInfoCompressionType, because brokers compress a topic's ledger list
    only when they next write it. By default, it rewrites the lists of all topics. With FILE arguments, it
    rewrites these files, each of which has the bytes of one value.

    Examples:
      pulsar-meta compress-ledgers --estimate --store etcd://etcd1:2379
      pulsar-meta compress-ledgers --from-conf broker.conf --dry-run
      pulsar-meta compress-ledgers *.bin --compression zstd --any-gain --yes
    """
    request = _Request(_rule("ledger", options), scope, (), options, tuple(files or ()), copy_to)
    _compress(shell, store, request, writing, bulk)


@dataclass(frozen=True, slots=True)
class _Request:
    rule: Recompression
    scope_options: ScopeOptions
    cursors: tuple[str, ...]
    options: CompressOptions
    files: tuple[str, ...] = ()
    copy_to: Path | None = None

    def check_files(self) -> None:
        """Raise UsageError if value files are combined with an option that selects values of a store."""
        if self.files and (self.scope_options.is_given or self.cursors or self.options.plan is not None):
            raise UsageError("value files can't be combined with --plan or options that select topics")

    @property
    def command(self) -> str:
        return f"compress-{self.rule.kind}s"

    @property
    def scope(self) -> Scope:
        return self.scope_options.scope(self.cursors)

    @property
    def first_rule(self) -> Rule:
        """The rule for values as they are first met."""
        return WhereThere(OfKind(self.rule.kind, self.rule) if self.files else self.rule)

    def values(self, store: Store) -> Iterator[Versioned]:
        if self.files:
            return file_values(store, self.files)
        return self.scope_options.values(store, self.rule.kind, self.cursors)


def _rule(kind: Kind, options: CompressOptions, *, only_with_properties: bool = False) -> Recompression:
    """Return the rule that the options describe. Raises UsageError if they can't be combined."""
    codec, threshold = options.compression, options.threshold
    if options.by is not None and not options.estimate:
        raise UsageError("--by needs --estimate")
    if options.from_conf is not None:
        if codec is not None or threshold is not None:
            raise UsageError(
                "--from-conf sets codec and threshold: remove --compression and --threshold, or --from-conf"
            )
        codec, threshold = read_broker_conf(options.from_conf, kind)
    if codec is None and options.plan is None and not options.estimate:
        raise UsageError("no codec: add --compression lz4|zlib|zstd|snappy|none or --from-conf broker.conf")
    least = 0 if options.any_gain else DEFAULT_THRESHOLD
    minimum = least if threshold is None else threshold
    min_gain = ANY_GAIN if options.any_gain else MinGain.parse(options.min_gain)
    return Recompression(kind, codec or "none", minimum, min_gain, only_with_properties)


def _check_plan_alone(request: _Request) -> None:
    """Raise UsageError if --plan is combined with another option that selects or changes values."""
    options, scope = request.options, request.scope_options
    alone = CompressOptions(plan=options.plan, allow_other_store=options.allow_other_store)
    if options != alone or scope.is_given or request.cursors or request.rule.only_with_properties:
        raise UsageError("--plan contains the values and their changes: remove all other options")


def _compress(
    shell: Shell, url: str | None, request: _Request, writing: WriteOptions, bulk: BulkOptions
) -> None:
    options, scope = request.options, request.scope_options
    if options.plan is not None:
        _check_plan_alone(request)
    if options.estimate:
        writing = replace(writing, dry_run=True)
    request.check_files()
    scope.ensure_can_ask(writing)
    with open_values(shell, url, request.files, request.copy_to, writing) as store:
        readers = Readers.of(store, tuple(writing.for_version or ()))
        rule = replace(request.rule, readers=readers)
        request = replace(request, rule=rule)
        if options.plan is not None or scope.stdin or request.files:
            check_named(store, request.scope)
        else:
            check_selected(store, request.scope, rule.kind)
        shell.warn_of_old_parts(store, request.scope.topics)
        if options.estimate:
            _estimate(shell, store, request)
            return
        if options.plan is not None:
            other = options.allow_other_store
            rewrite = apply_plan(store, options.plan, request.rule.kind, other_store=other)
        else:
            rewrite = rewrite_values(
                request.command,
                lambda: request.values(store),
                rule,
                first=request.first_rule,
                codec=rule.codec,
            )
        if request.copy_to is None:
            write(shell, store, rewrite, writing, bulk)
            return
        copy = partial(write_copies, shell, files=request.files, target=request.copy_to)
        write_overlaid(shell, store, rewrite, writing, copy)


def _estimate(shell: Shell, store: Store, request: _Request) -> None:
    by = request.options.by
    with shell.progress(unit="values") as progress:
        rows = list(estimate(progress.counting(request.values(store)), request.rule, by))
    shell.emit(rows, estimate_table(by) if shell.format is Format.TABLE else estimate_view(by))
    _explain(shell, rows, request.rule.threshold)
    if any(row["undecodable"] for row in rows):
        raise typer.Exit(Exit.FAULT)


def _explain(shell: Shell, rows: Sequence[Document], threshold: int) -> None:
    """Print how many values the threshold excludes, because brokers don't compress those either."""
    of_codec = [[row for row in rows if row["codec"] == codec] for codec in CODECS]
    values = sum(row["values"] for row in of_codec[0])
    # A value that already has a codec is not counted for that codec.
    under = max(sum(row["under_threshold"] for row in rows_of_codec) for rows_of_codec in of_codec)
    if under:
        shell.note(
            f"the threshold of {threshold} bytes excludes {under} of {counted(values, 'values')}"
            " (add --threshold 0 to include all)"
        )
    else:
        shell.note(f"no value is excluded by the threshold of {threshold} bytes")
