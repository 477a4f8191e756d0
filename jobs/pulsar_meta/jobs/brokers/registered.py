"""List the brokers in the store, and match them with a client's lookup properties.

A broker with an extensible load manager registers BrokerLookupData, whose `properties` contain the settings
that begin with `lookupPropertyPrefix`, including the prefix (`lookup.rack`); a client sends `rack`. Brokers
with other load managers register LocalBrokerData, which has no properties. The same properties can be read
from a broker.conf.

Sources: apache/pulsar LoadManager.LOADBALANCE_BROKERS_ROOT, BrokerRegistryImpl, BrokerLookupData,
LocalBrokerData, ServiceConfiguration.lookupProperties and lookupPropertyPrefix, PulsarConfigurationLoader
(java.util.Properties); PIP-192, PIP-368; registrations of Pulsar 4.2.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.java_properties import decode_properties, last_values
from pulsar_meta.codecs.json_text import Document, read_json_object, shown
from pulsar_meta.stores.base import Store

Verdict = Literal["equal", "other-value", "missing"]
RegistrationKind = Literal["BrokerLookupData", "LocalBrokerData"]

BROKERS: Final = "/loadbalance/brokers"
DEFAULT_PREFIX: Final = "lookup."
STOCK: Final = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"


class BrokerPlace(TypedDict):
    """A broker, and the path of its registration."""

    broker: str
    path: str
    version: int


class Registration(TypedDict):
    """The registration of a broker. `value` is the complete JSON."""

    kind: RegistrationKind
    load_manager: str | None
    extensible: bool
    broker_version: str | None
    start_timestamp: int | None
    service_url: str | None
    service_url_tls: str | None
    web_service_url: str | None
    web_service_url_tls: str | None
    advertised_listeners: Document
    protocols: Document
    properties: dict[str, str]
    value: Document


class KeyMatch(TypedDict):
    """The match of one key of a client's lookup properties.

    `found_as` is the stored key that was compared.
    """

    key: str
    wanted: str
    verdict: Verdict
    found: str | None
    found_as: str | None


class BrokerMatch(TypedDict):
    """Whether a broker could be chosen; null if its load manager ignores properties."""

    could_be_chosen: bool | None
    why: str
    keys: list[KeyMatch]


class RegisteredBroker(BrokerPlace, Registration):
    """A broker in the store; `match` if lookup properties were given."""

    match: NotRequired[BrokerMatch]


class UnreadableBroker(BrokerPlace):
    """A broker whose registration can't be decoded."""

    kind: None
    error: str
    match: NotRequired[BrokerMatch]


def registered_brokers(store: Store) -> Iterator[RegisteredBroker | UnreadableBroker]:
    """Yield the registered brokers, ordered by id.

    If a registration is corrupt, the document has an `error`.
    """
    for broker in store.children(BROKERS):
        record = store.find(f"{BROKERS}/{broker}")
        if record is None:
            # A registration vanishes with its broker, which can happen after it was listed.
            continue
        place: BrokerPlace = {"broker": broker, "path": record.path, "version": record.version}
        try:
            yield {**place, **broker_document(record.value)}
        except DecodeError as error:
            yield {**place, "kind": None, "error": error.message}


def broker_document(value: bytes) -> Registration:
    """Decode a registration. Raises DecodeError if it is not one of the two kinds.

    `extensible` is True if the load manager receives lookup properties.
    """
    with decoding(what="a broker's registration"):
        data = read_json_object(value)
    kind = registration_kind(data)
    properties = data.get("properties") or {}
    if not isinstance(properties, dict):
        raise DecodeError("properties: expected an object of strings")
    return {
        "kind": kind,
        "load_manager": _member(data, "loadManagerClassName", str),
        "extensible": kind == "BrokerLookupData",
        "broker_version": _member(data, "brokerVersion", str) or _member(data, "brokerVersionString", str),
        "start_timestamp": _member(data, "startTimestamp", int),
        "service_url": _member(data, "pulsarServiceUrl", str),
        "service_url_tls": _member(data, "pulsarServiceUrlTls", str),
        "web_service_url": _member(data, "webServiceUrl", str),
        "web_service_url_tls": _member(data, "webServiceUrlTls", str),
        "advertised_listeners": _member(data, "advertisedListeners", dict) or {},
        "protocols": _member(data, "protocols", dict) or {},
        "properties": {str(key): str(text) for key, text in properties.items()},
        "value": data,
    }


def _member(data: Mapping[str, Any], name: str, kind: type) -> Any:
    """A member of this type; None if it does not exist. Raises DecodeError if it has another type."""
    value = data.get(name)
    if value is not None and type(value) is not kind:
        raise DecodeError(f"{name}: unexpected {shown(value)}")
    return value


def registration_kind(data: Mapping[str, Any]) -> RegistrationKind:
    """Tell BrokerLookupData from LocalBrokerData by members that only one of them has."""
    if "loadReportType" in data or "brokerVersionString" in data or "lastStats" in data:
        return "LocalBrokerData"
    if "pulsarServiceUrl" in data or "pulsarServiceUrlTls" in data:
        return "BrokerLookupData"
    raise DecodeError("neither BrokerLookupData nor LocalBrokerData: pulsarServiceUrl is missing")


def match_broker(
    broker: Registration | UnreadableBroker, wanted: Mapping[str, str], prefix: str = DEFAULT_PREFIX
) -> BrokerMatch:
    """Find out whether a property-aware load manager could choose `broker` for a client, and why.

    Each key is looked up with the prefix first, then without it. `found_as` is the stored key that was
    compared.
    """
    if "error" in broker:
        return {"could_be_chosen": False, "why": "its registration can't be read", "keys": []}
    if not broker["extensible"]:
        manager = broker["load_manager"] or "its load manager"
        why = f"{manager} is not an extensible load manager, so it ignores properties"
        return {"could_be_chosen": None, "why": why, "keys": []}
    keys = [match_key(broker["properties"], key, value, prefix) for key, value in wanted.items()]
    failed = [_why(key) for key in keys if key["verdict"] != "equal"]
    fits = [f"{key['key']}={key['wanted']} ({key['found_as']})" for key in keys]
    return {"could_be_chosen": not failed, "why": "; ".join(failed or fits), "keys": keys}


def match_key(properties: Mapping[str, str], key: str, wanted: str, prefix: str) -> KeyMatch:
    """Compare one key. `verdict` is equal, other-value or missing."""
    name = next((name for name in (prefix + key, key) if name in properties), None)
    value = None if name is None else properties[name]
    verdict: Verdict = "missing" if value is None else "equal" if value == wanted else "other-value"
    return {"key": key, "wanted": wanted, "verdict": verdict, "found": value, "found_as": name}


def match_notes(brokers: Sequence[RegisteredBroker | UnreadableBroker]) -> list[str]:
    """Notes that an operator needs to interpret a match on these brokers."""
    notes = []
    if any(not broker.get("extensible") for broker in brokers if "error" not in broker):
        notes.append("brokers without an extensible load manager ignore lookup properties")
    if any(broker.get("load_manager") == STOCK for broker in brokers):
        notes.append(
            "the standard ExtensibleLoadManagerImpl receives lookup properties but does not use them;"
            " only a custom load manager can"
        )
    return notes


def _why(key: KeyMatch) -> str:
    if key["verdict"] == "missing":
        return f"no {key['key']}"
    return f"{key['found_as']} is {key['found']}, not {key['wanted']}"


PREFIX_SETTING: Final = "lookupPropertyPrefix"
MANAGER_SETTING: Final = "loadManagerClassName"
# Pulsar's default in ServiceConfiguration, up to 5.0.
DEFAULT_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
# Brokers with these load managers register LocalBrokerData, which has no properties.
WITHOUT_PROPERTIES: Final = ("ModularLoadManagerImpl", "SimpleLoadManagerImpl", "NoopLoadManager")


class PublishedProperties(TypedDict):
    """The properties that brokers publish with a broker.conf.

    `published` is False if its load manager publishes none.
    """

    prefix: str
    prefix_is_default: bool
    load_manager: str
    published: bool
    properties: dict[str, str]
    client_keys: list[str]
    warnings: list[str]


def published_properties(data: bytes) -> PublishedProperties:
    """Read the prefix and the properties from a broker.conf, as they appear in the store, with warnings.

    Raises DecodeError if Java would refuse the file.
    """
    settings = decode_properties(data)
    values = last_values(settings)
    prefix = values.get(PREFIX_SETTING, DEFAULT_PREFIX)
    properties = {key: value for key, value in sorted(values.items()) if key.startswith(prefix)}
    repeated = Counter(setting.key for setting in settings)
    warnings = [
        f"{key} is set {count} times; the last one counts"
        for key, count in repeated.items()
        if count > 1 and (key in properties or key == PREFIX_SETTING)
    ]
    if prefix == "":
        warnings.append("the prefix is empty, so every setting in the file is published, including passwords")
    if any(byte > 127 for byte in data):
        warnings.append("the file has characters outside ASCII, which Java reads as ISO-8859-1")
    manager = values.get(MANAGER_SETTING, "").strip() or DEFAULT_MANAGER
    name = manager.rpartition(".")[2]
    published = name not in WITHOUT_PROPERTIES
    if properties and not published:
        default = "" if values.get(MANAGER_SETTING) else " (Pulsar's default)"
        warnings.append(
            f"the load manager {name}{default} publishes no lookup properties; see {MANAGER_SETTING}"
        )
    return {
        "prefix": prefix,
        "prefix_is_default": PREFIX_SETTING not in values,
        "load_manager": manager,
        "published": published,
        "properties": properties,
        "client_keys": [key.removeprefix(prefix) for key in properties],
        "warnings": warnings,
    }
