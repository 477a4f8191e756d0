"""`snapshot`: a store written down."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NotRequired

import typer

from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.render.tables import Detail
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.snapshot_lines import SumsDocument
from pulsar_meta.jobs.values.snapshot import Taken, take_snapshot


def snapshot(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="Where to write it; packed where the name ends in .zst.")],
    store: StoreUrl = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was killed.")] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave secrets out, for showing it to somebody else.")
    ] = False,
) -> None:
    """Write down every value of a store, byte for byte with its version, as a file that is a store itself.

    FILE appears when it is whole; until then it is FILE.part. etcd and RocksDB are written as of one moment;
    of ZooKeeper and Oxia, what changed meanwhile is read again and counted.

    Examples:
      pulsar-meta snapshot monday.ndjson.zst --store zk://zk1:2181
      pulsar-meta diff snapshot:monday.ndjson.zst zk://zk1:2181
    """
    with shell.store(store) as opened, shell.progress(unit="values") as progress:
        tool = f"pulsar-meta {version('pulsar-meta')}"
        taken = take_snapshot(
            opened, file, tool=tool, resume=resume, redact=redact, progress=progress.advance
        )
        document = _document(file, taken)
        shell.emit([document], Detail(_lines), single=True)
        if not document["values"]:
            raise NotFoundError("the store has no values", source=opened.url)


class WrittenSnapshot(SumsDocument):
    """What was written; `kept` counts the values of a run that was gone on with."""

    file: str
    kept: int
    changed_meanwhile: NotRequired[int]


def _document(file: Path, taken: Taken) -> WrittenSnapshot:
    document: WrittenSnapshot = {"file": str(file), **taken.sums.document(), "kept": taken.kept}
    if taken.changed is not None:
        document["changed_meanwhile"] = taken.changed
    return document


def _lines(document: Document) -> list[str]:
    lines = [f"{document['values']} values in {document['file']}", f"sum: {document['sum']}"]
    lines.append(f"sum without ephemeral values and empty parents: {document['sum_lasting']}")
    if document["kept"]:
        lines.append(f"{document['kept']} of them are from the run that was gone on with")
    if "changed_meanwhile" in document:
        lines.append(f"{document['changed_meanwhile']} changed while the store was read")
    return lines
