"""A broker with a functions worker, and the functions that the tests register with it."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.servers import jars
from tests.servers.pulsar import PulsarStandalone

_PACKAGE: Final = "org.apache.pulsar.functions"
_WORKER: Final[Mapping[str, object]] = {
    "workerHostname": "127.0.0.1",
    "pulsarFunctionsCluster": "standalone",
    "pulsarFunctionsNamespace": "public/functions",
    "functionMetadataTopicName": "metadata",
    "functionAssignmentTopicName": "assignments",
    "clusterCoordinationTopicName": "coordinate",
    "functionRuntimeFactoryClassName": f"{_PACKAGE}.runtime.thread.ThreadRuntimeFactory",
    "functionRuntimeFactoryConfigs": {"threadGroupName": "functions"},
    "schedulerClassName": f"{_PACKAGE}.worker.scheduler.RoundRobinScheduler",
    "functionsWorkerEnablePackageManagement": True,
    "additionalEnabledFunctionsUrlPatterns": ["file:.*"],
    "rescheduleTimeoutMs": 60000,
    "failureCheckFreqMs": 30000,
    "instanceLivenessCheckFreqMs": 30000,
    "topicCompactionFrequencySec": 1800,
    "rebalanceCheckFreqSec": -1,
    "initialBrokerReconnectMaxRetries": 60,
    "assignmentWriteMaxRetries": 60,
}
FUNCTION: Final[Mapping[str, Any]] = {
    "tenant": "public",
    "namespace": "default",
    "className": f"{_PACKAGE}.api.utils.IdentityFunction",
    "inputSpecs": {"persistent://public/default/in": {"schemaType": "string"}},
    "output": "persistent://public/default/out",
    "runtime": "JAVA",
    "parallelism": 1,
    "userConfig": {"password": "hunter2", "word": "loud"},
    "secrets": {"db": {"path": "vault/db", "key": "hunter3"}},
    "resources": {"cpu": 0.5, "ram": 1073741824, "disk": 1},
}


def standalone(version: str, *, compacted: bool) -> PulsarStandalone:
    """Return a standalone with a functions worker, not yet started.

    Workers write requests into the metadata topic, or, if it is `compacted`, the functions themselves.
    """
    worker = {**_WORKER, "useCompactedMetadataTopic": compacted}
    return PulsarStandalone(version, functions_worker=worker)


def package(version: str, into: Path) -> Path:
    """Copy the jar that has the class of FUNCTION."""
    (found,) = jars.resolve(version).glob("pulsar-functions-api-*.jar")
    into.write_bytes(found.read_bytes())
    return into


def put(pulsar: PulsarStandalone, method: str, function: Mapping[str, Any], jar: Path) -> None:
    """Register (POST) or change (PUT) a function whose code is in a jar."""
    parts = {
        "functionConfig": ("application/json", json.dumps(function)),
        "url": ("text/plain", f"file:{jar}"),
    }
    boundary = uuid.uuid4().hex
    lines = list[str]()
    for name, (kind, text) in parts.items():
        disposition = f'Content-Disposition: form-data; name="{name}"'
        lines += [f"--{boundary}", disposition, f"Content-Type: {kind}", "", text]
    body = "\r\n".join([*lines, f"--{boundary}--", ""])
    ask(pulsar, method, str(function["name"]), body, f"multipart/form-data; boundary={boundary}")


def ask(pulsar: PulsarStandalone, method: str, path: str, body: str | None = None, kind: str = "") -> Any:
    """Send a request to the functions of public/default; return the JSON of the answer, or None.

    Waits while the worker has no leader yet (503).
    """
    deadline = time.monotonic() + 60
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", pulsar.web_port, timeout=60)
        with contextlib.closing(connection):
            headers = {"Content-Type": kind} if kind else {}
            connection.request(method, f"/admin/v3/functions/public/default/{path}", body, headers)
            answer = connection.getresponse()
            text = answer.read()
        if answer.status < 300:
            return json.loads(text) if text else None
        assert answer.status == 503, (answer.status, text)
        assert time.monotonic() < deadline, text
        time.sleep(0.2)
