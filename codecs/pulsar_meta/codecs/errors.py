"""Every error that pulsar-meta raises on purpose.

PulsarMetaError
├── UsageError         2  what was asked for cannot be meant
├── NotFoundError      3  there is no such thing
├── DecodeError        4  bytes are not what they should be
├── ConflictError      5  the version moved since it was read
├── UnreachableError   6  a store or a bookie does not answer
└── GuardError         7  it could be done, but it would do harm

The numbers are the exit codes; `cli.app.main` is the one place that turns an error into one.
"""

from __future__ import annotations

from types import TracebackType


class PulsarMetaError(Exception):
    """The root: one line that a person understands, and the exit code that scripts see."""

    exit_code = 1
    kind = "error"

    def __init__(self, message: str, *, source: str | None = None) -> None:
        """`message` says what was expected and what was found; `source` names the file, path or server."""
        super().__init__(message)
        self.message = message
        self.source = source

    def within(self, source: str | None = None, *, what: str = "") -> PulsarMetaError:
        """Return the error with its place: in the part `what` of the file, path or server `source`."""
        return type(self)(_named(what, self.message), source=source or self.source)

    def __str__(self) -> str:
        return f"{self.source}: {self.message}" if self.source else self.message


class UsageError(PulsarMetaError):
    """The options contradict each other or name nothing that exists in this program."""

    exit_code = 2
    kind = "usage"


class NotFoundError(PulsarMetaError):
    """A path, topic, ledger or entry that is not there."""

    exit_code = 3
    kind = "not-found"


class DecodeError(PulsarMetaError):
    """Bytes that break their format: what was expected, what was found, at which offset."""

    exit_code = 4
    kind = "decode"

    def __init__(self, message: str, *, offset: int | None = None, source: str | None = None) -> None:
        """`offset` counts bytes from the start of the value that was given to the decoder."""
        super().__init__(message, source=source)
        self.offset = offset

    def within(self, source: str | None = None, *, what: str = "", start: int | None = None) -> DecodeError:
        """Return the error with its place; `start` is where the decoded bytes begin in the source."""
        offset = self.offset if start is None else start + (self.offset or 0)
        return DecodeError(_named(what, self.message), offset=offset, source=source or self.source)

    def __str__(self) -> str:
        where = "" if self.offset is None else f" (at byte {self.offset})"
        return super().__str__() + where

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_decode_error, (self.message, self.offset, self.source))


def _named(what: str, message: str) -> str:
    return f"{what}: {message}" if what else message


def _rebuild_decode_error(message: str, offset: int | None, source: str | None) -> DecodeError:
    return DecodeError(message, offset=offset, source=source)


class _Decoding:
    """A block whose DecodeErrors get their place. No generator: it stands around each value of a scan."""

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
    """Give a DecodeError that leaves the block its place, as `DecodeError.within` does."""
    return _Decoding(source, what, start)


class ConflictError(PulsarMetaError):
    """Compare-and-set failed: somebody wrote, created or deleted the value meanwhile."""

    exit_code = 5
    kind = "conflict"


class UnreachableError(PulsarMetaError):
    """A store, broker or bookie that did not answer in time, or refused."""

    exit_code = 6
    kind = "unreachable"


class GuardError(PulsarMetaError):
    """Refused because it could harm a live cluster; the message names the option that overrides it."""

    exit_code = 7
    kind = "guard"


def unreadable(error: OSError, source: str) -> NotFoundError | UnreachableError:
    """Return what the operating system says of the file `source` as an error: 3 if missing, else 6."""
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such file", source=source)
    return UnreachableError(f"cannot be read: {error.strerror or error}", source=source)
