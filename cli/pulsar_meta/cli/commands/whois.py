"""`whois`: whose ledgers are, and why they are still kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated

import typer

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, OtherStores, StoreUrl
from pulsar_meta.cli.render.tables import Detail
from pulsar_meta.cli.render.text import counted, size
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.disk.whois import IN_MEMORY
from pulsar_meta.jobs.disk.whois import whois as owners_and_reasons
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.topic import parse_ledger_id


def whois(
    shell: Shell,
    ledgers: Annotated[list[str], typer.Argument(metavar="LEDGER…", help="Numbers of ledgers.")],
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    other_stores: OtherStores = None,
) -> None:
    """Show whose ledgers are, their state, bookies and bytes, and why they are still kept.

    Topics, cursors, schemas, compaction and indexes of delayed messages name ledgers; what BookKeeper's
    metadata says a ledger was created for is shown beside. With --entries also what is here of each; without
    a store that is all there is. One pass over the store for all ledgers together.

    Examples:
      pulsar-meta whois 123 456 --store zk://zk1:2181
      pulsar-meta whois 123 --entries bookie-disk:data/bookie
    """
    wanted = list(dict.fromkeys(map(parse_ledger_id, ledgers)))
    urls = list(entries or shell.settings.entries)
    faults, unseen = Faults(shell), dict[str, str]()
    with ExitStack() as stack:
        has_store = store is not None or shell.settings.store is not None
        opened = stack.enter_context(shell.store(store)) if has_store else None
        if opened is None and not urls:
            raise UsageError("neither store nor entries: give --store URL or --entries URL")
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        others = None
        if opened is not None:
            beside = [stack.enter_context(shell.other_store(url)) for url in other_stores or ()]
            others = OtherClusters(opened, beside, faults)
        found = list(owners_and_reasons(wanted, opened, source, faults, unseen.__setitem__, others))
        shell.emit(found, VIEW)
        left_out = dict(unseen)
        left_out |= {"owners": "no --store"} if opened is None else {IN_MEMORY: "not visible here"}
        left_out |= {"entries": "no --entries"} if source is None else {}
        if found or not faults.worst:
            shell.account({"ledgers": len(found)}, left_out)
        faults.end(source)


def _lines(document: Document) -> Iterator[str]:
    yield f"ledger {document['ledger_id']}  {_whose(document)}"
    known = ", ".join(_known(document))
    if known:
        yield f"  {known}"
    if document["bookies"]:
        yield f"  bookies: {', '.join(document['bookies'])}"
    yield from _here(document)
    for owner in document["named_by"]:
        shadow = f", a shadow of {owner['shadow_of']}" if "shadow_of" in owner else ""
        cluster = f"{owner['cluster']} " if "cluster" in owner else ""
        yield f"  named by {cluster}{owner['path']} ({owner['role']}{shadow})"
    if document["created_for"] is not None and not document["named_by"]:
        one = document["created_for"]
        yield f"  created as {one['role']} of {one['name']}{_of(one['cursor'])}"
    yield from (f"  kept: {reason}" for reason in document["kept_by"])


def _known(document: Document) -> Iterator[str]:
    """Yield what BookKeeper and the topic say of a ledger."""
    if document["metadata"] in ("absent", "broken"):
        yield f"BookKeeper's metadata {document['metadata']}"
    if document["state"] is not None:
        yield document["state"]
    if document["entries"] is not None:
        yield counted(document["entries"], "entries")
    if document["size"] is not None:
        yield size(document["size"])
    for name in ("created", "closed"):
        if document[name] is not None:
            yield f"{name} {iso_time(document[name])}"


def _here(document: Document) -> Iterator[str]:
    """Yield what the entries that were given say of a ledger."""
    if document["entries_here"] is None:
        return
    files = f" in {', '.join(document['files'])}" if document["files"] else ""
    yield f"  here: {counted(document['entries_here'], 'entries')}, {size(document['size_here'])}{files}"
    if document["content"] is not None:
        times = (iso_time(document[name]) for name in ("first_time", "last_time") if document[name])
        yield ", ".join(filter(None, [f"  holds: {document['content']}", " to ".join(filter(None, times))]))


def _whose(document: Document) -> str:
    if document["name"] is None:
        return "owner not known" if document["metadata"] == "unread" else "nobody names it"
    return f"{document['role']} of {document['name']}{_of(document['cursor'])}"


def _of(cursor: str | None) -> str:
    return "" if cursor is None else f" {cursor}"


FIELDS = (
    "ledger_id", "role", "name", "cursor", "metadata", "state", "entries", "size", "created", "closed",
    "bookies", "entries_here", "size_here", "files", "content", "first_time", "last_time",
    "created_for", "named_by", "kept_by", "scalable_topic",
)  # fmt: skip
VIEW = Detail(_lines, fields=FIELDS)
