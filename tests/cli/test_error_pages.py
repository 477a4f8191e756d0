"""Every command on the pages of docs/errors runs, including the commands inside sentences."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, environment, pulsar_meta_here

PAGES = sorted((Path(__file__).parents[2] / "docs" / "errors").glob("*.md"))
# Topics of the capture that these verbs of `repair` can work on.
TOPICS = {"partitions": "parted", "schema": "strings"}


def commands_of(page: Path) -> list[list[str]]:
    text = page.read_text(encoding="utf-8")
    commands = [*re.findall(r"^    pulsar-meta (.*)$", text, re.MULTILINE)]
    commands += re.findall(r"`pulsar-meta\s([^`]*)`", text)
    return [command.split() for command in commands]


def on_capture(words: list[str], folder: Path) -> list[str]:
    """Adapt a command to the capture; disks replace running bookies, and nothing is written."""
    topic = next((name for verb, name in TOPICS.items() if verb in words), "plain-old")
    named = next((word for word in words if word.endswith("/__change_events")), None)
    if named is not None:
        topic = named.replace("TENANT/NAMESPACE", "public/default")
    with open_store(f"snapshot:{folder}/metadata.ndjson") as store:
        ledger_id = (
            read_topic(
                store,
                TopicName.parse(topic).with_partition(0) if topic == "parted" else TopicName.parse(topic),
            )
            .ledgers[0]
            .ledger_id
        )
    replacements = {
        "TOPIC": topic,
        "TENANT/NAMESPACE": "public/default",
        "LEDGER": str(ledger_id),
        "CURSOR": "s1",
        "bookie:": f"bookie-disk:{folder}",
        "bookie-disk:DIR": f"bookie-disk:{folder}",
    }
    return [topic if word == named else replacements.get(word, word) for word in words if word != "--yes"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, capture: Callable[[str], Path], tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4")
    env = environment(tmp_path, PULSAR_META_STORE=f"snapshot:{folder}/metadata.ndjson")
    commands = commands_of(page)
    assert commands
    for words in commands:
        writes = words[0] in ("repair", "compress-cursors")
        arguments = (
            [*on_capture(words, folder), *(["--dry-run"] if writes else [])]
            if words[1:]
            else [*words, "--help"]
        )
        done = as_text(pulsar_meta_here(*arguments, env=env))
        assert done.returncode in (0, 1), (arguments, done.stderr)
