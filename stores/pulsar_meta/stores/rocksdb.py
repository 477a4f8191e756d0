"""`rocksdb:PATH`: the metadata database of a standalone (RocksdbMetadataStore, raw keys and values).

What is read is the database at the moment of opening. Ephemeral values that an earlier run of the broker
left behind are shown with `ephemeral=True`: to the next broker they are absent, and it removes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.guarded import GuardedStore
from pulsar_meta.stores.paths import prefixed
from pulsar_meta.stores.rocksdb_shadow import Shadow
from pulsar_meta.stores.rocksdb_value import MetaValue
from pulsar_meta.stores.url import split_scheme

if TYPE_CHECKING:
    from rocksdict import Rdict

AFTER_SLASH = b"0"


class RocksdbStore(GuardedStore):
    """A standalone's metadata database."""

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        """Open the database; NotFoundError where there is none, DecodeError where it is broken."""
        self.url = url
        self.writable = not read_only
        self.path = Path(split_scheme(url)[1].removeprefix("//")).absolute()
        if self.writable:
            raise GuardError("cannot be written yet", source=url)
        self._shadow = Shadow(self.path, url)

    @property
    def _db(self) -> Rdict:
        return self._shadow.db

    def read(self, path: str) -> Versioned:
        """Return the value at `path`; NotFoundError where there is none."""
        raw = self._db.get(path.encode()) if path.startswith("/") else None
        if raw is None:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return self._versioned(path, raw)

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of `path`; each child's own subtree is jumped over."""
        below = prefixed(path)[1].encode()
        names: set[str] = set()
        found: Any = self._db.iter()
        found.seek(below)
        while found.valid() and (key := found.key()).startswith(below):
            name, slash, _ = key[len(below) :].partition(b"/")
            names.add(self._text(name))
            if slash:
                found.seek(below + name + AFTER_SLASH)
            else:
                found.next()
        return sorted(names)

    def scan(self, prefix: str = "/") -> Iterator[Versioned]:
        """Yield every value at and below `prefix`, by the bytes of their paths."""
        bare, below = (part.encode() for part in prefixed(prefix))
        found: Any = self._db.iter()
        if bare != below and (raw := self._db.get(bare)) is not None:
            yield self._versioned(prefixed(prefix)[0], raw)
        found.seek(below)
        while found.valid() and (key := found.key()).startswith(below):
            yield self._versioned(self._text(key), found.value())
            found.next()

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the version is still `expected` and return the new one."""
        self.check_write(path, value)
        raise NotImplementedError

    def delete(self, path: str, expected: int) -> None:
        """Delete if the version is still `expected`."""
        self.check_write(path)
        raise NotImplementedError

    def close(self) -> None:
        """Close the database and remove the links to it."""
        self._shadow.close()

    def _versioned(self, path: str, raw: bytes) -> Versioned:
        try:
            held = MetaValue.decode(raw)
        except DecodeError as error:
            raise DecodeError(f"{path}: {error.message}", offset=error.offset, source=self.url) from error
        return Versioned(path, held.data, held.version, held.created, held.modified, held.ephemeral)

    def _text(self, key: bytes) -> str:
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"a key is not UTF-8: {key[:80]!r}", source=self.url) from error
