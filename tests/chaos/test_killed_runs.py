"""A rewriter that is killed while another client updates the same cursors loses nothing."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.chaos import actors, sizes
from tests.chaos.sizes import Tell


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.chaos.actors", "kazoo.client", "zstandard"])
    return context


class Scene:
    """Cursors in a store, and rounds of killing on them."""

    def __init__(self, url: str, root: Path, processes: ForkServerContext, cursors: int, seed: int) -> None:
        self.url, self.root, self.processes = url, root, processes
        self.dice = random.Random(seed)
        self.codec = "none"
        self.expected: dict[str, bytes] = {}
        with open_store(url, read_only=False) as store:
            for record in store.scan(actors.TOPIC):
                if record.path != actors.TOPIC:
                    store.delete(record.path, record.version)
            for number in range(cursors):
                path = f"{actors.TOPIC}/cursor-{number:05}"
                store.put(path, actors.cursor(0), ABSENT)
                self.expected[path] = actors.cursor(0)

    def round(self, number: int) -> tuple[bool, int]:
        """Kill a run, then resume or undo it.

        Returns whether it died before its end, and how many cursors the other client wrote.
        """
        undo_file = str(self.root / f"undo-{number}")
        stop, report = self.processes.Event(), self.root / f"report-{number}"
        writer = self.processes.Process(
            target=actors.keep_updating, args=(self.url, str(report), stop, self.dice.randrange(2**32))
        )
        writer.start()
        self.codec = self.dice.choice([codec for codec in ("none", "lz4", "zstd") if codec != self.codec])
        killed = self._killed(undo_file, self.dice.random() * 0.8 * len(self.expected))
        undoing = self.dice.random() < 0.5 and Path(undo_file).exists()
        if undoing:
            self._finish(actors.undo, undo_file, str(self.root / f"undo-of-{number}"))
        else:
            self._finish(actors.rewrite, undo_file, self.codec)
        stop.set()
        writer.join(60)
        assert writer.exitcode == 0
        report_data = json.loads(report.read_text())
        self._check(report_data["last"], undoing)
        return killed, len(report_data["last"])

    def _killed(self, undo_file: str, records: float) -> bool:
        """Start a run and kill it when its undo file has this many records, or a moment later."""
        child = self.processes.Process(target=actors.rewrite, args=(self.url, undo_file, self.codec))
        child.start()
        deadline = time.monotonic() + 60
        while child.is_alive() and _lines(undo_file) < records and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(self.dice.random() * 0.02)
        alive = child.is_alive()
        child.kill()
        child.join()
        return alive and Path(undo_file).exists()

    def _finish(self, target: object, *arguments: str) -> None:
        child = self.processes.Process(target=target, args=(self.url, *arguments))  # type: ignore[arg-type]
        child.start()
        child.join(120)
        assert child.exitcode == 0

    def _check(self, last: dict[str, tuple[int, str]], undone: bool) -> None:
        """Check that every cursor has its old value, an equivalent one, or the other client's last."""
        for path, (_, written) in last.items():
            self.expected[path] = bytes.fromhex(written)
        with open_store(self.url) as store:
            values = {value.path: value.value for value in store.scan(actors.TOPIC)}
        values.pop(actors.TOPIC, None)
        assert set(values) == set(self.expected)
        for path, value in values.items():
            assert actors.plain(value) == actors.plain(self.expected[path]), path
            if undone:
                assert value == self.expected[path], path
            self.expected[path] = value


def _lines(path: str) -> int:
    try:
        return Path(path).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def play(scene: Scene, deaths: int, tell: Tell = print) -> None:
    """Kill runs until `deaths` of them died before their end, or the time is over."""
    begun, rounds, died, writes = time.monotonic(), 0, 0, 0
    while died < deaths:
        killed, count = scene.round(rounds)
        rounds, died, writes = rounds + 1, died + killed, writes + count
        seconds = time.monotonic() - begun
        if rounds % 10 == 0 or died == deaths:
            tell(f"{died} of {deaths} died in {rounds} rounds, {writes} cursors updated, {seconds:.0f} s")
        assert rounds < 4 * deaths, "the runs end before they can be killed"
        assert seconds < sizes.SECONDS, f"nothing lost, but only {died} of {deaths} died: {sizes.LONGER}"
    assert writes > rounds


def test_a_killed_run_loses_nothing(server: str, tmp_path: Path, processes: ForkServerContext) -> None:
    play(Scene(server, tmp_path, processes, cursors=150, seed=20), deaths=4)


@pytest.mark.nightly
def test_many_killed_runs_lose_nothing(
    server: str, tmp_path: Path, processes: ForkServerContext, tell: Tell
) -> None:
    tell(f"{sizes.DEATHS} deaths over {sizes.CURSORS} cursors, seed {sizes.SEED}")
    play(Scene(server, tmp_path, processes, sizes.CURSORS, sizes.SEED), sizes.DEATHS, tell)
