"""Fixtures for every test (captures, real servers, a path in a store), marks, and the order of tests."""

from __future__ import annotations

import fcntl
import gc
import lzma
import os
import sys
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

from pulsar_meta.codecs import backends, compression
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.spark.session import spark_session
from tests.servers import etcd, java, oxia, processes, report, zookeeper
from tests.servers.jars import NoJars
from tests.servers.restartable import is_required, skip_or_fail
from tests.servers.versions import NO_JARS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parent.parent
CAPTURES = REPOSITORY / "fixtures" / "captures"
# Hypothesis may take longer on a busy machine.
settings.register_profile(
    "patient", deadline=timedelta(seconds=10), suppress_health_check=[HealthCheck.too_slow]
)
# For `make quick`, for all else, and for `make nightly`. Tests with their own number ask `nightly.examples`.
settings.register_profile("quick", settings.get_profile("patient"), max_examples=20)
settings.register_profile("daily", settings.get_profile("patient"), max_examples=30)
settings.register_profile("nightly", settings.get_profile("patient"), max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "daily"))
if not os.access(REPOSITORY, os.W_OK):
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", f"{tempfile.gettempdir()}/hypothesis-{os.getuid()}")
# Users run the program with buffered output, so tests of closed pipes and full disks must buffer it too.
os.environ.pop("PYTHONUNBUFFERED", None)
# Java options for the launcher and the Spark of every test, also of tests that start Spark in a subprocess.
os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(java.BRIEF))
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(java.options("spark")))
# A test that uses one of these fixtures, directly or through another, gets the mark `server`.
SERVER_FIXTURES = {"zookeeper_server", "etcd_server", "oxia_server"}
_roots = count()
# Imported modules and collected tests stay alive, so collecting garbage meanwhile would find nothing.
gc.disable()

# The libraries that `codecs.backends` prefers.
FAST_LIBRARIES = ("lz4", "lz4.block", "zstandard", "google_crc32c")


@pytest.fixture(params=["fast", "small"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test twice: with the fast libraries, and with those that replace them."""
    name = str(request.param)
    hidden = {} if name == "fast" else dict.fromkeys(FAST_LIBRARIES)
    choices = (backends.lz4, backends.zstd, backends.crc32c_library)
    kept = vars(compression._contexts).copy()
    try:
        with patch.dict(sys.modules, hidden):
            for choice in choices:
                choice.cache_clear()
            vars(compression._contexts).clear()
            yield name
    finally:
        for choice in choices:
            choice.cache_clear()
        vars(compression._contexts).clear()
        vars(compression._contexts).update(kept)


def extract(archive: Path, into: Path) -> None:
    """Unpack files and folders of a tar archive.

    Raises ValueError for any other kind of member and for a name that points outside `into`. (The filters of
    TarFile need Python 3.11.4.)
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
    """Unpack the capture `name` and its truth files into a new folder in `into` and return that folder."""
    extract(CAPTURES / f"{name}.tar.xz", into)
    folder = into / name
    for packed in CAPTURES.glob(f"{name}.truth*.json.xz"):
        plain = packed.name.removeprefix(f"{name}.").removesuffix(".xz")
        (folder / plain).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Run the block in one process at a time."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Map each file in a folder to its size and modification time."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """A function that unpacks a capture by its name and returns its folder.

    All workers share the folder, so tests must not write to it; at the end, the fixture checks that none did.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "captures"
    shared.mkdir(exist_ok=True)
    unpacked: dict[str, dict[str, tuple[int, int]]] = {}

    def unpack(name: str) -> Path:
        folder = shared / name
        if name not in unpacked:
            with exclusive(shared / f"{name}.lock"):
                if not folder.exists():
                    unpack_capture(name, shared / "unfinished").rename(folder)
            unpacked[name] = state_of(folder)
        return folder

    yield unpack
    for name, before in unpacked.items():
        assert state_of(shared / name) == before, f"a test changed the capture {name}"


@pytest.fixture
def root() -> str:
    """A path in a store that no other test of this worker uses."""
    return f"/test-{next(_roots)}"


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper.ZookeeperServer]:
    """A real ZooKeeper for all tests of a worker. A test that kills it must start it again."""
    skip_or_fail("zookeeper", zookeeper.why_not())
    with zookeeper.ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd.EtcdServer]:
    """A real etcd for all tests of a worker. A test that kills it must start it again."""
    skip_or_fail("etcd", etcd.why_not())
    with etcd.EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="session")
def oxia_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oxia.OxiaServer]:
    """A real Oxia for all tests of a worker. A test that kills it must start it again."""
    skip_or_fail("oxia", oxia.why_not())
    with oxia.OxiaServer(tmp_path_factory.mktemp("oxia")) as server:
        yield server


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """The Spark session of a worker. Code under test gets it too, even if it asks for other settings."""
    skip_or_fail("java", java.why_not())
    conf = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    with spark_session(SparkSettings("local[2]", conf)) as session:
        yield session


@pytest.fixture(autouse=True, scope="session")
def no_gc_freeze() -> Iterator[None]:
    """Disable `gc.freeze`: the program calls it when it starts, and it starts many times in this process."""
    with patch.object(gc, "freeze", lambda: None):
        yield


def pytest_configure() -> None:
    """Refuse a PULSAR_META_REQUIRED with an unknown name."""
    is_required("all")


def pytest_collection_finish() -> None:
    """Turn garbage collection on again, and let it skip the imported modules and the collected tests."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Collect garbage once, so that the five collections that pytest runs next have nothing to search."""
    report.fail_unexplained(session)
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Add marks, and sort: Spark for the first worker, servers for the second, short tests last.

    Workers get consecutive parts of the list, and other workers take tests from the end of a part. In this
    order, one Spark and one server of each kind are enough, and no worker ends with minutes of work.
    """
    for item in items:
        if "interop" in item.keywords or SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")
        if "capture" in getattr(item, "fixturenames", ()):
            item.add_marker("capture")
    # Here pytest deselects by -m and -k, so the marks must be there and the order must not.
    yield
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
    return "servers" if "server" in item.keywords else "short"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    if item.get_closest_marker("linux") and sys.platform != "linux":
        pytest.skip("it needs /proc or /dev/full, which only Linux has")
    if item.get_closest_marker("spark") or item.get_closest_marker("java"):
        skip_or_fail("java", java.why_not())
    processes.unmarked_test = None if {"server", "java", "spark"} & set(item.keywords) else item.nodeid
    yield from _skip_or_fail_without_jars()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    yield from _skip_or_fail_without_jars()


def _skip_or_fail_without_jars() -> Generator[None]:
    """Skip a test that needs the jars of Pulsar if they are missing; if they are required, fail."""
    try:
        yield
    except NoJars as error:
        skip_or_fail("maven", f"{NO_JARS}{error}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that did not run and those that passed only when repeated, with the reasons."""
    report.did_not_run(terminalreporter)
    report.failed_first(terminalreporter)
