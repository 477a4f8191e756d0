"""What became of one key of etcd, as far back as it was not compacted: a watch that begins in the past.

etcd keeps every revision of a key until somebody compacts it (`--auto-compaction-retention` has it do so by
itself), but neither times nor who wrote. A watch sends changes in the order of their revisions.
Source: etcd-io/etcd api/etcdserverpb/rpc.proto (Watch), server/storage/mvcc/watchable_store.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.proto import Etcd_pb2 as api
from pulsar_meta.stores.grpc_client import GrpcClient

WATCH: Final = "/etcdserverpb.Watch/Watch"
# Before 3.5.8 etcd reports progress at once, also ahead of changes that it has still to send, which it looks
# for ten times a second: so many reports in a row mean that there are none.
SILENCE: Final = 5


class CompactedError(Exception):
    """The past up to `revision` is gone."""

    def __init__(self, revision: int) -> None:
        """Take the first revision that can be read."""
        super().__init__(revision)
        self.revision = revision


@dataclass(slots=True)
class Changes:
    """Collects the changes of a key from `first` on up to the revision `last`.

    `newest` is the revision of the key's value at `last`, 0 where it has none then.
    """

    key: bytes
    first: int
    last: int
    newest: int
    url: str
    events: list[api.Event] = field(default_factory=list)
    _silent: int = 0

    def read(self, client: GrpcClient) -> list[api.Event]:
        """Return the changes, the oldest first. CompactedError where some of them are gone."""
        if self.newest and self.newest < self.first:
            return []
        create = api.WatchCreateRequest(key=self.key, start_revision=self.first)
        request = api.WatchRequest(create_request=create)
        nudge = api.WatchRequest(progress_request=api.WatchProgressRequest())
        answers = client.converse(WATCH, request, nudge, api.WatchResponse, self._take)
        if not answers or not self._all_there(answers[-1]):
            raise UnreachableError("it ended the watch before it had sent every change", source=self.url)
        return [event for event in self.events if event.kv.mod_revision <= self.last]

    def _take(self, answer: api.WatchResponse, size: int) -> bool:
        """Take an answer; return whether it is the last one."""
        if answer.compact_revision:
            raise CompactedError(answer.compact_revision)
        if answer.canceled:
            raise UnreachableError(f"it refuses: {answer.cancel_reason}", source=self.url)
        if any(event.kv.key != self.key for event in answer.events):
            raise DecodeError("the server answered with another key than the one asked for", source=self.url)
        self.events += answer.events
        self._silent = 0 if answer.events or answer.created else self._silent + 1
        return self._all_there(answer)

    def _all_there(self, answer: api.WatchResponse) -> bool:
        reached = self.events[-1].kv.mod_revision if self.events else 0
        if self.newest:
            return reached >= self.newest
        ended = not self.events or self.events[-1].type == api.Event.DELETE
        return reached > self.last or (ended and self._silent >= SILENCE)
