"""Records that brokers write for each other, and the settings that they read from the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import check_findings, healthy_store

Capture = Callable[[str], Path]
BROKER = "/loadbalance/brokers/127.0.0.1:18080"
BUNDLE = "public/default/0x00000000_0x40000000"


def written(capture: Capture, path: str, value: bytes) -> MemoryStore:
    """Return the store of a stopped cluster with one more value."""
    store = healthy_store(capture("pulsar-4.2.4"))
    store.values[path] = Versioned(path, value, 0, None, None)
    return store


@pytest.mark.parametrize(
    ("path", "severity"),
    [
        (BROKER, Severity.ERROR),
        ("/loadbalance/leader", Severity.ERROR),
        (f"/namespace/{BUNDLE}", Severity.ERROR),
        ("/admin/configuration", Severity.WARNING),
        ("/bookies", Severity.WARNING),
        ("/admin/resourcegroups/one", Severity.WARNING),
        ("/admin/topic-policies/local/public/default/persistent/plain", Severity.ERROR),
        (f"/loadbalance/bundle-data/{BUNDLE}", Severity.NOTE),
        ("/loadbalance/broker-time-average/127.0.0.1:18080", Severity.NOTE),
        ("/loadbalance/resource-quota/default", Severity.NOTE),
    ],
)
def test_the_severity_of_a_broken_record_depends_on_its_effect(
    capture: Capture, path: str, severity: Severity
) -> None:
    found = [each for each in check_findings(written(capture, path, b'{"a":')) if each.path == path]
    assert [(each.code, each.severity, each.repair) for each in found] == [
        ("record-undecodable", severity, None)
    ]


def test_a_registration_that_is_complete_when_it_is_read_again_is_not_reported(capture: Capture) -> None:
    class Growing(MemoryStore):
        def find(self, path: str) -> Versioned | None:
            if path == BROKER:
                return Versioned(path, b'{"pulsarServiceUrl":"pulsar://a:6650"}', 1, None, None)
            return super().find(path)

    store = Growing()
    store.values = written(capture, BROKER, b"{").values
    assert [each for each in check_findings(store) if each.path == BROKER] == []


def test_secrets_in_settings_are_not_printed(capture: Capture) -> None:
    value = b'{"brokerClientAuthenticationParameters":["token:hush"]}'
    [found] = [
        each
        for each in check_findings(written(capture, "/admin/configuration", value))
        if each.path == "/admin/configuration"
    ]
    assert "brokerClientAuthenticationParameters" in found.message
    assert "hush" not in str(found.document())
