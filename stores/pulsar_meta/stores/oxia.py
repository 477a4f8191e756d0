"""`oxia://HOST:PORT[,…][/NAMESPACE]`: a live Oxia, over its gRPC API.

Options in addition to the common ones (`access.urls`): `tls=true`. `auth` refers to a bearer token. The
default namespace is `default`. A version is Oxia's version id. As with Pulsar's client, parents are records
with an empty value, and a record with children is not deleted. A record with a partition key is on that key's
shard. It can be read but not written, because the server doesn't return the key and a write would lose it.

Keys compare part by part between slashes, and a key's last part sorts before parts that have something below
them. The low 32 bits of XXH3-64 choose the shard. This module doesn't use the official client because that
supports neither TLS nor values over 4 MB.

Source: oxia-db/oxia common/compare, common/hash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from heapq import merge
from itertools import pairwise
from threading import Lock
from typing import Final, TypeVar

from pulsar_meta.access.sockets import TIMEOUT_IN_URL, no_answer
from pulsar_meta.access.urls import ServerUrl
from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError, UnreachableError
from pulsar_meta.proto import Oxia_pb2 as api
from pulsar_meta.stores.base import (
    ABSENT,
    Deletion,
    Store,
    Versioned,
    Write,
    conflict,
    parents_of,
    split_prefix,
)
from pulsar_meta.stores.grpc_client import PAUSE, GrpcClient, one_answer

# The smallest character. Appended to a part, it gives the next possible part.
NEXT = "\0"


def order(key: str) -> list[tuple[bool, bytes]]:
    """Return a sort key that orders keys as Oxia does."""
    parts = key.encode().split(b"/")
    last = len(parts) - 1
    return [(at < last, part) for at, part in enumerate(parts)]


def children_range(path: str) -> tuple[str, str]:
    """Return the range of the keys directly below `path`."""
    _, below = split_prefix(path)
    return below, below + "/"


def subtree_range(path: str) -> tuple[str, str]:
    """Return the range of all keys below `path`, at any depth."""
    _, below = split_prefix(path)
    return below, f"{below[:-1]}{NEXT}/"


def next_key(key: str) -> str:
    """Return the smallest key that sorts after `key`."""
    return key + NEXT


def key_hash(key: str) -> int:
    """Return the hash that chooses the shard of `key`."""
    import xxhash

    return xxhash.xxh3_64_intdigest(key.encode()) & 0xFFFFFFFF


SERVICE: Final = "/io.streamnative.oxia.proto.OxiaClient/"
# The server's largest gRPC message, minus room for the key and the numbers.
MAX_VALUE: Final = (256 << 20) - (64 << 10)
# The error of a server that has not yet received its shards from the coordinator.
NOT_YET: Final = frozenset({"oxia: server not initialized yet"})
PAGE: Final = 1000
PAGE_BYTES: Final = 4 << 20
Result = TypeVar("Result")


class OxiaStore(Store):
    """Values in Oxia, whose keys are the paths. Keys are distributed over shards."""

    max_value_size = MAX_VALUE
    networked = True
    counts_sequences = True
    counts_by_writes = True
    batches_requests = True
    batches_listings = True

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        """Connect and read the shard assignments.

        Raises UnreachableError if no server answers, or if the namespace doesn't exist.
        """
        parsed = ServerUrl.parse(url, default_port=6648, options=("tls",))
        self.url = parsed.url
        parsed.check_tls(used=parsed.flag("tls"), how="tls=true")
        self.writable = not read_only
        self._namespace = parsed.path or "default"
        self._timeout = parsed.timeout
        self._client = GrpcClient(parsed, tls=parsed.flag("tls"))
        self._client.not_yet = NOT_YET
        token = parsed.secret()
        if token is not None:
            self._client.metadata = (("authorization", f"Bearer {token}"),)
        self._known: list[api.ShardAssignment] = []
        self._writing = Lock()
        try:
            self._shards()
        except BaseException:
            self.close()
            raise

    def read(self, path: str) -> Versioned:
        """Return the value at `path`. Raises NotFoundError if there is no value."""
        record: api.GetResponse | None = self._retry(lambda: self._get(path))
        if record is not None and record.status == api.KEY_NOT_FOUND:
            record = self._get_misplaced(path)
        if record is None:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return _versioned(path, record)

    def children(self, path: str) -> list[str]:
        """List the sorted names of the children of `path`."""
        return self.children_many([path])[0]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """List the children of each path as `children` does, with all requests in flight together."""
        return self._retry(lambda: self._list(paths))

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix` in Oxia's order: each level before the levels below it."""
        bare, below = split_prefix(prefix)
        if bare != below and after is None:
            with suppress(NotFoundError):
                yield self.read(bare)
        start, end = subtree_range(prefix)
        if after is not None and after != bare:
            start = next_key(after)
        shards = [self._scan_shard(shard.shard, start, end) for shard in self._shards()]
        yield from merge(*shards, key=lambda value: order(value.path))

    def next_sequence(self, parent: str) -> int | None:
        """Return the parent's number of modifications plus 1, because Pulsar modifies it once per number."""
        record = self._retry(lambda: self._get(parent))
        return None if record.status == api.KEY_NOT_FOUND else record.version.modifications_count + 1

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Rewrite the parent, which has an empty value, until its number of modifications is high enough."""
        self.check_write(parent)
        number = self.next_sequence(parent)
        if number is None:
            self.put(parent, b"", ABSENT)
            number = 1
        while number < floor:
            puts = [api.PutRequest(key=parent) for _ in range(min(PAGE, floor - number))]
            answers = self._write(parent, api.WriteRequest(puts=puts)).puts
            self._check_count(len(answers), len(puts))
            number = answers[-1].version.modifications_count + 1
        return number

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the version id is still `expected`, and return the new one. Creates missing parents."""
        self.check_write(path, value)
        if expected == ABSENT:
            self._create_parents([path])
        answer = self._put(path, bytes(value), expected)
        if answer.status != api.OK:
            self._check_not_misplaced(path)
            raise conflict(path, self.url)
        return answer.version.version_id

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Read the values at `paths`, in the same order, with one request per shard."""
        records = self._retry(lambda: self._get_all(paths))
        return [
            _versioned(path, records[path]) if records[path].status == api.OK else self._read_misplaced(path)
            for path in paths
        ]

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Write each (path, value, expected) as `put` does. Returns new versions, with None for conflicts."""
        for path, value, _ in writes:
            self.check_write(path, value)
        self._create_parents([path for path, _, expected in writes if expected == ABSENT])
        return self._put_each(writes)

    def _put_each(self, writes: Sequence[Write]) -> list[int | None]:
        """Send the writes without checks, with one request per shard."""
        versions: dict[int, int | None] = {}
        for places in self._by_shard([path for path, _, _ in writes]):
            puts = [_put_request(*writes[at]) for at in places]
            answers = self._write(writes[places[0]][0], api.WriteRequest(puts=puts)).puts
            self._check_count(len(answers), len(places))
            for at, answer in zip(places, answers, strict=True):
                versions[at] = answer.version.version_id if answer.status == api.OK else None
        return [versions[at] for at in range(len(writes))]

    def delete(self, path: str, expected: int) -> None:
        """Delete if the version id is still `expected`. Raises GuardError if the record has children."""
        self.check_write(path)
        if self.children(path):
            raise GuardError(f"refusing to delete {path}: it has children", source=self.url)
        request = api.DeleteRequest(key=path, expected_version_id=expected)
        answers = self._write(path, api.WriteRequest(deletes=[request])).deletes
        self._check_count(len(answers), 1)
        if answers[0].status != api.OK:
            # Oxia gives the same answer for a missing record.
            self.read(path)
            self._check_not_misplaced(path)
            raise conflict(path, self.url)

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Delete each (path, expected) as `delete` does, with one request per shard."""
        for path, _ in deletions:
            self.check_write(path)
        names = self.children_many([path for path, _ in deletions])
        childless = [at for at, children in enumerate(names) if not children]
        deleted: set[int] = set()
        for places in self._by_shard([deletions[at][0] for at in childless]):
            indexes = [childless[at] for at in places]
            requests = [
                api.DeleteRequest(key=deletions[at][0], expected_version_id=deletions[at][1])
                for at in indexes
            ]
            answers = self._write(deletions[indexes[0]][0], api.WriteRequest(deletes=requests)).deletes
            self._check_count(len(answers), len(indexes))
            deleted.update(at for at, answer in zip(indexes, answers, strict=True) if answer.status == api.OK)
        return [at in deleted for at in range(len(deletions))]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _shards(self) -> list[api.ShardAssignment]:
        """Return the shards. In a new namespace, waits until each shard has a leader."""
        deadline = time.monotonic() + self._timeout
        while not self._known:
            shards = self._assignments()
            if all(shard.leader for shard in shards):
                self._known = shards
            elif time.monotonic() > deadline:
                text = f"a shard has no leader: {no_answer(self._timeout, TIMEOUT_IN_URL)}"
                raise UnreachableError(text, source=self.url)
            else:
                time.sleep(PAUSE)
        return self._known

    def _assignments(self) -> list[api.ShardAssignment]:
        request = api.ShardAssignmentsRequest(namespace=self._namespace)
        method = SERVICE + "GetShardAssignments"
        answers = self._client.stream(method, request, api.ShardAssignments, one_answer)
        namespaces = answers[0].namespaces if answers else {}
        if self._namespace not in namespaces:
            raise UnreachableError(f"no namespace {self._namespace}", source=self.url)
        if not namespaces[self._namespace].assignments:
            raise UnreachableError(f"the namespace {self._namespace} has no shards", source=self.url)
        return list(namespaces[self._namespace].assignments)

    def _shard(self, path: str) -> api.ShardAssignment:
        shards = self._shards()
        if len(shards) == 1:
            return shards[0]
        number = key_hash(path)
        for shard in shards:
            if shard.hash_range.first <= number <= shard.hash_range.last:
                return shard
        raise UnreachableError(f"no shard is responsible for {path}", source=self.url)

    def _by_shard(self, paths: Sequence[str]) -> list[list[int]]:
        """Return the indexes of the paths, one list per shard."""
        shards: dict[int, list[int]] = {}
        for at, path in enumerate(paths):
            shards.setdefault(self._shard(path).shard, []).append(at)
        return list(shards.values())

    def _retry(self, call: Callable[[], Result]) -> Result:
        """Call `call`. If a leader doesn't answer, call it once more with new shard assignments."""
        try:
            return call()
        except UnreachableError:
            self._known = []
            return call()

    def _get_misplaced(self, path: str) -> api.GetResponse | None:
        """Return the record at `path` from another shard, where a partition key put it, or None."""
        own = self._shard(path).shard
        for shard in self._shards():
            if shard.shard != own:
                record = self._get(path, shard)
                if record.status != api.KEY_NOT_FOUND:
                    return record
        return None

    def _check_not_misplaced(self, path: str) -> None:
        if self._get(path).status == api.KEY_NOT_FOUND and self._get_misplaced(path) is not None:
            reason = "it was written with a partition key, which this write would lose"
            raise GuardError(f"refusing to write {path}: {reason}", source=self.url)

    def _get(self, path: str, shard: api.ShardAssignment | None = None) -> api.GetResponse:
        shard = shard or self._shard(path)
        request = api.ReadRequest(shard=shard.shard, gets=[api.GetRequest(key=path, include_value=True)])
        answers = self._client.stream(SERVICE + "Read", request, api.ReadResponse, one_answer, shard.leader)
        return self._answered([path], answers)[path]

    def _get_all(self, paths: Sequence[str]) -> dict[str, api.GetResponse]:
        unique = list(dict.fromkeys(paths))
        records: dict[str, api.GetResponse] = {}
        for places in self._by_shard(unique):
            wanted = [unique[at] for at in places]
            records |= self._get_many(wanted, self._shard(wanted[0]))
        return records

    def _get_many(
        self, paths: Sequence[str], shard: api.ShardAssignment, *, values: bool = True
    ) -> dict[str, api.GetResponse]:
        gets = [api.GetRequest(key=path, include_value=values) for path in paths]
        request = api.ReadRequest(shard=shard.shard, gets=gets)
        # The server splits large answers into several messages.
        answers = self._client.stream(SERVICE + "Read", request, api.ReadResponse, None, shard.leader)
        return self._answered(paths, answers)

    def _answered(
        self, paths: Sequence[str], answers: Sequence[api.ReadResponse]
    ) -> dict[str, api.GetResponse]:
        """Return the record of each path. Raises DecodeError if their number or a key doesn't match."""
        records = [record for answer in answers for record in answer.gets]
        self._check_count(len(records), len(paths))
        for path, record in zip(paths, records, strict=True):
            if record.HasField("key") and record.key != path:
                text = f"requested {path}, but the server returned another key"
                raise DecodeError(text, source=self.url)
        return dict(zip(paths, records, strict=True))

    def _check_count(self, count: int, expected: int) -> None:
        if count != expected:
            raise DecodeError(f"expected {expected} answers from the server, found {count}", source=self.url)

    def _check_keys(self, keys: Sequence[str], start: str, end: str) -> None:
        """Raise DecodeError if keys are outside the requested range, repeated or unordered."""
        places = [order(start), *map(order, keys), order(end)]
        if any(a > b for a, b in pairwise(places)) or len(set(keys)) != len(keys):
            raise DecodeError("the server returned keys that were not requested", source=self.url)

    def _read_misplaced(self, path: str) -> Versioned | None:
        record = self._get_misplaced(path)
        return None if record is None else _versioned(path, record)

    def _list(self, paths: Sequence[str]) -> list[list[str]]:
        asked = [(at, path, shard) for at, path in enumerate(paths) for shard in self._shards()]
        requests = [(_list_request(path, shard.shard), shard.leader) for _, path, shard in asked]
        answers = self._client.stream_all(SERVICE + "List", requests, api.ListResponse)
        names: list[set[str]] = [set() for _ in paths]
        for (at, path, _), messages in zip(asked, answers, strict=True):
            keys = [key for message in messages for key in message.keys]
            self._check_keys(keys, *children_range(path))
            names[at] |= {key[len(split_prefix(path)[1]) :] for key in keys}
        return [sorted(each) for each in names]

    def _scan_shard(self, number: int, start: str, end: str) -> Iterator[Versioned]:
        while True:
            page, more = self._retry(partial(self._page, number, start, end))
            self._check_keys([record.key for record in page], start, end)
            yield from (_versioned(record.key, record) for record in page)
            if not more or not page:
                return
            start = next_key(page[-1].key)

    def _page(self, number: int, start: str, end: str) -> tuple[list[api.GetResponse], bool]:
        """Return the next records of a shard, and True if the stream was stopped before its end."""
        shard = next((shard for shard in self._shards() if shard.shard == number), None)
        if shard is None:
            text = f"shard {number} no longer exists; the shards changed during the scan"
            raise UnreachableError(text, source=self.url)
        request = api.RangeRequest(shard=number, start_inclusive=start, end_exclusive=end)
        cut = False
        count = 0

        def enough(answer: api.RangeScanResponse, size: int) -> bool:
            nonlocal count, cut
            count += len(answer.records)
            cut = count >= PAGE or size >= PAGE_BYTES
            return cut

        answers = self._client.stream(
            SERVICE + "RangeScan", request, api.RangeScanResponse, enough, shard.leader
        )
        records = [record for answer in answers for record in answer.records]
        return records, cut

    def _put(self, path: str, value: bytes, expected: int) -> api.PutResponse:
        answers = self._write(path, api.WriteRequest(puts=[_put_request(path, value, expected)])).puts
        self._check_count(len(answers), 1)
        return answers[0]

    def _write(self, path: str, request: api.WriteRequest) -> api.WriteResponse:
        shard = self._shard(path)
        request.shard = shard.shard
        metadata = (("namespace", self._namespace), ("shard-id", str(shard.shard)))
        try:
            # Send one write at a time, because server 0.14 confuses the offsets of writes on parallel
            # streams.
            with self._writing:
                return self._client.exchange(
                    SERVICE + "WriteStream", request, api.WriteResponse, shard.leader, metadata
                )
        except UnreachableError:
            self._known = []
            raise

    def _create_parents(self, paths: Sequence[str]) -> None:
        """Create the missing parents of new paths. Raises GuardError if another shard has a path already."""
        if not paths:
            return
        for shard in self._shards():
            others = [path for path in paths if self._shard(path).shard != shard.shard]
            records = self._get_many(others, shard, values=False) if others else {}
            if any(record.status == api.OK for record in records.values()):
                for path in others:
                    self._check_not_misplaced(path)
        parents = sorted({parent for path in paths for parent in parents_of(path)}.difference(paths))
        existing = self._get_all(parents)
        missing = [parent for parent in parents if existing[parent].status == api.KEY_NOT_FOUND]
        # Conflicts don't matter here, because another client has then created the parent.
        self._put_each([(parent, b"", ABSENT) for parent in missing])


def _list_request(path: str, shard: int) -> api.RangeRequest:
    start, end = children_range(path)
    return api.RangeRequest(shard=shard, start_inclusive=start, end_exclusive=end)


def _put_request(path: str, value: bytes, expected: int) -> api.PutRequest:
    return api.PutRequest(key=path, value=bytes(value), expected_version_id=expected)


def _versioned(path: str, record: api.GetResponse) -> Versioned:
    version = record.version
    return Versioned(
        path,
        record.value,
        version.version_id,
        version.created_timestamp,
        version.modified_timestamp,
        version.HasField("session_id"),
    )
