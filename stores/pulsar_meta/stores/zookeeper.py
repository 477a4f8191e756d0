"""`zk://HOST:PORT[,…][/CHROOT]`: a live ZooKeeper, through kazoo.

Options in addition to the common ones (`access.urls`): `tls=true`, `sasl=REFERENCE` (user:password for
DIGEST-MD5), and `jute_maxbuffer=BYTES` if the server doesn't use the default. `auth` refers to user:password
for the digest scheme. As in Pulsar, created nodes get ZooKeeper's open ACL, and missing parents are container
nodes.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Final
from uuid import uuid4

from pulsar_meta.access.sockets import TIMEOUT_IN_URL, no_answer
from pulsar_meta.access.urls import ServerUrl
from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    GuardError,
    NotFoundError,
    UnreachableError,
    UsageError,
)
from pulsar_meta.stores.base import (
    ABSENT,
    Deletion,
    Store,
    Versioned,
    Write,
    child_path,
    conflict,
    is_within,
    roots_after,
    split_prefix,
)
from pulsar_meta.stores.zookeeper_client import (
    NO_NODE,
    NODES,
    connect,
    container_request,
    end_session,
    put_groups,
    send_read,
    split_writes,
)

# ZooKeeper's default for jute.maxbuffer, the largest request that a server accepts.
JUTE_MAXBUFFER: Final = 0xFFFFF
# The size of a request without path and value: header, lengths, version and an open ACL.
REQUEST_OVERHEAD: Final = 96
PAGE: Final = 256
# A parent's counter has 31 bits. One transaction advances it by up to AT_ONCE.
MAX_SEQUENCE: Final = 2**31 - 1
AT_ONCE: Final = 500
RETRY_PAUSE: Final = 0.1
# Control characters, private use, specials, and characters that Java encodes as surrogate pairs.
# Source: apache/zookeeper PathUtils.java.
REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
OWN_NODES: Final = "/zookeeper"


class ZookeeperStore(Store):
    """Values in znodes. A version is the znode's dataVersion."""

    networked = True
    needs_parents = True
    counts_sequences = True
    counts_by_writes = True
    batches_requests = True
    batches_listings = True

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        """Connect to the servers.

        Raises UnreachableError if no server answers in time, NotFoundError if the chroot doesn't exist.
        """
        self._parsed = parsed = ServerUrl.parse(
            url, default_port=2181, options=("tls", "sasl", "jute_maxbuffer")
        )
        self.url = parsed.url
        self.writable = not read_only
        self._jute = int(parsed.number("jute_maxbuffer", JUTE_MAXBUFFER))
        self.max_value_size = self._jute - REQUEST_OVERHEAD
        self._timeout = parsed.timeout
        self._chroot = f"/{parsed.path}" if parsed.path else ""
        self._client = connect(parsed)
        self._reads_many = True
        if self._chroot and self._ask(self._client.exists_async, "/") is None:
            self.close()
            raise NotFoundError(f"no node {self._chroot}", source=url)

    def read(self, path: str) -> Versioned:
        """Return the value at `path`. Raises NotFoundError if there is no value."""
        with self._translated(path):
            value, stat = self._ask(self._client.get_async, path)
        return _versioned(path, value, stat)

    def children(self, path: str) -> list[str]:
        """List the sorted names of the children of `path`, without ZooKeeper's own nodes."""
        return self.children_many([path])[0]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """List the children of each path as `children` does, with all requests in flight together."""
        bare = [split_prefix(path)[0] for path in paths]
        names = self._page(list(dict.fromkeys(bare)), self._client.get_children_async)
        return [
            sorted(name for name in names.get(path, ()) if not self._is_own(child_path(path, name)))
            for path in bare
        ]

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every node at and below `prefix`, a parent before its children, siblings by name.

        Sends a page of requests without waiting for each answer. Leaves out ZooKeeper's own nodes.
        """
        bare = split_prefix(prefix)[0]
        return self._walk([bare] if after is None else roots_after(self.children, bare, after))

    def next_sequence(self, parent: str) -> int | None:
        """Return how many children were ever created, derived from the counts of creations and removals."""
        with self._translated(parent):
            stat = self._ask(self._client.exists_async, parent)
        return None if stat is None else (stat.cversion + stat.numChildren) // 2

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Create and delete children until enough were created, because the number can't be set."""
        self.check_write(parent)
        if floor > MAX_SEQUENCE:
            raise UsageError(f"{parent}: ZooKeeper counts to {MAX_SEQUENCE}, not to {floor}", source=self.url)
        number = self.next_sequence(parent)
        if number is None:
            self.put(parent, b"", ABSENT)
            number = 0
        passing = child_path(parent, f"pulsar-meta-{uuid4()}")
        while number < floor:
            with self._translated(parent):
                self._create_and_remove(passing, min(AT_ONCE, floor - number))
            number = self.next_sequence(parent) or 0
        return number

    def _create_and_remove(self, path: str, times: int) -> None:
        """Create and delete `path` the given number of times in one transaction. Raises kazoo's errors."""
        transaction = self._client.transaction()
        for _ in range(times):
            transaction.create(path, b"")
            transaction.delete(path)
        for result in self._once(transaction.commit_async):
            if isinstance(result, Exception):
                raise result

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the dataVersion is still `expected`, and return the new one."""
        self.check_write(path, value)
        with self._translated(path):
            if expected == ABSENT:
                self._create(path, bytes(value))
                return 0
            stat = self._once(partial(self._client.set_async, path, bytes(value), expected))
        return int(stat.version)

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Read the values at `paths`, in the same order, with None for a path without a value."""
        with self._translated(", ".join(paths[:1])):
            nodes = self._nodes(list(dict.fromkeys(paths)))
        return [_versioned(path, *nodes[path]) if path in nodes else None for path in paths]

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Write each (path, value, expected) as `put` does. Returns new versions, with None for conflicts."""
        for path, value, _ in writes:
            self.check_write(path, value)
        changed = [write for write in writes if write[2] != ABSENT]
        groups = list(split_writes(changed, self._jute - REQUEST_OVERHEAD, len(self._chroot.encode())))
        self._await_connection()
        done = iter(put_groups(self._client, groups, self._answer, self._try_put))
        created = iter(self._create_many([write for write in writes if write[2] == ABSENT]))
        return [next(created) if expected == ABSENT else next(done) for _, _, expected in writes]

    def _create_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Create nodes in parallel, then one by one if parents are missing. Returns None for a conflict."""
        sent = [self._client.create_async(path, bytes(value)) for path, value, _ in writes]
        # Collect all answers first, so that nothing else is sent while these requests are in flight.
        answers = [self._created(pending) for pending in sent]
        return [
            self._try_put(*write) if missing else version
            for write, (version, missing) in zip(writes, answers, strict=True)
        ]

    def _created(self, pending: Any) -> tuple[int | None, bool]:
        """Return the version of a new node (None for a conflict), and whether its parent is missing."""
        try:
            self._answer(pending)
        except ConflictError:
            return None, False
        except NotFoundError:
            return None, True
        return 0, False

    def _answer(self, pending: Any) -> Any:
        with self._translated("a group of writes"):
            return self._once(lambda: pending)

    def delete(self, path: str, expected: int) -> None:
        """Delete if the dataVersion is still `expected`. Raises GuardError if the node has children."""
        self.check_write(path)
        with self._translated(path):
            self._once(partial(self._client.delete_async, path, expected))

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Delete each (path, expected) as `delete` does, with all requests in flight together."""
        for path, _ in deletions:
            self.check_write(path)
        self._await_connection()
        sent = [self._client.delete_async(path, expected) for path, expected in deletions]
        # Collect all answers first, so that nothing else is sent while these requests are in flight.
        return [self._deleted(path, pending) for (path, _), pending in zip(deletions, sent, strict=True)]

    def _deleted(self, path: str, pending: Any) -> bool:
        from kazoo.exceptions import NotEmptyError

        try:
            with self._translated(path):
                self._once(lambda: pending)
        except (ConflictError, NotFoundError):
            return False
        except GuardError as error:
            if isinstance(error.__cause__, NotEmptyError):
                return False
            raise
        return True

    def check_path(self, path: str) -> None:
        """Raise UsageError also for characters that ZooKeeper doesn't allow in paths."""
        super().check_path(path)
        refused = REFUSED.search(path)
        if refused is not None:
            raise UsageError(f"{path!r}: ZooKeeper doesn't allow {refused[0]!r} in a path", source=self.url)

    def check_write(self, path: str, value: bytes = b"") -> None:
        """Raise GuardError also for a request that would make the server drop the connection."""
        super().check_write(path, value)
        if not self._chroot and is_within(path, OWN_NODES):
            raise GuardError(f"refusing to write {path}: it belongs to ZooKeeper", source=self.url)
        size = len(self._chroot.encode()) + len(path.encode()) + len(value) + REQUEST_OVERHEAD
        if size > self._jute:
            text = f"{path}: a request of {size} bytes, the server accepts {self._jute} (jute.maxbuffer)"
            raise GuardError(text, source=self.url)

    def close(self) -> None:
        """End the session. Can be called twice."""
        end_session(self._client, self._timeout)

    def _walk(self, paths: Iterable[str]) -> Iterator[Versioned]:
        wanted = (path for path in paths if not self._is_own(path))
        while page := list(islice(wanted, PAGE)):
            nodes = self._nodes(page)
            parents = [path for path, (_, stat) in nodes.items() if stat.numChildren]
            names = self._page(parents, self._client.get_children_async)
            below = self._walk(child_path(path, name) for path in names for name in sorted(names[path]))
            waiting = next(below, None)
            for path, (value, stat) in nodes.items():
                if path != "/" or value:
                    yield _versioned(path, value, stat)
                while waiting is not None and is_within(waiting.path, path):
                    yield waiting
                    waiting = next(below, None)

    def _is_own(self, path: str) -> bool:
        return path == OWN_NODES and not self._chroot

    def _nodes(self, paths: Sequence[str]) -> dict[str, Any]:
        """Return (value, stat) of the paths that exist, with multiRead if the server supports it."""
        if not self._reads_many:
            return self._page(paths, self._client.get_async)
        groups = [paths[at : at + NODES] for at in range(0, len(paths), NODES)]
        sent = [send_read(self._client, group) for group in groups]
        nodes: dict[str, Any] = {}
        refused: list[str] = []
        for group, pending in zip(groups, sent, strict=True):
            answers = self._answer_to_read(group, pending)
            if len(answers) != len(group):
                text = f"expected {len(group)} nodes in the server's answer, found {len(answers)}"
                raise DecodeError(text, source=self.url)
            for path, answer in zip(group, answers, strict=True):
                if not isinstance(answer, int):
                    nodes[path] = answer
                elif answer != NO_NODE:
                    refused.append(path)
        # Reading these one by one gives the specific error.
        return nodes | self._page(refused, self._client.get_async)

    def _answer_to_read(self, group: Sequence[str], pending: Any) -> list[Any]:
        from kazoo.exceptions import UnimplementedError

        try:
            with self._translated(group[0]):
                return list(self._ask(lambda path: send_read(self._client, group), group[0], pending))
        except UnreachableError as error:
            if not isinstance(error.__cause__, UnimplementedError):
                raise
            # Servers older than ZooKeeper 3.6 don't support multiRead.
            self._reads_many = False
            nodes = self._page(group, self._client.get_async)
            return [nodes.get(path, NO_NODE) for path in group]

    def _page(self, paths: Sequence[str], request: Callable[[str], Any]) -> dict[str, Any]:
        """Send one request per path in parallel, and return the answers for the paths that exist."""
        from kazoo.exceptions import NoNodeError

        answers = {}
        with self._translated(paths[0] if paths else ""):
            sent = [request(path) for path in paths]
        for path, pending in zip(paths, sent, strict=True):
            with self._translated(path):
                try:
                    answers[path] = self._ask(request, path, pending)
                except NoNodeError:
                    continue
        return answers

    def _create(self, path: str, value: bytes) -> None:
        from kazoo.exceptions import NodeExistsError, NoNodeError

        try:
            self._once(partial(self._client.create_async, path, value))
        except NoNodeError:
            for parent in _parents(path):
                try:
                    self._once(partial(container_request, self._client, parent))
                except NodeExistsError:
                    continue
            self._once(partial(self._client.create_async, path, value))

    def _ask(self, request: Callable[[str], Any], path: str, pending: Any = None) -> Any:
        """Return the answer to a read, which is sent again after a lost connection until the timeout."""
        deadline = time.monotonic() + self._timeout
        while True:
            left = max(deadline - time.monotonic(), RETRY_PAUSE)
            try:
                return (pending or request(path)).get(timeout=left)
            except _lost():
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_PAUSE)
                pending = None

    def _once(self, request: Callable[[], Any]) -> Any:
        """Return the answer to a write, which is never sent twice, nor after the timeout."""
        self._await_connection()
        try:
            return request().get(timeout=self._timeout)
        except self._client.handler.timeout_exception:
            # The request may still be queued, and closing the client makes sure that it is never sent.
            self.close()
            raise

    def _await_connection(self) -> None:
        """Wait for the session, because kazoo would queue a write while there is none."""
        if self._client.client_state == "CLOSED":
            self._client = connect(self._parsed)
        deadline = time.monotonic() + self._timeout
        while not self._client.connected:
            if time.monotonic() > deadline:
                raise UnreachableError(no_answer(self._timeout, TIMEOUT_IN_URL), source=self.url)
            time.sleep(RETRY_PAUSE)

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        from kazoo import exceptions as kazoo

        try:
            yield
        except kazoo.NoNodeError as error:
            raise NotFoundError(f"nothing at {path}", source=self.url) from error
        except (kazoo.BadVersionError, kazoo.NodeExistsError) as error:
            raise conflict(path, self.url) from error
        except (UnicodeDecodeError, struct.error, IndexError, MemoryError) as error:
            text = f"{path}: cannot decode the server's answer: {error}"
            raise DecodeError(text, source=self.url) from error
        except ValueError as error:
            raise UsageError(f"invalid path {path!r}: {error}") from error
        except kazoo.NotEmptyError as error:
            raise GuardError(f"refusing to delete {path}: it has children", source=self.url) from error
        except (kazoo.NoAuthError, kazoo.AuthFailedError) as error:
            text = f"{path}: the credentials don't allow it ({type(error).__name__})"
            raise UnreachableError(text, source=self.url) from error
        except (*_lost(), self._client.handler.timeout_exception) as error:
            text = f"{path}: {no_answer(self._timeout, TIMEOUT_IN_URL)}"
            raise UnreachableError(text, source=self.url) from error
        except kazoo.KazooException as error:
            text = f"{path}: the server refused the request ({type(error).__name__})"
            raise UnreachableError(text, source=self.url) from error


def _lost() -> tuple[type[Exception], ...]:
    """Return kazoo's errors for a broken connection, after which the outcome of a request is unknown."""
    from kazoo.exceptions import ConnectionLoss, OperationTimeoutError, SessionExpiredError

    return ConnectionLoss, SessionExpiredError, OperationTimeoutError


def _versioned(path: str, value: bytes, stat: Any) -> Versioned:
    return Versioned(path, value, stat.version, stat.ctime, stat.mtime, stat.ephemeralOwner != 0)


def _parents(path: str) -> list[str]:
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: at + 1]) for at in range(len(parts))]
