"""Producers with different clocks in a JVM of Pulsar (see `tests.servers.jvm`)."""

from __future__ import annotations

from contextlib import ExitStack
from time import sleep

from jpype import JArray, JByte, JClass


def publish(
    service_url: str, topic: str, offsets: list[int], rounds: int, pause: float
) -> list[tuple[int, int]]:
    """Publish `rounds` messages of each producer in turn. A producer's clock is off by `offset` milliseconds.

    Returns the positions in the order of publishing. There are `pause` seconds between two messages.
    """
    clock = JClass("java.time.Clock")
    duration = JClass("java.time.Duration")
    client = JClass("org.apache.pulsar.client.api.PulsarClient")
    positions = []
    with ExitStack() as stack:
        producers = []
        for offset in offsets:
            wrong = clock.offset(clock.systemUTC(), duration.ofMillis(offset))
            opened = client.builder().serviceUrl(service_url).clock(wrong).build()
            stack.callback(opened.close)
            producers.append(opened.newProducer().topic(topic).enableBatching(False).create())
        for number in range(rounds):
            for producer in producers:
                sent = producer.send(JArray(JByte)(b"%d" % number))
                positions.append((int(sent.getLedgerId()), int(sent.getEntryId())))
                sleep(pause)
    return positions
