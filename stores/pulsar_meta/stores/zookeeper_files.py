"""`zk-files:DIR[?at=TIME|zxid=N][&logs=DIR][&chroot=/PATH]`: ZooKeeper's data files as a store; read-only.

DIR is ZooKeeper's data directory or the `version-2` in it. `logs` is the directory of the transaction logs,
if they are in a different one. The store reads the newest intact snapshot and replays the logs over it: all
of them, up to the transaction `zxid` (decimal, or hexadecimal with 0x), or up to a time (milliseconds, or ISO
8601 in UTC unless it has an offset). Nothing is written, and a server can be running on the files, because a
transaction that is still being written ends the log.

Source: apache/zookeeper FileTxnSnapLog, FileSnap (findNValidSnapshots), SnapStream.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from pulsar_meta.access.urls import split_scheme
from pulsar_meta.codecs.compression import LIMITS
from pulsar_meta.codecs.errors import (
    DecodeError,
    LimitError,
    NotFoundError,
    UnreachableError,
    UsageError,
    decoding,
)
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.codecs.zookeeper_files.log import (
    Create,
    LogEnd,
    Transaction,
    changes_of,
    is_ephemeral,
    read_log,
)
from pulsar_meta.codecs.zookeeper_files.snapshot import Node, Snapshot, Tree, read_snapshot, unpack_snappy
from pulsar_meta.stores.base import (
    Change,
    ReadOnlyStore,
    Versioned,
    child_path,
    is_within,
    roots_after,
    split_prefix,
)

OPTIONS: Final = frozenset({"at", "zxid", "logs", "chroot"})
OWN_NODES: Final = "/zookeeper"
BROKERS: Final = "/loadbalance/brokers"
# The high bits of a zxid are the leader's epoch, the low bits count transactions in that epoch.
EPOCH_BITS: Final = 32
_PIECE: Final = 1 << 20


class ZookeeperFilesStore(ReadOnlyStore):
    """The tree at one moment, in memory. Versions are the nodes' dataVersions."""

    has_consistent_scans = True
    read_only = "ZooKeeper's files are read-only; write to the running ZooKeeper (zk://)"

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        """Find the files. Raises NotFoundError if there are none, GuardError if opened for writing."""
        self.url = url
        if not read_only:
            self.refuse()
        directory, _, query = split_scheme(url)[1].partition("?")
        options = _options(query, url)
        self._chroot = options.get("chroot", "").rstrip("/")
        self._files = ServerFiles.find(Path(directory), options.get("logs"), url)
        self._moment = Moment.parse(options, url)

    def prepare(self, advance: Callable[[int], None]) -> None:
        """Read the files, unless that is done already, and report all nodes to `advance` together."""
        self.children("/")
        advance(len(self._nodes))

    def read(self, path: str) -> Versioned:
        """Return the value at `path`. Raises NotFoundError if there was no value."""
        node = self._nodes.get(self._inside(path))
        if node is None or self._is_own(path):
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return _versioned(path, node)

    def children(self, path: str) -> list[str]:
        """List the sorted names of the children of `path`, without ZooKeeper's own nodes."""
        bare = split_prefix(path)[0]
        names = self._children.get(self._inside(bare), ())
        return [name for name in names if not self._is_own(child_path(bare, name))]

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every node at and below `prefix`, a parent before its children, siblings by name."""
        waiting = [split_prefix(prefix)[0]]
        if after is not None:
            waiting = list(roots_after(self.children, prefix, after))[::-1]
        while waiting:
            path = waiting.pop()
            node = self._nodes.get(self._inside(path))
            if node is not None and not self._is_own(path):
                if path != "/" or node.data:
                    yield _versioned(path, node)
                waiting += [child_path(path, name) for name in reversed(self.children(path))]

    def next_sequence(self, parent: str) -> int | None:
        """Return how many children were ever created below `parent`."""
        node = self._nodes.get(self._inside(parent))
        return None if node is None else node.creations

    def history(self, path: str) -> Iterator[Change]:
        """Yield the changes of a node from the first logged transaction up to the store's moment."""
        brokers = Brokers(f"{self._chroot}{BROKERS}/")
        inside = self._inside(path)
        for change in self._files.history(inside, self._moment, brokers):
            value = change.value
            yield change if value is None else change._replace(value=value._replace(path=path))

    def transactions(self) -> Iterator[Transaction]:
        """Yield every transaction of the logs in order, including those after the store's moment."""
        return self._files.transactions()

    def close(self) -> None:
        """Discard the tree."""
        self.__dict__.pop("_tree", None)
        self.__dict__.pop("_children", None)

    @cached_property
    def _tree(self) -> Tree:
        tree = self._files.tree(self._moment)
        if self._chroot and self._chroot not in tree.nodes:
            raise NotFoundError(f"no node {self._chroot}", source=self.url)
        return tree

    @property
    def _nodes(self) -> dict[str, Node]:
        return self._tree.nodes

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        children: dict[str, list[str]] = {}
        for path in sorted(self._nodes):
            if path != "/":
                parent, _, name = path.rpartition("/")
                children.setdefault(parent or "/", []).append(name)
        return children

    def _inside(self, path: str) -> str:
        return f"{self._chroot}{path}".rstrip("/") or "/"

    def _is_own(self, path: str) -> bool:
        return not self._chroot and is_within(path, OWN_NODES)


@dataclass(frozen=True, slots=True)
class Moment:
    """The last transaction to apply: a zxid or a time in milliseconds, both inclusive, or neither for all."""

    zxid: int | None = None
    time: int | None = None

    def is_before(self, transaction: Transaction) -> bool:
        """Whether `transaction` is later than this moment."""
        if self.zxid is not None:
            return transaction.zxid > self.zxid
        return self.time is not None and transaction.time > self.time

    @classmethod
    def parse(cls, options: dict[str, str], url: str) -> Moment:
        """Parse `zxid` or `at`. Raises UsageError for both together, or for an invalid number or time."""
        if "zxid" in options and "at" in options:
            raise UsageError("choose either at=TIME or zxid=N, not both", source=url)
        try:
            zxid = int(options["zxid"], 0) if "zxid" in options else None
        except ValueError:
            text = f"invalid zxid={options['zxid']}: expected a decimal number, or 0x and a hexadecimal one"
            raise UsageError(text, source=url) from None
        return cls(zxid, _milliseconds(options["at"], url) if "at" in options else None)


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """Snapshots and transaction logs by the zxid in their names, in order."""

    url: str
    snapshots: tuple[tuple[int, Path], ...]
    logs: tuple[tuple[int, Path], ...]

    @classmethod
    def find(cls, directory: Path, logs: str | None, url: str) -> ServerFiles:
        """List a data directory, or `version-2` itself. Raises NotFoundError if it has no such files."""
        snapshots = _numbered(directory, "snapshot.", url)
        files = cls(url, snapshots, _numbered(Path(logs) if logs else directory, "log.", url))
        if not files.snapshots and not files.logs:
            raise NotFoundError("the directory has no ZooKeeper snapshots or transaction logs", source=url)
        return files

    def tree(self, moment: Moment) -> Tree:
        """Rebuild the tree as of `moment`.

        Raises NotFoundError if the files don't reach that moment. Raises DecodeError if transactions between
        the snapshot and the moment are missing or damaged.
        """
        until = self._zxid_at(moment.time) if moment.time is not None else moment.zxid
        snapshot = self._snapshot(until)
        reached = snapshot.zxid
        for transaction in self.transactions(snapshot.zxid):
            if until is not None and transaction.zxid > until:
                break
            with decoding(self.url, what=f"transaction {transaction.zxid:#x}"):
                snapshot.tree.apply(transaction)
            reached = transaction.zxid
        if moment.zxid is not None and reached < moment.zxid:
            raise NotFoundError(f"the transactions end at {reached:#x}", source=self.url)
        return snapshot.tree

    def transactions(self, after: int = 0) -> Iterator[Transaction]:
        """Yield the transactions after the zxid `after` from all logs.

        Raises DecodeError if some are missing. After a truncated log, the next log is only used if it begins
        with the next zxid.
        """
        last, begun = after, False
        for path in self._logs_from(after):
            for transaction in self._read(path):
                if transaction.zxid > last:
                    self._check_next(last, transaction.zxid, first=not begun and after == 0)
                    last, begun = transaction.zxid, True
                    yield transaction

    def history(self, path: str, moment: Moment, brokers: Brokers) -> Iterator[Change]:
        """Yield the changes of the node at `path` up to `moment`, starting with its first value."""
        oldest = self._oldest()
        tree, node = oldest.tree, oldest.tree.nodes.get(path)
        if node is not None and node.mzxid <= oldest.zxid:
            yield Change(oldest.zxid, None, None, _versioned(path, node), first=True)
        brokers.note(tree)
        for transaction in self.transactions(oldest.zxid):
            if moment.is_before(transaction):
                return
            before = _mark(tree, path)
            with decoding(self.url, what=f"transaction {transaction.zxid:#x}"):
                tree.apply(transaction)
                brokers.follow(transaction)
            if _mark(tree, path) != before:
                node = tree.nodes.get(path)
                value = None if node is None else _versioned(path, node)
                writer = brokers.name(transaction.session)
                yield Change(transaction.zxid, transaction.time, writer, value)

    def _oldest(self) -> Snapshot:
        """Return the oldest snapshot after which the logs are complete to their end."""
        fault: DecodeError | None = None
        for zxid, path in self.snapshots:
            try:
                with decoding(str(path)):
                    snapshot = read_snapshot(_unpacked(path), zxid)
                for _ in self.transactions(snapshot.zxid):
                    pass
                return snapshot
            except LimitError:
                raise
            except DecodeError as error:
                fault = error
        return self._from_nothing(fault)

    def _check_next(self, last: int, zxid: int, *, first: bool) -> None:
        same_epoch = last >> EPOCH_BITS == zxid >> EPOCH_BITS
        if not first and same_epoch and zxid != last + 1:
            raise DecodeError(f"the transactions {last + 1:#x} to {zxid - 1:#x} are missing", source=self.url)

    def _logs_from(self, after: int) -> list[Path]:
        begins = [at for at, (zxid, _) in enumerate(self.logs) if zxid <= after + 1]
        return [path for _, path in self.logs[begins[-1] if begins else 0 :]]

    def _read(self, path: Path) -> Iterator[Transaction]:
        with decoding(str(path)):
            for record in read_log(_bytes(path)):
                if not isinstance(record, LogEnd):
                    yield record

    def _snapshot(self, until: int | None) -> Snapshot:
        """Return the newest intact snapshot without changes later than `until`."""
        fault: DecodeError | None = None
        for zxid, path in reversed(self.snapshots):
            if until is None or zxid <= until:
                try:
                    with decoding(str(path)):
                        snapshot = read_snapshot(_unpacked(path), zxid)
                except LimitError:
                    raise
                except DecodeError as error:
                    # ZooKeeper also falls back to the previous snapshot. Gaps in the logs are detected later.
                    fault = fault or error
                    continue
                if until is None or snapshot.last_zxid <= until:
                    return snapshot
        return self._from_nothing(fault)

    def _from_nothing(self, fault: DecodeError | None) -> Snapshot:
        first = next(iter(self.transactions()), None)
        if first is not None and first.zxid & (2**EPOCH_BITS - 1) == 1 and first.zxid >> EPOCH_BITS <= 1:
            return Snapshot(Tree(), 0, 0)
        if fault is not None:
            raise fault
        raise NotFoundError(
            "no snapshot is old enough, and the logs don't begin with the first transaction", source=self.url
        )

    def _zxid_at(self, time: int) -> int | None:
        """Return the last zxid up to a time, or None if no transaction is later.

        Raises NotFoundError if the time is before the first log.
        """
        last = None
        for transaction in self.transactions():
            if transaction.time > time:
                if last is None:
                    begin = iso_time(transaction.time)
                    raise NotFoundError(f"the transaction logs only begin at {begin}", source=self.url)
                return last
            last = transaction.zxid
        return None


class Brokers:
    """The broker of each session, from the ephemeral nodes with which brokers register."""

    def __init__(self, parent: str) -> None:
        """Watch for registrations below `parent`, a path that ends with a slash."""
        self._parent = parent
        self._names: dict[int, str] = {}

    def note(self, tree: Tree) -> None:
        """Learn from the registrations in a tree."""
        for path, node in tree.nodes.items():
            self._learn(path, node.owner)

    def follow(self, transaction: Transaction) -> None:
        """Learn from the registrations that a transaction creates."""
        for change in changes_of(transaction):
            if isinstance(change, Create):
                self._learn(change.path, change.owner)

    def name(self, session: int) -> str:
        """Return the broker of a session, or the session's id in hexadecimal if the broker is unknown."""
        return self._names.get(session, f"session {session & (2**64 - 1):#x}")

    def _learn(self, path: str, owner: int) -> None:
        if path.startswith(self._parent) and is_ephemeral(owner):
            self._names[owner] = f"broker {path.removeprefix(self._parent)}"


def _mark(tree: Tree, path: str) -> tuple[int, int] | None:
    """Return the zxids that identify the current bytes of a node."""
    node = tree.nodes.get(path)
    return None if node is None else (node.czxid, node.mzxid)


def _versioned(path: str, node: Node) -> Versioned:
    return Versioned(path, node.data, node.version, node.created, node.modified, is_ephemeral(node.owner))


def _numbered(directory: Path, prefix: str, url: str) -> tuple[tuple[int, Path], ...]:
    """List the files `PREFIX<hexadecimal zxid>[.gz|.snappy]` of a directory, sorted by zxid."""
    below = directory / "version-2"
    try:
        names = sorted((below if below.is_dir() else directory).iterdir())
    except FileNotFoundError:
        raise NotFoundError("no such directory", source=url) from None
    except OSError as error:
        raise UnreachableError(f"cannot list the directory: {error.strerror}", source=url) from error
    files = []
    for path in names:
        number = path.name.removeprefix(prefix).removesuffix(".gz").removesuffix(".snappy")
        if path.name.startswith(prefix) and path.is_file():
            try:
                files.append((int(number, 16), path))
            except ValueError:
                continue
    return tuple(sorted(files))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreachableError(f"cannot read the file: {error.strerror}", source=str(path)) from error


def _unpacked(path: Path) -> Buffer:
    data = _bytes(path)
    if path.suffix == ".snappy":
        return unpack_snappy(data)
    if path.suffix != ".gz":
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            unpacked = bytearray()
            while piece := stream.read(_PIECE):
                unpacked += piece
                LIMITS.check_file(len(data), len(unpacked))
    except (OSError, EOFError, zlib.error) as error:
        raise DecodeError(f"gzip: {error}") from error
    return unpacked


def _options(query: str, url: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS:
            raise UsageError(f"unknown option {name!r}; choose from {', '.join(sorted(OPTIONS))}", source=url)
    return options


def _milliseconds(text: str, url: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        # In a query, a plus sign means a space.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise UsageError(f"invalid at={text}: expected ISO 8601 or milliseconds", source=url) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
