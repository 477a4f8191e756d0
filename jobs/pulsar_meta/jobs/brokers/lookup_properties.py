"""What a broker with a given broker.conf would publish as lookup properties.

Sources: apache/pulsar ServiceConfiguration.lookupProperties and lookupPropertyPrefix (PIP-368),
PulsarConfigurationLoader (the file is java.util.Properties).
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypedDict

from pulsar_meta.codecs.java_properties import decode_properties, last_values

PREFIX_SETTING: Final = "lookupPropertyPrefix"
MANAGER_SETTING: Final = "loadManagerClassName"
# Pulsar's default in ServiceConfiguration, up to 5.0.
DEFAULT_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
# Whose brokers register as LocalBrokerData, which has no place for properties.
WITHOUT_PROPERTIES: Final = ("ModularLoadManagerImpl", "SimpleLoadManagerImpl", "NoopLoadManager")
DEFAULT_PREFIX: Final = "lookup."


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
