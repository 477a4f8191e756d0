"""What a running broker and its Java client report about every topic: the `truth.json` of a capture."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

from tests.servers.admin import AdminError
from tests.servers.jvm import JavaFailed, Jvm
from tests.servers.pulsar import PulsarStandalone, release

MOST_INDEXES: Final = 300
MOST_TIMES: Final = 90


def truth_of_topics(pulsar: PulsarStandalone, java: Jvm) -> dict[str, dict[str, Any]]:
    """Return the truth of every topic of the tenant `public`, by its full name."""
    names = pulsar.admin("GET", "namespaces/public")
    topics = [topic for name in names for topic in pulsar.admin("GET", f"persistent/{quote(name)}")]
    return {topic: _topic(pulsar, java, topic) for topic in sorted(topics) if "/__" not in topic}


def admin_path(topic: str) -> str:
    """Return the path of a topic in the URLs of the admin interface."""
    tenant, namespace, local = topic.removeprefix("persistent://").split("/", 2)
    return f"persistent/{tenant}/{quote(namespace)}/{quote(local, safe='')}"


def _topic(pulsar: PulsarStandalone, java: Jvm, topic: str) -> dict[str, Any]:
    path, truth = admin_path(topic), dict[str, Any]()
    truth["internalStats"] = _answer(pulsar, f"{path}/internalStats")
    truth["internal-info"] = _answer(pulsar, f"{path}/internal-info")
    try:
        messages = java.call("tests.servers.clients.java_reader:read_all", pulsar.service_url, topic)
    except JavaFailed as error:
        lines = [line for line in str(error).splitlines() if line.startswith(("org.", "java.", "io."))]
        return {**truth, "messages": [], "reader_error": lines[0] if lines else str(error)}
    truth["messages"] = messages
    if messages:
        # 2.8 does not have this call and answers 404 for every topic.
        if release(pulsar.version) >= (2, 9):
            truth["getMessageIdByTimestamp"] = _by_time(pulsar, path, messages)
        if release(pulsar.version) >= (4, 2):
            truth["getMessageIdByIndex"] = _by_index(pulsar, path, messages)
    return truth


def _by_index(pulsar: PulsarStandalone, path: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    indexes = sorted({message["ix"] for message in messages if message["ix"] is not None})
    chosen = _sample(indexes, MOST_INDEXES)
    chosen += [indexes[-1] + more for more in (1, 1000)] if indexes else []
    return {str(index): _answer(pulsar, f"{path}/getMessageIdByIndex?index={index}") for index in chosen}


def _by_time(pulsar: PulsarStandalone, path: str, messages: list[dict[str, Any]]) -> dict[str, str]:
    times = {message["bt"] or message["pt"] for message in messages}
    around = sorted(time + more for time in times for more in (-1, 0, 1))
    answers = {}
    for time in _sample(around, MOST_TIMES):
        answer = _answer(pulsar, f"{path}/messageid/{time}")
        place = ("ledgerId", "entryId", "partitionIndex")
        answers[str(time)] = (
            answer if isinstance(answer, str) else ":".join(str(answer[key]) for key in place)
        )
    return answers


def _sample(values: Iterable[int], most: int) -> list[int]:
    """Return the first and the last value and always the same choice of values between them."""
    ordered = sorted(set(values))
    if len(ordered) <= most:
        return ordered
    return sorted({ordered[0], ordered[-1], *random.Random(0).sample(ordered, most - 2)})


def _answer(pulsar: PulsarStandalone, path: str) -> Any:
    try:
        return pulsar.admin("GET", path)
    except AdminError as error:
        return f"HTTP Error {error.status}"
