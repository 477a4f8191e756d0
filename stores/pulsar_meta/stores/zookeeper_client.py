"""Extensions of kazoo: connecting within a time limit, container nodes, multiRead and parallel transactions.

With kazoo, a request per node costs about as much as writing one; `multiRead` reads many nodes for a small
part of that. A transaction (`multi`) is one request and one proposal of the ensemble, so a thousand values
cost little more than ten. It is all or nothing, so if one of its values has changed, its values are written
one by one.

Sources: ZooKeeper 3.6's ZooDefs.OpCode, MultiOperationRecord, MultiResponse; kazoo.client.TransactionRequest.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from threading import Event, Timer
from typing import Any, Final

from pulsar_meta.access.sockets import TIMEOUT_IN_URL, connection_problem, no_answer
from pulsar_meta.access.urls import ServerUrl, user_password
from pulsar_meta.codecs.errors import UnreachableError, UsageError
from pulsar_meta.stores.base import Write

# org.apache.zookeeper.ZooDefs.OpCode.createContainer; its only mode is CreateMode.CONTAINER.
CREATE_CONTAINER: Final = 19
CONTAINER_MODE: Final = 4
# After this many seconds without a connection, check whether any server listens.
PROBE: Final = 0.5


def connect(url: ServerUrl) -> Any:
    """Return a connected KazooClient. Raises UnreachableError if no server answers in time."""
    client = _client(url)
    sasl = None if client._connection.sasl_options is None else _Sasl(client)
    try:
        why = _start(client, url, None if sasl is None else sasl.answered)
    except BaseException:
        end_session(client, 0.05)
        raise
    if why is not None:
        end_session(client, 0.05)
        raise UnreachableError(why, source=url.url)
    if sasl is not None and sasl.refused:
        end_session(client, 0.05)
        raise UnreachableError("the server refused the SASL credentials", source=url.url)
    # Set only now, because a chroot given to the constructor makes kazoo check it and log a warning.
    client.chroot = f"/{url.path}" if url.path else ""
    return client


def container_request(client: Any, path: str) -> Any:
    """Send the request for an empty container node at `path`, and return the pending answer."""
    from kazoo.client import _prefix_root
    from kazoo.protocol.serialization import Create2
    from kazoo.security import OPEN_ACL_UNSAFE

    class CreateContainer(Create2):  # type: ignore[misc]
        type = CREATE_CONTAINER

    pending = client.handler.async_result()
    path = _prefix_root(client.chroot, path)
    client._call(CreateContainer(path, b"", OPEN_ACL_UNSAFE, CONTAINER_MODE), pending)
    return pending


def _start(client: Any, url: ServerUrl, answered: Event | None) -> str | None:
    """Connect, and return why it failed, or None if it succeeded. Fails early if no server listens.

    `answered` is set once the server has answered the credentials, because a server that refuses them closes
    the connection.
    """
    begun = time.monotonic()
    connected = client.start_async()
    ready = connected if answered is None else answered
    if not ready.wait(min(PROBE, url.timeout)):
        problem = connection_problem(url.endpoints, max(url.timeout - PROBE, PROBE))
        if problem is not None:
            return problem
        ready.wait(max(url.timeout - (time.monotonic() - begun), 0))
    return None if ready.is_set() else no_answer(url.timeout, TIMEOUT_IN_URL)


def _client(url: ServerUrl) -> Any:
    from kazoo.client import KazooClient

    silent = logging.Logger("pulsar_meta.zookeeper", logging.CRITICAL + 1)
    silent.addHandler(logging.NullHandler())
    url.check_tls(used=url.flag("tls"), how="tls=true")
    secret = url.secret()
    return KazooClient(
        hosts=",".join(url.endpoints),
        timeout=url.timeout,
        logger=silent,
        connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1},
        auth_data=None if secret is None else [("digest", ":".join(user_password(secret)))],
        sasl_options=_sasl(url),
        use_ssl=url.flag("tls"),
        ca=url.options.get("ca"),
        certfile=url.options.get("cert"),
        keyfile=url.options.get("key"),
    )


class _Sasl:
    """Wait for the server's answer to SASL credentials.

    kazoo considers itself connected before that answer, and only recognizes a dropped connection as a
    refusal. If the server names the refusal, as ZooKeeper does since 3.6, kazoo's thread would die with a
    traceback.
    """

    def __init__(self, client: Any) -> None:
        self.answered, self.refused = Event(), False
        self._authenticate = client._connection._authenticate_with_sasl
        client._connection._authenticate_with_sasl = self._checked

    def _checked(self, *arguments: Any) -> None:
        from kazoo.exceptions import AuthFailedError, KazooException

        try:
            self._authenticate(*arguments)
        except KazooException as error:
            self.refused = True
            raise AuthFailedError("refused") from error
        finally:
            self.answered.set()


def end_session(client: Any, seconds: float) -> None:
    """End the session, then the connection. If the server doesn't answer in `seconds`, drop the connection.

    Without the timer, kazoo would wait for the end of an answer that a slow server has begun.
    """
    timer = Timer(seconds, _cut, (client,))
    timer.daemon = True
    timer.start()
    try:
        client.stop()
        client.close()
    finally:
        timer.cancel()


def _cut(client: Any) -> None:
    connection = client._connection._socket
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _sasl(url: ServerUrl) -> dict[str, str] | None:
    secret = url.secret("sasl")
    if secret is None:
        return None
    if find_spec("puresasl") is None:
        raise UsageError("sasl= needs the library pure-sasl; run pip install pure-sasl", source=url.url)
    user, password = user_password(secret, "sasl")
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}


MULTI_READ: Final = 22
GET_DATA: Final = 4
ERROR: Final = -1
NO_NODE: Final = -101
# How many nodes are read with one request, which returns all their values in one answer.
NODES: Final = 32

_header: Final = struct.Struct(">i?i")
_int: Final = struct.Struct(">i")
_stat: Final = struct.Struct(">qqqqiiiqiiq")
_END: Final = _header.pack(-1, True, -1)
_GET: Final = _header.pack(GET_DATA, False, -1)
_NO_WATCH: Final = b"\0"

# A node's value and stat in an answer, or an error code.
Node = tuple[bytes, Any] | int


class ReadNodes:
    """A multiRead request, with the methods that kazoo's connection calls."""

    type = MULTI_READ

    def __init__(self, paths: Sequence[str]) -> None:
        """Read the nodes at `paths`, which are absolute and include the chroot."""
        self.paths = paths

    def serialize(self) -> bytes:
        """Encode the body of the request."""
        parts = []
        for path in self.paths:
            text = path.encode()
            parts += [_GET, _int.pack(len(text)), text, _NO_WATCH]
        return b"".join([*parts, _END])

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Node]:
        """Decode the answer: one node per path, in the order of the request."""
        from kazoo.protocol.states import ZnodeStat

        nodes: list[Node] = []
        while True:
            kind, done, _ = _header.unpack_from(data, offset)
            offset += _header.size
            if done:
                return nodes
            if kind == ERROR:
                nodes.append(_int.unpack_from(data, offset)[0])
                offset += _int.size
                continue
            size = max(_int.unpack_from(data, offset)[0], 0)
            offset += _int.size
            value = bytes(data[offset : offset + size])
            offset += size
            nodes.append((value, ZnodeStat._make(_stat.unpack_from(data, offset))))
            offset += _stat.size


def send_read(client: Any, paths: Sequence[str]) -> Any:
    """Send a multiRead request, and return the pending answer."""
    from kazoo.client import _prefix_root

    pending = client.handler.async_result()
    client._call(ReadNodes([_prefix_root(client.chroot, path) for path in paths]), pending)
    return pending


OPERATIONS: Final = 64
# The size of one operation of a transaction without path and value.
OPERATION_OVERHEAD: Final = 32


def split_writes(writes: Sequence[Write], limit: int, prefix: int) -> Iterator[list[Write]]:
    """Group writes into requests of less than `limit` bytes. `prefix` is the size of the chroot."""
    group: list[Write] = []
    size = 0
    for write in writes:
        own = prefix + len(write[0].encode()) + len(write[1]) + OPERATION_OVERHEAD
        if group and (len(group) == OPERATIONS or size + own > limit):
            yield group
            group, size = [], 0
        group.append(write)
        size += own
    if group:
        yield group


def send_transaction(client: Any, group: Sequence[Write]) -> Any:
    """Send compare-and-sets of existing nodes as one transaction, and return the pending answers."""
    transaction = client.transaction()
    for path, value, version in group:
        transaction.set_data(path, value, version)
    return transaction.commit_async()


def versions_of(answers: Sequence[Any]) -> list[int] | None:
    """Return the new versions, or None if the transaction failed."""
    if any(isinstance(answer, Exception) for answer in answers):
        return None
    return [int(answer.version) for answer in answers]


def put_groups(
    client: Any,
    groups: Sequence[Sequence[Write]],
    wait: Callable[[Any], Any],
    put: Callable[[str, bytes, int], int | None],
) -> list[int | None]:
    """Send all groups in parallel, and return the new version of each write, with None for a conflict.

    `wait` returns the answer to a pending request; `put` makes a single write.
    """
    sent = [send_transaction(client, group) if len(group) > 1 else None for group in groups]
    # Collect all answers first, so that nothing else is sent while these requests are in flight.
    answers = [None if pending is None else versions_of(wait(pending)) for pending in sent]
    done: list[int | None] = []
    for group, versions in zip(groups, answers, strict=True):
        done += versions if versions is not None else [put(*write) for write in group]
    return done
