"""A copy of a captured cluster, its store in memory and its disks in a directory, that tests damage."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import NamedTuple

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path, split_managed_ledger_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.topic import Topic, read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store

THREE_DIRECTORIES = '5\nbookieHost: "{}"\njournalDir: "{}"\nledgerDirs: "3\\t/d/l1\\t/d/l2\\t{}"\n'
_KEY = struct.Struct(">qq")


class NotPossibleError(Exception):
    """The capture has nothing that could be damaged so."""


class Expectation(NamedTuple):
    """A finding that must be there: one of some codes, at this severity or a worse one, at a place.

    `where` is a topic or a path. `or_not_checked`: a line of *not checked* that has this text does as well.
    """

    codes: tuple[str, ...]
    severity: Severity
    where: str | None
    ledger_id: int | None = None
    or_not_checked: str | None = None


class Target(NamedTuple):
    """What is damaged: a ledger of a topic that has one before it and one after it."""

    topic: Topic
    ledger_id: int

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def entries(self) -> int:
        return next(one.counted for one in self.topic.ledgers if one.ledger_id == self.ledger_id)


@dataclass
class Scenario:
    """One copy. `folder` is the capture, `scratch` an empty directory for a copy of its disks.

    `others` are stores of other clusters that share the BookKeeper, `with_disks` says whether entries are
    given. `foreign` are (topic, ledger) that another cluster owns, and that no repair may list. `lost` are
    ledgers that no disk has. `incomplete` says that something of the disks is not given or cannot be read,
    `claimed` that somebody else lists the target.
    """

    folder: Path
    scratch: Path
    store: MemoryStore
    rng: Random
    with_disks: bool = True
    others: list[MemoryStore] = field(default_factory=list)
    expected: list[Expectation] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    target: Target | None = None
    lost: set[int] = field(default_factory=set)
    foreign: set[tuple[str, int]] = field(default_factory=set)
    incomplete: bool = False
    claimed: bool = False

    @cached_property
    def disks(self) -> Path:
        """A copy of the bookies' directories; files are links until they are written."""
        place = self.scratch / "disks"
        for bookie in sorted(self.folder.glob("bookie*")):
            shutil.copytree(bookie, place / bookie.name, copy_function=os.link)
        return place

    @property
    def is_copied(self) -> bool:
        """Whether the disks were copied, since something was done to them."""
        return "disks" in self.__dict__

    @property
    def urls(self) -> list[str]:
        """The URLs of the disks, none if none are given."""
        if not self.with_disks:
            return []
        return [f"bookie-disk:{self.disks if self.is_copied else self.folder}"]

    @property
    def bookies(self) -> list[Path]:
        """The `current` directories of the copy."""
        self.disks.mkdir(parents=True, exist_ok=True)
        return sorted(one for one in self.disks.glob("**/current") if (one / "locations").is_dir())

    # What is there

    def topics(self) -> list[Topic]:
        """The ordinary topics, but for shadows, segments and those that were touched."""
        places = [split_managed_ledger_path(path) for path in self.store.values]
        names = [place[0] for place in places if place and place[1] is None]
        topics = [
            read_topic(self.store, name)
            for name in names
            if "__" not in str(name) and name.domain == "persistent" and str(name) not in self.touched
        ]
        sources = ShadowSources(self.store)
        return [
            topic
            for topic in topics
            if sources.of(TopicName.parse(topic.name), topic.properties) is None and not topic.terminated
        ]

    def choose(self, fitting: Callable[[Topic], bool] = lambda topic: True) -> Topic:
        """A topic with three ledgers that have entries, which nothing else will touch."""
        possible = [one for one in self.topics() if len(counted(one)) >= 3 and fitting(one)]
        if not possible:
            raise NotPossibleError
        chosen = self.rng.choice(possible)
        self.touched.add(chosen.name)
        return chosen

    def aim(self) -> Target:
        """The target: a ledger in the middle of a topic's list."""
        if self.target is None:
            topic = self.choose()
            self.target = Target(topic, self.rng.choice(counted(topic)[1:-1]))
        return self.target

    # What is done to the store

    def put(self, path: str, value: bytes) -> None:
        held = self.store.values.get(path)
        created, modified = (None, None) if held is None else (held.created, held.modified)
        self.store.values[path] = Versioned(path, value, 1, created, modified)

    def remove(self, path: str) -> None:
        if path not in self.store.values:
            raise NotPossibleError
        del self.store.values[path]

    def edit_list(self, topic: Topic, change: Callable[[ManagedLedgerInfo], None]) -> None:
        info = decode_managed_ledger(self.store.values[topic.path].value)
        change(info)
        self.put(topic.path, info.SerializeToString())

    def unlist(self, topic: Topic, ledger_id: int) -> None:
        def change(info: ManagedLedgerInfo) -> None:
            kept = [one for one in info.ledgerInfo if one.ledgerId != ledger_id]
            del info.ledgerInfo[:]
            info.ledgerInfo.extend(kept)

        self.edit_list(topic, change)

    def edit_metadata(self, ledger_id: int, change: Callable[[LedgerMetadataFormat], None]) -> None:
        path = ledger_path(ledger_id)
        if path not in self.store.values:
            raise NotPossibleError
        decoded = decode_ledger_metadata(self.store.values[path].value)
        change(decoded.metadata)
        self.put(path, encode_ledger_metadata(decoded))

    # What is done to the disks

    def lose(self, ledger_ids: Iterable[int]) -> None:
        """Have no bookie's index name any entry of some ledgers."""
        from rocksdict import Options, Rdict

        ids = set(ledger_ids)
        for current in self.bookies:
            database = current / "locations"
            _unlink_copies(database)
            rows = Rdict(str(database), Options(raw_mode=True))
            for key in [
                key for key in list(rows.keys()) if isinstance(key, bytes) and _KEY.unpack(key)[0] in ids
            ]:
                del rows[key]
            rows.close()
            for file in (*current.glob("*.txn"), *current.glob("lastMark*")):
                file.unlink()
        self.lost |= ids

    def write(self, path: Path, data: bytes) -> None:
        """Write a file of the copy, which may be a link to the capture's."""
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def logs_of(self, ledger_id: int) -> list[Path]:
        """The entry logs that have entries of a ledger."""
        found = dict[Path, None]()
        with open_entries([f"bookie-disk:{self.disks}"]) as source:
            for part in source.parts:
                for files, table in part.located(ledger_id) or ():
                    found |= {
                        files.paths[at >> 32]: None for at in table.locations if at >> 32 in files.paths
                    }
        return [path for path in found if path.suffix == ".log"]

    def ledgers_in(self, logs: Sequence[Path]) -> set[int]:
        """The ledgers that have entries in some entry logs."""
        found = set[int]()
        with open_entries([f"bookie-disk:{self.disks}"]) as source:
            for part in source.parts:
                for ledger_id in part.ledgers():
                    for files, table in part.located(ledger_id) or ():
                        if any(files.paths.get(at >> 32) in logs for at in table.locations):
                            found.add(ledger_id)
        return found

    def has_disk_entries(self, ledger_id: int) -> bool:
        with open_entries([f"bookie-disk:{self.disks if self.is_copied else self.folder}"]) as source:
            return source.last_entry(ledger_id) is not None

    def expect(
        self,
        codes: str,
        severity: Severity,
        where: str | None,
        ledger_id: int | None = None,
        or_not_checked: str | None = None,
    ) -> None:
        """Note what has to be found; `codes` are alternatives, separated by blanks."""
        self.expected.append(Expectation(tuple(codes.split()), severity, where, ledger_id, or_not_checked))


def counted(topic: Topic) -> list[int]:
    """The ids of the ledgers that the list counts entries of, in order."""
    return [ledger.ledger_id for ledger in topic.ledgers if ledger.counted]


def loaded_store(folder: Path) -> MemoryStore:
    """The store of a capture, in memory."""
    store = MemoryStore()
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as snapshot:
        store.values = {record.path: record for record in snapshot.scan()}
    return store


def copy_of(store: MemoryStore) -> MemoryStore:
    copied = MemoryStore()
    copied.values = dict(store.values)
    return copied


def _unlink_copies(directory: Path) -> None:
    """Replace the links to a capture's files by files, which RocksDB then changes."""
    for path in directory.iterdir():
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
