"""`snapshot`, `bundle`, `history` and `undo`: copies of a store, and its values over time."""

from __future__ import annotations

import platform
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Annotated, Final, NotRequired, TypedDict

import typer

from pulsar_meta.access.files import PRIVATE
from pulsar_meta.access.urls import redact
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, PlaceArgument, ShowSecrets, StoreUrl
from pulsar_meta.cli.render.pages import Section
from pulsar_meta.cli.render.rewriting import change_summary, summary_lines
from pulsar_meta.cli.render.tables import Detail, View, write_json, write_ndjson
from pulsar_meta.cli.repairing import ConfirmSeveral, write_confirmed
from pulsar_meta.cli.rewriting import (
    FILES,
    AllowOtherStore,
    BulkOptions,
    WriteOptions,
    open_for_writing,
    write,
)
from pulsar_meta.cli.settings import distribution
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.streams import atomic_file
from pulsar_meta.codecs.documents.document import DecodeOptions
from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.secrets import mask
from pulsar_meta.codecs.snapshot_lines import SumsDocument
from pulsar_meta.jobs.check.checkup import Checkup, checkup
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.rewrite.decision import Summary
from pulsar_meta.jobs.rewrite.run_files import store_url
from pulsar_meta.jobs.rewrite.undo import limits_of, put_back
from pulsar_meta.jobs.rewrite.undo_log import is_unused, read_header
from pulsar_meta.jobs.values.comparison import history
from pulsar_meta.jobs.values.places import one_path_of
from pulsar_meta.jobs.values.snapshot import SnapshotResult, bundled_value, redacted_value, take_snapshot
from pulsar_meta.stores.base import Store


def snapshot(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="File to write, compressed if its name ends in .zst.")],
    store: StoreUrl = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a run that was killed.")] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Leave out passwords and other secrets.")] = False,
) -> None:
    """Save all values and versions of a store to a file.

    Use it as a backup, or to examine a store elsewhere. Every command reads the file as --store
    snapshot:FILE. FILE appears when it is complete; until then, its name is FILE.part. Snapshots of etcd and
    RocksDB are consistent. On ZooKeeper and Oxia, values that change in the meantime are read again and
    counted.

    Examples:
      pulsar-meta snapshot monday.ndjson.zst --store zk://zk1:2181
      pulsar-meta diff snapshot:monday.ndjson.zst zk://zk1:2181
    """
    with shell.store(store) as opened, shell.progress(unit="values") as progress:
        tool = f"pulsar-meta {distribution().version}"
        taken = take_snapshot(
            opened,
            file,
            tool=tool,
            resume=resume,
            hide=redacted_value if redact else None,
            progress=progress.advance,
        )
        document = _document(file, taken)
        shell.emit([document], Detail(_lines), single=True)
        if not document["values"]:
            raise NotFoundError("the store has no values", source=opened.url)


class WrittenSnapshot(SumsDocument):
    """A written snapshot. `kept` is the number of values from the run that was resumed."""

    file: str
    kept: int
    changed_meanwhile: NotRequired[int]


def _document(file: Path, taken: SnapshotResult) -> WrittenSnapshot:
    document: WrittenSnapshot = {"file": str(file), **taken.sums.document(), "kept": taken.kept}
    if taken.changed is not None:
        document["changed_meanwhile"] = taken.changed
    return document


def _lines(document: Document) -> list[str]:
    lines = [f"{document['values']} values in {document['file']}", f"sum: {document['sum']}"]
    lines.append(f"sum without ephemeral values and empty parents: {document['sum_lasting']}")
    if document["kept"]:
        lines.append(f"{document['kept']} of them are from the resumed run")
    if "changed_meanwhile" in document:
        lines.append(f"{document['changed_meanwhile']} changed while the store was read")
    return lines


SNAPSHOT: Final = "snapshot.ndjson.zst"
FINDINGS: Final = "findings.ndjson"
VERSIONS: Final = "versions.json"


def bundle(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="File to write (.tar.gz).")],
    store: StoreUrl = None,
) -> None:
    """Collect a snapshot and the findings for a bug report.

    Use it when you ask for help. Passwords and other secrets are left out, but names of topics and
    subscriptions are included. Look at the files before you send them: unpack FILE, then use any command with
    --store snapshot:snapshot.ndjson.zst.

    Examples:
      pulsar-meta bundle report.tar.gz --store zk://zk1:2181
      pulsar-meta bundle report.tar.gz --store rocksdb:data/metadata
    """
    with shell.store(store) as opened, tempfile.TemporaryDirectory(prefix="pulsar-meta-bundle-") as scratch:
        folder = Path(scratch)
        run, document = _write_parts(shell, opened, folder)
        with atomic_file(file, "wb", PRIVATE) as out:
            _pack(folder, out)
    shell.emit([{"file": str(file), **document}], Detail(_bundle_lines), single=True)
    shell.summary(run.counts, run.not_checked)
    if not document["values"]:
        raise NotFoundError("the store has no values", source=opened.url)


class Contents(TypedDict):
    """The number of values and findings in a bundle."""

    values: int
    findings: int


class WrittenBundle(Contents):
    """A written bundle."""

    file: str


# Document in `versions.json`. `packages` maps the names of installed requirements to versions.
Versions = TypedDict(
    "Versions",
    {"pulsar-meta": str, "python": str, "platform": str, "store": str, "packages": dict[str, str]},
)


def _write_parts(shell: Shell, store: Store, folder: Path) -> tuple[Checkup, Contents]:
    """Write the files of the bundle. Returns the run of check, and the sizes."""
    versions = _versions(store)
    with shell.progress(unit="values") as progress, open(folder / FINDINGS, "w", encoding="utf-8") as out:
        tool = f"pulsar-meta {versions['pulsar-meta']}"
        taken = take_snapshot(
            store, folder / SNAPSHOT, tool=tool, hide=bundled_value, progress=progress.advance
        )
        run = checkup(store, None, (), CheckOptions(), progress.advance)
        findings = 0
        for finding in run.findings():
            findings += 1
            write_ndjson([mask(finding.document())], out)
        write_ndjson([{"checked": run.counts, "not_checked": run.not_checked}], out)
    with open(folder / VERSIONS, "w", encoding="utf-8") as out:
        write_json([versions], out, single=True)
    return run, {"values": taken.sums.values, "findings": findings}


def _versions(store: Store) -> Versions:
    needed = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in distribution().requires or ()}
    return {
        "pulsar-meta": distribution().version,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "store": redact(store.url),
        "packages": {name: installed for name in sorted(needed) if (installed := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _pack(folder: Path, out: IO[bytes]) -> None:
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name)


def _bundle_lines(document: Document) -> list[str]:
    values, findings = document["values"], document["findings"]
    return [f"{values} values and {findings} findings in {document['file']}; review it before you send it"]


COLUMNS = ["time", "transaction", "change", "version", "size", "writer", "means", "differences"]
HEADINGS = [f"{name} (bytes)" if name == "size" else name for name in COLUMNS]
RIGHT = frozenset({"transaction", "version", "size (bytes)"})
ABOUT_TIME = {"times": "the store has none", "writers": "the store has none"}


def history_of(
    shell: Shell,
    where: PlaceArgument,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    show_secrets: ShowSecrets = False,
) -> None:
    """Show every change of a value with its time and writer.

    Use it to find out when a record changed, and which fields. It reads ZooKeeper's own files (zk-files:),
    back to the oldest transaction log, or etcd, back to its last compaction. etcd has no times and no
    writers. Positions of loaded topics change in the cursors' ledgers, not in the records: add --entries to
    show them.

    Examples:
      pulsar-meta history cursor orders audit --store zk-files:/var/lib/zookeeper
      pulsar-meta history /admin/policies/a/b --store etcd://etcd1:2379
    """
    options, faults = DecodeOptions(show_secrets=show_secrets), Faults(shell)
    urls, totals = list(entries or shell.settings.entries), ChangeTotals()
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store))
        path = one_path_of(opened, where)
        shell.warn_of_old_parts(opened, where[1:2])
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        progress = stack.enter_context(shell.progress(unit="changes"))
        progress.stage(f"history of {path}")
        changes = totals.count(history(opened, path, options, source, faults.report))
        shell.emit(progress.counting(changes), HISTORY, about=lambda: [redact(opened.url), path])
        left_out = ABOUT_TIME.copy() if not totals.times else {}
        if source is None and totals.ledgers:
            left_out["steps in the cursor's ledgers"] = "no --entries"
        shell.summary({"changes": totals.changes, "steps": totals.steps}, left_out)
        faults.finish(source)


@dataclass(frozen=True, slots=True)
class HistoryView(View):
    """The changes of a value; an HTML page draws them as a time line."""

    def sections(self, documents: Iterable[Document]) -> Iterator[Section]:
        """Yield the table, with bars for the entries that a cursor had acknowledged, or for sizes."""
        changes, progress = list(documents), [0]
        for means in (change.get("means", {}) for change in changes):
            progress.append(progress[-1] + means.get("acknowledged", 0) - means.get("again", 0))
        least = min(progress)
        drawn = [{**change, "progress": at - least} for change, at in zip(changes, progress[1:], strict=True)]
        moves = any(progress)
        view = replace(self, bars={"means": "progress"} if moves else self.bars)
        text = "A bar shows the entries that the subscription had acknowledged since the first change."
        for section in View.sections(view, drawn):
            yield replace(section, heading="Changes", notes=[text] if moves else [])


@dataclass(slots=True)
class ChangeTotals:
    """Totals of the changes shown: whether they have times, and whether they refer to a cursor's ledger."""

    changes: int = 0
    steps: int = 0
    times: bool = False
    ledgers: bool = False

    def count(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield the documents and count them."""
        for document in documents:
            step = document["change"] == "step"
            self.steps += step
            self.changes += not step
            self.times |= "time" in document
            self.ledgers |= "state_ledger" in document.get("means", {})
            yield document


def _row(document: Document) -> list[str]:
    cells = [str(document.get(name, "")) for name in COLUMNS[:-2]]
    means = document.get("means", {}).get("text", "")
    return [*cells, means, change_summary(document["differences"])]


HISTORY = HistoryView(
    HEADINGS, _row, right=RIGHT, fields=COLUMNS, title="History of a value", bars={"size (bytes)": "size"}
)


def undo(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="Undo file of a command.")],
    writing: WriteOptions,
    bulk: BulkOptions,
    store: StoreUrl = None,
    allow_other_store: AllowOtherStore = False,
    any_version: Annotated[
        bool,
        typer.Option("--any-version", help="Also undo values that were written again unchanged."),
    ] = False,
    confirm: ConfirmSeveral = None,
) -> None:
    """Restore the values that a command replaced.

    Use it to revert a command that writes; each prints the path of its undo file. Values that something else
    has changed since are left alone. If an old value makes data unreachable, the command prints how much, and
    asks for the topic's full name (--confirm). Without --store or a configured store, the store in the undo
    file is used.

    Examples:
      pulsar-meta undo compress-cursors.undo.ndjson --dry-run
      pulsar-meta undo compress-cursors.undo.ndjson --yes
    """
    if is_unused(file):
        shell.note(f"{file} has no records, because the run was killed before it wrote; nothing to undo")
        shell.emit([Summary().document(None)], Detail(summary_lines), single=True)
        return
    header = read_header(file)
    own = store_url(header["store"])
    # No other store than the file system has loose files, whatever store is configured.
    url = store or (own if own == FILES else None) or shell.settings.store or own
    with open_for_writing(shell, url, writing) as opened:
        rewrite = put_back(opened, file, other_store=allow_other_store, any_version=any_version)
        if limits_of(header.get("command"), opened).loses:
            write_confirmed(shell, opened, rewrite, writing, bulk, confirm)
        else:
            write(shell, opened, rewrite, writing, bulk)
