"""`plan-batches`, `pack-entries` (apache/pulsar#16680), `strip-metadata` and `attach-metadata` (PIP-70)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.entry_options import LimitOptions
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import Codec, EngineOptions, EntriesUrls, StoreUrl
from pulsar_meta.cli.render.tables import Detail
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.cli.streams import STDIN, atomic_file, index_path, input_name, open_input
from pulsar_meta.codecs.errors import UsageError, decoding
from pulsar_meta.codecs.frames.frame import MetadataAppender, parse_interceptors
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.batches.batch_plan import BatchRule, plan_choice
from pulsar_meta.jobs.batches.batching import Batching, Rule
from pulsar_meta.jobs.batches.packing import (
    FrameCount,
    Numbering,
    Packing,
    attach_frames,
    messages_of_lines,
    pack_messages,
    read_frames,
    strip_frames,
)
from pulsar_meta.jobs.entries.entry_choice import Choice, Coverage, choose
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.entries.filters import parse_filter
from pulsar_meta.jobs.entries.live_changes import LiveChanges
from pulsar_meta.jobs.spark.commands import plan_with_spark
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.stores.base import Store

Keys = Annotated[str, typer.Option("--keys", help="Properties that messages of a batch share: region,type.")]
MaxMessages = Annotated[int, typer.Option("--max-messages", min=1, help="Most messages in a batch.")]
MaxBytes = Annotated[int, typer.Option("--max-bytes", min=1, help="Largest uncompressed batch, in bytes.")]


_BATCHES = ("batches", "messages_per_batch", "largest_batch", "bytes")
_FIELDS = (
    "topic", "keys", "strategy", "producers", "messages", "unopened",
    *(f"before.{name}" for name in _BATCHES), *(f"after.{name}" for name in _BATCHES),
    "breaks", "breaking_keys", "wrong_batches", "out_of_order", "properties",
    "filter.where", "filter.skippable_before", "filter.skippable_after",
)  # fmt: skip


class Strategy(StrEnum):
    """The ways to keep messages with equal properties together."""

    SAME_VALUES = "same-values"
    BY_PROPERTIES = "by-properties"


def plan_batches(
    shell: Shell,
    names: Annotated[
        list[str], typer.Argument(metavar="TOPIC|LEDGER", help="Topics (with --store) or ledgers.")
    ],
    bounds: LimitOptions,
    engine: EngineOptions,
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys",
            help="Properties that messages of a batch share: region,type. Default: those that change rarely.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="FILTER",
            help="A subscription's filter, as for dump-entries: count the entries that brokers could skip.",
        ),
    ] = None,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    strategy: Annotated[
        Strategy,
        typer.Option("--strategy", help="by-properties keeps a batch per set of values open; loses order."),
    ] = Strategy.SAME_VALUES,
    as_proposed: Annotated[
        bool, typer.Option("--as-proposed", help="Use the condition in #16680, and show its errors.")
    ] = False,
    one_schema: Annotated[
        bool,
        typer.Option("--one-schema", help="With --as-proposed, assume that multi-schema mode is off."),
    ] = False,
    rebatch: Annotated[bool, typer.Option("--rebatch", help="Join messages of different entries.")] = False,
    max_messages: MaxMessages = 1000,
    max_bytes: MaxBytes = 131_072,
) -> None:
    """Show the batches that equal properties would make.

    Use it to see the effect of apache/pulsar#16680 on a topic before you patch producers. A message joins the
    open batch only if it has the same values for the keys. Another transaction, another schema and the limits
    end a batch, too, and so does the end of an entry (a flush) without --rebatch. Each topic and partition
    has its own plan; --count applies to each. Nothing is written.

    Without --keys, it reads the entries twice, and first finds the properties that change at most once in ten
    messages, all of them taken together. The properties of --where are keys as well.

    Examples:
      pulsar-meta plan-batches orders --keys region,type --entries bookie:
      pulsar-meta plan-batches orders --keys region --from -1000 -o json
      pulsar-meta plan-batches orders --where "region=eu"
    """
    condition = _condition(strategy, as_proposed=as_proposed)
    given = parse_keys(keys or "") or _keys_of_filter(where)
    batching = Batching(given, condition, max_messages, max_bytes, not one_schema)
    faults, coverage = Faults(shell), Coverage()
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store_if_any(store, names))
        urls = shell.entries_urls(entries)
        source = stack.enter_context(open_entry_sources(urls, opened))
        coverage.changes = LiveChanges(opened, urls)
        choices = list(choose(names, opened, source, faults.report, ledgers=bounds.ledgers))
        rule = BatchRule(bounds.limits, bounds.count, batching, rebatch, keys is None, where)
        work = _Plans(faults, coverage, tuple(urls), opened, choices, rule)
        spark = engine.choose(shell, work.ledgers, source) == "spark"
        plans = work.by_spark(engine) if spark else work.local(source)
        topics = (
            {"topic": choice.name, **choice.segment, **plan}
            for choice, plan in zip(choices, plans, strict=True)
        )
        shell.emit(topics, Detail(_lines, fields=_FIELDS), single=len(names) == len(choices) == 1)
        bounds.report_coverage(shell, coverage, faults, named=True)
        faults.finish(source)


def _condition(strategy: Strategy, *, as_proposed: bool) -> Rule:
    """Return when a message joins the open batch. Raises UsageError for options that exclude each other."""
    if as_proposed and strategy is not Strategy.SAME_VALUES:
        raise UsageError("--as-proposed and --strategy can't be combined: remove one of them")
    return "as-proposed" if as_proposed else strategy.value


def _keys_of_filter(where: str | None) -> tuple[str, ...]:
    return () if where is None else tuple(sorted(parse_filter(where).names()))


@dataclass(frozen=True, slots=True)
class _Plans:
    """Makes a plan for each choice, in this process or with Spark."""

    faults: Faults
    coverage: Coverage
    urls: tuple[str, ...]
    store: Store | None
    choices: Sequence[Choice]
    rule: BatchRule

    @property
    def ledgers(self) -> Iterator[Ledger]:
        """The ledgers of all choices."""
        return (ledger for choice in self.choices for ledger in choice.ledgers)

    def local(self, source: EntrySource) -> Iterator[Document]:
        for choice in self.choices:
            yield plan_choice(self.rule, choice, source, self.store, self.faults.report, self.coverage)

    def by_spark(self, engine: EngineOptions) -> Iterator[Document]:
        sources = Sources(None if self.store is None else self.store.url, self.urls)
        spark = engine.spark_settings(self.faults)
        return plan_with_spark(sources, self.choices, self.rule, self.coverage, self.faults.report, spark)


def pack_entries(
    shell: Shell,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE|-", help="Messages as NDJSON. Default: stdin.")
    ] = None,
    keys: Keys = "",
    strategy: Annotated[
        Strategy, typer.Option("--strategy", help="As for plan-batches.")
    ] = Strategy.SAME_VALUES,
    max_messages: MaxMessages = 1000,
    max_bytes: MaxBytes = 131_072,
    compression: Annotated[Codec, typer.Option("--compression", help="Codec of payloads.")] = Codec.NONE,
    checksum: Annotated[bool, typer.Option("--checksum/--no-checksum", help="Write CRC-32Cs.")] = True,
    batches_of_one: Annotated[
        bool,
        typer.Option("--batches-of-one", help="Write single messages as batches, as C++ and Go do."),
    ] = False,
    producer: Annotated[
        str, typer.Option("--producer", help="Producer name of messages without one.")
    ] = "pulsar-meta",
    publish_time: Annotated[
        int | None, typer.Option("--publish-time", min=0, help="Milliseconds since the epoch. Default: now.")
    ] = None,
) -> None:
    """Pack messages into entry frames, as a producer would.

    Use it to create test data, or to test batches with shared properties. Each line is a JSON object with
    payload or payload_base64, properties, key, event_time and any other field of MessageMetadata; "flush":
    true ends the batch before the message. Commands read the result as --entries frames:FILE; attach-metadata
    adds the broker's metadata.

    Examples:
      pulsar-meta pack-entries messages.ndjson --keys region > frames
      echo '{"payload": "hello"}' | pulsar-meta pack-entries --output one.frames
    """
    import time

    now = time.time_ns() // 1_000_000 if publish_time is None else publish_time
    names = parse_keys(keys)
    packing = Packing(compression.value, checksum, names, batches_of_one)
    batching = Batching(names, strategy.value, max_messages, max_bytes)
    with open_input(file) as lines:
        messages = messages_of_lines(lines, producer=producer, clock=lambda: now, numbering=Numbering())
        shell.emit_bytes(pack_messages(messages, batching, packing))


def parse_keys(text: str) -> tuple[str, ...]:
    """Split names such as `region,type`. Raises UsageError if a name is given twice."""
    keys = tuple(key.strip() for key in text.split(",") if key.strip())
    if len(set(keys)) != len(keys):
        raise UsageError(f"invalid --keys {text!r}: a name is given twice")
    return keys


def _lines(document: Document) -> Iterator[str]:
    keys = ", ".join(document["keys"]) or "nothing"
    yield f"{document['topic']}: {document['messages']} messages of {document['producers']} producers"
    yield f"batches share {keys} ({document['strategy']})"
    for when in ("before", "after"):
        batches = document[when]
        yield (
            f"{when:7}{batches['batches']} batches, {batches['messages_per_batch']} messages each"
            f" (largest {batches['largest_batch']}), {batches['bytes']} bytes"
        )
    for name, label in (("breaks", "ended by"), ("breaking_keys", "keys that differed")):
        counts = document[name]
        if counts:
            yield f"{label}: " + ", ".join(f"{key} {count}" for key, count in counts.items())
    wrong = document["wrong_batches"]
    if any(wrong.values()):
        counts = f"properties of {wrong['properties']}, schema of {wrong['schema']} batches"
        yield f"wrong for later messages: {counts}"
    if "properties" in document:
        changing = [f"{each['key']} {each['changes']}" for each in document["properties"]]
        yield f"changes of each property: {', '.join(changing) or 'no message has properties'}"
    if "filter" in document:
        effect = document["filter"]
        before, after = (document[when]["batches"] for when in ("before", "after"))
        yield (
            f"a broker could skip {effect['skippable_before']} of {before} entries today,"
            f" and {effect['skippable_after']} of {after} after the change ({effect['where']})"
        )
    if document["out_of_order"]:
        yield f"{document['out_of_order']} messages would be out of order"
    for reason, count in document["unopened"].items():
        yield f"{count} entries left unchanged: {reason}"


FramesFile = Annotated[
    Path, typer.Argument(metavar="FILE|-", help="Frames, each after its 4-byte size; - for stdin.")
]


def strip_metadata(shell: Shell, file: FramesFile) -> None:
    """Remove broker metadata (PIP-70) from entry frames.

    Use it to compare an entry with the bytes that its producer sent. Checksum, message metadata and payload
    are not changed. Frames without broker metadata are copied; so are corrupt frames, which are reported with
    exit code 1. With --output, the positions in FILE.idx are copied as well.

    Examples:
      pulsar-meta strip-metadata frames --output bare
      pulsar-meta dump-entries 42 -o raw | pulsar-meta strip-metadata - > bare
    """
    count = FrameCount()
    with decoding(input_name(file)), open_input(file) as stream:
        shell.emit_bytes(strip_frames(read_frames(stream), count, Faults(shell).report))
    _copy_positions(shell, file)
    bad = f", {count.bad} are corrupt and not changed" if count.bad else ""
    shell.note(f"{count.frames} frames: {count.changed} stripped, {count.bare} had no broker metadata{bad}")
    if count.bad:
        raise typer.Exit(Exit.FAULT)


def attach_metadata(
    shell: Shell,
    file: FramesFile,
    interceptors: Annotated[
        str,
        typer.Option("--interceptors", metavar="NAMES", help="timestamp, index, or class names."),
    ] = "timestamp,index",
    start_index: Annotated[
        int, typer.Option("--start-index", min=0, help="Index of the first message, to continue a topic.")
    ] = 0,
    timestamp: Annotated[
        str, typer.Option("--timestamp", metavar="TIME", help="now, publish-time, or milliseconds.")
    ] = "now",
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing broker metadata.")] = False,
) -> None:
    """Add broker metadata (PIP-70) to entry frames.

    Use it to create entries as a broker with brokerEntryMetadataInterceptors would. An entry's index is that
    of its last message; a batch in a transaction counts as one message, as in the broker. A corrupt frame
    ends the command, because later indexes depend on the number of its messages.

    Examples:
      pulsar-meta attach-metadata bare --start-index 1000 --output frames
      pulsar-meta attach-metadata bare --interceptors index > frames
    """
    count = FrameCount()
    names = parse_interceptors(interceptors)
    appender = MetadataAppender(names, _clock(timestamp), start_index - 1, replace)
    with decoding(input_name(file)), open_input(file) as stream:
        shell.emit_bytes(attach_frames(read_frames(stream), appender, count))
    _copy_positions(shell, file)
    last = f", the last index is {appender.last_index}" if "index" in names and count.frames else ""
    shell.note(f"{count.frames} frames: broker metadata attached{last}")


def _copy_positions(shell: Shell, file: Path) -> None:
    index = file.with_name(file.name + ".idx")
    if shell.output is None or str(file) == STDIN or not index.is_file():
        return
    target = index_path(shell.output)
    if target is None:
        return
    with index.open("rb") as source, atomic_file(target, "wb") as out:
        shutil.copyfileobj(source, out)


def _clock(text: str) -> Callable[[int], int]:
    import time

    if text == "now":
        return lambda published: time.time_ns() // 1_000_000
    if text == "publish-time":
        return lambda published: published
    if text.isascii() and text.isdigit() and int(text) < 2**63:
        fixed = int(text)
        return lambda published: fixed
    raise UsageError(f"invalid --timestamp {text!r}: choose now, publish-time or milliseconds")
