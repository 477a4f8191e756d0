"""Pulsar's Python client, which wraps the C++ client. Run it in a separate process:

python -m tests.servers.clients.cpp URL TOPIC COMPRESSION BATCH COUNT [CHUNK]
"""

from __future__ import annotations

import sys


def payload(number: int) -> bytes:
    """Return the payload of message `number`."""
    return f"cpp {number} ".encode() * (1 + number % 17)


def main() -> None:
    """Publish COUNT messages in batches of BATCH (0: unbatched), in chunks of up to CHUNK bytes."""
    import pulsar

    url, topic, compression, batch, count, *chunk = sys.argv[1:]
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(url, logger=logger)
    producer = client.create_producer(
        topic,
        compression_type=getattr(pulsar.CompressionType, compression),
        batching_enabled=int(batch) > 0,
        batching_max_messages=max(2, int(batch)),
        batching_max_publish_delay_ms=10_000,
        max_pending_messages=100_000,
        block_if_queue_full=True,
        chunking_enabled=bool(chunk),
    )
    for number in range(int(count)):
        content = payload(number) if not chunk else payload(number) * int(chunk[0])
        producer.send_async(
            content, None, {"n": str(number)}, f"k{number % 5}", event_timestamp=1000 + number
        )
    producer.flush()
    client.close()


if __name__ == "__main__":
    main()
