"""Fixtures that every test may use: captures, real servers, a path of its own; and what skips loudly."""

from __future__ import annotations

import fcntl
import gc
import lzma
import os
import tarfile
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.spark.session import spark_session
from tests.servers import etcd, java, oxia, report, zookeeper
from tests.servers.jars import NoJars
from tests.servers.restartable import skip_or_fail
from tests.servers.versions import NO_JARS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parent.parent
CAPTURES = REPOSITORY / "fixtures" / "captures"
# An example may take its time on a busy machine.
settings.register_profile(
    "patient", deadline=timedelta(seconds=10), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")
if not os.access(REPOSITORY, os.W_OK):
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", f"{tempfile.gettempdir()}/hypothesis-{os.getuid()}")
# What a pipe or a full disk does to a run is seen where its output waits in a buffer, as it does for people.
os.environ.pop("PYTHONUNBUFFERED", None)
# Of every Spark that a test starts, in this process or below another: the launcher and what it launches.
os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(java.BRIEF))
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(java.options("spark")))
# Folders whose tests run servers, and wait for them.
WITH_SERVERS = [
    Path(__file__).parent / folder for folder in ("chaos", "stores", "jobs/rewrite", "jobs/repair")
]
_roots = count()
# What is imported and collected stays: nothing is gained by looking through it for garbage meanwhile.
gc.disable()


def extract(archive: Path, into: Path) -> None:
    """Unpack files and folders of a tar; anything else in it, or a name that leads out of `into`, is refused.

    TarFile's own filters came with Python 3.11.4.
    """
    with tarfile.open(archive) as opened:
        for member in opened:
            place = into / member.name
            if (
                not (member.isreg() or member.isdir())
                or ".." in place.parts
                or Path(member.name).is_absolute()
            ):
                raise ValueError(f"{archive}: {member.name} is not unpacked")
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            content = opened.extractfile(member)
            assert content is not None
            place.write_bytes(content.read())
            os.utime(place, (member.mtime, member.mtime))


def unpack_capture(name: str, into: Path) -> Path:
    """Unpack the capture `name` below `into` and return its folder, truth files in it."""
    extract(CAPTURES / f"{name}.tar.xz", into)
    folder = into / name
    for packed in CAPTURES.glob(f"{name}.truth*.json.xz"):
        plain = packed.name.removeprefix(f"{name}.").removesuffix(".xz")
        (folder / plain).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


@contextmanager
def only_one(file: Path) -> Iterator[None]:
    """Let one process at a time into the block."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of each file below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Return a function that unpacks a capture by its name, once for all workers; tests only read in it."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "captures"
    shared.mkdir(exist_ok=True)
    unpacked: dict[str, dict[str, tuple[int, int]]] = {}

    def unpack(name: str) -> Path:
        folder = shared / name
        if name not in unpacked:
            with only_one(shared / f"{name}.lock"):
                if not folder.exists():
                    unpack_capture(name, shared / "unfinished").rename(folder)
            unpacked[name] = state_of(folder)
        return folder

    yield unpack
    for name, before in unpacked.items():
        assert state_of(shared / name) == before, f"a test wrote into the capture {name}"


@pytest.fixture
def root() -> str:
    """A path of its own for each test of a worker."""
    return f"/test-{next(_roots)}"


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper.ZookeeperServer]:
    """One server for all tests of a worker; who kills it starts it again."""
    skip_or_fail(zookeeper.why_not())
    with zookeeper.ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd.EtcdServer]:
    """One server for all tests of a worker; who kills it starts it again."""
    skip_or_fail(etcd.why_not())
    with etcd.EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="session")
def oxia_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oxia.OxiaServer]:
    """One server for all tests of a worker; who kills it starts it again."""
    skip_or_fail(oxia.why_not())
    with oxia.OxiaServer(tmp_path_factory.mktemp("oxia")) as server:
        yield server


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """The one Spark of a worker's tests; what they call in this process takes it, whatever its settings."""
    skip_or_fail(java.why_not())
    conf = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    with spark_session(SparkSettings("local[2]", conf)) as session:
        yield session


@pytest.fixture(autouse=True, scope="session")
def nothing_frozen() -> Iterator[None]:
    """Let garbage of the program's runs in this process be collected: it freezes what its start makes."""
    with patch.object(gc, "freeze", lambda: None):
        yield


def pytest_collection_finish() -> None:
    """Collect garbage again, without a look at what was imported and collected."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Look through garbage once: pytest does so five times, and what is left ends with the process."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the first worker begin with Spark, the second with servers, and all end with short tests.

    A worker gets its part in this order, and what is stolen from it is the end of that: so one Spark and one
    server of each kind do, and no worker is left alone with minutes of work.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    kinds: dict[str, list[pytest.Item]] = {"spark": [], "servers": [], "short": []}
    for item in items:
        kinds[_kind(item)].append(item)
    first = max(len(items) // workers - len(kinds["spark"]), 0)
    short = kinds["short"]
    items[:] = [*kinds["spark"], *short[:first], *kinds["servers"], *short[first:]]


def _kind(item: pytest.Item) -> str:
    if "interop" in item.keywords:
        return "short"
    if "spark" in item.keywords:
        return "spark"
    return "servers" if item.path.parent in WITH_SERVERS else "short"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    if item.get_closest_marker("spark") or item.get_closest_marker("java"):
        skip_or_fail(java.why_not())
    yield from _skip_or_fail_without_jars()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    yield from _skip_or_fail_without_jars()


def _skip_or_fail_without_jars() -> Generator[None]:
    """What needs Pulsar's jars is skipped where there are none, and fails in CI."""
    try:
        yield
    except NoJars as error:
        skip_or_fail(f"{NO_JARS}{error}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what did not run, and what failed before it passed, and why."""
    report.did_not_run(terminalreporter)
    report.failed_first(terminalreporter)
