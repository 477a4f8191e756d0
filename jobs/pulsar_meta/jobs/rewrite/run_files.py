"""What plans and undo files have in common: NDJSON of which the first line names the store they belong to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Final, NotRequired, TypedDict

from pulsar_meta.access.files import bounded_lines
from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import DecodeError, GuardError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import MARK, with_ledgers

INSTANCE_ID: Final = "/ledgers/INSTANCEID"
# Far more than a first line has; what is no such file may have no second line.
HEADER_LIMIT: Final = 1 << 20

_server_re = re.compile(r"^(?P<scheme>[a-z]+)://(?P<hosts>[^/?]*)/?(?P<chroot>[^?]*)")


class StoreDocument(TypedDict):
    """The identity of a store in plans, undo files and snapshots; `ledgers` is from `--ledger-store`."""

    instance_id: str | None
    url: str
    chroot: str
    ledgers: NotRequired[str]


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The instance id of the BookKeeper cluster in the store, None if it has none, with its URL and chroot.

    `ledgers` is the URL of the store with `/ledgers` if that is another one. URLs have no credentials and no
    options.
    """

    instance_id: str | None
    url: str
    chroot: str
    ledgers: str | None = None

    def document(self) -> StoreDocument:
        """Return the form in which plans and undo files hold it."""
        found: StoreDocument = {"instance_id": self.instance_id, "url": self.url, "chroot": self.chroot}
        if self.ledgers:
            found["ledgers"] = self.ledgers
        return found


def read_identity(store: Store) -> StoreIdentity:
    """Read the identity of a store. Raises UnreachableError."""
    record = store.find(INSTANCE_ID)
    found = None if record is None else record.value.decode("utf-8", "replace").strip() or None
    main, _, other = store.url.partition(MARK)
    ledgers = "/".join(filter(None, _place(other))) or None
    return StoreIdentity(found, *_place(main), ledgers)


def _place(url: str) -> tuple[str, str]:
    """Return the servers of a URL and the chroot, without credentials and options."""
    match = _server_re.match(redact(url))
    return (
        (url, "") if match is None else (f"{match['scheme']}://{match['hosts']}", match["chroot"].strip("/"))
    )


def store_url(held: Document) -> str | None:
    """Return the URL in the `store` object of a plan or undo file, None if there is none."""
    url, chroot = held.get("url"), held.get("chroot")
    # Credentials in a URL were redacted.
    if not isinstance(url, str) or not url or "***" in url:
        return None
    whole = f"{url}/{chroot}" if chroot else url
    ledgers = held.get("ledgers")
    return with_ledgers(whole, ledgers) if isinstance(ledgers, str) else whole


def check_identity(held: Document, store: StoreIdentity, *, source: str, allowed: bool) -> None:
    """Raise GuardError if a plan or undo file (its `store` object) was written for another store.

    If both have an instance id, it decides, so that a copy or another server of the store passes. Otherwise
    URL and chroot must be the same, because the run of the file may have created the instance id.
    """
    if allowed or _same(held, store):
        return
    belongs = held.get("instance_id") or held.get("url")
    here = store.instance_id or store.url
    url = store_url(held)
    other = f"--store {url} is that one, " if url is not None else ""
    raise GuardError(
        f"belongs to the store {belongs}, this one is {here} ({other}to continue anyway, add"
        " --allow-other-store)",
        source=source,
    )


def _same(held: Document, store: StoreIdentity) -> bool:
    if held.get("instance_id") and store.instance_id:
        return bool(held["instance_id"] == store.instance_id and held.get("chroot") == store.chroot)
    place = held.get("url") == store.url and held.get("chroot") == store.chroot
    return place and not held.get("instance_id")


def check_file(path: Path) -> None:
    """Raise UsageError for a pipe or a device, since plans and undo files are read more than once."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UsageError("a file, please: it is read more than once", source=str(path))


def whole_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines, up to the first that is cut short or has zeros.

    Raises LimitError for a line that would take too much memory.
    """
    for number, line in enumerate(bounded_lines(file), 1):
        if not line.endswith(b"\n") or b"\0" in line:
            return
        yield number, line


class LineSums:
    """The sums of the lines of an undo file, in order. Each one covers the line and the sum before it."""

    def __init__(self, header: bytes, file_format: object = None) -> None:
        """Begin with the first line of the file. Files of format 1 have no sums."""
        self._has_sums = file_format != 1
        self._last = _sum(b"", header)

    def added(self, line: bytes) -> bytes:
        """Add its sum to the next line."""
        if not self._has_sums:
            return line
        self._last = _sum(self._last, line)
        return b'%b,"sum":"%b"}\n' % (line[:-2], self._last)

    def check(self, line: bytes, number: int, path: Path) -> None:
        """Raise DecodeError if the next line has another sum."""
        body, _, _ = line.rpartition(b',"sum":"')
        if self._has_sums and self.added(body + b"}\n") != line:
            text = f"line {number} is damaged, or was changed after the run: its sum is wrong"
            raise DecodeError(text, source=str(path))


def _sum(before: bytes, line: bytes) -> bytes:
    return sha256(before + line).hexdigest()[:32].encode()
