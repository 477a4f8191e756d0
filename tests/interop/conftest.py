"""One JVM for each Pulsar version, shared by all tests of the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.servers.jvm import Jvm
from tests.servers.versions import VERSIONS

Oracle = Callable[..., object]


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version to test with."""
    return str(request.param)


@pytest.fixture(scope="session")
def oracle(version: str) -> Iterator[Jvm]:
    """Pulsar's own classes of that version: `oracle.call("tests.interop.oracle.…:function", …)`."""
    with Jvm(version, heap="2g") as jvm:
        yield jvm
