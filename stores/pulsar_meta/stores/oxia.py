"""`oxia://HOST:PORT[,…][/NAMESPACE]`: a live Oxia, over its gRPC API.

Options besides the common ones (`access.urls`): `tls=true`. `auth` refers to a bearer token. The default
namespace is
`default`. A version is Oxia's version id. As with Pulsar's client, parents are records with an empty value,
and a
record with children is not deleted. A record with a partition key is on that key's shard: it is read but
never
written, because the server does not return the key and would lose it.

Keys compare part by part between slashes, and a key's last part sorts before parts that have something below
them.
The low 32 bits of XXH3-64 choose the shard. We use our own stubs because the official client supports neither
TLS nor
values over 4 MB.

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

from pulsar_meta.access.sockets import no_answer
from pulsar_meta.access.urls import ServerUrl
from pulsar_meta.codecs.errors import ConflictError, DecodeError, GuardError, NotFoundError, UnreachableError
from pulsar_meta.proto import Oxia_pb2 as api
from pulsar_meta.stores.base import ABSENT, BaseStore, Deletion, Versioned, Write, parents_of, prefixed
from pulsar_meta.stores.grpc_client import PAUSE, GrpcClient, one_answer

# The least character: a part with it at its end is the next one after that part.
NEXT = "\0"


def order(key: str) -> list[tuple[bool, bytes]]:
    """Return what sorts `key` among others as Oxia does."""
    parts = key.encode().split(b"/")
    last = len(parts) - 1
    return [(at < last, part) for at, part in enumerate(parts)]


def children_range(path: str) -> tuple[str, str]:
    """Return the range of the keys directly below `path`."""
    _, below = prefixed(path)
    return below, below + "/"


def subtree_range(path: str) -> tuple[str, str]:
    """Return the range of all keys below `path`, however deep."""
    _, below = prefixed(path)
    return below, f"{below[:-1]}{NEXT}/"


def next_key(key: str) -> str:
    """Return the first key that could come after `key`."""
    return key + NEXT


def key_hash(key: str) -> int:
    """Return the number that says which shard holds `key`."""
    import xxhash

    return xxhash.xxh3_64_intdigest(key.encode()) & 0xFFFFFFFF


SERVICE: Final = "/io.streamnative.oxia.proto.OxiaClient/"
# The server's largest gRPC message, with room for the key and the numbers.
MAX_VALUE: Final = (256 << 20) - (64 << 10)
# Before the server knows its shards from the coordinator.
NOT_YET: Final = frozenset({"oxia: server not initialized yet"})
PAGE: Final = 1000
PAGE_BYTES: Final = 4 << 20
Result = TypeVar("Result")


class OxiaStore(BaseStore):
    """Values under keys that are paths, spread over shards."""

    max_value_size = MAX_VALUE
    networked = True
    counts_sequences = True
    sends_groups = True
    lists_groups = True

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        """Connect and learn the shards; UnreachableError where no server answers or knows the namespace."""
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
        """Return the value at `path`; NotFoundError where there is none."""
        own = self._again(lambda: self._get(path))
        found = self._elsewhere(path) if own.status == api.KEY_NOT_FOUND else own
        if found is None:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return _versioned(path, found)

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of `path`."""
        return self.children_many([path])[0]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return what `children` does for each path; all of them are asked for at once."""
        return self._again(lambda: self._list(paths))

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix` in Oxia's order: a level before what is below it."""
        bare, below = prefixed(prefix)
        if bare != below and after is None:
            with suppress(NotFoundError):
                yield self.read(bare)
        start, end = subtree_range(prefix)
        if after is not None and after != bare:
            start = next_key(after)
        shards = [self._scan_shard(shard.shard, start, end) for shard in self._shards()]
        yield from merge(*shards, key=lambda held: order(held.path))

    def next_sequence(self, parent: str) -> int | None:
        """Return one more than how often the parent was changed: Pulsar changes it for each number."""
        found = self._again(lambda: self._get(parent))
        return None if found.status == api.KEY_NOT_FOUND else found.version.modifications_count + 1

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Write the parent, which has no value of its own, until it was changed often enough."""
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
        """Write if the version id is still `expected` and return the new one; missing parents are made."""
        self.check_write(path, value)
        if expected == ABSENT:
            self._prepare([path])
        answer = self._put(path, bytes(value), expected)
        if answer.status != api.OK:
            self._check_nowhere_else(path)
            raise ConflictError(f"{path}: changed since it was read", source=self.url)
        return answer.version.version_id

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Return the values at `paths` in their order, None where there is none; a request a shard."""
        found = self._again(lambda: self._get_all(paths))
        return [
            _versioned(path, found[path]) if found[path].status == api.OK else self._read_elsewhere(path)
            for path in paths
        ]

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Make each (path, value, expected) as `put` does; return new versions, None for a conflict."""
        for path, value, _ in writes:
            self.check_write(path, value)
        self._prepare([path for path, _, expected in writes if expected == ABSENT])
        return self._put_each(writes)

    def _put_each(self, writes: Sequence[Write]) -> list[int | None]:
        """Send them, a request a shard."""
        done: dict[int, int | None] = {}
        for places in self._by_shard([path for path, _, _ in writes]):
            puts = [_put_request(*writes[at]) for at in places]
            answers = self._write(writes[places[0]][0], api.WriteRequest(puts=puts)).puts
            self._check_count(len(answers), len(places))
            for at, answer in zip(places, answers, strict=True):
                done[at] = answer.version.version_id if answer.status == api.OK else None
        return [done[at] for at in range(len(writes))]

    def delete(self, path: str, expected: int) -> None:
        """Delete if the version id is still `expected`; GuardError where the record has children."""
        self.check_write(path)
        if self.children(path):
            raise GuardError(f"{path} has children", source=self.url)
        request = api.DeleteRequest(key=path, expected_version_id=expected)
        answers = self._write(path, api.WriteRequest(deletes=[request])).deletes
        self._check_count(len(answers), 1)
        if answers[0].status != api.OK:
            # An absent record, too, has another version than the one expected.
            self.read(path)
            self._check_nowhere_else(path)
            raise ConflictError(f"{path}: changed since it was read", source=self.url)

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Make each (path, expected) as `delete` does; return which were made. A request a shard."""
        for path, _ in deletions:
            self.check_write(path)
        names = self.children_many([path for path, _ in deletions])
        childless = [at for at, found in enumerate(names) if not found]
        gone: set[int] = set()
        for places in self._by_shard([deletions[at][0] for at in childless]):
            some = [childless[at] for at in places]
            requests = [
                api.DeleteRequest(key=deletions[at][0], expected_version_id=deletions[at][1]) for at in some
            ]
            answers = self._write(deletions[some[0]][0], api.WriteRequest(deletes=requests)).deletes
            self._check_count(len(answers), len(some))
            gone.update(at for at, answer in zip(some, answers, strict=True) if answer.status == api.OK)
        return [at in gone for at in range(len(deletions))]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _shards(self) -> list[api.ShardAssignment]:
        """Return the shards; where they were just made, wait until each has a leader."""
        deadline = time.monotonic() + self._timeout
        while not self._known:
            found = self._assignments()
            if all(shard.leader for shard in found):
                self._known = found
            elif time.monotonic() > deadline:
                text = f"a shard has no leader: {no_answer(self._timeout)}"
                raise UnreachableError(text, source=self.url)
            else:
                time.sleep(PAUSE)
        return self._known

    def _assignments(self) -> list[api.ShardAssignment]:
        request = api.ShardAssignmentsRequest(namespace=self._namespace)
        method = SERVICE + "GetShardAssignments"
        answers = self._client.stream(method, request, api.ShardAssignments, one_answer)
        found = answers[0].namespaces if answers else {}
        if self._namespace not in found:
            raise UnreachableError(f"no namespace {self._namespace}", source=self.url)
        if not found[self._namespace].assignments:
            raise UnreachableError(f"the namespace {self._namespace} has no shards", source=self.url)
        return list(found[self._namespace].assignments)

    def _shard(self, path: str) -> api.ShardAssignment:
        shards = self._shards()
        if len(shards) == 1:
            return shards[0]
        place = key_hash(path)
        for shard in shards:
            if shard.hash_range.first <= place <= shard.hash_range.last:
                return shard
        raise UnreachableError(f"no shard holds {path}", source=self.url)

    def _by_shard(self, paths: Sequence[str]) -> list[list[int]]:
        """Return the places of the paths, those of a shard together."""
        shards: dict[int, list[int]] = {}
        for at, path in enumerate(paths):
            shards.setdefault(self._shard(path).shard, []).append(at)
        return list(shards.values())

    def _again(self, call: Callable[[], Result]) -> Result:
        """Return what `call` reads; once more, with shards learned anew, where a leader did not answer."""
        try:
            return call()
        except UnreachableError:
            self._known = []
            return call()

    def _elsewhere(self, path: str) -> api.GetResponse | None:
        """Return the record at `path` that lies on another shard than its own, if there is one."""
        own = self._shard(path).shard
        for shard in self._shards():
            if shard.shard != own:
                found = self._get(path, shard)
                if found.status != api.KEY_NOT_FOUND:
                    return found
        return None

    def _check_nowhere_else(self, path: str) -> None:
        own = self._get(path)
        if own.status == api.KEY_NOT_FOUND and self._elsewhere(path) is not None:
            reason = "was written with a partition key, which a write from here would lose: it stays as it is"
            raise GuardError(f"{path}: {reason}", source=self.url)

    def _get(self, path: str, shard: api.ShardAssignment | None = None) -> api.GetResponse:
        shard = shard or self._shard(path)
        request = api.ReadRequest(shard=shard.shard, gets=[api.GetRequest(key=path, include_value=True)])
        answers = self._client.stream(SERVICE + "Read", request, api.ReadResponse, one_answer, shard.leader)
        return self._answered([path], answers)[path]

    def _get_all(self, paths: Sequence[str]) -> dict[str, api.GetResponse]:
        once = list(dict.fromkeys(paths))
        found: dict[str, api.GetResponse] = {}
        for places in self._by_shard(once):
            wanted = [once[at] for at in places]
            found |= self._get_many(wanted, self._shard(wanted[0]))
        return found

    def _get_many(
        self, paths: Sequence[str], shard: api.ShardAssignment, *, values: bool = True
    ) -> dict[str, api.GetResponse]:
        gets = [api.GetRequest(key=path, include_value=values) for path in paths]
        request = api.ReadRequest(shard=shard.shard, gets=gets)
        # The server spreads large answers over several messages.
        answers = self._client.stream(SERVICE + "Read", request, api.ReadResponse, None, shard.leader)
        return self._answered(paths, answers)

    def _answered(
        self, paths: Sequence[str], answers: Sequence[api.ReadResponse]
    ) -> dict[str, api.GetResponse]:
        """Return the record of each path; DecodeError for too few or too many of them, or another key."""
        records = [record for answer in answers for record in answer.gets]
        self._check_count(len(records), len(paths))
        for path, record in zip(paths, records, strict=True):
            if record.HasField("key") and record.key != path:
                text = f"asked for {path}, the server answered with another key"
                raise DecodeError(text, source=self.url)
        return dict(zip(paths, records, strict=True))

    def _check_count(self, found: int, wanted: int) -> None:
        if found != wanted:
            raise DecodeError(f"asked {wanted} questions, the server answered {found}", source=self.url)

    def _check_keys(self, keys: Sequence[str], start: str, end: str) -> None:
        """Raise DecodeError where the server sends other keys than those of a range, in their order."""
        places = [order(start), *map(order, keys), order(end)]
        if any(a > b for a, b in pairwise(places)) or len(set(keys)) != len(keys):
            raise DecodeError("the server answered with other keys than those asked for", source=self.url)

    def _read_elsewhere(self, path: str) -> Versioned | None:
        found = self._elsewhere(path)
        return None if found is None else _versioned(path, found)

    def _list(self, paths: Sequence[str]) -> list[list[str]]:
        asked = [(at, path, shard) for at, path in enumerate(paths) for shard in self._shards()]
        requests = [(_list_request(path, shard.shard), shard.leader) for _, path, shard in asked]
        answers = self._client.stream_all(SERVICE + "List", requests, api.ListResponse)
        names: list[set[str]] = [set() for _ in paths]
        for (at, path, _), found in zip(asked, answers, strict=True):
            keys = [key for answer in found for key in answer.keys]
            self._check_keys(keys, *children_range(path))
            names[at] |= {key[len(prefixed(path)[1]) :] for key in keys}
        return [sorted(each) for each in names]

    def _scan_shard(self, number: int, start: str, end: str) -> Iterator[Versioned]:
        while True:
            page, more = self._again(partial(self._page, number, start, end))
            self._check_keys([record.key for record in page], start, end)
            yield from (_versioned(record.key, record) for record in page)
            if not more or not page:
                return
            start = next_key(page[-1].key)

    def _page(self, number: int, start: str, end: str) -> tuple[list[api.GetResponse], bool]:
        """Return the next records of a shard, and whether there may be more: the stream is cut off early."""
        shard = next((shard for shard in self._shards() if shard.shard == number), None)
        if shard is None:
            text = f"shard {number} is gone: the shards changed while they were read"
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
            # One at a time: the server (0.14) mixes up the offsets of writes that come on several streams.
            with self._writing:
                return self._client.exchange(
                    SERVICE + "WriteStream", request, api.WriteResponse, shard.leader, metadata
                )
        except UnreachableError:
            self._known = []
            raise

    def _prepare(self, paths: Sequence[str]) -> None:
        """Make the parents of paths that are to come; GuardError where one lies on another shard already."""
        if not paths:
            return
        for shard in self._shards():
            others = [path for path in paths if self._shard(path).shard != shard.shard]
            if any(one.status == api.OK for one in self._get_some(others, shard)):
                for path in others:
                    self._check_nowhere_else(path)
        parents = sorted({parent for path in paths for parent in parents_of(path)}.difference(paths))
        found = self._get_all(parents)
        missing = [parent for parent in parents if found[parent].status == api.KEY_NOT_FOUND]
        # Whoever made one meanwhile made what we wanted.
        self._put_each([(parent, b"", ABSENT) for parent in missing])

    def _get_some(self, paths: Sequence[str], shard: api.ShardAssignment) -> list[api.GetResponse]:
        return list(self._get_many(paths, shard, values=False).values()) if paths else []


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
