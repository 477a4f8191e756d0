"""`repair`: one subcommand for each kind of damage."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.inputs import read_input
from pulsar_meta.cli.options import EntriesUrls, OtherStores, StoreUrl
from pulsar_meta.cli.repairing import Confirm, open_for_repair, report_as_warning, run_repair
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.repair import compaction, count, generator, topic_record
from pulsar_meta.jobs.repair import cursor as cursors
from pulsar_meta.jobs.repair import schema as schemas
from pulsar_meta.jobs.repair.ledger_metadata import repair_ledger_metadata as repair
from pulsar_meta.jobs.repair.missing_ledger import Run, drop_ledger, skip_entries
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.topic import parse_ledger_id, parse_position


def repair_compaction(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic, of a partitioned one a partition.")],
    writing: WriteOptions,
    ledger: Annotated[
        int | None,
        typer.Option("--ledger", min=0, help="The ledger to point to. Default: the one that goes farthest."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Point to none.")] = False,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Point a topic to its compacted data again, which brokers lost sight of; or take the pointer away.

    What was trimmed after a compaction is only in the compacted ledger, and the cursor __compaction has the
    only pointer to it. Its ledger is found by what brokers write into its metadata; with --entries it is read
    through first. Where the cursor's state lies in a ledger --entries are needed: all of it moves into the
    record. With a pointer to a ledger that is gone compacted reading stalls: --drop, then compact again.

    Examples:
      pulsar-meta repair compaction prices --entries bookie: --dry-run
      pulsar-meta repair compaction prices --drop --yes
    """
    if drop and ledger is not None:
        raise UsageError("--ledger N points to a ledger, --drop to none: one of them")
    with open_for_repair(shell, store, entries, writing) as (opened, source):
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        name = TopicName.parse(topic)
        repair = compaction.repair_compaction(opened, source, name, readers, ledger_id=ledger, drop=drop)
        run_repair(shell, opened, repair, writing, confirm, source)


def repair_count(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="The topic; of a partitioned one all its partitions.")],
    writing: WriteOptions,
    ledgers: Annotated[
        list[str] | None,
        typer.Argument(metavar="LEDGER", help="Ledgers of it. Default: all.", show_default=False),
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    confirm: Confirm = None,
) -> None:
    """Make the topic's list and BookKeeper's metadata agree on where ledgers end.

    With the bookies' disks (--entries bookie-disk:…) both get what is there; if that is less than the list
    counts, entries are given up, and it asks for the topic's name. Without disks a ledger that the list
    counts as empty gets what BookKeeper has (a broker drops it otherwise), and one with two different ends
    becomes OPEN: whoever opens it recovers it, and the bookies say where it ends.

    Examples:
      pulsar-meta repair count orders --dry-run
      pulsar-meta repair count orders 25 --entries bookie-disk:/bk/data --yes
    """
    urls = list(entries or shell.settings.entries)
    chosen = [parse_ledger_id(text) for text in ledgers or ()]
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        repair = count.repair_count(opened, source, TopicName.parse(topic), chosen, readers)
        run_repair(shell, opened, repair, writing, confirm, source)


def repair_cursor(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic, of a partitioned one a partition.")],
    cursor: Annotated[str, typer.Argument(help="The subscription.")],
    writing: WriteOptions,
    position: Annotated[
        str | None,
        typer.Option("--position", metavar="LEDGER:ENTRY", help="The last entry that counts as read."),
    ] = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="Before the topic's first entry.")] = False,
    latest: Annotated[
        bool, typer.Option("--latest", help="Behind its last entry: the backlog is skipped.")
    ] = False,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Give a cursor a record that brokers load: its own cannot be read, or its ledger is gone or not its own.

    Brokers do not load a topic with such a record; where only the ledger is gone they go back, and messages
    come again. With --entries the state is read from the cursor's ledger: position, single acknowledgements,
    properties. Else say where it is to stand. How many entries come again or are skipped is said first.

    Examples:
      pulsar-meta repair cursor orders billing --entries bookie: --dry-run
      pulsar-meta repair cursor orders billing --position 7312:41
    """
    chosen = _target(position, earliest=earliest, latest=latest)
    with open_for_repair(shell, store, entries, writing) as (opened, source):
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        repair = cursors.repair_cursor(opened, source, TopicName.parse(topic), cursor, chosen, readers)
        run_repair(shell, opened, repair, writing, confirm, source)


def _target(position: str | None, *, earliest: bool, latest: bool) -> cursors.Target | None:
    if (position is not None) + earliest + latest > 1:
        raise UsageError("one of --position, --earliest and --latest")
    if position is not None:
        return parse_position(position)
    if earliest:
        return "earliest"
    return "latest" if latest else None


def repair_generator(
    shell: Shell,
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    at_least: Annotated[
        int | None,
        typer.Option("--at-least", min=1, help="The next id is this one or a higher, where more is known."),
    ] = None,
) -> None:
    """Move the generator of ledger ids above every id that was ever used, as far as that is known.

    Known are the counter itself, /ledgers, whatever records name, and with --entries what is on the bookies'
    disks. An id that is given out twice overwrites entries. Stop all brokers first. A counter never goes
    back, nor by undo.

    Examples:
      pulsar-meta repair generator --store zk://zk1:2181 --dry-run
      pulsar-meta repair generator --entries bookie-disk:/bk/data --yes
    """
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        repair = generator.repair_generator(opened, source, report_as_warning(shell), at_least)
        run_repair(shell, opened, repair, writing, source=source)


def repair_ledger_metadata(
    shell: Shell,
    names: Annotated[
        list[str],
        typer.Argument(metavar="LEDGER|TOPIC", help="Numbers of ledgers, or topics: all of theirs."),
    ],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also where there is metadata that can be decoded: made anew.")
    ] = False,
) -> None:
    """Write BookKeeper's metadata of ledgers again that is gone or garbage, before a broker loads the topic.

    From the topic's list and, with --entries, from the bookies' disks: last entry, length, digest type,
    bookies. The last ledger of a topic becomes OPEN: the broker recovers it. Loading a topic drops a last
    ledger without metadata, with what it holds; and bookies delete entries of ledgers without metadata at
    their next garbage collection, so stop them first.

    Examples:
      pulsar-meta repair ledger-metadata orders --store zk://zk1:2181 --dry-run
      pulsar-meta repair ledger-metadata 25 26 --entries bookie-disk:/bk/data
    """
    with open_for_repair(shell, store, entries, writing) as (opened, source):
        found = repair(opened, source, names, report_as_warning(shell), again=again)
        run_repair(shell, opened, found, writing, source=source)


def repair_missing_ledger(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="The topic, or one partition.")],
    ledger: Annotated[str, typer.Argument(help="The number of the ledger.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="N|N-M", help="Acknowledge these entries, and keep the ledger (repeatable)."
        ),
    ] = None,
    only_absent: Annotated[
        bool, typer.Option("--only-absent", help="The same for the entries that no disk of --entries has.")
    ] = False,
    confirm: Confirm = None,
) -> None:
    """DANGEROUS: give up a ledger whose entries are lost, or single entries of it, so that reading goes on.

    The ledger goes out of the topic's list, and subscriptions that stand in it go on at the next one; all its
    entries are given up. Where some are still there, --only or --only-absent gives up just the others: they
    count as acknowledged in every subscription. Try repair ledger-metadata first: what bookies still have is
    not lost. Nothing is deleted from bookies.

    Examples:
      pulsar-meta repair missing-ledger orders 25 --dry-run
      pulsar-meta repair missing-ledger orders 25 --only 3-5 --confirm NAME -y
    """
    name, ledger_id = TopicName.parse(topic), parse_ledger_id(ledger)
    runs = None if not only else [_run(text) for text in only]
    if runs is not None and only_absent:
        raise UsageError(
            "--only says which entries, and --only-absent has the disks say it: give one of them"
        )
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        single = runs is not None or only_absent
        repair = (
            skip_entries(opened, source, name, ledger_id, runs, readers)
            if single
            else drop_ledger(opened, name, ledger_id, readers)
        )
        run_repair(shell, opened, repair, writing, confirm, source)


def _run(text: str) -> Run:
    """Return the first and the last entry of a range."""
    first, separator, last = text.partition("-")
    if not first.isdecimal() or (separator and not last.isdecimal()):
        raise UsageError(f"--only {text}: an entry's number, or two with - between them")
    return int(first), int(last or first)


def repair_offload(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic, of a partitioned one a partition.")],
    writing: WriteOptions,
    ledgers: Annotated[
        list[str] | None,
        typer.Argument(metavar="LEDGER", help="Default: all that need it.", show_default=False),
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Have brokers read offloaded ledgers from BookKeeper again: their object is gone, or never was whole.

    Only where BookKeeper still has its copy. Objects are looked for with --entries offload:URL; a ledger that
    is named goes back in any case. An offload that did not end is forgotten, so that the next one begins
    anew: brokers do that by themselves, and clean up before, where the storage is still the same.

    Examples:
      pulsar-meta repair offload orders --entries offload:/mnt/tiered --dry-run
      pulsar-meta repair offload orders 7312 7313 --yes
    """
    chosen = [parse_ledger_id(text) for text in ledgers or ()]
    with open_for_repair(shell, store, entries, writing) as (opened, source):
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        repair = generator.repair_offload(opened, source, TopicName.parse(topic), chosen, readers)
        run_repair(shell, opened, repair, writing, source=source)


def repair_partitions(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="The partitioned topic, without -partition-N.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="How many partitions it has. Default: the last one and one."),
    ] = None,
) -> None:
    """Write the record of a partitioned topic again, which is gone, garbage, or says too few.

    Brokers with PIP-414 refuse partitions whose topic has no such record. What the record says beside the
    number stays, and so does a higher number.

    Examples:
      pulsar-meta repair partitions public/default/orders --dry-run
      pulsar-meta repair partitions orders --store zk://zk1:2181 --yes
    """
    with open_for_writing(shell, store, writing) as opened:
        repair = generator.repair_partitions(opened, TopicName.parse(topic), count)
        run_repair(shell, opened, repair, writing)


def repair_schema(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic, or a partitioned one: partitions share its schema.")],
    writing: WriteOptions,
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="This version. Default: all whose ledger is lost.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema", metavar="FILE", help="What it was: the schema, or the JSON of `pulsar-admin schemas`."
        ),
    ] = None,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Take versions whose ledger is lost out of a topic's schema record, before a broker uses it.

    With one version lost brokers delete all of them when the schema is used, and no message can be decoded by
    its schema any more. Schemas lie in ledgers, which only brokers write: with --schema a version is read
    from another ledger of this topic that has the same one, if there is such; of the last version it is said
    how a broker registers it again under its number.

    Examples:
      pulsar-meta repair schema orders --dry-run
      pulsar-meta repair schema orders --version 3 --schema orders-3.avsc
    """
    if schema is not None and version is None:
        raise UsageError("--schema: of which --version?")
    text = None if schema is None else schemas.schema_of(read_input(schema))
    wanted = None if version is None else schemas.Wanted(version, text)
    with open_for_repair(shell, store, entries, writing) as (opened, source):
        repair = schemas.repair_schema(opened, source, TopicName.parse(topic), wanted)
        run_repair(shell, opened, repair, writing, confirm, source)


def repair_termination(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic; of a partitioned one every partition.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    at_end: Annotated[
        bool, typer.Option("--at-end", help="Keep it terminated, at its last entry instead.")
    ] = False,
) -> None:
    """Have a topic read to its end that was terminated before it.

    The position goes, and the topic takes messages again: terminate it anew with pulsar-admin, or give
    --at-end. What is terminated where it ends stays so.

    Examples:
      pulsar-meta repair termination public/default/orders --dry-run
      pulsar-meta repair termination orders --at-end --yes
    """
    with open_for_repair(shell, store, entries, writing) as (opened, source):
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        name = TopicName.parse(topic)
        repair = count.repair_termination(opened, source, name, at_end=at_end, readers=readers)
        run_repair(shell, opened, repair, writing, source=source)


def repair_topic_record(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="The topic; of a partitioned one all its partitions.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    older: Annotated[
        bool,
        typer.Option(
            "--older", help="Also ledgers before the first of the list: after a broker started it empty."
        ),
    ] = False,
    confirm: Confirm = None,
    other_stores: OtherStores = None,
) -> None:
    """Make the list of a topic's ledgers again, from the ledgers that say whose they are.

    Use it for a record that is gone, empty, truncated or corrupt, or that lacks a ledger. Ledgers that a
    broker has created since then stay in the list. Repair the record before a broker runs: a broker that
    loads a topic without a record starts it empty and moves every subscription to the new end. --entries
    tells how many entries a ledger has that BookKeeper has not closed. Ledgers that another topic or another
    cluster names stay out. It asks for the topic's name if other evidence says that a ledger isn't the
    topic's.

    Examples:
      pulsar-meta repair topic-record orders --store zk://zk1:2181 --dry-run
      pulsar-meta repair topic-record orders --entries bookie: --yes
    """
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        name = TopicName.parse(topic)
        others = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
        repair = topic_record.repair_topic_record(
            opened, source, name, report_as_warning(shell), readers, older=older, others=others
        )
        run_repair(shell, opened, repair, writing, confirm, source)
