"""`repair`: one subcommand for each kind of damage."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, OtherStores, StoreUrl
from pulsar_meta.cli.repairing import Confirm, open_for_repair, report_as_warning, run_plan, run_repair
from pulsar_meta.cli.rewriting import SAFETY, AllowOtherStore, WriteOptions, open_for_writing
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.streams import read_input
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.repair import adopt, compaction, count, generator, ledger_metadata, topic_record
from pulsar_meta.jobs.repair import cursor as cursors
from pulsar_meta.jobs.repair import schema as schemas
from pulsar_meta.jobs.repair.fix_plan import Planner, replayed
from pulsar_meta.jobs.repair.missing_ledger import Run, drop_ledger, skip_entries
from pulsar_meta.jobs.topics.topic import parse_ledger_id, parse_position

PartitionArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="A topic, or one partition of a partitioned topic.")
]
PartitionsArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="A topic; a partitioned topic means all its partitions.")
]
LedgerArgument = Annotated[str, typer.Argument(metavar="LEDGER", help="Ledger id.")]


def repair_adopt(
    shell: Shell,
    topic: PartitionArgument,
    ledger: LedgerArgument,
    writing: WriteOptions,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    other_stores: OtherStores = None,
) -> None:
    """Bring a ledger that only the disks have back into its topic.

    Use it when check reports ledger-lost: a store that was restored from an older copy lacks the ledger, and
    bookies delete its entries at their next garbage collection, so stop them first. The command reads the
    ledger from the disks (--entries bookie-disk:PATH), writes its metadata, and puts it into the topic's
    list. It asks for the topic's name if the messages alone don't show that the ledger is the topic's, and
    refuses if they contradict it.

    Examples:
      pulsar-meta repair adopt orders 4711 --entries bookie-disk:/bk --dry-run
      pulsar-meta repair adopt orders 4711 --entries bookie-disk:/bk --yes
    """
    chosen = parse_ledger_id(ledger)
    with ExitStack() as stack:
        opened, source, readers = stack.enter_context(open_for_repair(shell, store, entries, writing))
        others = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
        name, report = TopicName.parse(topic), report_as_warning(shell)
        repair = adopt.repair_adopt(opened, source, name, chosen, report, readers, others=others)
        run_repair(shell, opened, repair, writing, confirm, source)


def repair_compaction(
    shell: Shell,
    topic: PartitionArgument,
    writing: WriteOptions,
    ledger: Annotated[
        int | None,
        typer.Option("--ledger", min=0, help="Compacted ledger. Default: the one that reaches farthest."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the reference instead.")] = False,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Restore or remove a topic's reference to its compacted data.

    Use it when consumers with readCompacted miss old keys, or stall. Entries that were trimmed after a
    compaction exist only in the compacted ledger, and only the cursor __compaction refers to that ledger. The
    command finds the ledger by its metadata; with --entries, it reads the ledger first. It needs --entries if
    the cursor's state is in a ledger, because it moves that state into the record. If the compacted ledger is
    lost, use --drop, then compact the topic again.

    Examples:
      pulsar-meta repair compaction prices --entries bookie: --dry-run
      pulsar-meta repair compaction prices --drop --yes
    """
    if drop and ledger is not None:
        raise UsageError("--ledger and --drop can't be combined: remove one of them")
    with open_for_repair(shell, store, entries, writing) as (opened, source, readers):
        name = TopicName.parse(topic)
        repair = compaction.repair_compaction(opened, source, name, readers, ledger_id=ledger, drop=drop)
        run_repair(shell, opened, repair, writing, confirm, source)


def repair_count(
    shell: Shell,
    topic: PartitionsArgument,
    writing: WriteOptions,
    ledgers: Annotated[
        list[str] | None,
        typer.Argument(metavar="LEDGER", help="Ledgers of the topic. Default: all.", show_default=False),
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    confirm: Confirm = None,
) -> None:
    """Make a topic's ledger list agree with BookKeeper's metadata.

    Use it when check reports that the two disagree about the end of a ledger. With the bookies' disks
    (--entries bookie-disk:), both get the last entry on the disks; if the list has more entries, the command
    asks for the topic's name, because those entries are given up. Without disks, a ledger that is empty in
    the list gets the end in BookKeeper's metadata, because otherwise a broker drops it. A ledger with two
    different ends becomes OPEN, so that BookKeeper recovers it and takes the end from the bookies.

    Examples:
      pulsar-meta repair count orders --dry-run
      pulsar-meta repair count orders 25 --entries bookie-disk:/bk/data --yes
    """
    ledger_ids = [parse_ledger_id(text) for text in ledgers or ()]
    with open_for_repair(shell, store, entries, writing) as (opened, source, readers):
        repair = count.repair_count(opened, source, TopicName.parse(topic), ledger_ids, readers)
        run_repair(shell, opened, repair, writing, confirm, source)


def repair_cursor(
    shell: Shell,
    topic: PartitionArgument,
    cursor: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")],
    writing: WriteOptions,
    position: Annotated[
        str | None,
        typer.Option("--position", metavar="LEDGER:ENTRY", help="The last acknowledged entry."),
    ] = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="Before the first entry.")] = False,
    latest: Annotated[
        bool, typer.Option("--latest", help="After the last entry, which skips the backlog.")
    ] = False,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Give a subscription a cursor record that brokers can load.

    Use it when a cursor's record can't be read, or when its ledger is lost or belongs to another cursor.
    Brokers don't load a topic with an unreadable cursor record; if only the ledger is lost, the cursor moves
    back and messages are redelivered. With --entries, the position, individual acknowledgements and
    properties are read from the cursor's ledger; otherwise, choose a position. The command prints how many
    entries are redelivered or skipped before it asks for confirmation.

    Examples:
      pulsar-meta repair cursor orders billing --entries bookie: --dry-run
      pulsar-meta repair cursor orders billing --position 7312:41
    """
    target = _target(position, earliest=earliest, latest=latest)
    with open_for_repair(shell, store, entries, writing) as (opened, source, readers):
        repair = cursors.repair_cursor(opened, source, TopicName.parse(topic), cursor, target, readers)
        run_repair(shell, opened, repair, writing, confirm, source)


def _target(position: str | None, *, earliest: bool, latest: bool) -> cursors.Target | None:
    if (position is not None) + earliest + latest > 1:
        raise UsageError("--position, --earliest and --latest can't be combined: choose one of them")
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
        typer.Option("--at-least", min=1, help="Lowest next id; known ledgers can raise it further."),
    ] = None,
) -> None:
    """Raise the counter of ledger ids above every known ledger.

    Use it after you restored a store, or when check reports the counter, because an id that is used twice
    overwrites entries. Stop all brokers first. The command reads the counter, /ledgers, all records, and with
    --entries the bookies' disks. Undo does not lower the counter.

    Examples:
      pulsar-meta repair generator --store zk://zk1:2181 --dry-run
      pulsar-meta repair generator --entries bookie-disk:/bk/data --yes
    """
    with open_for_repair(shell, store, entries, writing) as (opened, source, _):
        repair = generator.repair_generator(opened, source, report_as_warning(shell), at_least)
        run_repair(shell, opened, repair, writing, source=source)


def repair_ledger_metadata(
    shell: Shell,
    names: Annotated[
        list[str],
        typer.Argument(metavar="LEDGER|TOPIC", help="Ledger ids, or topics for all their ledgers."),
    ],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also replace metadata that can be decoded.")
    ] = False,
    confirm: Confirm = None,
) -> None:
    """Rewrite lost or corrupt BookKeeper metadata of ledgers.

    Use it before a broker loads the topic: a broker drops a last ledger without metadata, including its
    entries. Stop the bookies first, because they delete the entries of such ledgers at the next garbage
    collection. Last entry, length, digest type and bookies come from the topic's list and, with --entries,
    from the bookies' disks. The readable part of a damaged record is kept. A topic's last ledger becomes OPEN
    unless that part has its end, so that the broker recovers it.

    Examples:
      pulsar-meta repair ledger-metadata orders --store zk://zk1:2181 --dry-run
      pulsar-meta repair ledger-metadata 25 26 --entries bookie-disk:/bk/data
    """
    with open_for_repair(shell, store, entries, writing) as (opened, source, _):
        repair = ledger_metadata.repair_ledger_metadata(
            opened, source, names, report_as_warning(shell), again=again
        )
        run_repair(shell, opened, repair, writing, confirm, source)


def repair_missing_ledger(
    shell: Shell,
    topic: PartitionArgument,
    ledger: LedgerArgument,
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="N|N-M", help="Give up only these entries (repeatable)."),
    ] = None,
    only_absent: Annotated[
        bool, typer.Option("--only-absent", help="Give up only entries that no disk of --entries has.")
    ] = False,
    confirm: Confirm = None,
) -> None:
    """DANGEROUS: give up a lost ledger, or single lost entries.

    Use it as the last resort, when readers stall because entries are lost. Try repair ledger-metadata first:
    entries that bookies still have are not lost. By default, the ledger is removed from the topic's list, all
    its entries are given up, and subscriptions in it continue at the next ledger. With --only or
    --only-absent, the ledger stays and only these entries are given up, by acknowledging them in every
    subscription. Nothing is deleted from bookies.

    Examples:
      pulsar-meta repair missing-ledger orders 25 --dry-run
      pulsar-meta repair missing-ledger orders 25 --only 3-5 --confirm NAME -y
    """
    name, ledger_id = TopicName.parse(topic), parse_ledger_id(ledger)
    runs = [_run(text) for text in only] if only else None
    if runs is not None and only_absent:
        raise UsageError("--only and --only-absent can't be combined: remove one of them")
    with open_for_repair(shell, store, entries, writing) as (opened, source, readers):
        if runs is not None or only_absent:
            repair = skip_entries(opened, source, name, ledger_id, runs, readers)
        else:
            repair = drop_ledger(opened, name, ledger_id, readers)
        run_repair(shell, opened, repair, writing, confirm, source)


def _run(text: str) -> Run:
    """Parse "3" or "3-5" as the first and the last entry of a range. Raises UsageError."""
    first, separator, last = text.partition("-")
    if not first.isdecimal() or (separator and not last.isdecimal()):
        raise UsageError(f"invalid --only {text!r}: expected an entry or a range such as 3-5")
    return int(first), int(last or first)


def repair_offload(
    shell: Shell,
    topic: PartitionArgument,
    writing: WriteOptions,
    ledgers: Annotated[
        list[str] | None,
        typer.Argument(metavar="LEDGER", help="Default: all that need it.", show_default=False),
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Make brokers read offloaded ledgers from BookKeeper again.

    Use it when an offloaded object is lost or incomplete, and BookKeeper still has its copy. The command
    looks for objects in --entries offload:URL; a ledger that you name is read from BookKeeper in any case. An
    unfinished offload is removed, so that the next one starts again. Brokers do that themselves, and delete
    its objects, if they still use the same storage.

    Examples:
      pulsar-meta repair offload orders --entries offload:/mnt/tiered --dry-run
      pulsar-meta repair offload orders 7312 7313 --yes
    """
    ledger_ids = [parse_ledger_id(text) for text in ledgers or ()]
    with open_for_repair(shell, store, entries, writing) as (opened, source, readers):
        repair = generator.repair_offload(opened, source, TopicName.parse(topic), ledger_ids, readers)
        run_repair(shell, opened, repair, writing, source=source)


def repair_partitions(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="The partitioned topic, without -partition-N.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="Number of partitions. Default: enough for the highest one."),
    ] = None,
) -> None:
    """Rewrite a partitioned topic's record of its partition count.

    Use it when the record is lost or corrupt, or when its count is too low: brokers with PIP-414 refuse
    partitions without such a record. A higher count and all other fields of the record are kept.

    Examples:
      pulsar-meta repair partitions public/default/orders --dry-run
      pulsar-meta repair partitions orders --store zk://zk1:2181 --yes
    """
    with open_for_writing(shell, store, writing) as opened:
        repair = generator.repair_partitions(opened, TopicName.parse(topic), count)
        run_repair(shell, opened, repair, writing)


def repair_plan(
    shell: Shell,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Plan of check --fix-plan.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    confirm: Annotated[
        list[str] | None,
        typer.Option(
            "--confirm",
            metavar="TOPIC",
            rich_help_panel=SAFETY,
            help="The full name of a topic that loses data, for each of them (repeatable).",
        ),
    ] = None,
    other_stores: OtherStores = None,
    allow_other_store: AllowOtherStore = False,
) -> None:
    """Apply all repairs of a plan at once: repair --plan FILE.

    Use it after check --fix-plan, with the same --entries. It runs the repairs of the plan again on a view of
    the store, and writes nothing if their result differs from the plan because the store has changed. All
    values are written in one run with one undo file. The plan lists the findings that it doesn't repair.

    Examples:
      pulsar-meta check --entries bookie: --fix-plan fixes.ndjson
      pulsar-meta repair plan fixes.ndjson --entries bookie: --dry-run
      pulsar-meta repair --plan fixes.ndjson --entries bookie: --yes
    """
    with ExitStack() as stack:
        opened, source, readers = stack.enter_context(open_for_repair(shell, store, entries, writing))
        others = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
        planner = Planner(opened, source, readers, report_as_warning(shell), others)
        plan = replayed(planner, file, other_store=allow_other_store)
        run_plan(shell, opened, plan, writing, confirm or ())


def repair_schema(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic; partitions share the partitioned topic's schema.")],
    writing: WriteOptions,
    version: Annotated[
        int | None,
        typer.Option("--version", min=0, help="This version. Default: all whose ledgers are lost."),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="The version's schema, or JSON of `pulsar-admin schemas`."),
    ] = None,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Remove schema versions whose ledgers are lost.

    Use it before a broker uses the schema: if the ledger of one version is lost, the broker deletes all
    versions, and no message can be decoded by its schema. Only brokers write schemas to ledgers. With
    --schema, the version uses another ledger of the topic that has the same schema, if there is one. For the
    last version, the command prints how to register the schema again with the same version.

    Examples:
      pulsar-meta repair schema orders --dry-run
      pulsar-meta repair schema orders --version 3 --schema orders-3.avsc
    """
    if schema is not None and version is None:
        raise UsageError("--schema FILE needs the version that it replaces: add --version N")
    text = None if schema is None else schemas.schema_of(read_input(schema))
    wanted = None if version is None else schemas.Wanted(version, text)
    with open_for_repair(shell, store, entries, writing) as (opened, source, _):
        repair = schemas.repair_schema(opened, source, TopicName.parse(topic), wanted)
        run_repair(shell, opened, repair, writing, confirm, source)


def repair_termination(
    shell: Shell,
    topic: PartitionsArgument,
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    at_end: Annotated[
        bool, typer.Option("--at-end", help="Keep the topic terminated, but at its last entry.")
    ] = False,
) -> None:
    """Make entries after a topic's termination readable.

    Use it when a topic is terminated before its last entry, so that consumers don't get the rest. The topic
    then accepts messages again. To keep it terminated, use --at-end, or terminate it again with pulsar-admin.
    A topic that is terminated at its last entry is not changed.

    Examples:
      pulsar-meta repair termination public/default/orders --dry-run
      pulsar-meta repair termination orders --at-end --yes
    """
    with open_for_repair(shell, store, entries, writing) as (opened, source, readers):
        name = TopicName.parse(topic)
        repair = count.repair_termination(opened, source, name, at_end=at_end, readers=readers)
        run_repair(shell, opened, repair, writing, source=source)


def repair_topic_record(
    shell: Shell,
    topic: PartitionsArgument,
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    older: Annotated[
        bool,
        typer.Option("--older", help="Add ledgers before the list's first, if a broker started it empty."),
    ] = False,
    confirm: Confirm = None,
    other_stores: OtherStores = None,
) -> None:
    """Rebuild a topic's ledger list from the ledgers' metadata.

    Use it for a record that is lost, empty, truncated or corrupt, or that lacks a ledger. Ledgers that a
    broker has created since then stay in the list. Repair the record before a broker runs: a broker that
    loads a topic without a record starts it empty and moves every subscription to the new end. --entries
    tells how many entries a ledger has that BookKeeper has not closed. Ledgers that another topic or another
    cluster refers to are left out. The command asks for the topic's name if other evidence says that a ledger
    isn't the topic's.

    Examples:
      pulsar-meta repair topic-record orders --store zk://zk1:2181 --dry-run
      pulsar-meta repair topic-record orders --entries bookie: --yes
    """
    with ExitStack() as stack:
        opened, source, readers = stack.enter_context(open_for_repair(shell, store, entries, writing))
        others = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
        name, report = TopicName.parse(topic), report_as_warning(shell)
        repair = topic_record.repair_topic_record(
            opened, source, name, report, readers, older=older, others=others
        )
        run_repair(shell, opened, repair, writing, confirm, source)
