"""Pieces of evidence that contradict a damage, or take away the certainty about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Final

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.memory import MemoryStore
from tests.damage_pairs.scenario import THREE_DIRECTORIES, NotPossibleError, Scenario

Contradiction = Callable[[Scenario], None]


class RedactedStore(MemoryStore):
    """A copy in which secrets were emptied."""

    @property
    def origin(self) -> dict[str, object]:
        return {"redacted": True}


def no_disks(case: Scenario) -> None:
    """No entries are given at all."""
    if case.is_copied:
        raise NotPossibleError
    case.with_disks = False


def all_disks(case: Scenario) -> None:
    """All disks are given."""


def _three_directories(case: Scenario, ledgers: str = "/d/l3", journal: str = "") -> None:
    for current in case.bookies:
        text = (current / "VERSION").read_text()
        host = text.split('bookieHost: "')[1].split('"')[0]
        case.write(current / "VERSION", THREE_DIRECTORIES.format(host, journal or "/d/l1", ledgers).encode())
        target = current.parent.parent / host.replace(":", "-")
        shutil.move(current.parent, target / "l1")
        (target / "l2" / "current").mkdir(parents=True)
        (target / "l2" / "current" / "VERSION").write_text(
            (target / "l1" / "current" / "VERSION").read_text()
        )
    case.incomplete = True


def directory_not_given(case: Scenario) -> None:
    """Of the three ledger directories of each bookie one is not given; the ledger is in another one."""
    _three_directories(case)


def its_directory_not_given(case: Scenario) -> None:
    """The ledger is in the directory that is not given."""
    lost = set(case.lost)
    case.lose([case.aim().ledger_id])
    # It is not lost.
    case.lost = lost
    _three_directories(case)


def journal_not_given(case: Scenario) -> None:
    """The bookies keep their journals in a directory of its own, which is not given."""
    for current in case.bookies:
        text = (current / "VERSION").read_text()
        before, _, after = text.partition('journalDir: "')
        case.write(
            current / "VERSION", f'{before}journalDir: "/elsewhere{after[after.index(chr(34)) :]}'.encode()
        )
        for journal in current.glob("*.txn"):
            journal.unlink()
    case.incomplete = True


def index_unusable(case: Scenario) -> None:
    """The index of each bookie is cut."""
    for current in case.bookies:
        for table in (current / "locations").glob("*.sst"):
            case.write(table, b"")
    case.incomplete = True


def no_cookie(case: Scenario) -> None:
    """The disks have no VERSION files, so that nothing says whose they are."""
    for current in case.bookies:
        (current / "VERSION").unlink()
    case.incomplete = True


def its_log_gone(case: Scenario) -> None:
    """An entry log is gone that has entries of the ledger."""
    logs = case.logs_of(case.aim().ledger_id)
    case.lost |= case.ledgers_in(logs)
    for log in logs:
        log.unlink()
    case.incomplete = True


def its_entries_lost(case: Scenario) -> None:
    """No bookie has an entry of it, and all disks are given."""
    case.lose([case.aim().ledger_id])


def _list_elsewhere(case: Scenario, store: MemoryStore, root: str) -> None:
    target = case.aim()
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=target.ledger_id, entries=target.entries, size=1, timestamp=1)
    path = f"{root}/managed-ledgers/public/default/persistent/theirs"
    store.put(path, info.SerializeToString(), -1)
    case.foreign.add((target.name, target.ledger_id))
    case.claimed = True


def another_cluster_lists_it(case: Scenario) -> None:
    """A cluster with another root in the same store lists the ledger."""
    _list_elsewhere(case, case.store, "/clusters/west")


def another_store_lists_it(case: Scenario) -> None:
    """A cluster in another store lists the ledger."""
    other = MemoryStore("memory:elsewhere")
    case.others.append(other)
    _list_elsewhere(case, other, "")


def another_topic_lists_it(case: Scenario) -> None:
    """Another topic of the cluster lists the ledger."""
    target, other = case.aim(), case.choose()

    def change(info: ManagedLedgerInfo) -> None:
        info.ledgerInfo.add(ledgerId=target.ledger_id, entries=target.entries, size=1, timestamp=1)
        info.ledgerInfo.sort(key=lambda one: one.ledgerId)

    case.edit_list(other, change)
    case.claimed = True


def redacted_copy(case: Scenario) -> None:
    """The store is a copy in which values with secrets were emptied."""
    copy = RedactedStore()
    copy.values = case.store.values
    case.store = copy


def metadata_restored_late(case: Scenario) -> None:
    """The store says that all of its values were made today: it was restored."""
    values = case.store.values
    case.store.values = {
        path: record._replace(created=1_900_000_000_000, modified=1_900_000_000_000)
        for path, record in values.items()
    }


def store_older_than_disks(case: Scenario) -> None:
    """The store was copied before the last ledgers were created."""
    topic = case.choose()
    last = topic.ledgers[-2].ledger_id if len(topic.ledgers) > 1 else topic.ledgers[-1].ledger_id
    if ledger_path(last) not in case.store.values or not case.has_disk_entries(last):
        raise NotPossibleError
    for ledger in topic.ledgers:
        if ledger.ledger_id >= last:
            case.unlist(topic, ledger.ledger_id)
            case.store.values.pop(ledger_path(ledger.ledger_id), None)


CONTRADICTIONS: Final[dict[str, Contradiction]] = {
    one.__name__: one
    for one in (
        *(
            no_disks,
            all_disks,
            directory_not_given,
            its_directory_not_given,
            journal_not_given,
            index_unusable,
        ),
        *(no_cookie, its_log_gone, its_entries_lost, another_cluster_lists_it, another_store_lists_it),
        *(another_topic_lists_it, redacted_copy, metadata_restored_late, store_older_than_disks),
    )
}
