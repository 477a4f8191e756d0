"""What the stores share: opening and closing, and refusing what must not be sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from pulsar_meta.codecs.errors import GuardError
from pulsar_meta.stores.paths import checked


class GuardedStore(ABC):
    """The part of a `base.Store` that does not depend on the server."""

    url: str
    writable: bool
    max_value_size: int | None = None

    def check_write(self, path: str, value: bytes = b"") -> None:
        """Raise GuardError where the store is read-only or `value` is over the server's limit."""
        checked(path)
        if not self.writable:
            raise GuardError("opened for reading only", source=self.url)
        limit = self.max_value_size
        if limit is not None and len(value) > limit:
            raise GuardError(f"{path}: {len(value)} bytes, the server takes {limit}", source=self.url)

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and files. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
