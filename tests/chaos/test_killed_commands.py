"""The command itself is killed at any moment, on a directory, on RocksDB and on ZooKeeper.

After a resumed run, every value equals that of an undisturbed run, byte for byte. After an undo, every value
is as it was before.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.chaos import sizes
from tests.chaos.actors import TOPIC, cursor
from tests.chaos.sizes import Tell
from tests.cli.program import MAIN, environment, pulsar_meta_here

CURSORS, DEATHS = 80, 4
WORDS = ("compress-cursors", "--compression", "zstd", "--threshold", "0", "--yes", "--concurrency", "4")


class Scene:
    """A store whose cursors a command compresses, with their values before and after an undisturbed run."""

    def __init__(self, url: str, root: Path, cursors: int, seed: int) -> None:
        self.url, self.root, self.dice = url, root, random.Random(seed)
        self.env = environment(root / "state")
        self.before = {
            f"{TOPIC}/cursor-{number:05}": cursor(self.dice.randrange(10**6), self.dice.randrange(90))
            for number in range(cursors)
        }
        self.lay_out()
        begun = time.monotonic()
        assert self.start(*WORDS, "--undo-file", root / "undisturbed").wait(120) == 0
        self.seconds = time.monotonic() - begun
        self.after = self.values()
        assert self.after != self.before
        self.before_undo = self.without_records = 0

    def lay_out(self) -> None:
        """Restore every cursor to its bytes from before."""
        with open_store(self.url, read_only=False) as store:
            for path, value in self.before.items():
                try:
                    seen = store.read(path)
                except NotFoundError:
                    store.put(path, value, ABSENT)
                else:
                    if seen.value != value:
                        store.put(path, value, seen.version)

    def values(self) -> dict[str, bytes]:
        """Return every cursor as it is stored."""
        with open_store(self.url) as store:
            return {record.path: record.value for record in store.scan(TOPIC) if record.path != TOPIC}

    def start(self, *words: object) -> subprocess.Popen[bytes]:
        """Start the program in a process that can be killed."""
        command = [*MAIN, *map(str, words), "--store", self.url]
        nowhere = subprocess.DEVNULL
        return subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=self.env)

    def run(self, *words: object) -> None:
        """Run the program and check that it succeeds."""
        done = pulsar_meta_here(*words, "--store", self.url, env=self.env)
        assert done.returncode == 0, done.stderr.decode()

    def kill(self, undo_file: Path) -> bool:
        """Start the command and kill it, either at a random time or when its undo file appears."""
        child = self.start(*WORDS, "--undo-file", undo_file)
        moment = time.monotonic() + self.dice.random() * self.seconds
        at_once = self.dice.random() < 0.4
        while child.poll() is None and not (undo_file.exists() if at_once else time.monotonic() > moment):
            time.sleep(0.001)
        child.kill()
        return child.wait() == -9

    def round(self, number: int) -> bool:
        """Kill a run, then resume or undo it. Returns True if it died before its end."""
        self.lay_out()
        undo_file = self.root / f"undo-{number}"
        died = self.kill(undo_file)
        self.before_undo += died and not undo_file.exists()
        self.without_records += died and undo_file.exists() and b'"path"' not in undo_file.read_bytes()
        if undo_file.exists() and self.dice.random() < 0.5:
            self.run("undo", undo_file, "--yes", "--undo-file", self.root / f"own-{number}")
            assert self.values() == self.before
        elif undo_file.exists():
            self.run(*WORDS, "--resume", "--undo-file", undo_file)
            assert self.values() == self.after
            self.run("undo", undo_file, "--yes", "--undo-file", self.root / f"own-{number}")
            assert self.values() == self.before
        else:
            assert self.values() == self.before
        return died


def play(scene: Scene, deaths: int, tell: Tell = print) -> None:
    """Kill runs until `deaths` of them died."""
    died = rounds = 0
    begun = time.monotonic()
    while died < deaths:
        died += scene.round(rounds)
        rounds += 1
        assert rounds < 4 * deaths + 4, "the runs end before they can be killed"
        assert time.monotonic() - begun < sizes.SECONDS, f"only {died} of {deaths} died: {sizes.LONGER}"
    early = (
        f"{scene.before_undo} before there was an undo file, {scene.without_records} before its first record"
    )
    tell(f"{scene.url.partition(':')[0]}: {died} died in {rounds} rounds, {early}")


def directory(root: Path) -> str:
    return f"dir:{root / 'store'}"


@pytest.fixture
def database(tmp_path: Path, capture: Callable[[str], Path]) -> str:
    """The URL of a database that Pulsar created, without its cursors."""
    shutil.copytree(capture("pulsar-4.2.4") / "rocksdb", tmp_path / "database")
    url = f"rocksdb:{tmp_path / 'database'}"
    with open_store(url, read_only=False) as store:
        for record in list(store.scan("/managed-ledgers")):
            store.delete(record.path, record.version)
    return url


def test_killed_commands_on_a_directory_lose_nothing(tmp_path: Path) -> None:
    play(Scene(directory(tmp_path), tmp_path, CURSORS, 1), DEATHS)


def test_killed_commands_on_rocksdb_lose_nothing(tmp_path: Path, database: str) -> None:
    play(Scene(database, tmp_path, CURSORS, 2), DEATHS)


def test_killed_commands_on_zookeeper_lose_nothing(tmp_path: Path, server: str) -> None:
    play(Scene(server, tmp_path, CURSORS, 3), DEATHS)


@pytest.mark.nightly
def test_many_killed_commands_on_a_directory_lose_nothing(tmp_path: Path, tell: Tell) -> None:
    play(Scene(directory(tmp_path), tmp_path, sizes.CURSORS, sizes.SEED), sizes.DEATHS, tell)


@pytest.mark.nightly
def test_many_killed_commands_on_rocksdb_lose_nothing(tmp_path: Path, database: str, tell: Tell) -> None:
    play(Scene(database, tmp_path, sizes.CURSORS, sizes.SEED), sizes.DEATHS, tell)


@pytest.mark.nightly
def test_many_killed_commands_on_zookeeper_lose_nothing(tmp_path: Path, server: str, tell: Tell) -> None:
    play(Scene(server, tmp_path, sizes.CURSORS, sizes.SEED), sizes.DEATHS, tell)
