"""What Pulsar's TopicName and Codec make of names. Runs inside a JVM."""

from __future__ import annotations

from jpype import JClass

from tests.interop.oracle.java import each


def encode(names: list[str]) -> list[str]:
    """Return Codec.encode of each name."""
    codec = JClass("org.apache.pulsar.common.util.Codec")
    return each(names, lambda name: str(codec.encode(name)))


def decode(names: list[str]) -> list[str]:
    """Return Codec.decode of each encoded name."""
    codec = JClass("org.apache.pulsar.common.util.Codec")
    return each(names, lambda name: str(codec.decode(name)))


def persistence_paths(topics: list[str]) -> list[str]:
    """Return getPersistenceNamingEncoding of each topic, or `class: message` of what TopicName threw."""
    names = JClass("org.apache.pulsar.common.naming.TopicName")
    return each(topics, lambda topic: str(names.get(topic).getPersistenceNamingEncoding()))


def full_names(topics: list[str]) -> list[str]:
    """Return the full name of each topic as TopicName reads it, or what it threw."""
    names = JClass("org.apache.pulsar.common.naming.TopicName")
    return each(topics, lambda topic: str(names.get(topic).toString()))


def scalable_paths(topics: list[str]) -> list[str]:
    """Return where the broker of Pulsar 5 keeps the record of each scalable topic, or what was thrown."""
    names = JClass("org.apache.pulsar.common.naming.TopicName")
    resources = JClass("org.apache.pulsar.broker.resources.ScalableTopicResources")
    store = JClass("org.apache.pulsar.metadata.impl.LocalMemoryMetadataStore")
    configuration = JClass("org.apache.pulsar.metadata.api.MetadataStoreConfig").builder().build()
    held = resources(store("memory:local", configuration), 10)
    return each(topics, lambda topic: str(held.topicPath(names.get(topic))))
