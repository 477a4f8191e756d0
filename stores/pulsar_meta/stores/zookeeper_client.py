"""kazoo, tamed, and what it lacks: it connects within a time or not at all, logs nothing, makes container
nodes, reads many nodes in one request (`multiRead`) and has several transactions under way at once.

A request for each node costs kazoo about as much as writing one; `multiRead` costs a small part of that. A
transaction (`multi`) is one request and one proposal of the ensemble, so a thousand values cost little more
than ten. It is all or nothing: where one value of it moved, its values are written one by one.
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

from pulsar_meta.access.sockets import no_answer, nobody_listens
from pulsar_meta.access.urls import ServerUrl, user_password
from pulsar_meta.codecs.errors import UnreachableError, UsageError
from pulsar_meta.stores.base import Write

# org.apache.zookeeper.ZooDefs.OpCode.createContainer; its only mode is CreateMode.CONTAINER.
CREATE_CONTAINER: Final = 19
CONTAINER_MODE: Final = 4
# After so many seconds without a connection it is found out whether somebody listens at all.
PROBE: Final = 0.5


def connect(url: ServerUrl) -> Any:
    """Return a connected KazooClient; UnreachableError where no server answers in time."""
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
    # Not given before: kazoo would ask whether it is there, and warn where it is not.
    client.chroot = f"/{url.path}" if url.path else ""
    return client


def container_request(client: Any, path: str) -> Any:
    """Send the request for an empty container node at `path` and return what will have the answer."""
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
    """Connect; return why it is not possible, at once where nobody listens.

    With `answered`, the server's answer to credentials is waited for: who is refused is not connected
    any more.
    """
    begun = time.monotonic()
    connected = client.start_async()
    ready = connected if answered is None else answered
    if not ready.wait(min(PROBE, url.timeout)):
        nobody = nobody_listens(url.endpoints, max(url.timeout - PROBE, PROBE))
        if nobody is not None:
            return nobody
        ready.wait(max(url.timeout - (time.monotonic() - begun), 0))
    return None if ready.is_set() else no_answer(url.timeout)


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
    """Waits for the server's answer to SASL credentials.

    kazoo counts as connected before it, and takes only a dropped connection for a refusal; of a server that
    names it (since ZooKeeper 3.6), its thread would die with a traceback.
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
    """End the session and the connection; where the server does not agree within `seconds`, the latter only.

    kazoo would wait for the end of an answer that began, also where its bytes drip.
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
        raise UsageError("sasl: needs the library pure-sasl (pip install pure-sasl)", source=url.url)
    user, password = user_password(secret, "sasl")
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}


MULTI_READ: Final = 22
GET_DATA: Final = 4
ERROR: Final = -1
NO_NODE: Final = -101
# Nodes in one request; their values come back in one answer.
NODES: Final = 32

_header: Final = struct.Struct(">i?i")
_int: Final = struct.Struct(">i")
_stat: Final = struct.Struct(">qqqqiiiqiiq")
_END: Final = _header.pack(-1, True, -1)
_GET: Final = _header.pack(GET_DATA, False, -1)
_NO_WATCH: Final = b"\0"

# What an answer holds of a node: its value and stat, or the number of an error.
Node = tuple[bytes, Any] | int


class ReadNodes:
    """The request, as kazoo's connection sends it and reads its answer."""

    type = MULTI_READ

    def __init__(self, paths: Sequence[str]) -> None:
        """`paths` are whole ones, the chroot in front."""
        self.paths = paths

    def serialize(self) -> bytes:
        """Return the body of the request."""
        parts = []
        for path in self.paths:
            text = path.encode()
            parts += [_GET, _int.pack(len(text)), text, _NO_WATCH]
        return b"".join([*parts, _END])

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Node]:
        """Return what each path holds, in the order of the request."""
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
    """Send the request for some nodes and return what will have the answer."""
    from kazoo.client import _prefix_root

    pending = client.handler.async_result()
    client._call(ReadNodes([_prefix_root(client.chroot, path) for path in paths]), pending)
    return pending


OPERATIONS: Final = 64
# What an operation of a transaction holds besides path and value.
OPERATION_OVERHEAD: Final = 32


def split_writes(writes: Sequence[Write], limit: int, prefix: int) -> Iterator[list[Write]]:
    """Yield the writes in groups whose requests stay below `limit` bytes; `prefix` is the chroot's size."""
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
    """Send compare-and-sets of existing nodes as one transaction; return what will have the answers."""
    transaction = client.transaction()
    for path, value, version in group:
        transaction.set_data(path, value, version)
    return transaction.commit_async()


def versions_of(answers: Sequence[Any]) -> list[int] | None:
    """Return the new versions, None where the transaction did not happen."""
    if any(isinstance(answer, Exception) for answer in answers):
        return None
    return [int(answer.version) for answer in answers]


def put_groups(
    client: Any,
    groups: Sequence[Sequence[Write]],
    wait: Callable[[Any], Any],
    put: Callable[[str, bytes, int], int | None],
) -> list[int | None]:
    """Send all groups at once and return the new version of each write, None for a conflict.

    `wait` returns what a pending request answers, `put` makes a single write.
    """
    sent = [send_transaction(client, group) if len(group) > 1 else None for group in groups]
    # All answers first: nothing more is sent while requests of ours are still under way.
    answers = [None if pending is None else versions_of(wait(pending)) for pending in sent]
    done: list[int | None] = []
    for group, versions in zip(groups, answers, strict=True):
        done += versions if versions is not None else [put(*write) for write in group]
    return done
