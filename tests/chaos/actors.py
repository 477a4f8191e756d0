"""The actors of crash runs: a rewriter that is killed, and a client that keeps updating the same cursors.

Each runs in a separate process, started by a fork server, so that killing it is a real SIGKILL.
"""

from __future__ import annotations

import json
import random
from contextlib import closing
from multiprocessing.synchronize import Event
from pathlib import Path

from pulsar_meta.codecs.errors import ConflictError
from pulsar_meta.codecs.metadata.envelope import decode_cursor, open_envelope, wrap_envelope
from pulsar_meta.jobs.rewrite.apply import Batches, Speed
from pulsar_meta.jobs.rewrite.rules import MinGain, Recompression
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.rewrite.undo import leave_touched, undone
from pulsar_meta.jobs.rewrite.undo_log import UndoLog
from pulsar_meta.jobs.rewrite.worker import decide_ahead
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from tests import rewrite_runs
from tests.rewrite_runs import Run

TOPIC = "/managed-ledgers/public/default/persistent/chaos"


def rule(codec: str) -> Recompression:
    """Return the rule that writes every cursor with this codec, even if it grows."""
    return Recompression("cursor", codec, threshold=0, min_gain=MinGain(-(2**31), -1e9))


def cursor(writes: int, holes: int = 20) -> bytes:
    """Build a cursor whose mark-delete position and acknowledged ranges encode how often it was written."""
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=1, markDeleteEntryId=writes)
    for number in range(holes):
        hole = info.individualDeletedMessages.add()
        hole.lowerEndpoint.ledgerId = hole.upperEndpoint.ledgerId = 1
        first = writes + 2 * number + 1
        hole.lowerEndpoint.entryId, hole.upperEndpoint.entryId = first, first + 1
    return info.SerializeToString()


def plain(value: bytes) -> bytes:
    """Return a cursor's bytes without their envelope."""
    envelope = open_envelope(value)
    return value if envelope is None else envelope.payload


def writes_of(value: bytes) -> int:
    """Return how often the other client wrote the cursor in a value."""
    return decode_cursor(value).markDeleteEntryId


def make_run(store: Store, undo: UndoLog) -> Run:
    """Create a run that writes in small groups, so that there are many moments at which it can die."""
    return rewrite_runs.make_run(store, undo, Speed(concurrency=16, largest=20))


def rewrite(url: str, undo_file: str, codec: str) -> None:
    """Write every cursor with this codec, and resume an earlier run that was killed."""
    chosen = rule(codec)
    with open_store(url, read_only=False) as store:
        undo = UndoLog(Path(undo_file), "compress-cursors", read_identity(store), resume=True)
        values = select(store, Scope(), "cursor")
        with closing(decide_ahead(values, chosen, ahead="://" in url)) as decided:
            make_run(store, undo).apply(decided, chosen)
        undo.close()


def undo(url: str, undo_file: str, own: str) -> None:
    """Undo a run. `own` is the undo file of the undo itself."""
    with open_store(url, read_only=False) as store:
        log = UndoLog(Path(own), "undo", read_identity(store), resume=True)
        batches = Batches(store, 16)
        make_run(store, log).apply(undone(Path(undo_file), batches), leave_touched)
        batches.close()
        log.close()


def keep_updating(url: str, report: str, stop: Event, seed: int) -> None:
    """Update random cursors by compare-and-set until stopped, then write the last values to a file."""
    dice, last, conflicts = random.Random(seed), {}, 0
    with open_store(url, read_only=False) as store:
        names = store.children(TOPIC)
        while not stop.is_set():
            seen = store.read(f"{TOPIC}/{dice.choice(names)}")
            writes = writes_of(seen.value) + 1
            value = cursor(writes)
            if dice.random() < 0.3:
                value = wrap_envelope(value, dice.choice(("lz4", "zstd", "zlib")))
            try:
                store.put(seen.path, value, seen.version)
                last[seen.path] = (writes, value.hex())
            except ConflictError:
                conflicts += 1
    Path(report).write_text(json.dumps({"last": last, "conflicts": conflicts}))
