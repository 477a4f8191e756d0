"""kazoo, tamed: it connects within a time or not at all, logs nothing, and knows container nodes."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from threading import Event
from typing import Any, Final

from pulsar_meta.access.credentials import user_password
from pulsar_meta.access.urls import ServerUrl
from pulsar_meta.codecs.errors import UnreachableError, UsageError

# org.apache.zookeeper.ZooDefs.OpCode.createContainer; its only mode is CreateMode.CONTAINER.
CREATE_CONTAINER: Final = 19
CONTAINER_MODE: Final = 4


def connect(url: ServerUrl) -> Any:
    """Return a connected KazooClient; UnreachableError where no server answers in time."""
    from kazoo.exceptions import KazooException

    client = _client(url)
    sasl = None if client._connection.sasl_options is None else _Sasl(client)
    try:
        client.start(timeout=url.timeout)
        accepted = sasl is None or (sasl.answered.wait(url.timeout) and not sasl.refused)
    except (KazooException, client.handler.timeout_exception) as error:
        _end(client)
        servers = ", ".join(url.endpoints)
        reason = f"no answer from {servers} within {url.timeout:g} s ({type(error).__name__})"
        raise UnreachableError(reason, source=url.url) from error
    if not accepted:
        _end(client)
        raise UnreachableError("the server refused the SASL credentials", source=url.url)
    # Not told before: kazoo would ask whether it is there, and warn where it is not.
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


def _end(client: Any) -> None:
    client.stop()
    client.close()


def _sasl(url: ServerUrl) -> dict[str, str] | None:
    secret = url.secret("sasl")
    if secret is None:
        return None
    if find_spec("puresasl") is None:
        raise UsageError("sasl: needs the library pure-sasl (pip install pure-sasl)", source=url.url)
    user, password = user_password(secret, "sasl")
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}
