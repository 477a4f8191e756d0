"""One JVM for each Pulsar version, shared by all tests of the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.jvm import Jvm
from tests.servers.versions import VERSIONS

Oracle = Callable[..., object]


# Before pytest-xdist's own, which reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one worker run all tests of a file with one version of Pulsar: they share what they start."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            given = getattr(item, "callspec", None)
            version = given.params.get("version", "") if given else ""
            item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {version}"))


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version to test with."""
    return str(request.param)


@pytest.fixture(scope="session")
def oracle(version: str) -> Iterator[Jvm]:
    """Pulsar's own classes of that version: `oracle.call("tests.interop.oracle.…:function", …)`."""
    with Jvm(version, heap="2g") as jvm:
        yield jvm
