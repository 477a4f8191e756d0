"""Moving the data of a stopped cluster to other directories.

A bookie refuses to start if its directories are not those of its cookie, which is both on its disk and in the
metadata store. So if a capture is laid out in another directory, both are rewritten. The address stays,
because the metadata of every ledger refers to it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tests.servers.jvm import Jvm
from tests.servers.processes import ServerFailed, port_is_free

if TYPE_CHECKING:
    from tests.servers.pulsar import PulsarStandalone

# Another worker may keep a standalone of the same capture for this long.
PORT_SECONDS: Final = 900
# This is not in TMPDIR, because several test runs with different ones share the ports.
LOCKS: Final = Path("/tmp")
# Seven letters out of 31 consecutive ones each are enough to reach every 32-bit hash.
_FIRST, _LETTERS = "0", 7
_directory_re: Final = re.compile(rb'(?P<key>journalDir: "|ledgerDirs: "1\\t)[^"]*"')


def count(data: Path) -> int:
    """Return the number of bookies in a capture."""
    return len(list(data.glob("bookie[0-9]*")))


def lay_out(data: Path, pulsar: PulsarStandalone) -> None:
    """Copy the capture `data` to where `pulsar` expects it, and adapt its cookies."""
    cookies: dict[str, bytes] = {}
    for number, directory in enumerate(pulsar.bookie_dirs):
        if not (data / f"bookie{number}").exists():
            # This bookie has no data yet.
            continue
        cookie = copy_disk(data / f"bookie{number}", directory)
        cookies[cookie_path(cookie)] = cookie
    if pulsar.uses_zookeeper:
        # These bookies have other names (bk0test) and delete data with a cookie that is not theirs.
        raise ServerFailed("a capture in ZooKeeper cannot be laid out")
    shutil.copytree(data / "rocksdb", pulsar.metadata_dir)
    for path in pulsar.directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    # RocksDB of that version writes the values, so it later reads its own format.
    with Jvm(pulsar.version, heap="256m") as jvm:
        jvm.call("tests.servers.inside:put_in_rocksdb", str(pulsar.metadata_dir), cookies)


def copy_disk(disk: Path, directory: Path) -> bytes:
    """Copy the disk of a stopped bookie and return its cookie, adapted to the new directory."""
    shutil.copytree(disk / "current", directory / "current")
    return _move_cookie(directory)


def cookie_path(cookie: bytes) -> str:
    """Return the path of a cookie in the store."""
    return f"/ledgers/cookies/{address(cookie)}"


def place_for_identity(parent: Path, data: Path) -> Path:
    """Return a directory in `parent` in which a bookie of Pulsar 5 has the identity of its cookie.

    There, a bookie is named after Java's hash of its directory's path (BKCluster), and the metadata of every
    ledger refers to that name. So the directory's name is chosen to produce the right hash.
    """
    identity = address((data / "bookie0" / "current" / "VERSION").read_bytes())
    wanted, missing, name = int(identity.rpartition("-")[2], 16), 0, ""
    for character in f"{parent}/" + _FIRST * _LETTERS:
        missing = (31 * missing + ord(character)) % 2**32
    missing = (wanted - missing) % 2**32
    for _ in range(_LETTERS):
        missing, digit = divmod(missing, 31)
        name = chr(ord(_FIRST) + digit) + name
    return parent / name


class BoundPorts:
    """The ports to which cookies bind bookies, locked against all other tests on this machine.

    Captures of one version use the same port. Checking that it is free is not enough, because a JVM starts
    for seconds between the check and the bookie's start.
    """

    def __init__(self) -> None:
        self._locks: list[IO[bytes]] = []

    def take(self, directories: list[Path]) -> None:
        """Wait until the ports in the cookies are locked and free. Raises ServerFailed if they stay taken."""
        self.release()
        deadline = time.monotonic() + PORT_SECONDS
        for port in sorted(filter(None, map(_bound_port, directories))):
            lock = (LOCKS / f"pulsar-meta-test-port-{port}").open("ab")
            self._locks.append(lock)
            with suppress(PermissionError):
                os.fchmod(lock.fileno(), 0o666)
            while not (_locked(lock) and port_is_free(port)):
                if time.monotonic() > deadline:
                    raise ServerFailed(f"port {port}, to which a cookie binds the bookie, is taken")
                time.sleep(0.2)

    def release(self) -> None:
        """Release the ports."""
        while self._locks:
            self._locks.pop().close()


def _bound_port(directory: Path) -> int | None:
    """Return the port in the cookie of a bookie's directory, or None."""
    version = directory / "current" / "VERSION"
    _, _, port = address(version.read_bytes()).partition(":") if version.exists() else ("", "", "")
    return int(port) if port else None


def _locked(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _move_cookie(directory: Path) -> bytes:
    version = directory / "current" / "VERSION"
    version.parent.chmod(0o755)
    version.chmod(0o644)
    here = str(directory).encode()
    moved = _directory_re.sub(lambda match: match["key"] + here + b'"', version.read_bytes())
    version.write_bytes(moved)
    return moved


def address(cookie: bytes) -> str:
    """Return the id of a bookie from its cookie."""
    match = re.search(rb'bookieHost: "([^"]*)"', cookie)
    if match is None:
        raise ServerFailed("a cookie without bookieHost")
    return match[1].decode()
