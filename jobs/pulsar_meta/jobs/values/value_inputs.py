"""Read the inputs of `decode`: files, directories, patterns, stdin, snapshots, or a store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from shutil import copyfileobj
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from pulsar_meta.codecs.compression import DEFAULT_MAX_SIZE
from pulsar_meta.codecs.documents.kinds import store_path_of_file
from pulsar_meta.codecs.errors import (
    DecodeError,
    NotFoundError,
    PulsarMetaError,
    UnreachableError,
)
from pulsar_meta.codecs.text_bytes import TextForm, text_to_bytes

# What only stores and snapshots need is imported late, because `decode FILE` should start fast.
if TYPE_CHECKING:
    from pulsar_meta.jobs.topics.related import PlaceNames
    from pulsar_meta.stores.base import Store

STDIN: Final = "-"
_MAY_BE_STORED: Final = re.compile(
    r"/(managed-ledgers|ledgers|schemas|admin|loadbalance|namespace|topics|txn)(/|$)"
)
_BLOCK: Final = 512
_BLOCK_BYTES: Final = 4 << 20
_HEAD: Final = 1 << 16
_PIECE: Final = 1 << 20
_BESIDE_VALUE: Final = 1 << 16
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
# Text can have four characters per byte ("\x0a").
_TEXT_FACTOR: Final = 4
# Opens a file by name, or stdin as "-". Raises NotFoundError, UnreachableError.
OpenInput = Callable[[str], AbstractContextManager[IO[bytes]]]

_SNAPSHOT: Final = rb'\s*\{(?=[^\n]*"path"\s*:\s*"/)(?=[^\n]*"value"\s*:\s*")'


class ValueInput(NamedTuple):
    """The bytes of one value and their source; `error` if they could not be read."""

    source: str
    data: bytes = b""
    path: str | None = None
    version: int | None = None
    error: PulsarMetaError | None = None


def in_blocks(values: Iterable[ValueInput]) -> Iterator[list[ValueInput]]:
    """Yield values in lists: the first list has one value, later ones up to some hundreds.

    So the first value can be shown as soon as it was read, and all values before an error are yielded before
    it is raised.
    """
    rest, size = iter(values), 1
    while True:
        block, error = _next_block(rest, size)
        if block:
            yield block
        if error is not None:
            raise error
        if not block:
            return
        size = min(2 * size, _BLOCK)


def _next_block(values: Iterator[ValueInput], size: int) -> tuple[list[ValueInput], Exception | None]:
    block: list[ValueInput] = []
    length = 0
    try:
        for value in values:
            block.append(value)
            length += len(value.data)
            if len(block) == size or length >= _BLOCK_BYTES:
                break
    except Exception as error:  # noqa: BLE001 - raised after the values before it were written
        return block, error
    return block, None


@dataclass(frozen=True, slots=True)
class InputForm:
    """The text form of values in files (None for bytes), and the maximum number of bytes.

    With `lines`, each line is a value. With `snapshots`, files that look like snapshots are read as
    snapshots.
    """

    text: TextForm | None = None
    lines: bool = False
    max_size: int = DEFAULT_MAX_SIZE
    snapshots: bool = True


def values_of_store(store: Store, prefix: str) -> Iterator[ValueInput]:
    """Yield all values at and below `prefix` in the store's order, or an error if there is none."""
    exists = False
    for versioned in store.scan(prefix):
        exists = True
        yield ValueInput(store.url, versioned.value, versioned.path, versioned.version)
    if not exists:
        error = NotFoundError(f"nothing at or below {prefix}", source=store.url)
        yield ValueInput(store.url, error=error)


def is_stored_path(name: str) -> bool:
    """True if `name` is a path in a store: it begins with a root of a store, and no such file exists."""
    return _MAY_BE_STORED.match(name) is not None and not Path(name).exists()


def value_at(store: Store, path: str) -> ValueInput:
    """Read the value at `path`, with an error if there is none."""
    from pulsar_meta.jobs.values.store_tree import read_value

    try:
        value = read_value(store, path)
    except NotFoundError as error:
        return ValueInput(store.url, path=path, error=error)
    return ValueInput(store.url, value.value, value.path, value.version)


def named_values(store: Store, values: Iterable[ValueInput]) -> dict[str, PlaceNames]:
    """Map the paths of values to the names of their topics and cursors."""
    from pulsar_meta.codecs.metadata.envelope import managed_place
    from pulsar_meta.jobs.topics.related import ScalableTopics, named_at

    places = {
        value.path: place
        for value in values
        if value.path is not None and (place := managed_place(value.path, value.data)) is not None
    }
    scalable = ScalableTopics(store).of(place[0] for place in places.values())
    return {path: named_at(place, scalable[place[0]]) for path, place in places.items()}


def values_of_files(names: Iterable[str], form: InputForm, open_input: OpenInput) -> Iterator[ValueInput]:
    """Yield the values in files.

    If a file can't be read, its value has an error, and the next file follows.
    """
    for name in names:
        if name == STDIN:
            yield from _values_of_file(name, form, open_input)
        else:
            yield from _values_of_name(name, form, open_input)


def _values_of_name(name: str, form: InputForm, open_input: OpenInput) -> Iterator[ValueInput]:
    files, faults = _expand(name)
    for fault in faults:
        source = str(fault.filename or name)
        yield ValueInput(source, error=UnreachableError(f"cannot be read: {fault.strerror}", source=source))
    if not files and not faults:
        yield ValueInput(name, error=NotFoundError("no file in this directory", source=name))
    for path in files:
        yield from _values_of_file(str(path), form, open_input)


def _expand(name: str) -> tuple[list[Path], list[OSError]]:
    """List the files that a name, a directory or a pattern includes, sorted, and the errors while listing."""
    faults: list[OSError] = []
    try:
        if not _has_magic(name) or Path(name).exists():
            return _files_at(name, faults), faults
        matches = sorted(glob(name, recursive=True)) or [name]
        return [file for match in matches for file in _files_at(match, faults)], faults
    except OSError as error:
        return [], [*faults, error]


def _files_at(name: str, faults: list[OSError]) -> list[Path]:
    path = Path(name)
    if not path.is_dir():
        return [path]
    below = os.walk(path, onerror=faults.append)
    files = (Path(folder) / file for folder, _, names in below for file in names)
    return sorted(file for file in files if file.is_file())


def _has_magic(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def _values_of_file(source: str, form: InputForm, open_input: OpenInput) -> Iterator[ValueInput]:
    path = None if source == STDIN else store_path_of_file(Path(source).absolute().as_posix())
    try:
        with open_input(source) as file:
            head = file.read(_HEAD)
            if form.text is None and form.snapshots and is_snapshot(head):
                yield from (
                    _spooled(head, file, form) if source == STDIN else _values_of_snapshot(source, form)
                )
                return
            data = head + _read(file, _limit(form) + 1 - len(head))
        yield from _split(source, data, form, path)
    except NotFoundError as error:
        hint = "; if it is a path in a store, add --store URL" if _MAY_BE_STORED.match(source) else ""
        yield ValueInput(source, error=NotFoundError(f"{error.message}{hint}", source=source))
    except UnreachableError as error:
        yield ValueInput(source, error=error)


def _spooled(head: bytes, stdin: IO[bytes], form: InputForm) -> Iterator[ValueInput]:
    """Yield the values of a snapshot from stdin. `head` are the bytes that were already read."""
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".ndjson") as spool:
        spool.write(head)
        copyfileobj(stdin, spool)
        spool.flush()
        for value in _values_of_snapshot(spool.name, form):
            error = None if value.error is None else value.error.within(STDIN)
            yield ValueInput(STDIN, value.data, value.path, value.version, error)


def _values_of_snapshot(file: str, form: InputForm) -> Iterator[ValueInput]:
    from pulsar_meta.stores.snapshot import MAX_LINE, SnapshotStore

    # Base64 has four letters for three bytes, and a line also has the path and the version.
    longest = MAX_LINE if form.max_size == DEFAULT_MAX_SIZE else form.max_size * 4 // 3 + _BESIDE_VALUE
    try:
        with SnapshotStore(f"snapshot:{file}", max_line=longest) as store:
            for versioned in store.scan("/"):
                yield ValueInput(file, versioned.value, versioned.path, versioned.version)
    except PulsarMetaError as error:
        yield ValueInput(file, error=error)


def _read(file: IO[bytes], limit: int) -> bytes:
    """Read at most `limit` bytes, in pieces, because `read(limit)` would allocate all of them in advance."""
    pieces: list[bytes] = []
    while limit > 0 and (piece := file.read(min(limit, _PIECE))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def is_one_value(names: Sequence[str], form: InputForm, first: Sequence[ValueInput]) -> bool:
    """True if `names` can only be a single value: no directory, pattern, snapshot or file of lines.

    `first` are the first values that were read. Values of snapshots have versions.
    """
    if len(names) != 1 or form.lines or (first and first[0].version is not None):
        return False
    return not Path(names[0]).is_dir() and (not _has_magic(names[0]) or Path(names[0]).exists())


def is_snapshot(head: bytes) -> bool:
    """True if a file that begins with `head` contains the lines of a snapshot, uncompressed or in zstd."""
    if not head.lstrip().startswith(b"{"):
        return head.startswith(_ZSTD)
    return re.match(_SNAPSHOT, head) is not None


def _limit(form: InputForm) -> int:
    return form.max_size * (1 if form.text is None else _TEXT_FACTOR)


def _split(source: str, data: bytes, form: InputForm, path: str | None) -> Iterator[ValueInput]:
    if len(data) > _limit(form):
        limit = f"over the limit of {_limit(form)} bytes (--max-size)"
        yield ValueInput(source, error=DecodeError(limit, source=source))
    elif form.text is None:
        yield ValueInput(source, data, path)
    elif not form.lines:
        yield _from_text(source, data, form.text, path)
    elif not data.strip():
        yield ValueInput(source, error=NotFoundError("the file has no lines", source=source))
    else:
        for number, line in enumerate(data.splitlines(), 1):
            if line.strip():
                yield _from_text(f"{source}:{number}", line, form.text, path)


def _from_text(source: str, text: bytes, form: TextForm, path: str | None) -> ValueInput:
    try:
        data = text_to_bytes(text, form)
    except ValueError as error:
        uneven = len({len(line) for line in text.split()[:-1]}) > 1
        hint = "; if each line is a value, add --lines" if uneven else ""
        return ValueInput(source, error=DecodeError(f"not {form}: {error}{hint}", source=source))
    return ValueInput(source, data, path)
