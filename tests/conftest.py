"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import lzma
import tarfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.servers.jars import NoJars
from tests.servers.restartable import skip_or_fail
from tests.servers.versions import NO_JARS

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"


def unpack_capture(name: str, into: Path) -> Path:
    """Unpack the capture `name` below `into` and return its folder, truth files in it."""
    with tarfile.open(CAPTURES / f"{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")
    folder = into / name
    for packed in CAPTURES.glob(f"{name}.truth*.json.xz"):
        plain = packed.name.removeprefix(f"{name}.").removesuffix(".xz")
        (folder / plain).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that unpacks a capture by its name, once a session; tests only read in it."""
    unpacked: dict[str, Path] = {}

    def unpack(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = unpack_capture(name, tmp_path_factory.mktemp("capture"))
        return unpacked[name]

    return unpack


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    """Let garbage of the program's runs in this process be collected: it freezes what its start makes."""
    yield
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
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
