"""Make a capture of schemas: `python -m tests.servers.schemas VERSION DIRECTORY`, see docs/captures.md.

There is a topic for each type of schema that Pulsar has, some with several versions. In addition to the usual
truth, `values` has each message as the Java client's AUTO_CONSUME decodes it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from tests.servers import truth
from tests.servers.capture import write_json, write_metadata
from tests.servers.jvm import JavaFailed, Jvm
from tests.servers.metadata import dump
from tests.servers.pulsar import PulsarStandalone

CLIENT: Final = "tests.servers.clients.java_schemas"
NAMESPACE: Final = "public/typed"


def make(version: str, directory: Path) -> dict[str, Any]:
    """Write the capture and return its truth. Raises FileExistsError."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty")
    pulsar = PulsarStandalone(version, settings={"transactionCoordinatorEnabled": "true"})
    with pulsar, Jvm(version, heap="512m") as java:
        pulsar.admin("PUT", f"namespaces/{NAMESPACE}", {})
        pulsar.admin("PUT", f"persistent/{NAMESPACE}/parted/partitions", 2)
        java.call(f"{CLIENT}:produce_all", pulsar.service_url, f"persistent://{NAMESPACE}")
        topics = truth.truth_of_topics(pulsar, java)
        for topic, facts in topics.items():
            try:
                facts["values"] = java.call(f"{CLIENT}:values_of", pulsar.service_url, topic)
            except JavaFailed as error:
                facts["values_error"] = str(error).strip().splitlines()[-1]
        java.call("tests.servers.clients.java:close")
        pulsar.stop()
        pulsar.save_data(directory)
        write_metadata(directory / "metadata.ndjson", dump(pulsar))
    write_json(directory / "truth.json", topics)
    return topics


def main() -> None:
    """Make the capture."""
    version, directory = sys.argv[1:]
    make(version, Path(directory))


if __name__ == "__main__":
    main()
