"""Several processes write, find and end like a single one, even if they are killed or files are damaged."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import BytesIO
from multiprocessing import active_children, popen_spawn_posix, resource_tracker, spawn
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from pulsar_meta.cli.render import entry_forms
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.settings import load_settings
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs import pool
from pulsar_meta.jobs.entries import entry_reading
from pulsar_meta.jobs.entries.entry_choice import Choice, Coverage, Limits
from pulsar_meta.jobs.entries.entry_dump import DumpOptions
from pulsar_meta.jobs.export.files import NAME
from pulsar_meta.jobs.topics.topic import Ledger
from tests.cli.program import MAIN, environment, pulsar_meta_here, wait_until

Capture = Callable[[str], Path]
SMALL = "import pulsar_meta.jobs.pool as p, pulsar_meta.jobs.entries.entry_reading as e; "
SMALL += "p.WORTH_BYTES = p.WORTH_ENTRIES = 0; e.ROWS_AT_ONCE = 100; "


@contextmanager
def small_logs_use_processes(begun: Callable[[list[int]], None] = lambda pids: None) -> Iterator[list[int]]:
    """Make several processes read small logs, and start all of them before the work begins.

    Yields a list to which the number of processes is added.
    """
    counts: list[int] = []
    start = pool._processes

    @contextmanager
    def ready(shared: pool.SharedWork[Any, Any], count: int) -> Iterator[Any]:
        with start(shared, count) as workers:
            for future in workers.ready:
                future.exception()
            counts.append(count)
            assert workers.executor is not None
            begun(list(workers.executor._processes))
            yield workers

    with (
        patch.object(pool, "WORTH_BYTES", 0),
        patch.object(pool, "WORTH_ENTRIES", 0),
        patch.object(entry_reading, "ROWS_AT_ONCE", 500),
        patch.object(pool, "_processes", ready),
    ):
        yield counts


def places(folder: Path) -> list[str]:
    sources = [f"--entries=bookie-disk:{bookie}" for bookie in sorted(folder.glob("bookie*"))]
    return ["--store", f"snapshot:{folder / 'metadata.ndjson'}", *sources]


def compare_jobs(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with one process and with two, which must do the same; return the run with one."""
    files = [tmp_path / "single", tmp_path / "double"]
    single = pulsar_meta_here(*words, "--jobs", "1", "--output", files[0])
    with small_logs_use_processes() as counts:
        double = pulsar_meta_here(*words, "--jobs", "2", "--output", files[1])
    assert counts == [2]
    assert (double.stderr, double.returncode, double.stdout) == (single.stderr, single.returncode, b"")
    assert files[1].read_bytes() == files[0].read_bytes()
    indexes = [Path(f"{file}.idx") for file in files]
    assert indexes[0].exists() == indexes[1].exists() == ("raw" in words)
    if indexes[0].exists():
        assert indexes[1].read_bytes() == indexes[0].read_bytes()
    return single


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pulsar-4.2.4-3bookies", "dump-entries -o plain"),
        ("pulsar-4.2.4", "dump-entries marks parted --deep -o ndjson"),
        ("pulsar-5.0.0-M1", "dump-entries -o raw"),
    ],
)
def test_two_processes_write_the_same_as_one(capture: Capture, tmp_path: Path, name: str, words: str) -> None:
    compare_jobs(tmp_path, *words.split(), *places(capture(name)))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["pulsar-4.2.4-killed", "pulsar-5.0.0-M1"])
def test_two_processes_write_the_same_as_one_in_every_format(
    capture: Capture, tmp_path: Path, name: str
) -> None:
    for command in ("dump-entries", "dump-entries --deep", "verify-entries"):
        for form in ("plain", "csv", "ndjson"):
            compare_jobs(tmp_path, *command.split(), "-o", form, *places(capture(name)))


@pytest.fixture(scope="module")
def damaged(capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a capture with some wrong bytes in its logs and with one index that cannot be read."""
    folder = tmp_path_factory.mktemp("damaged") / "capture"
    shutil.copytree(capture("pulsar-4.2.4-3bookies"), folder)
    chance = random.Random(7)
    for log in folder.glob("bookie*/**/*.log"):
        data = bytearray(log.read_bytes())
        if data[:4] == b"BKLO":
            for at in range(5000, len(data) - 10_000, 20_000):
                data[at + chance.randrange(10_000)] ^= 0xFF
            log.write_bytes(data)
    for table in sorted(folder.glob("bookie*/**/locations/*.sst"))[:1]:
        table.write_bytes(table.read_bytes()[:100])
    return folder


@pytest.mark.parametrize("words", ["dump-entries marks parted -o csv", "verify-entries -o plain"])
def test_faults_are_reported_in_the_same_order(damaged: Path, tmp_path: Path, words: str) -> None:
    single = compare_jobs(tmp_path, *words.split(), *places(damaged))
    assert single.returncode
    assert single.stderr.count(b"\n") > 20 or (tmp_path / "single").read_bytes().count(b"\n") > 20


def test_two_processes_export_the_same_as_one(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    words = ("export", "marks", "parted", *places(capture("pulsar-4.2.4")))
    single = pulsar_meta_here(*words, "--jobs", "1", "--to", tmp_path / "one")
    with small_logs_use_processes() as counts:
        double = pulsar_meta_here(*words, "--jobs", "2", "--to", tmp_path / "two")
    assert counts == [2]
    assert (double.stderr, double.returncode) == (single.stderr, single.returncode)
    files = [
        {path.relative_to(to): path.read_bytes() for path in to.rglob("*") if path.is_file()}
        for to in (tmp_path / "one", tmp_path / "two")
    ]
    assert len(files[0]) > 10
    assert files[1] == files[0]
    with small_logs_use_processes() as counts:
        repeated = pulsar_meta_here(*words, "--jobs", "2", "--to", tmp_path / "two")
    assert counts == []
    assert b"0 pieces exported now" in repeated.stderr
    assert not list(scratch.iterdir())
    assert (tmp_path / "two" / NAME).read_bytes() == files[0][Path(NAME)]


def test_a_killed_process_is_an_error(capture: Capture, tmp_path: Path) -> None:
    def kill(pids: list[int]) -> None:
        os.kill(pids[0], signal.SIGKILL)

    out = tmp_path / "out"
    with small_logs_use_processes(kill):
        done = pulsar_meta_here(
            "dump-entries", "--jobs", "2", "--output", out, *places(capture("pulsar-4.2.4"))
        )
    assert done.returncode == 6
    assert done.stderr == b"pulsar-meta: a process that reads entries ended unexpectedly\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("why", ["no process", "no interpreter", "no file"])
def test_the_main_process_does_all_if_no_other_can_start(
    capture: Capture, tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("dump-entries", "marks", "-o", "csv", *places(capture("pulsar-4.2.4")))
    single = pulsar_meta_here(*words, "--jobs", "1")
    # Python starts this process once for all pools; the next test is about a Python that can't.
    resource_tracker.ensure_running()
    if why == "no process":

        def refuse(*_: object, **__: object) -> None:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(popen_spawn_posix.Popen, "_launch", refuse)
    elif why == "no interpreter":
        monkeypatch.setattr(spawn, "_python_exe", b"/bin/false")
    out = [] if why == "no file" else ["--output", tmp_path / "out"]
    with (
        patch.object(pool, "WORTH_BYTES", 0),
        patch.object(pool, "WORTH_ENTRIES", 0),
        patch.object(entry_reading, "ROWS_AT_ONCE", 500),
    ):
        double = pulsar_meta_here(*words, *out, "--jobs", "2")
    written = (tmp_path / "out").read_bytes() if out else double.stdout
    assert (written, double.stderr, double.returncode) == (single.stdout, single.stderr, single.returncode)


def never_stop(opened: Any, begun: Path) -> None:
    begun.touch()
    while True:
        with suppress(BaseException):
            time.sleep(60)


def test_a_process_that_catches_the_exit_is_ended_by_force(tmp_path: Path) -> None:
    """The executor does so while it sends a result to a process that does not read it."""
    source = SimpleNamespace(parts=[])
    shared: pool.SharedWork[Path, None] = pool.SharedWork(
        2, nullcontext, cast("EntrySource", source), never_stop, lambda part: None, lambda part: 1
    )
    with pool._processes(shared, 2) as workers:
        assert workers.executor is not None
        workers.executor.submit(pool._do, tmp_path / "begun")
        wait_until((tmp_path / "begun").exists)
        started = active_children()
    assert started
    assert not any(process.is_alive() for process in started)


def test_without_the_process_that_looks_after_semaphores_the_main_process_does_all(capture: Capture) -> None:
    words = ("dump-entries", "marks", "-o", "csv", "--jobs", "2", *places(capture("pulsar-4.2.4")))
    code = SMALL + "from multiprocessing import spawn; spawn._python_exe = b'/bin/false'; " + MAIN[2]
    done = subprocess.run([*MAIN[:2], code, *words], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, pulsar_meta_here(*words).stdout)


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


@pytest.mark.linux
@pytest.mark.parametrize(("ending", "code"), [("closed", 0), ("interrupted", 130)])
def test_no_process_survives_an_early_end(capture: Capture, tmp_path: Path, ending: str, code: int) -> None:
    folder = capture("pulsar-4.2.4")
    words = [*MAIN[:2], SMALL + MAIN[2], "dump-entries", "-o", "ndjson", "--deep", *places(folder)]
    process = subprocess.Popen(
        [*words, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline().startswith(b"{")
        # Two that read, and one of Python's own that removes what they leave behind.
        wait_until(lambda: len(children(process.pid)) == 3)
        others = children(process.pid)
        if ending == "closed":
            process.stdout.close()
        else:
            # The process waits for a reader of its output, but the test does not read.
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == code
        assert process.stderr.read() == b""
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in others))


@pytest.mark.parametrize("words", ["dump-entries", "verify-entries"])
def test_few_entries_of_a_large_disk_start_no_process(capture: Capture, tmp_path: Path, words: str) -> None:
    with small_logs_use_processes() as counts, patch.object(pool, "WORTH_ENTRIES", 10_000):
        pulsar_meta_here(words, "--jobs", "2", "--output", tmp_path / "out", *places(capture("pulsar-4.2.4")))
    assert counts == []


def test_large_output_goes_through_a_file(capture: Capture, tmp_path: Path) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4')}"]) as source:
        ledger = max(source.ledgers(), key=lambda one: source.last_entry(one) or 0)
        choice = Choice("all", [Ledger(ledger)])
        portion, *_ = entry_reading.Portions([(choice, Limits())], source, None, print, Coverage())
        rendering = entry_forms.Rendering(Format.NDJSON, DumpOptions(), str(tmp_path))
        opened: Any = SimpleNamespace(entries=source)
        small = rendering(opened, portion)
        with patch.object(entry_forms, "OUTPUT_BYTES", 100):
            large = rendering(opened, portion)
    assert small.file is None
    assert large.file is not None
    out = BytesIO()
    large.write(out)
    assert out.getvalue() == small.data
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5", "99999"])
def test_an_invalid_number_of_processes_is_a_usage_error(capture: Capture, tmp_path: Path, jobs: str) -> None:
    words = ("dump-entries", *places(capture("pulsar-4.2.4")))
    for more, env in ((("--jobs", jobs), None), ((), environment(tmp_path, PULSAR_META_JOBS=jobs))):
        done = pulsar_meta_here(*words, *more, env=env)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
        assert b"jobs" in done.stderr.lower()


def test_the_environment_and_a_profile_can_set_the_number_of_processes(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    for text, jobs in (("3", 3), ('"2"', 2), ('"many"', None), ("true", None), ("0", None), ("[1]", None)):
        config.write_text(f"[default]\njobs = {text}\n")
        with patch.dict(os.environ, PULSAR_META_CONFIG=str(config)):
            if jobs is None:
                with pytest.raises(UsageError, match="jobs: expected a number of processes"):
                    load_settings(None)
                continue
            assert load_settings(None).jobs == jobs
            with patch.dict(os.environ, PULSAR_META_JOBS="7"):
                assert load_settings(None).jobs == 7
