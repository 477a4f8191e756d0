"""A cluster, opened from its metadata store and its bookies' disks; values of the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

from pulsar_meta.api.topics import Opened, Topic, limits_of, question_of, warn
from pulsar_meta.codecs.documents.decoded import DecodedDocument
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.documents.kinds import checked_kind
from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.jobs.entries.entry_choice import Choice, choice_of, choose
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.seek.questions import SeekOptions
from pulsar_meta.jobs.seek.seek import SeekAnswer
from pulsar_meta.jobs.topics import topic as model
from pulsar_meta.jobs.values.store_tree import read_value
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.registry import open_store

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of a store: its path, its bytes, the version with which the store has it.

    `created` and `modified` are in milliseconds, None where the store does not keep them; `ephemeral` ones
    vanish with the session that wrote them.
    """

    path: str
    data: bytes = field(repr=False)
    version: int
    created: int | None = None
    modified: int | None = None
    ephemeral: bool = False

    def decode(self, *, kind: str | None = None, show_passwords: bool = False) -> DecodedDocument:
        """Return what the bytes say, as `pulsar-meta decode` prints it; the rest as `decode`."""
        return decode(self.data, kind=kind, path=self.path, show_passwords=show_passwords)


def decode(
    data: bytes,
    *,
    kind: str | None = None,
    path: str | None = None,
    show_passwords: bool = False,
    partly: bool = False,
) -> DecodedDocument:
    """Return what the bytes of one value say, as `pulsar-meta decode` prints it (docs/contract.md).

    `kind` is what they are ("ManagedLedgerInfo", …); without it that is known from `path`, the value's in its
    store, else from the bytes. Secrets are redacted unless `show_passwords`. With `partly` a broken value is
    no error: `value` is what could be read of it, and `error` says why that is not all.

    UsageError for a kind that there is not, DecodeError for bytes that are broken or could be of several.
    """
    options = DecodeOptions(None if kind is None else checked_kind(kind), show_secrets=show_passwords)
    decoded = decode_document(data, source=path or "bytes", path=path, options=options)
    if decoded.error is not None and not partly:
        raise decoded.error
    return cast("DecodedDocument", decoded.document)


def encode(
    document: DecodedDocument | Mapping[str, Any], *, codec: str | None = None, threshold: int | None = None
) -> bytes:
    """Return the bytes that a document of `decode` stands for: of it `kind`, `envelope` and `value` are read.

    `codec` ("none", "lz4", "zlib", "zstd", "snappy") beats that of the envelope; with `threshold` only what
    is more than so many bytes is compressed, as brokers do. DecodeError where the document describes nothing
    that can be stored, or a secret in it was redacted.
    """
    return encode_document(dict(document), codec=codec, threshold=threshold).data


class Cluster:
    """A metadata store, entries of bookies, or both: open until `close`, or to the end of a `with`."""

    def __init__(self, store: str | None = None, entries: str | Sequence[str] = ()) -> None:
        """Open, for reading, what the URLs name: those of --store and --entries (docs/stores.md).

        UsageError for a URL that means nothing, NotFoundError for a file that is not there, UnreachableError
        where nobody answers.
        """
        urls = [entries] if isinstance(entries, str) else list(entries)
        with ExitStack() as opening:
            held = None if store is None else opening.enter_context(open_store(store))
            source = opening.enter_context(open_entry_sources(urls, held)) if urls else None
            self._closing = opening.pop_all()
        self._opened = Opened(held, source)

    def close(self) -> None:
        """Close what was opened; what came from it cannot be asked any more."""
        self._closing.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topics(self, *names: str) -> Iterator[Topic]:
        """Yield the topics of these names, without names all of the store.

        A name is a topic's, which stands for its partitions or segments, `tenant/namespace`, or a pattern
        (`public/default/order*`). A topic that cannot be read is an `Incomplete` warning; NotFoundError or
        DecodeError where nothing is left of a name. UsageError for what is no name, UnreachableError.
        """
        return (Topic(self._opened, found) for found in self._topics(names))

    def topic(self, name: str) -> Topic:
        """Return the one topic of this name.

        UsageError where it stands for several: `topics` has its partitions or segments; else as `topics`.
        """
        found = list(self._topics([name]))
        if len(found) != 1:
            parts = ", ".join(one.name for one in found[:3])
            raise UsageError(f"{name} is {len(found)} topics ({parts}, …): take topics(), or name one")
        return Topic(self._opened, found[0])

    def seek(
        self,
        name: str,
        *,
        index: int | None = None,
        time: int | str | datetime | None = None,
        cursor: str | None = None,
        clock: Literal["auto", "broker", "publish"] = "auto",
        readable: bool = False,
    ) -> list[SeekAnswer]:
        """Return where an index or a time is: an answer for each partition or segment of the topic.

        A time has one answer in all segments of a scalable topic. With `cursor` only what that subscription
        has not acknowledged counts. NotFoundError for a cursor that there is not; the rest as `Topic.seek`.
        """
        options = SeekOptions(clock=clock, cursor=cursor, readable=readable)
        return self._opened.seek(question_of(name, index, time), options)

    def entries(
        self,
        *names: str | int,
        columns: Sequence[str] = (),
        first: tuple[int, int] | None = None,
        last: tuple[int, int] | None = None,
        verify: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the headers of entries as Arrow, batch by batch as they are asked for.

        `names` as of `topics`, and numbers of ledgers; without names every ledger that the entries have.
        `columns` are those of the Spark source `pulsar_entries` (docs/spark.md), without them all; `first`
        and `last` are positions (ledger, entry), both included. Rows come ledger by ledger in reading order,
        in each as the disks have them. An entry that cannot be read has `broken`; `digest` and
        `frame_checksum` are looked at with `verify`. What is missing, or on disks that were not given, is
        warned of.

        UsageError for a column that there is not, or no entries opened; NotFoundError and DecodeError as
        `topics`; UnreachableError, also while batches are read. The cluster has to be open until they are.
        """
        choices = list(self._choices(names))
        return self._opened.scan(choices, columns, limits_of(first, last), verify=verify)

    def messages(
        self,
        *names: str | int,
        columns: Sequence[str] = (),
        first: tuple[int, int] | None = None,
        last: tuple[int, int] | None = None,
        where: str | None = None,
        readable: bool = False,
    ) -> pa.RecordBatchReader:
        """Return messages as Arrow in reading order, batch by batch as they are asked for.

        Batches are opened, payloads decompressed, chunks joined; `value` is the payload by its schema, as
        JSON. `columns` are those of docs/export.md, without them all; `where` is a filter on properties as of
        --where; with `readable` only what readers of transactions are given. A message that cannot be read
        is a row with `error`. Names, positions, warnings and errors as of `entries`.
        """
        choices = list(self._choices(names))
        return self._opened.messages(choices, columns, limits_of(first, last), where, readable=readable)

    def value(self, path: str) -> Value:
        """Return the value at a path of the store; NotFoundError, UnreachableError."""
        return _value(read_value(self._opened.store, path))

    def values(self, below: str = "/") -> Iterator[Value]:
        """Yield the value at a path and all below it, in the order of the store; UnreachableError."""
        return map(_value, self._opened.store.scan(below))

    def children(self, path: str = "/") -> list[str]:
        """Return the names directly below a path, as they are stored (encoded); UnreachableError."""
        return list(self._opened.store.children(path))

    def _topics(self, names: Sequence[str]) -> Iterator[model.Topic]:
        store = self._opened.store
        if not names:
            yield from model.every_topic(store, warn)
        for name in names:
            faults: list[PulsarMetaError] = []
            there = False
            for found in model.named(store, name, faults.append):
                there = True
                yield found
            if not there and faults:
                raise faults[0]
            for fault in faults:
                warn(fault)

    def _choices(self, names: Sequence[str | int]) -> Iterator[Choice]:
        if not names:
            yield from choose((), None, self._opened.entries, warn)
        for name in names:
            if isinstance(name, int):
                yield from choose([str(name)], None, self._opened.entries, warn)
            else:
                yield from map(choice_of, self._topics([name]))


def _value(held: Versioned) -> Value:
    return Value(
        path=held.path,
        data=held.value,
        version=held.version,
        created=held.created,
        modified=held.modified,
        ephemeral=held.ephemeral,
    )
