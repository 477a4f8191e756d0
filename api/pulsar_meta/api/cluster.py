"""A cluster opened from its metadata store and its bookies' disks, and the values in its store."""

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
    """A value of a store: its path, its bytes, and its version in the store.

    `created` and `modified` are in milliseconds, None if the store does not record them. An `ephemeral` value
    disappears when the session that wrote it ends.
    """

    path: str
    data: bytes = field(repr=False)
    version: int
    created: int | None = None
    modified: int | None = None
    ephemeral: bool = False

    def decode(self, *, kind: str | None = None, show_passwords: bool = False) -> DecodedDocument:
        """Decode the bytes, as the function `decode` does."""
        return decode(self.data, kind=kind, path=self.path, show_passwords=show_passwords)


def decode(
    data: bytes,
    *,
    kind: str | None = None,
    path: str | None = None,
    show_passwords: bool = False,
    partly: bool = False,
) -> DecodedDocument:
    """Decode the bytes of one value into the document that `pulsar-meta decode` prints (docs/contract.md).

    If `kind` ("ManagedLedgerInfo", …) is not given, it is derived from `path`, the value's path in its
    store, or else from the bytes. Secrets are redacted unless `show_passwords` is set. If `partly` is set,
    a corrupt value raises no error: `value` has the part that could be read, and `error` the reason.

    Raises UsageError if the kind does not exist, and DecodeError if the bytes are corrupt or fit several
    kinds.
    """
    options = DecodeOptions(None if kind is None else checked_kind(kind), show_secrets=show_passwords)
    decoded = decode_document(data, source=path or "bytes", path=path, options=options)
    if decoded.error is not None and not partly:
        raise decoded.error
    return cast("DecodedDocument", decoded.document)


def encode(
    document: DecodedDocument | Mapping[str, Any], *, codec: str | None = None, threshold: int | None = None
) -> bytes:
    """Encode a document of `decode` into bytes; only its `kind`, `envelope` and `value` are read.

    `codec` ("none", "lz4", "zlib", "zstd", "snappy") overrides the codec of the envelope. If `threshold` is
    given, only values of more than `threshold` bytes are compressed, as brokers do.

    Raises DecodeError if the document can't be encoded, or if a secret in it was redacted.
    """
    return encode_document(dict(document), codec=codec, threshold=threshold).data


class Cluster:
    """A metadata store, the entries of bookies, or both; open until `close` or the end of a `with` block."""

    def __init__(self, store: str | None = None, entries: str | Sequence[str] = ()) -> None:
        """Open a store and entries for reading, by the URLs of --store and --entries (docs/stores.md).

        Raises UsageError if a URL is not valid, NotFoundError if a file does not exist, and
        UnreachableError if a server does not answer.
        """
        urls = [entries] if isinstance(entries, str) else list(entries)
        with ExitStack() as opening:
            opened_store = None if store is None else opening.enter_context(open_store(store))
            source = opening.enter_context(open_entry_sources(urls, opened_store)) if urls else None
            self._closing = opening.pop_all()
        self._opened = Opened(opened_store, source)

    def close(self) -> None:
        """Close the store and the entries; topics and readers from this cluster can't be used afterwards."""
        self._closing.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topics(self, *names: str) -> Iterator[Topic]:
        """Yield the topics with these names, or every topic of the store if no name is given.

        A name is a topic (which includes its partitions or segments), `tenant/namespace`, or a pattern
        (`public/default/order*`). Each topic that can't be read causes an `Incomplete` warning.

        Raises NotFoundError or DecodeError if a name matches no readable topic, UsageError if a name is not
        valid, and UnreachableError.
        """
        return (Topic(self._opened, topic) for topic in self._topics(names))

    def topic(self, name: str) -> Topic:
        """Return the topic with this name.

        Raises UsageError if the name matches several topics (use `topics` for partitions or segments), and
        the errors of `topics`.
        """
        topics = list(self._topics([name]))
        if len(topics) != 1:
            parts = ", ".join(topic.name for topic in topics[:3])
            raise UsageError(f"{name} is {len(topics)} topics ({parts}, …); call topics() or name one")
        return Topic(self._opened, topics[0])

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
        """Find an index or a time; returns one answer for each partition or segment of the topic.

        A time has a single answer for all segments of a scalable topic. If `cursor` is given, only entries
        that this subscription has not acknowledged count.

        Raises NotFoundError if the cursor does not exist, and the errors of `Topic.seek`.
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
        """Read the headers of entries as Arrow batches, which are produced while you read them.

        `names` are those of `topics`, or ledger ids; by default every ledger on the disks is read.
        `columns` are those of the Spark source `pulsar_entries` (docs/spark.md), by default all. `first` and
        `last` are positions (ledger, entry), both included. Ledgers come in reading order, the entries of a
        ledger in the order of the disks. If an entry can't be read, its row has `broken`. `digest` and
        `frame_checksum` are only checked if `verify` is set. Missing entries cause `Incomplete` warnings.

        Raises UsageError if a column does not exist or no entries were opened, the errors of `topics`, and
        UnreachableError, also while batches are read. Keep the cluster open until you have read them.
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
        """Read messages as Arrow batches in reading order, which are produced while you read them.

        Batches are split, payloads decompressed and chunks joined; `value` is the payload decoded by its
        schema, as JSON. `columns` are those of docs/export.md, by default all. `where` is a filter on
        properties like --where. If `readable` is set, only messages that consumers with transactions
        receive are returned. If a message can't be read, its row has `error`. Names, positions, warnings
        and errors are those of `entries`.
        """
        choices = list(self._choices(names))
        return self._opened.messages(choices, columns, limits_of(first, last), where, readable=readable)

    def value(self, path: str) -> Value:
        """Return the value at a path of the store. Raises NotFoundError and UnreachableError."""
        return _value(read_value(self._opened.store, path))

    def values(self, below: str = "/") -> Iterator[Value]:
        """Yield the value at a path and all values below it, in store order. Raises UnreachableError."""
        return map(_value, self._opened.store.scan(below))

    def children(self, path: str = "/") -> list[str]:
        """Return the names directly below a path, encoded as in the store. Raises UnreachableError."""
        return list(self._opened.store.children(path))

    def _topics(self, names: Sequence[str]) -> Iterator[model.Topic]:
        store = self._opened.store
        if not names:
            yield from model.every_topic(store, warn)
        for name in names:
            faults: list[PulsarMetaError] = []
            found_any = False
            for topic in model.named(store, name, faults.append):
                found_any = True
                yield topic
            if not found_any and faults:
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


def _value(stored: Versioned) -> Value:
    return Value(
        path=stored.path,
        data=stored.value,
        version=stored.version,
        created=stored.created,
        modified=stored.modified,
        ephemeral=stored.ephemeral,
    )
