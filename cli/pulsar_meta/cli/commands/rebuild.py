"""`rebuild`: rebuild metadata from bookies' disks."""

from __future__ import annotations

import gzip
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from pulsar_meta.access.urls import read_secret, redact
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import Engine, EngineOptions, EntriesUrls
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.settings import distribution
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.streams import open_input, read_lines
from pulsar_meta.codecs.compression import LIMITS
from pulsar_meta.codecs.errors import DecodeError, GuardError, LimitError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.offload import open_offload
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.entries.entry_sources import Sources
from pulsar_meta.jobs.rebuild.names import GivenNames, Named, names_in_log, read_names
from pulsar_meta.jobs.rebuild.old_store import OldStore, names_in_objects, read_old_store
from pulsar_meta.jobs.rebuild.readable import complete_indexes
from pulsar_meta.jobs.rebuild.rebuilt import (
    Known,
    check_disks,
    rebuilt_values,
    unnamed_groups,
    write_rebuilt,
)
from pulsar_meta.jobs.rebuild.scan import Scanner, WorkFile, local_scanner, work_file_head, work_file_of
from pulsar_meta.jobs.topics.completeness import directories_not_given
from pulsar_meta.jobs.topics.topic import Ledger

# The lines that name ledgers are shorter, even if all names in them have their largest size.
_LONGEST_LINE: Final = 64 << 10


@dataclass(frozen=True)
class KnownOptions:
    """Options for facts that are not on the disks."""

    names: Annotated[
        Path | None,
        typer.Option("--names", help="Names of topics and cursors, one per line, as --unnamed writes them."),
    ] = None
    old_store: Annotated[
        str | None,
        typer.Option("--with", metavar="STORE", help="URL of an older store whose values are kept."),
    ] = None
    broker_log: Annotated[
        list[Path] | None,
        typer.Option("--broker-log", help="A broker's log, in which ledgers have names (repeatable)."),
    ] = None
    offloaded: Annotated[
        list[str] | None,
        typer.Option("--offloaded", metavar="URL", help="Offloaded ledgers (offload:URL), which have names."),
    ] = None
    cursors_in_place: Annotated[
        bool,
        typer.Option("--cursors-in-place", help="Keep the old store's policies: no subscription is missing."),
    ] = False
    cluster: Annotated[str, typer.Option("--cluster", help="Cluster name of the brokers (clusterName).")] = (
        "standalone"
    )
    password: Annotated[
        str | None,
        typer.Option(
            "--password",
            metavar="file:PATH|env:NAME",
            help="Source of the password of ledgers. Default: the empty password.",
        ),
    ] = None
    lost_bookie: Annotated[
        list[str] | None,
        typer.Option("--lost-bookie", metavar="ID", help="A bookie whose disks are missing (repeatable)."),
    ] = None
    ack_quorum: Annotated[
        int | None,
        typer.Option("--ack-quorum", min=1, help="Ack quorum of the brokers. Default: the write quorum."),
    ] = None

    def read(self, shell: Shell, faults: Faults) -> Known:
        """Read the files and stores that the options name. Raises UsageError for an invalid option."""
        return Known(
            password=b"" if self.password is None else read_secret(self.password, "--password").encode(),
            lost=tuple(self.lost_bookie or ()),
            ack_quorum=self.ack_quorum,
            given=GivenNames() if self.names is None else read_names(read_lines(self.names), str(self.names)),
            logged=_offloaded_names(self.offloaded or (), faults) | _logged_names(self.broker_log or ()),
            old=OldStore() if self.old_store is None else _old_store(shell, self.old_store, faults),
            policies_as_they_were=self.cursors_in_place,
            cluster=self.cluster,
        )


def rebuild(
    shell: Shell,
    options: KnownOptions,
    engine: EngineOptions,
    entries: EntriesUrls = None,
    list_unnamed: Annotated[
        bool, typer.Option("--unnamed", help="List topics without a name, as a file for --names.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume a run that did not finish, from FILE.work.")
    ] = False,
) -> None:
    """Rebuild a lost metadata store from bookies' disks.

    Use it when the store is lost and there is no current copy; with one, use restore. Stop the bookies and
    copy their disks first, because a bookie deletes ledgers that the store doesn't know. Writes a snapshot to
    --output FILE and a report to stdout. See the page Disaster recovery for the complete procedure.

    Every ledger on the disks gets metadata, closed at its last entry. Data ledgers become topics: cursors
    show which ledgers belong together, and so do indexes and sequence ids. Most names of topics and
    subscriptions are not on the disks: get them from an older store (--with), from --names, from a broker's
    log or from offloaded ledgers. Other topics are named lost-found/ledgers/ledger-N, and their
    subscriptions recovered-N. Subscriptions whose state was only in the store are lost; --names can create
    them again. Namespaces get unlimited retention; change it when all subscriptions exist again.

    With --with, the values of the older store are kept and extended by newer data from the disks. The report
    has one line per value: certain, likely, old, lost+found, invented, gone (in the older store but on no
    disk), or refused (not written, because it would be wrong).

    Examples:
      pulsar-meta rebuild --entries bookie-disk:copy --unnamed -o ndjson > names
      pulsar-meta rebuild --entries bookie-disk:copy --names names --output found
      pulsar-meta rebuild --with snapshot:monday.ndjson.zst --output found
      pulsar-meta rebuild --broker-log broker.log --unnamed -o ndjson > names
      pulsar-meta rebuild --offloaded offload:s3://bucket --output found
      pulsar-meta rebuild --lost-bookie bk3:3181 --output found.ndjson.zst -o csv
    """
    faults = Faults(shell)
    known, urls = options.read(shell, faults), shell.entries_urls(entries)
    with open_entries(urls) as source:
        check_disks(source)
        completed = complete_indexes(source)
        with _work_file(shell, urls, known, resume=resume) as work:
            if completed:
                engine = _without_spark(shell, engine)
            scanner = work.keeping(_scanner(shell, engine, urls, source, known, faults), faults.report)
            with shell.progress(sum(1 for _ in source.ledgers()), "ledgers") as progress:
                counted = lambda ledgers: progress.counting(scanner(ledgers))  # noqa: E731
                if list_unnamed:
                    shell.emit(unnamed_groups(source, faults.report, known, counted), UNNAMED)
                else:
                    _write(shell, source, known, faults, counted, taken=work.head["taken"])
            work.remove()
        faults.finish(source)


def _offloaded_names(urls: Iterable[str], faults: Faults) -> dict[int, Named]:
    names: dict[int, Named] = {}
    for url in urls:
        if not url.startswith("offload:"):
            raise UsageError("invalid --offloaded: expected offload:URL", source=redact(url))
        with open_offload(url) as objects:
            names |= names_in_objects(objects, faults.report)
    return names


def _logged_names(files: Iterable[Path]) -> dict[int, Named]:
    names: dict[int, Named] = {}
    for file in files:
        with open_input(file) as stream:
            try:
                names |= names_in_log(_log_lines(stream, compressed=file.suffix == ".gz"))
            except LimitError as error:
                raise error.within(str(file)) from error
            except EOFError as error:
                raise DecodeError("the file is truncated", source=str(file)) from error
            except (gzip.BadGzipFile, zlib.error) as error:
                raise DecodeError(f"not a valid gzip file: {error}", source=str(file)) from error
    return names


def _log_lines(stream: IO[bytes], *, compressed: bool) -> Iterator[str]:
    """Yield the lines of a broker's log, each cut after `_LONGEST_LINE` bytes.

    Raises LimitError if a compressed log is too large.
    """
    lines = gzip.GzipFile(fileobj=stream) if compressed else stream
    unpacked, begins = 0, True
    while line := lines.readline(_LONGEST_LINE):
        if compressed:
            unpacked += len(line)
            LIMITS.check_file(os.fstat(stream.fileno()).st_size, unpacked)
        if begins:
            yield line.decode("utf-8", "replace")
        begins = line.endswith(b"\n")


def _old_store(shell: Shell, url: str, faults: Faults) -> OldStore:
    with shell.other_store(url) as store:
        return read_old_store(store, faults.report)


def _work_file(shell: Shell, urls: Sequence[str], known: Known, *, resume: bool) -> WorkFile:
    """Open the work file next to --output; if the output is not a regular file, keep no work file.

    Raises UsageError for --resume without such a file.
    """
    head = work_file_head(urls, known.lost, known.password, tool=_TOOL, taken=_now())
    target = shell.output
    if target is None or (target.exists() and not target.is_file()):
        if resume:
            raise UsageError("--resume needs the work file next to the output: add --output FILE")
        return WorkFile(None, head, known.password)
    work = WorkFile(work_file_of(target), head, known.password, resume=resume)
    if resume:
        shell.note(f"{work.kept} ledgers were already scanned ({work_file_of(target)})")
    return work


def _without_spark(shell: Shell, engine: EngineOptions) -> EngineOptions:
    """Return options without Spark, whose workers would each have to complete the indexes of the disks."""
    if engine.engine is Engine.SPARK:
        shell.note("not using Spark, because the indexes of the disks lack entries")
    return EngineOptions(engine=Engine.LOCAL)


def _scanner(
    shell: Shell,
    engine: EngineOptions,
    urls: Sequence[str],
    source: EntrySource,
    known: Known,
    faults: Faults,
) -> Scanner:
    ledgers = (Ledger(ledger, (source.last_entry(ledger) or 0) + 1) for ledger in source.ledgers())
    if engine.choose(shell, ledgers, source) != "spark":
        return local_scanner(source, faults.report, password=known.password, lost=known.lost)
    from pulsar_meta.jobs.spark.commands import scan_with_spark

    sources = Sources(None, tuple(urls))
    return scan_with_spark(sources, known.password, known.lost, faults.report, engine.spark_settings(faults))


def _write(
    shell: Shell, source: EntrySource, known: Known, faults: Faults, scanner: Scanner, *, taken: str
) -> None:
    """Write the snapshot, then the report. Makes the command exit with 7 if a ledger was refused."""
    if shell.output is None:
        raise UsageError("no file for the snapshot: add --output FILE (the report goes to stdout)")
    values = rebuilt_values(source, faults.report, known, scanner)
    written = write_rebuilt(values, shell.output, {"rebuilt": True, "taken": taken, "tool": _TOOL})
    replace(shell, output=None).emit((value.document() for value in written), VIEW)
    if any(value.certainty == "refused" and value.facts for value in written):
        faults.note(GuardError.exit_code)
    counts = {
        "ledgers": sum("ledger_id" in value.facts for value in written),
        "topics": sum("ledgers" in value.facts for value in written),
        "cursors": sum("cursor" in value.facts for value in written),
        "schemas": sum("schema" in value.facts for value in written),
        "values": sum(value.value is not None for value in written),
    }
    gaps = {str(gap): "the ledgers in it are not rebuilt" for gap in directories_not_given(source)}
    if gaps:
        faults.note(NotFoundError.exit_code)
    shell.summary(counts, gaps | NOT_MADE)


def _now() -> str:
    return iso_time(time.time_ns() // 1_000_000) or ""


def _row(line: Document) -> list[str]:
    columns = ("kind", "entries", "last_entry", "size", "digest_type")
    cells = ["" if line.get(name) is None else str(line[name]) for name in columns]
    quorum = f"{line['ensemble_size']}/{line['write_quorum']}" if "ensemble_size" in line else ""
    if "ledgers" in line:
        cells[0] = f"ledgers {', '.join(map(str, line['ledgers']))}"
    if "next" in line:
        cells[0] = f"next {line['next']}"
    if "cursor" in line:
        cells[0] = f"at {line.get('position')}"
    return [line["path"], line["certainty"], *cells, quorum, "; ".join(line["evidence"])]


def _unnamed_row(line: Document) -> list[str]:
    times = ("" if line.get(name) is None else iso_time(line[name]) or "" for name in _TIMES)
    payloads = [sample["payload"] for sample in line.get("payloads", ())]
    if "cursor" in line:
        payloads = [f"cursor of {line['topic'] or 'a topic without a name'} at {line['position']}"]
    if "ledger_id" not in line:
        payloads = [f"subscription {line['cursor']} of {line['topic']}, which is lost"]
    ledgers, producers = ", ".join(map(str, line.get("ledgers", ()))), ", ".join(line.get("producers", ()))
    messages = "" if "cursor" in line else str(line["messages"])
    return [str(line.get("ledger_id", "")), ledgers, messages, *times, producers, " | ".join(payloads)]


_TOOL = f"pulsar-meta {distribution().version}"
_TIMES = ("first_time", "last_time")
# Parts of a store that a rebuilt snapshot lacks, with the reason.
NOT_MADE = {
    "subscriptions whose state was only in the store": "not on the disks",
    "policies, properties, terminations, custom metadata of ledgers": "not on the disks",
    "deleted topics": "their ledgers may still be on the disks, and come back",
}
VIEW = View(
    ["path", "certainty", "holds", "entries", "last", "bytes", "digest", "E/Qw", "by"],
    _row,
    frozenset({"entries", "last", "bytes"}),
    fields=(
        "path", "certainty", "ledger_id", "kind", "entries", "last_entry", "size", "digest_type",
        "ensemble_size", "write_quorum", "ensembles", "missing", "unreadable", "fenced", "topic", "ledgers",
        "messages", "first_time", "last_time", "cursor", "position", "cursor_ledger", "compacted_ledger",
        "schema", "version", "schema_ledgers", "gone", "of", "next", "evidence",
    ),
)  # fmt: skip
UNNAMED = View(
    ["ledger", "ledgers", "messages", "first time", "last time", "producers", "payloads"],
    _unnamed_row,
    frozenset({"ledger", "messages"}),
    fields=(
        "ledger_id", "topic", "cursor", "position", "ledgers", "messages", "first_time", "last_time",
        "producers", "payloads", "evidence",
    ),
)  # fmt: skip
