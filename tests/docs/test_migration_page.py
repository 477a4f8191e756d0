"""The commands of docs/migration.md run with a real etcd, Oxia and ZooKeeper, and print what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.docs.blocks import ROOT, Step, blocks_of, is_printed, split_at_operator
from tests.servers import etcd, oxia, zookeeper
from tests.servers.restartable import skip_or_fail

pytestmark = pytest.mark.server
PAGE = ROOT / "docs" / "migration.md"
POLICIES = "/admin/policies/public/default"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the URLs of empty servers by those that the page names."""
    for program, module in (("zookeeper", zookeeper), ("etcd", etcd), ("oxia", oxia)):
        skip_or_fail(program, module.why_not())
    with ExitStack() as stack:
        old = stack.enter_context(etcd.EtcdServer(tmp_path / "etcd"))
        new = stack.enter_context(oxia.OxiaServer(tmp_path / "oxia"))
        other = stack.enter_context(zookeeper.ZookeeperServer(tmp_path / "zk"))
        yield {
            "etcd://etcd1:2379": f"etcd://{old.address}",
            "oxia://oxia1:6648": f"oxia://{new.address}",
            "zk://zk1:2181": f"zk://{other.address}",
        }


def test_the_page_moves_an_etcd_to_oxia_and_zookeeper(
    tmp_path: Path, servers: dict[str, str], capture: Callable[[str], Path]
) -> None:
    env, wrong = environment(tmp_path / "state"), list[str]()
    old = servers["etcd://etcd1:2379"]
    source = f"rocksdb:{capture('pulsar-4.2.4')}/rocksdb"
    filled = pulsar_meta_here("restore", source, "--store", old, "--yes", "--allow-unreadable", env=env)
    assert filled.returncode == 0, filled.stderr
    steps = [step for block in blocks_of(PAGE) for step in block.steps]
    for step in steps:
        if step.command.startswith("pulsar-meta diff etcd://etcd1:2379 oxia:"):
            _change_a_value(old)
        code, fault = _fault(step, servers, env, tmp_path)
        wrong += [f"{step.command}\n{fault}"] if fault else []
        assert code in (0, 1), step.command
    assert len(steps) == 10
    assert not wrong, "\n\n".join(wrong)


def _change_a_value(url: str) -> None:
    """Write a value to the old store, like a broker that was not stopped."""
    with open_store(url, read_only=False) as store:
        record = store.read(POLICIES)
        store.put(POLICIES, record.value.replace(b'"deleted":false', b'"deleted":false '), record.version)


def _fault(step: Step, servers: dict[str, str], env: dict[str, str], folder: Path) -> tuple[int, str]:
    """Run a step; return its exit code, and its output if the page shows another one."""
    command = step.command
    for name, url in servers.items():
        command = command.replace(name, url)
    words, rest = split_at_operator(command)
    assert words[0] == "pulsar-meta"
    assert not rest
    done = as_text(pulsar_meta_here(*words[1:], env=env, folder=folder))
    both = done.stdout + done.stderr
    for name, url in servers.items():
        both = both.replace(url, name)
    return done.returncode, "" if step.printed and is_printed(step.printed, both) else both
