"""What plans and undo files have in common: NDJSON of which the first line names the store they belong to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NotRequired, TypedDict

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import GuardError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.routed import MARK, with_ledgers

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
    try:
        found: str | None = store.read(INSTANCE_ID).value.decode("utf-8", "replace").strip() or None
    except NotFoundError:
        found = None
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
        f"belongs to the store {belongs}, this one is {here} ({other}--allow-other-store to go on)",
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
