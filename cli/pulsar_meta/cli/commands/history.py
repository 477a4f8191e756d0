"""`history`: what became of a value, change by change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, ShowPasswords, StoreUrl, Where
from pulsar_meta.cli.render.changes import change_summary
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.documents.document import DecodeOptions
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.values.history import history
from pulsar_meta.jobs.values.places import one_path_of

COLUMNS = ["time", "transaction", "change", "version", "size", "writer", "means", "differences"]
HEADINGS = [f"{name} (bytes)" if name == "size" else name for name in COLUMNS]
RIGHT = frozenset({"transaction", "version", "size (bytes)"})
ABOUT_TIME = {"times": "the store keeps none", "writers": "the store does not know who wrote"}


def history_of(
    shell: Shell,
    where: Where,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    show_passwords: ShowPasswords = False,
) -> None:
    """Show every change of a value: when, by whom, which fields went from what to what, and what that means.

    From ZooKeeper's own files (zk-files:), as far back as its transaction logs go, and from etcd, as far back
    as it is not compacted; etcd knows neither times nor who wrote. It shows the record: positions of loaded
    topics move in cursors' ledgers, of which --entries shows each step.

    Examples:
      pulsar-meta history cursor orders audit --store zk-files:/var/lib/zookeeper
      pulsar-meta history /admin/policies/a/b --store etcd://etcd1:2379
    """
    options, faults = DecodeOptions(show_secrets=show_passwords), Faults(shell)
    urls, seen = list(entries or shell.settings.entries), Seen()
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store))
        path = one_path_of(opened, where)
        shell.warn_of_old_parts(opened, where[1:2])
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        changes = seen.counted(history(opened, path, options, source, faults))
        shell.emit(changes, View(HEADINGS, _row, right=RIGHT, fields=COLUMNS))
        left_out = ABOUT_TIME.copy() if not seen.times else {}
        if source is None and seen.ledgers:
            left_out["the cursor's steps in its ledgers"] = "no --entries"
        shell.account({"changes": seen.changes, "steps": seen.steps}, left_out)
        faults.end(source)


@dataclass(slots=True)
class Seen:
    """What the changes that were shown had, for the account of them."""

    changes: int = 0
    steps: int = 0
    times: bool = False
    ledgers: bool = False

    def counted(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield them."""
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
