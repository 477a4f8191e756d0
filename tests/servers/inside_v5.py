"""What a broker of Pulsar 5 itself says of its scalable topics, run beside it (`PulsarStandalone.call`)."""

from __future__ import annotations

import json
from typing import Any

from jpype import JClass

from tests.servers.inside import broker


def records() -> dict[str, dict[str, Any]]:
    """Return of each scalable topic its record, and the names of its segments by their ids."""
    resources = broker().getPulsarResources().getScalableTopicResources()
    found = {}
    for namespace in (
        broker().getPulsarResources().getNamespaceResources().listNamespacesAsync("public").get()
    ):
        name = JClass("org.apache.pulsar.common.naming.NamespaceName").get("public", namespace)
        for topic in resources.listScalableTopicsAsync(name).get():
            parsed = JClass("org.apache.pulsar.common.naming.TopicName").get(topic)
            # Some of what is listed has no record: the load of a segment under a name that is encoded twice.
            record = resources.getScalableTopicMetadataAsync(parsed).get().orElse(None)
            if record is not None:
                found[str(topic)] = {"record": _plain(record), "segments": _segments(parsed, record)}
    return found


def internals(topic: str) -> dict[str, Any]:
    """Return the internal stats of a topic, which is loaded for it."""
    loaded = broker().getBrokerService().getTopic(topic, False).get().get()
    return {
        "path": str(loaded.getManagedLedger().getName()),
        "internalStats": _plain(loaded.getInternalStats(False).get()),
    }


def prune(topic: str) -> None:
    """Have the controller of a scalable topic remove its sealed segments that nobody needs, as in time."""
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
    """Create a scalable topic by the broker's own service: the REST call of 5.0.0-M1 keeps a name encoded."""
    name = JClass("org.apache.pulsar.common.naming.TopicName").get(topic)
    broker().getBrokerService().getScalableTopicService().createScalableTopic(name, segments).get()
