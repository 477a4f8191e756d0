"""Two clients that write one cursor as fast as they can lose no update of either."""

from __future__ import annotations

import threading
import time
from itertools import cycle
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import ConflictError
from pulsar_meta.jobs.rewrite.decision import Summary
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.rewrite.undo_log import UndoLog
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.chaos import sizes
from tests.chaos.actors import TOPIC, cursor, make_run, plain, rule
from tests.chaos.sizes import Tell

# Seconds that the writer pauses, and the number of updates between two pauses.
SHORTEST, LONGEST = 0.001, 0.5
BUSY = 9


class Writer(threading.Thread):
    """A client that counts to a number in a cursor by compare-and-set.

    It pauses now and then, before a read and before a write in turn. The rewriter sets the length of the
    pauses, so that on any machine each of the two sometimes meets the other's writes.
    """

    def __init__(self, url: str, path: str, updates: int) -> None:
        super().__init__()
        self.url, self.path, self.updates = url, path, updates
        self.conflicts = self.done = 0
        self.lost = self.given_up = False
        self.rest = SHORTEST

    def answer(self, *, won: bool) -> None:
        """Shorten the pauses after the rewriter won, and lengthen them after it lost."""
        self.rest = max(self.rest / 2, SHORTEST) if won else min(self.rest * 2, LONGEST)

    def run(self) -> None:
        with open_store(self.url, read_only=False) as store:
            for rests in cycle((True, *(False,) * BUSY, None, *(False,) * BUSY)):
                if self.done == self.updates or self.given_up:
                    return
                if rests:
                    time.sleep(self.rest)
                seen = store.read(self.path)
                self.lost |= plain(seen.value) != cursor(self.done, holes=3)
                if rests is None:
                    time.sleep(self.rest)
                try:
                    store.put(self.path, cursor(self.done + 1, holes=3), seen.version)
                    self.done += 1
                except ConflictError:
                    self.conflicts += 1


def race(url: str, undo_file: Path, updates: int, tell: Tell = print) -> None:
    path = f"{TOPIC}/race-{updates}"
    with open_store(url, read_only=False) as store:
        store.put(path, cursor(0, holes=3), ABSENT)
        undo = UndoLog(undo_file, "race", read_identity(store))
        writer, total = Writer(url, path, updates), Summary()
        begun, reported = time.monotonic(), 0
        writer.start()
        for codec in cycle(("zstd", "lz4")):
            chosen = rule(codec)
            run = make_run(store, undo)
            run.summary = total
            seen = store.read(path)
            lost = total.conflicts
            run.apply([(seen, chosen(seen))], chosen)
            writer.answer(won=total.conflicts == lost)
            if not writer.is_alive():
                break
            if writer.done >= reported + 10_000:
                reported = writer.done
                tell(f"{reported} of {updates} updates, {time.monotonic() - begun:.0f} s")
            writer.given_up = time.monotonic() - begun > sizes.SECONDS
        writer.join()
        undo.close()
        tell(
            f"{writer.done} updates, {total.rewritten} rewritten, {writer.conflicts} conflicts of the writer"
        )
        assert not writer.lost
        assert plain(store.read(path).value) == cursor(writer.done, holes=3)
        assert writer.done == updates, f"nothing lost, but the time is over: {sizes.LONGER}"
    assert total.rewritten > 0
    assert writer.conflicts > 0


def test_no_update_is_lost(server: str, tmp_path: Path) -> None:
    race(server, tmp_path / "undo", 1_000)


@pytest.mark.nightly
def test_none_of_a_hundred_thousand_updates_is_lost(server: str, tmp_path: Path, tell: Tell) -> None:
    race(server, tmp_path / "undo", sizes.RACES, tell)
