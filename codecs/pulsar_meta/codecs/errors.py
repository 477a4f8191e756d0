"""Every error that pulsar-meta raises on purpose.

PulsarMetaError
├── UsageError         2  the options or arguments are not valid
├── NotFoundError      3  a path, topic, ledger or entry does not exist
├── DecodeError        4  bytes do not follow their format
│   └── LimitError        bytes need more memory or time than the limits allow
├── ConflictError      5  the value has changed since it was read
├── UnreachableError   6  a store or a bookie does not answer
└── GuardError         7  the operation could harm a cluster

The numbers are exit codes. Only `cli.app.main` turns errors into exit codes.
"""

from __future__ import annotations

from types import TracebackType


class PulsarMetaError(Exception):
    """Base class: a message of one line for people, and an exit code for scripts."""

    exit_code = 1
    kind = "error"

    def __init__(self, message: str, *, source: str | None = None) -> None:
        """`message` states what was expected and what was found; `source` is the file, path or server."""
        super().__init__(message)
        self.message = message
        self.source = source

    def within(self, source: str | None = None, *, what: str = "") -> PulsarMetaError:
        """Return a copy that names `source` (a file, path or server) and `what` (a part of it)."""
        return type(self)(_named(what, self.message), source=source or self.source)

    def __str__(self) -> str:
        return f"{self.source}: {self.message}" if self.source else self.message


class UsageError(PulsarMetaError):
    """The options contradict each other or have values that do not exist."""

    exit_code = 2
    kind = "usage"


class NotFoundError(PulsarMetaError):
    """A path, topic, ledger or entry does not exist."""

    exit_code = 3
    kind = "not-found"


class DecodeError(PulsarMetaError):
    """Bytes do not follow their format. The message names the expected and the actual bytes."""

    exit_code = 4
    kind = "decode"

    def __init__(self, message: str, *, offset: int | None = None, source: str | None = None) -> None:
        """`offset` counts bytes from the start of the decoder's input."""
        super().__init__(message, source=source)
        self.offset = offset

    def within(self, source: str | None = None, *, what: str = "", start: int | None = None) -> DecodeError:
        """Return a copy that names its place; `start` is the offset of the decoder's input in the source."""
        offset = self.offset if start is None else start + (self.offset or 0)
        return type(self)(_named(what, self.message), offset=offset, source=source or self.source)

    def __str__(self) -> str:
        place = "" if self.offset is None else f" (at byte {self.offset})"
        return super().__str__() + place

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_decode_error, (type(self), self.message, self.offset, self.source))


class LimitError(DecodeError):
    """Reading bytes would exceed a limit. The message names the option or variable that raises it.

    The bytes may follow their format, so this is no evidence of damage.
    """


# Packages whose names differ from those of their modules.
_PACKAGES = {"grpc": "grpcio", "prometheus_client": "prometheus-client", "puresasl": "pure-sasl"}


def install_hint(module: str) -> str:
    """Return the command that installs a module of another package."""
    name = module.partition(".")[0]
    return f"pip install {_PACKAGES.get(name, name)}"


def _named(what: str, message: str) -> str:
    return f"{what}: {message}" if what else message


def _rebuild_decode_error(
    kind: type[DecodeError], message: str, offset: int | None, source: str | None
) -> DecodeError:
    return kind(message, offset=offset, source=source)


class _Decoding:
    """Adds a place to DecodeErrors. A class, because a generator is too slow for every value of a scan."""

    __slots__ = ("_source", "_start", "_what")

    def __init__(self, source: str | None, what: str, start: int | None) -> None:
        self._source, self._what, self._start = source, what, start

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, DecodeError):
            raise error.within(self._source, what=self._what, start=self._start) from error


def decoding(source: str | None = None, *, what: str = "", start: int | None = None) -> _Decoding:
    """Return a context manager that applies `DecodeError.within` to any DecodeError raised inside it."""
    return _Decoding(source, what, start)


class ConflictError(PulsarMetaError):
    """Compare-and-set failed because another client has written, created or deleted the value."""

    exit_code = 5
    kind = "conflict"


class UnreachableError(PulsarMetaError):
    """A store, broker or bookie refused the connection or did not answer in time."""

    exit_code = 6
    kind = "unreachable"


class GuardError(PulsarMetaError):
    """The operation was refused because it could harm a live cluster; the message names the override."""

    exit_code = 7
    kind = "guard"


def unreadable(error: OSError, source: str) -> NotFoundError | UnreachableError:
    """Convert an OSError about the file `source`: NotFoundError if it is missing, else UnreachableError."""
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such file", source=source)
    return UnreachableError(f"cannot be read: {error.strerror or error}", source=source)
