"""Real servers, one of each a module, and a path of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.servers import etcd, oxia, zookeeper
from tests.servers.restartable import skip_or_fail

_roots = count()


@pytest.fixture
def root() -> str:
    return f"/test-{next(_roots)}"


@pytest.fixture(scope="module")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper.ZookeeperServer]:
    skip_or_fail(zookeeper.why_not())
    with zookeeper.ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd.EtcdServer]:
    skip_or_fail(etcd.why_not())
    with etcd.EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def oxia_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oxia.OxiaServer]:
    skip_or_fail(oxia.why_not())
    with oxia.OxiaServer(tmp_path_factory.mktemp("oxia")) as server:
        yield server


def writable_copy(database: Path, target: Path) -> Path:
    """Copy a database (whose files may be read-only) to where a test may write it."""
    target.mkdir()
    for file in database.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target
