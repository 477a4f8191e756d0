"""Moving the data of a stopped cluster: a cookie names a bookie's directories and its address.

A bookie refuses to start where its directories are not those of its cookie, which stands both on its
disk and in the metadata store; so a capture that is laid out in another directory gets both rewritten.
The address stays, since the metadata of every ledger names it.
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

# As long as another worker may keep a standalone of the same capture.
PORT_SECONDS: Final = 900
# Not below TMPDIR: several runs of the tests may have one each, and share the ports.
LOCKS: Final = Path("/tmp")
# Seven letters, each one of 31 neighbours, reach every hash of 32 bits.
_FIRST, _LETTERS = "0", 7
_directory_re: Final = re.compile(rb'(?P<key>journalDir: "|ledgerDirs: "1\\t)[^"]*"')


def count(data: Path) -> int:
    """Return how many bookies a capture has."""
    return len(list(data.glob("bookie[0-9]*")))


def lay_out(data: Path, pulsar: PulsarStandalone) -> None:
    """Copy the capture `data` to where `pulsar` looks for it, its cookies made to fit."""
    cookies: dict[str, bytes] = {}
    for number, directory in enumerate(pulsar.bookie_dirs):
        if not (data / f"bookie{number}").exists():
            # A bookie that has nothing yet.
            continue
        cookie = copy_disk(data / f"bookie{number}", directory)
        cookies[cookie_path(cookie)] = cookie
    if pulsar.uses_zookeeper:
        # Its bookies have other names (bk0test), and it deletes data under a cookie that is not theirs.
        raise ServerFailed("a capture in ZooKeeper cannot be laid out")
    shutil.copytree(data / "rocksdb", pulsar.metadata_dir)
    for path in pulsar.directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    # RocksDB of that very version writes, so that what it reads afterwards is its own format.
    with Jvm(pulsar.version, heap="256m") as jvm:
        jvm.call("tests.servers.inside:put_in_rocksdb", str(pulsar.metadata_dir), cookies)


def copy_disk(disk: Path, directory: Path) -> bytes:
    """Copy the disk of a bookie that does not run; return its cookie, which fits the new directory."""
    shutil.copytree(disk / "current", directory / "current")
    return _move_cookie(directory)


def cookie_path(cookie: bytes) -> str:
    """Return where the store has a cookie."""
    return f"/ledgers/cookies/{address(cookie)}"


def place_for_identity(parent: Path, data: Path) -> Path:
    """Return a directory in `parent` where a bookie of Pulsar 5 has the identity that its cookie says.

    There a bookie is called after Java's hash of its directory's path (BKCluster), and the metadata
    of every ledger names it: so the name of the directory is chosen such that the hash comes out.
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
    """The ports to which cookies bind bookies, held against every other test on this machine.

    Captures of one version name the same port. That it is free says little: between the look and the bookie's
    start lie the seconds in which a JVM starts.
    """

    def __init__(self) -> None:
        self._locks: list[IO[bytes]] = []

    def take(self, directories: list[Path]) -> None:
        """Return when the ports in the cookies are ours and free; ServerFailed if they stay taken."""
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
        """Let others have them."""
        while self._locks:
            self._locks.pop().close()


def _bound_port(directory: Path) -> int | None:
    """Return the port in the cookie of a bookie's directory, None where there is none."""
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
    """Return the id of the bookie whose cookie it is."""
    match = re.search(rb'bookieHost: "([^"]*)"', cookie)
    if match is None:
        raise ServerFailed("a cookie without bookieHost")
    return match[1].decode()
