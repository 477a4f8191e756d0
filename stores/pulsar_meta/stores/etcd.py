"""`etcd://HOST:PORT[,…]`, and `etcds://…` over TLS: a live etcd, over its gRPC API.

Options besides the common ones (`access.urls`): `max_request_bytes=BYTES` where the server's limit is not
the default; `revision=N` for the store as it was then, as far back as etcd was not compacted. `auth` holds
user:password. A version is the key's mod_revision, which is never used twice, unlike the per-key version
that starts again when a key is deleted and created (Pulsar counts that one).

Why gRPC and no client library: the libraries are dead, know no TLS, or go through the JSON gateway; against
the one that is kept (etcd3gw) this scans 4.2 and writes 2.7 times as many values of 400 bytes a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Final, Self

from pulsar_meta.access.urls import ServerUrl, user_password
from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    GuardError,
    NotFoundError,
    UnreachableError,
    UsageError,
)
from pulsar_meta.proto import Etcd_pb2 as api
from pulsar_meta.stores import etcd_requests
from pulsar_meta.stores.base import ABSENT, BaseStore, Change, Deletion, Versioned, Write, prefixed
from pulsar_meta.stores.etcd_requests import OPERATIONS, TOO_MANY, Changes, CompactedError, Compared, Reach
from pulsar_meta.stores.grpc_client import GrpcClient, TooLargeError

# etcd's default for --max-request-bytes; a compare-and-set carries the key twice, and a few numbers.
MAX_REQUEST_BYTES: Final = 3 << 19
REQUEST_OVERHEAD: Final = 256
NAMES_PAGE: Final = 512
MIN_PAGE: Final = 16
MAX_PAGE: Final = 4096
PAGE_BYTES: Final = 4 << 20
# Numbers that are passed over at once.
AT_ONCE: Final = 512
AFTER_SLASH: Final = b"0"
RANGE: Final = "/etcdserverpb.KV/Range"
TXN: Final = "/etcdserverpb.KV/Txn"
AUTHENTICATE: Final = "/etcdserverpb.Auth/Authenticate"


class EtcdStore(BaseStore):
    """Values under keys that are paths."""

    networked = True
    counts_sequences = True
    scans_one_moment = True
    sends_groups = True
    lists_groups = True
    finds_parts = True

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        """Connect; UnreachableError where no server answers in time or the password is refused."""
        parsed = ServerUrl.parse(url, default_port=2379, options=("max_request_bytes", "revision"))
        self.url = parsed.url
        if parsed.path:
            raise UsageError("etcd has no chroot: only options follow the servers", source=self.url)
        parsed.check_tls(used=parsed.scheme == "etcds", how="etcds://")
        self.writable = not read_only
        self._revision = _revision(parsed)
        if self._revision and self.writable:
            raise GuardError("the past is only read: leave revision out to write", source=self.url)
        self._max_request = int(parsed.number("max_request_bytes", MAX_REQUEST_BYTES))
        self.max_value_size = self._max_request - REQUEST_OVERHEAD
        self._client = GrpcClient(parsed, tls=parsed.scheme == "etcds")
        # As many as the server is known to take in a request.
        self._operations = 0
        try:
            secret = parsed.secret()
            if secret is not None:
                self._authenticate(secret)
                self._client.renew = partial(self._authenticate, secret)
            self._range(b"/", limit=1)
        except BaseException:
            self.close()
            raise

    def read(self, path: str) -> Versioned:
        """Return the value at `path`; NotFoundError where there is none."""
        found = self._one(path)
        if found is None:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return found

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of `path`."""
        return self._names(path, self._page(*_below(path), NAMES_PAGE, keys_only=True))

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return what `children` does for each path; some dozen a request."""
        found: list[list[str]] = []
        for at in range(0, len(paths), OPERATIONS):
            some = paths[at : at + OPERATIONS]
            found += [self._names(*one) for one in zip(some, self._first_names(some), strict=True)]
        return found

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix`, by the bytes of their paths, all of one revision."""
        bare, below = (part.encode() for part in prefixed(prefix))
        if after is None and bare != below and (own := self._one(bare.decode())) is not None:
            yield own
        start = below if after is None else max(below, after.encode() + b"\0")
        limit, revision = MIN_PAGE, self._revision
        reach = Reach(below, below[:-1] + AFTER_SLASH)
        while True:
            try:
                page = self._page(start, reach.end, limit, revision=revision)
            except TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 16)
                continue
            size = 1
            for held in page.kvs:
                found = self._versioned(held)
                size += len(found.path) + len(found.value)
                yield found
            revision = revision or page.header.revision
            if page.more:
                start = page.kvs[-1].key + b"\0"
                reach.narrow(page.count, page.kvs[0].key, page.kvs[-1].key)
            elif reach.end == reach.last:
                return
            else:
                start = reach.end
                reach.widen()
            # As many as fit into about PAGE_BYTES, seen from this page: its ByteSize() would encode it anew.
            limit = max(MIN_PAGE, min(MAX_PAGE, limit * PAGE_BYTES // size))

    def history(self, path: str) -> Iterator[Change]:
        """Yield every change that etcd has not compacted; it knows neither times nor who wrote."""
        key, first = path.encode(), 1
        now = self._range(key)
        last = self._revision or now.header.revision
        newest = now.kvs[0].mod_revision if now.kvs else 0
        known: Versioned | None = None
        while True:
            try:
                events = Changes(key, first, last, newest, self.url).read(self._client)
                break
            except CompactedError as error:
                # The oldest revision that is there, and from then on what changed.
                found = self._range(key, revision=error.revision).kvs
                known = self._versioned(found[0]) if found else None
                first = error.revision + 1
        if known is not None:
            yield Change(known.version, None, None, known, first=True)
        for event in events:
            gone = event.type == api.Event.DELETE
            yield Change(event.kv.mod_revision, None, None, None if gone else self._versioned(event.kv))

    def as_of_now(self) -> Self:
        """Return a view that reads at the newest revision there is."""
        view = copy(self)
        view._revision = self._revision or self._range(b"/", limit=1).header.revision
        view.writable = False
        return view

    def next_sequence(self, parent: str) -> int | None:
        """Return how often the parent was written, which Pulsar does for each number."""
        found = self._range(parent.encode()).kvs
        return found[0].version if found else None

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Write the parent as it is until it was written often enough: etcd has no other way to count on.

        A key is in a request once only, so each number is a request; many are under way at once.
        """
        self.check_write(parent)
        while True:
            found = self._range(parent.encode()).kvs
            if not found:
                with suppress(ConflictError):
                    self.put(parent, b"", ABSENT)
            elif found[0].version >= floor:
                return found[0].version
            else:
                touches = [_touch(found[0])] * min(AT_ONCE, floor - found[0].version)
                self._client.write_all(TXN, touches, api.TxnResponse)

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the mod_revision is still `expected` and return the new one; the key's lease stays."""
        self.check_write(path, value)
        return self._compare_and(self._written(path, value, expected))

    def delete(self, path: str, expected: int) -> None:
        """Delete if the mod_revision is still `expected`."""
        self.check_write(path)
        self.read(path)
        self._compare_and(self._deleted(path, expected))

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Return the values at `paths` in their order, None where there is none; some dozen a request."""
        found: list[Versioned | None] = []
        for at in range(0, len(paths), OPERATIONS):
            found += self._read_group(paths[at : at + OPERATIONS])
        return found

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Make each (path, value, expected) as `put` does; return new versions, None for a conflict."""
        for path, value, _ in writes:
            self.check_write(path, value)
        return self._each_compared([self._written(*write) for write in writes])

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Make each (path, expected) as `delete` does; return which were made."""
        for path, _ in deletions:
            self.check_write(path)
        # Revisions begin at 1: a comparison with less would hold for a key that is not there.
        asked = [self._deleted(path, expected) for path, expected in deletions if expected > 0]
        done = iter(self._each_compared(asked))
        return [expected > 0 and next(done) is not None for _, expected in deletions]

    def check_write(self, path: str, value: bytes = b"") -> None:
        """Raise GuardError also for what is over the limit together with its path."""
        super().check_write(path, value)
        size = _size(path, value)
        if size > self._max_request:
            text = f"{path}: a request of {size} bytes, the server takes {self._max_request}"
            raise GuardError(text, source=self.url)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _authenticate(self, secret: str) -> None:
        user, password = user_password(secret)
        self._client.metadata = ()
        request = api.AuthenticateRequest(name=user, password=password)
        answer = self._client.read(AUTHENTICATE, request, api.AuthenticateResponse)
        self._client.metadata = (("token", answer.token),)

    def _range(
        self, key: bytes, end: bytes = b"", *, limit: int = 0, keys_only: bool = False, revision: int = 0
    ) -> api.RangeResponse:
        request = self._request(key, end, limit=limit, keys_only=keys_only, revision=revision)
        return self._client.read(RANGE, request, api.RangeResponse)

    def _request(
        self, key: bytes, end: bytes = b"", *, limit: int = 0, keys_only: bool = False, revision: int = 0
    ) -> api.RangeRequest:
        return api.RangeRequest(
            key=key, range_end=end, limit=limit, keys_only=keys_only, revision=revision or self._revision
        )

    def _one(self, path: str) -> Versioned | None:
        return self._only(path, self._range(path.encode()).kvs)

    def _only(self, path: str, found: Sequence[api.KeyValue]) -> Versioned | None:
        if any(one.key != path.encode() for one in found) or len(found) > 1:
            raise DecodeError(f"asked for {path}, the server answered with another key", source=self.url)
        return self._versioned(found[0]) if found else None

    def _first_names(self, paths: Sequence[str]) -> list[api.RangeResponse]:
        """Return a first page of keys below each path."""
        ranges = [_below(path) for path in paths]
        requests = [self._request(*one, limit=NAMES_PAGE, keys_only=True) for one in ranges]
        try:
            answer = self._client.read(TXN, etcd_requests.read(requests), api.TxnResponse)
        except UnreachableError as error:
            if TOO_MANY not in error.message and not isinstance(error, TooLargeError):
                raise
            return [self._page(*one, NAMES_PAGE, keys_only=True) for one in ranges]
        self._check_count(answer, len(paths))
        pages = [one.response_range for one in answer.responses]
        return [self._checked(page, *one) for page, one in zip(pages, ranges, strict=True)]

    def _names(self, path: str, page: api.RangeResponse) -> list[str]:
        """Return the names in the keys below `path`; each page jumps over the subtree of the last one's."""
        below, end = _below(path)
        names: set[str] = set()
        while True:
            keys = [found.key[len(below) :].partition(b"/") for found in page.kvs]
            names.update(self._text(name) for name, _, _ in keys)
            if not page.more:
                return sorted(names)
            last, slash, _ = keys[-1]
            start = below + last + (AFTER_SLASH if slash else b"\0")
            page = self._page(start, end, NAMES_PAGE, keys_only=True)

    def _page(
        self, start: bytes, end: bytes, limit: int, *, keys_only: bool = False, revision: int = 0
    ) -> api.RangeResponse:
        """Return the next keys of [start, end)."""
        page = self._range(start, end, limit=limit, keys_only=keys_only, revision=revision)
        return self._checked(page, start, end)

    def _checked(self, page: api.RangeResponse, start: bytes, end: bytes) -> api.RangeResponse:
        """Return a page; DecodeError for other keys than [start, end), and for none where there are more."""
        keys = [found.key for found in page.kvs]
        if any(not start <= key < end for key in keys) or any(a >= b for a, b in pairwise(keys)):
            raise DecodeError("the server answered with other keys than those asked for", source=self.url)
        if page.more and not keys:
            raise DecodeError("the server says that there is more, and sends nothing", source=self.url)
        return page

    def _written(self, path: str, value: bytes, expected: int) -> Compared:
        return etcd_requests.written(path, value, expected, _size(path, value))

    def _deleted(self, path: str, expected: int) -> Compared:
        return etcd_requests.deleted(path, expected, _size(path, b""))

    def _compare_and(self, one: Compared) -> int:
        answer = self._client.write(TXN, one.request(), api.TxnResponse)
        if not answer.succeeded:
            raise ConflictError(f"{one.path}: changed since it was read", source=self.url)
        return answer.header.revision

    def _each_compared(self, operations: Sequence[Compared]) -> list[int | None]:
        """Return the revision of each operation, None where the comparison did not hold."""
        groups = list(etcd_requests.split(operations, self._max_request))
        once = len({one.path for one in operations}) == len(operations)
        done: list[int | None] = []
        # One by one where their order counts, and until the server has taken one that is as large.
        while groups and not (once and max(map(len, groups)) <= self._operations):
            done += self._group_compared(groups.pop(0))
        requests = [*map(etcd_requests.all_or_none, groups)]
        for group, answer in zip(groups, self._client.write_all(TXN, requests, api.TxnResponse), strict=True):
            if answer.succeeded:
                self._check_count(answer, len(group))
                done += [answer.header.revision] * len(group)
            else:
                done += self._group_compared(group)
        return done

    def _group_compared(self, group: Sequence[Compared]) -> list[int | None]:
        try:
            answer = self._client.write(TXN, etcd_requests.each_by_itself(group), api.TxnResponse)
        except UnreachableError as error:
            if TOO_MANY not in error.message or len(group) == 1:
                raise
            # Nothing of it was done: this server's --max-txn-ops is a low one.
            half = len(group) // 2
            return self._group_compared(group[:half]) + self._group_compared(group[half:])
        self._check_count(answer, len(group))
        self._operations = max(self._operations, len(group))
        made = [one.response_txn.succeeded for one in answer.responses]
        return [answer.header.revision if succeeded else None for succeeded in made]

    def _read_group(self, paths: Sequence[str]) -> list[Versioned | None]:
        requests = [self._request(path.encode()) for path in paths]
        try:
            answer = self._client.read(TXN, etcd_requests.read(requests), api.TxnResponse)
        except UnreachableError as error:
            if TOO_MANY not in error.message and not isinstance(error, TooLargeError):
                raise
            return [self._read_if_there(path) for path in paths]
        self._check_count(answer, len(paths))
        return [
            self._only(path, one.response_range.kvs)
            for path, one in zip(paths, answer.responses, strict=True)
        ]

    def _check_count(self, answer: api.TxnResponse, wanted: int) -> None:
        found = len(answer.responses)
        if found != wanted:
            raise DecodeError(f"asked {wanted} questions, the server answered {found}", source=self.url)

    def _versioned(self, found: api.KeyValue) -> Versioned:
        return Versioned(self._text(found.key), found.value, found.mod_revision, ephemeral=found.lease != 0)

    def _text(self, key: bytes) -> str:
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"a key is not UTF-8: {key[:80]!r}", source=self.url) from error


def _below(path: str) -> tuple[bytes, bytes]:
    """Return the range of the keys below `path`."""
    below = prefixed(path)[1].encode()
    return below, below[:-1] + AFTER_SLASH


def _size(path: str, value: bytes) -> int:
    return len(value) + 2 * len(path.encode()) + REQUEST_OVERHEAD


def _touch(held: api.KeyValue) -> api.TxnRequest:
    """Return what writes a key as it is then, as long as it was not deleted."""
    same = api.Compare(key=held.key, target=api.Compare.CREATE, create_revision=held.create_revision)
    put = api.PutRequest(key=held.key, ignore_value=True, ignore_lease=True)
    return api.TxnRequest(compare=[same], success=[api.RequestOp(request_put=put)])


def _revision(url: ServerUrl) -> int:
    """Return the revision that a URL names, 0 for the newest."""
    text = url.options.get("revision", "0")
    if not (text.isascii() and text.isdigit() and int(text[:20]) < 2**63):
        raise UsageError(f"revision={text}: expected the number of a revision", source=url.url)
    return int(text)
