"""Brokers that are registered in the store, and which of them match a client's lookup properties.

A broker of an extensible load manager registers BrokerLookupData, whose `properties` hold the settings that
begin
with `lookupPropertyPrefix`, prefix included (`lookup.rack`); a client sends `rack`. Brokers of other load
managers
register LocalBrokerData, which has no properties. The same properties can be read from a broker.conf.

Sources: apache/pulsar LoadManager.LOADBALANCE_BROKERS_ROOT, BrokerRegistryImpl, BrokerLookupData,
LocalBrokerData,
ServiceConfiguration.lookupProperties and lookupPropertyPrefix, PulsarConfigurationLoader
(java.util.Properties);
PIP-192, PIP-368. Seen on 4.2.4 brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, decoding
from pulsar_meta.codecs.java_properties import decode_properties, last_values
from pulsar_meta.codecs.json_text import Document, read_json_object, shown
from pulsar_meta.stores.base import Store

Verdict = Literal["equal", "other-value", "missing"]
RegistrationKind = Literal["BrokerLookupData", "LocalBrokerData"]

BROKERS: Final = "/loadbalance/brokers"
DEFAULT_PREFIX: Final = "lookup."
STOCK: Final = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"


class BrokerPlace(TypedDict):
    """A broker, and where its registration lies."""

    broker: str
    path: str
    version: int


class Registration(TypedDict):
    """What the registration of a broker says; `value` is all of it."""

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
    """How one key of a client's lookup properties fares; `found_as` is the stored key that counted."""

    key: str
    wanted: str
    verdict: Verdict
    found: str | None
    found_as: str | None


class BrokerMatch(TypedDict):
    """Whether a broker could be chosen; null where its load manager ignores properties."""

    could_be_chosen: bool | None
    why: str
    keys: list[KeyMatch]


class RegisteredBroker(BrokerPlace, Registration):
    """A broker that is registered in the store; `match` where a client's properties were given."""

    match: NotRequired[BrokerMatch]


class UnreadableBroker(BrokerPlace):
    """A broker whose registration cannot be read."""

    kind: None
    error: str
    match: NotRequired[BrokerMatch]


def registered_brokers(store: Store) -> Iterator[RegisteredBroker | UnreadableBroker]:
    """Yield a document per registered broker, by id; one whose value is broken has an `error` in it."""
    for broker in store.children(BROKERS):
        try:
            found = store.read(f"{BROKERS}/{broker}")
        except NotFoundError:
            # Registrations vanish with their broker, also between listing and reading them.
            continue
        place: BrokerPlace = {"broker": broker, "path": found.path, "version": found.version}
        try:
            yield {**place, **broker_document(found.value)}
        except DecodeError as error:
            yield {**place, "kind": None, "error": error.message}


def broker_document(value: bytes) -> Registration:
    """Return what a registration says; DecodeError where it is not one of the two kinds.

    `extensible` says whether the load manager is one that lookup properties are handed to.
    """
    with decoding(what="a broker's registration"):
        said = read_json_object(value)
    kind = registration_kind(said)
    properties = said.get("properties") or {}
    if not isinstance(properties, dict):
        raise DecodeError("properties: expected an object of strings")
    return {
        "kind": kind,
        "load_manager": _of_kind(said, "loadManagerClassName", str),
        "extensible": kind == "BrokerLookupData",
        "broker_version": _of_kind(said, "brokerVersion", str) or _of_kind(said, "brokerVersionString", str),
        "start_timestamp": _of_kind(said, "startTimestamp", int),
        "service_url": _of_kind(said, "pulsarServiceUrl", str),
        "service_url_tls": _of_kind(said, "pulsarServiceUrlTls", str),
        "web_service_url": _of_kind(said, "webServiceUrl", str),
        "web_service_url_tls": _of_kind(said, "webServiceUrlTls", str),
        "advertised_listeners": _of_kind(said, "advertisedListeners", dict) or {},
        "protocols": _of_kind(said, "protocols", dict) or {},
        "properties": {str(key): str(one) for key, one in properties.items()},
        "value": said,
    }


def _of_kind(said: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a member, None where there is none; DecodeError where it is of another kind."""
    found = said.get(name)
    if found is not None and type(found) is not kind:
        raise DecodeError(f"{name}: unexpected {shown(found)}")
    return found


def registration_kind(said: Mapping[str, Any]) -> RegistrationKind:
    """Return BrokerLookupData or LocalBrokerData, known by members that only one of them has."""
    if "loadReportType" in said or "brokerVersionString" in said or "lastStats" in said:
        return "LocalBrokerData"
    if "pulsarServiceUrl" in said or "pulsarServiceUrlTls" in said:
        return "BrokerLookupData"
    raise DecodeError("neither BrokerLookupData nor LocalBrokerData: no pulsarServiceUrl")


def match_broker(
    broker: Registration | UnreadableBroker, wanted: Mapping[str, str], prefix: str = DEFAULT_PREFIX
) -> BrokerMatch:
    """Return whether a property-aware load manager could choose `broker` for a client, and why.

    Each key is looked for with the prefix first, then bare; `found_as` names the stored key that counted.
    """
    if "error" in broker:
        return {"could_be_chosen": False, "why": "its registration cannot be read", "keys": []}
    if not broker["extensible"]:
        manager = broker["load_manager"] or "its load manager"
        why = f"{manager} is no extensible load manager: properties are ignored"
        return {"could_be_chosen": None, "why": why, "keys": []}
    keys = [match_key(broker["properties"], key, value, prefix) for key, value in wanted.items()]
    failed = [_why(key) for key in keys if key["verdict"] != "equal"]
    fits = [f"{key['key']}={key['wanted']} ({key['found_as']})" for key in keys]
    return {"could_be_chosen": not failed, "why": "; ".join(failed or fits), "keys": keys}


def match_key(properties: Mapping[str, str], key: str, wanted: str, prefix: str) -> KeyMatch:
    """Return how one key fares: `verdict` is equal, other-value or missing."""
    name = next((name for name in (prefix + key, key) if name in properties), None)
    found = None if name is None else properties[name]
    verdict: Verdict = "missing" if found is None else "equal" if found == wanted else "other-value"
    return {"key": key, "wanted": wanted, "verdict": verdict, "found": found, "found_as": name}


def match_notes(brokers: Sequence[RegisteredBroker | UnreadableBroker]) -> list[str]:
    """Return what one should know of a match on these brokers."""
    notes = []
    if any(not broker.get("extensible") for broker in brokers if "error" not in broker):
        notes.append("brokers without an extensible load manager ignore lookup properties")
    if any(broker.get("load_manager") == STOCK for broker in brokers):
        notes.append(
            "the stock ExtensibleLoadManagerImpl receives lookup properties but chooses without them;"
            " a load manager of one's own has to use them"
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
# Whose brokers register as LocalBrokerData, which has no place for properties.
WITHOUT_PROPERTIES: Final = ("ModularLoadManagerImpl", "SimpleLoadManagerImpl", "NoopLoadManager")


class PublishedProperties(TypedDict):
    """What a broker.conf has brokers publish; `published` is false where its load manager publishes none."""

    prefix: str
    prefix_is_default: bool
    load_manager: str
    published: bool
    properties: dict[str, str]
    client_keys: list[str]
    warnings: list[str]


def published_properties(data: bytes) -> PublishedProperties:
    """Return prefix, properties as they would stand in the store, and warnings for a broker.conf.

    `published` is false where the load manager of the file publishes none of them.

    DecodeError where Java would refuse the file.
    """
    settings = decode_properties(data)
    values = last_values(settings)
    prefix = values.get(PREFIX_SETTING, DEFAULT_PREFIX)
    properties = {key: value for key, value in sorted(values.items()) if key.startswith(prefix)}
    repeated = Counter(one.key for one in settings)
    warnings = [
        f"{key} is set {count} times: the last one counts"
        for key, count in repeated.items()
        if count > 1 and (key in properties or key == PREFIX_SETTING)
    ]
    if prefix == "":
        warnings.append("the prefix is empty: every setting of the file is published, passwords too")
    if any(byte > 127 for byte in data):
        warnings.append("the file is not plain ASCII: Java reads it as ISO-8859-1, whatever wrote it")
    manager = values.get(MANAGER_SETTING, "").strip() or DEFAULT_MANAGER
    name = manager.rpartition(".")[2]
    published = name not in WITHOUT_PROPERTIES
    if properties and not published:
        default = "" if values.get(MANAGER_SETTING) else ", Pulsar's default,"
        warnings.append(
            f"the load manager {name}{default} publishes no lookup properties ({MANAGER_SETTING})"
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
