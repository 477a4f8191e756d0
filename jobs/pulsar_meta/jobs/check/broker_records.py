"""Records that brokers read from each other, such as registrations and owners of bundles, and their settings.

Sources: apache/pulsar ResourceLockImpl (revalidate), BrokerRegistryImpl (getAvailableBrokerLookupDataAsync),
ModularLoadManagerImpl (updateAllBrokerData, getBundleDataOrDefault), LeaderElectionImpl, OwnershipCache,
BrokerService (handleDynamicConfigurationUpdates), DynamicConfigurationResources, BookieRackAffinityMapping
(setConf). The effects of a registration, the leader, an owner and the configuration were tried on brokers
4.0.7 and 4.2.4 with a modular load manager. The other effects were read there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.stores.base import Store, Versioned

LOAD: Final = "/loadbalance"
OWNERS: Final = "/namespace"
_RACKS: Final = "/bookies"
CONFIGURATION: Final = "/admin/configuration"
BROKERS: Final = f"{LOAD}/brokers/"
_LEADER: Final = f"{LOAD}/leader"
_URLS: Final = ("pulsarServiceUrl", "pulsarServiceUrlTls", "webServiceUrl", "webServiceUrlTls")
# Fields of registrations by the JSON type without which brokers can't read the whole record.
_TYPES: Final[Mapping[type, tuple[str, frozenset[str]]]] = {
    dict: (
        "an object",
        frozenset(
            (
                *("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut", "lastStats"),
                *("protocols", "advertisedListeners", "properties"),
            )
        ),
    ),
    list: ("a list", frozenset(("bundles", "lastBundleGains", "lastBundleLosses"))),
}


def broker_findings(store: Store) -> Iterator[Finding]:
    """Yield the records of brokers that other brokers can't read, also when they are read again."""
    for root in (LOAD, OWNERS, _RACKS):
        for record in store.scan(root):
            if record_fault(record) is not None:
                again = store.find(record.path)
                fault = None if again is None else record_fault(again)
                if again is not None and fault is not None:
                    yield _finding(again, fault)


def _finding(record: Versioned, fault: str) -> Finding:
    effect, severity = _effect(record.path)
    name = "record-undecodable" if record.value else "record-empty"
    evidence = {"size": len(record.value)}
    return finding(name, f"{fault}: {effect}", severity=severity, path=record.path, evidence=evidence)


def _effect(path: str) -> tuple[str, Severity]:
    """Return the effect of a record that can't be read, and its severity."""
    if path.startswith(BROKERS):
        return "no broker can look up topics that are not loaded while this record exists", Severity.ERROR
    if path == _LEADER:
        return "brokers do not start while this record exists", Severity.ERROR
    if path.startswith(f"{OWNERS}/"):
        return "brokers can't look up the topics of this bundle", Severity.ERROR
    if path == _RACKS:
        return "brokers place the copies of entries without regard to racks", Severity.WARNING
    return "load managers use defaults instead of it", Severity.NOTE


def record_fault(record: Versioned) -> str | None:
    """Return the reason for which brokers can't read a record of brokers or the racks of bookies, or None."""
    path = record.path
    if not record.value and not path.startswith(BROKERS) and path != _LEADER:
        # The parent of other records.
        return None
    try:
        document = read_json_object(record.value)
    except DecodeError as error:
        return error.message
    return registration_fault(document) if path.startswith(BROKERS) else None


def registration_fault(document: Mapping[str, Any]) -> str | None:
    """Return the reason for which brokers or clients can't use a broker's registration, or None."""
    for kind, (text, names) in _TYPES.items():
        for name in sorted(names & document.keys()):
            if document[name] is not None and not isinstance(document[name], kind):
                return f"{name} is not {text}"
    return None if any(document.get(name) for name in _URLS) else "it has no URL of the broker"


def configuration_fault(value: bytes) -> DecodeError | None:
    """Return the reason for which brokers can't read the dynamic configuration, or None.

    Brokers read numbers and booleans as text. A list or an object makes the complete record unreadable. The
    value is not part of the reason, because it may be secret.
    """
    try:
        document = read_json_object(value, source=CONFIGURATION)
    except DecodeError as error:
        return error
    wrong = sorted(name for name, setting in document.items() if isinstance(setting, (dict, list)))
    return DecodeError(f"the value of {wrong[0]} is not text", source=CONFIGURATION) if wrong else None
