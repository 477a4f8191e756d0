"""What a broker of Pulsar 5 reports about its scalable topics, in its own JVM (`PulsarStandalone.call`)."""

from __future__ import annotations

import json
from typing import Any

from jpype import JClass

from tests.servers.inside import broker


def records() -> dict[str, dict[str, Any]]:
    """Map each scalable topic to its record and to the names of its segments by id."""
    resources = broker().getPulsarResources().getScalableTopicResources()
    topics = {}
    for namespace in (
        broker().getPulsarResources().getNamespaceResources().listNamespacesAsync("public").get()
    ):
        name = JClass("org.apache.pulsar.common.naming.NamespaceName").get("public", namespace)
        for topic in resources.listScalableTopicsAsync(name).get():
            parsed = JClass("org.apache.pulsar.common.naming.TopicName").get(topic)
            # Some listed topics have no record, because the load of a segment encodes a name twice.
            record = resources.getScalableTopicMetadataAsync(parsed).get().orElse(None)
            if record is not None:
                topics[str(topic)] = {"record": _plain(record), "segments": _segments(parsed, record)}
    return topics


def internals(topic: str) -> dict[str, Any]:
    """Load a topic and return its internal stats."""
    loaded = broker().getBrokerService().getTopic(topic, False).get().get()
    return {
        "path": str(loaded.getManagedLedger().getName()),
        "internalStats": _plain(loaded.getInternalStats(False).get()),
    }


def prune(topic: str) -> None:
    """Let the controller of a scalable topic remove its sealed segments that are no longer needed."""
    name = JClass("org.apache.pulsar.common.naming.TopicName").get(topic)
    controller = broker().getBrokerService().getScalableTopicService().getOrCreateController(name).get()
    tick = controller.getClass().getDeclaredMethod("runGcTickAsync")
    tick.setAccessible(True)
    tick.invoke(controller).get()


def _segments(topic: Any, record: Any) -> dict[str, str]:
    names = {}
    for segment in record.getSegments().values():
        name = JClass("org.apache.pulsar.common.scalable.SegmentTopicName")
        named = segment.legacyTopicName() or name.fromParent(topic, segment.hashRange(), segment.segmentId())
        names[str(segment.segmentId())] = str(named)
    return names


def _plain(value: Any) -> Any:
    mapper = JClass("org.apache.pulsar.common.util.ObjectMapperFactory").getMapper().writer()
    return json.loads(str(mapper.writeValueAsString(value)))


def create(topic: str, segments: int) -> None:
    """Create a scalable topic with the broker's service, as 5.0.0-M1's REST call keeps a name encoded."""
    name = JClass("org.apache.pulsar.common.naming.TopicName").get(topic)
    broker().getBrokerService().getScalableTopicService().createScalableTopic(name, segments).get()
