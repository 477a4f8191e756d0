"""`rebuild`: metadata made again from bookies' disks alone."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.access.urls import read_secret, redact
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.inputs import open_input, read_lines
from pulsar_meta.cli.options import EngineOptions, EntriesUrls
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import DecodeError, GuardError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.offload import open_offload
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.entries.entry_sources import Sources
from pulsar_meta.jobs.rebuild.names import GivenNames, Named, names_in_log, read_names
from pulsar_meta.jobs.rebuild.old_store import OldStore, names_in_objects, read_old_store
from pulsar_meta.jobs.rebuild.rebuilt import (
    Known,
    check_disks,
    rebuilt_values,
    unnamed_groups,
    write_rebuilt,
)
from pulsar_meta.jobs.rebuild.scan import Scanner, WorkFile, local_scanner, work_file_head, work_file_of
from pulsar_meta.jobs.topics.topic import Ledger


def rebuild(
    shell: Shell,
    engine: EngineOptions,
    entries: EntriesUrls = None,
    names: Annotated[
        Path | None,
        typer.Option(
            "--names", help="The topics and cursors of ledgers, a line each, as --unnamed writes it."
        ),
    ] = None,
    old_store: Annotated[
        str | None,
        typer.Option("--with", metavar="STORE", help="An older store or snapshot: what it knew is kept."),
    ] = None,
    broker_log: Annotated[
        list[Path] | None,
        typer.Option(
            "--broker-log", help="A broker's log, which says for whom ledgers were made (repeatable)."
        ),
    ] = None,
    offloaded: Annotated[
        list[str] | None,
        typer.Option(
            "--offloaded",
            metavar="URL",
            help="Objects in tiered storage (offload:URL): they have names of topics (repeatable).",
        ),
    ] = None,
    list_unnamed: Annotated[
        bool, typer.Option("--unnamed", help="List topics without a name, as the file of --names to fill in.")
    ] = False,
    cursors_in_place: Annotated[
        bool,
        typer.Option(
            "--cursors-in-place",
            help="Leave the old store's policies as they are: no subscription is missing.",
        ),
    ] = False,
    cluster: Annotated[
        str, typer.Option("--cluster", help="What brokers call their cluster (clusterName).")
    ] = "standalone",
    password: Annotated[
        str | None,
        typer.Option(
            "--password", help="The password of ledgers: file:PATH or env:NAME. Default: the empty one."
        ),
    ] = None,
    lost_bookie: Annotated[
        list[str] | None,
        typer.Option("--lost-bookie", help="The id of a bookie whose disks are not here (repeatable)."),
    ] = None,
    ack_quorum: Annotated[
        int | None,
        typer.Option("--ack-quorum", min=1, help="What brokers waited for. Default: the write quorum."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that did not end, from FILE.work.")
    ] = False,
) -> None:
    """Make a store again from bookies' disks: a snapshot in --output FILE, a report on stdout.

    Stop the bookies first, and copy their disks: they delete ledgers that no store names. Every ledger on the
    disks gets a record, closed at its last entry; its bytes, digest type, ensemble and write quorum are what
    its entries show. Data ledgers that belong together become topics: by cursors that name them, and by
    indexes and sequence ids that go on. Their names are mostly not on the disks: --with has those of an
    older store, however old, --names the rest; else a topic is lost-found/ledgers/ledger-N. A cursor's ledger
    does not say whose it is either: without a name it is the subscription recovered-N of its topic. Of those
    whose state was in the store alone nothing is left: --names can have them begin anew. Namespaces are made
    to keep everything for ever: change that when subscriptions are in place.

    With --with an older store all that it knew is kept, and what the disks have that is newer goes where it
    belongs; what it named and no disk has is reported as gone.

    The report has a line for each value: certain, likely, old, lost+found, invented, gone, or refused where a
    value would be wrong. Nothing is written but FILE, and meanwhile FILE.work, which has what was found of
    each ledger: --resume goes on with it where the disks are what they were. docs/disaster.md is the whole
    procedure.

    Examples:
      pulsar-meta rebuild --entries bookie-disk:copy --unnamed -o ndjson > names
      pulsar-meta rebuild --entries bookie-disk:copy --names names --output found
      pulsar-meta rebuild --with snapshot:monday.ndjson.zst --output found
      pulsar-meta rebuild --broker-log broker.log --unnamed -o ndjson > names
      pulsar-meta rebuild --offloaded offload:s3://bucket --output found
      pulsar-meta rebuild --lost-bookie bk3:3181 --output found.ndjson.zst -o csv
    """
    faults = Faults(shell)
    known = Known(
        password=b"" if password is None else read_secret(password, "--password").encode(),
        lost=tuple(lost_bookie or ()),
        ack_quorum=ack_quorum,
        given=GivenNames() if names is None else read_names(read_lines(names), str(names)),
        logged=_offloaded(offloaded or (), faults) | _logged(broker_log or ()),
        old=OldStore() if old_store is None else _old_store(shell, old_store, faults),
        policies_as_they_were=cursors_in_place,
        cluster=cluster,
    )
    urls = shell.entries_urls(entries)
    with open_entries(urls) as source:
        check_disks(source)
        with _work_file(shell, urls, known, resume=resume) as work:
            scanner = work.keeping(_scanner(shell, engine, urls, source, known, faults), faults.report)
            if list_unnamed:
                shell.emit(unnamed_groups(source, faults.report, known, scanner), UNNAMED)
            else:
                _write(shell, source, known, faults, scanner, taken=work.head["taken"])
            work.remove()
        faults.finish(source)


def _offloaded(urls: Iterable[str], faults: Faults) -> dict[int, Named]:
    names: dict[int, Named] = {}
    for url in urls:
        if not url.startswith("offload:"):
            raise UsageError("--offloaded: expected offload:URL", source=redact(url))
        with open_offload(url) as objects:
            names |= names_in_objects(objects, faults.report)
    return names


def _logged(files: Iterable[Path]) -> dict[int, Named]:
    names: dict[int, Named] = {}
    for file in files:
        with open_input(file) as stream:
            lines = gzip.GzipFile(fileobj=stream) if file.suffix == ".gz" else stream
            try:
                names |= names_in_log(line.decode("utf-8", "replace") for line in lines)
            except EOFError as error:
                raise DecodeError("the file was cut short", source=str(file)) from error
            except (gzip.BadGzipFile, zlib.error) as error:
                raise DecodeError(f"not gzip: {error}", source=str(file)) from error
    return names


def _old_store(shell: Shell, url: str, faults: Faults) -> OldStore:
    with shell.other_store(url) as store:
        return read_old_store(store, faults.report)


def _worth_spark(shell: Shell, engine: EngineOptions, source: EntrySource) -> bool:
    ledgers = (Ledger(one, (source.last_entry(one) or 0) + 1) for one in source.ledgers())
    return engine.choose(shell, ledgers, source) == "spark"


def _work_file(shell: Shell, urls: Sequence[str], known: Known, *, resume: bool) -> WorkFile:
    """Return what keeps the facts beside --output; they are kept nowhere where that is no ordinary file."""
    head = work_file_head(urls, known.lost, known.password, tool=_TOOL, taken=_now())
    target = shell.output
    if target is None or (target.exists() and not target.is_file()):
        if resume:
            raise UsageError("--resume goes on with the file beside --output FILE: give that")
        return WorkFile(None, head, known.password)
    work = WorkFile(work_file_of(target), head, known.password, resume=resume)
    if resume:
        shell.note(f"{work.kept} ledgers were looked at before ({work_file_of(target)})")
    return work


def _scanner(
    shell: Shell,
    engine: EngineOptions,
    urls: Sequence[str],
    source: EntrySource,
    known: Known,
    faults: Faults,
) -> Scanner:
    if not _worth_spark(shell, engine, source):
        return local_scanner(source, faults.report, password=known.password, lost=known.lost)
    from pulsar_meta.jobs.spark.commands import scan_with_spark

    sources = Sources(None, tuple(urls))
    return scan_with_spark(sources, known.password, known.lost, faults.report, engine.spark_settings(faults))


def _write(
    shell: Shell, source: EntrySource, known: Known, faults: Faults, scanner: Scanner, *, taken: str
) -> None:
    """Write the snapshot, then the report; a ledger that is refused ends the command with 7."""
    if shell.output is None:
        raise UsageError("give --output FILE for the snapshot: stdout has the report")
    values = rebuilt_values(source, faults.report, known, scanner)
    written = write_rebuilt(values, shell.output, {"rebuilt": True, "taken": taken, "tool": _TOOL})
    replace(shell, output=None).emit((one.document() for one in written), VIEW)
    if any(one.certainty == "refused" and one.facts for one in written):
        faults.note(GuardError.exit_code)
    counts = {
        "ledgers": sum("ledger_id" in one.facts for one in written),
        "topics": sum("ledgers" in one.facts for one in written),
        "cursors": sum("cursor" in one.facts for one in written),
        "schemas": sum("schema" in one.facts for one in written),
        "values": sum(one.value is not None for one in written),
    }
    shell.summary(counts, NOT_MADE)


def _now() -> str:
    return iso_time(time.time_ns() // 1_000_000) or ""


def _row(line: Document) -> list[str]:
    named = ("kind", "entries", "last_entry", "size", "digest_type")
    cells = ["" if line.get(name) is None else str(line[name]) for name in named]
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
    payloads = [one["payload"] for one in line.get("payloads", ())]
    if "cursor" in line:
        payloads = [f"a cursor of {line['topic'] or 'a topic without a name'} at {line['position']}"]
    if "ledger_id" not in line:
        payloads = [f"subscription {line['cursor']} of {line['topic']}, of which nothing is left"]
    ledgers, producers = ", ".join(map(str, line.get("ledgers", ()))), ", ".join(line.get("producers", ()))
    messages = "" if "cursor" in line else str(line["messages"])
    return [str(line.get("ledger_id", "")), ledgers, messages, *times, producers, " | ".join(payloads)]


_TOOL = f"pulsar-meta {version('pulsar-meta')}"
_TIMES = ("first_time", "last_time")
# What a store has beside, and why it is not in the snapshot.
NOT_MADE = {
    "subscriptions whose state was in the store alone": "not on the disks",
    "policies, properties, terminations, custom metadata of ledgers": "not on the disks",
    "what had been deleted": "its ledgers may still be on the disks, and come back",
}
VIEW = View(
    ["path", "certainty", "holds", "entries", "last", "bytes", "digest", "E/Qw", "by"],
    _row,
    frozenset({"entries", "last", "bytes"}),
    fields=(
        "path", "certainty", "ledger_id", "kind", "entries", "last_entry", "size", "digest_type",
        "ensemble_size", "write_quorum", "ensembles", "missing", "fenced", "topic", "ledgers", "messages",
        "first_time", "last_time", "cursor", "position", "cursor_ledger", "compacted_ledger", "schema",
        "version", "schema_ledgers", "gone", "of", "next", "evidence",
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
