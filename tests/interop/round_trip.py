"""Topics that real clients wrote, and the standalone they lie in: what the round trip is about."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.stores.registry import open_store
from tests.servers.clients import programs
from tests.servers.jvm import Jvm
from tests.servers.pulsar import PulsarStandalone
from tests.servers.restartable import skip_or_fail

PROGRAM = str(Path(sys.executable).with_name("pulsar-meta"))
JAVA = "tests.servers.clients.java"
PUBLIC = "persistent://public/default"
CODECS = ("lz4", "zlib", "zstd", "snappy")
JAVA_CODECS = ("none", *CODECS)
CPP_CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
GO_CODECS = ("NONE", "LZ4", "ZLib", "ZSTD")
PER_TOPIC = 60
SETTINGS = {
    "transactionCoordinatorEnabled": "true",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "4",
    # Every acknowledgement is written at once, so that a kill loses none.
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
}

Message = dict[str, Any]


@dataclass
class Topic:
    """A topic, what is in it in reading order, and what each subscription has not acknowledged."""

    name: str
    total: int
    options: dict[str, str] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    left: dict[str, list[Message]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The topic in the URLs of the admin interface."""
        return f"persistent/public/default/{quote(self.name.removeprefix(f'{PUBLIC}/'), safe='')}"

    def entries(self) -> list[list[int]]:
        """The places of the messages of each entry."""
        entries: dict[tuple[int, int], list[int]] = {}
        for place, message in enumerate(self.messages):
            entries.setdefault((message["ledger"], message["entry"]), []).append(place)
        return list(entries.values())


@dataclass
class Cluster:
    """The standalone with its data, the clients' JVM and the topics that were written."""

    pulsar: PulsarStandalone
    java: Jvm
    topics: list[Topic]

    @property
    def store_url(self) -> str:
        return self.pulsar.store_url

    @property
    def entries_url(self) -> str:
        return f"bookie-disk:{self.pulsar.bookie_dirs[0]}"

    def run(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run pulsar-meta on the stopped store and return its output."""
        command = [PROGRAM, *arguments, "--store", self.store_url]
        environment = {"XDG_STATE_HOME": str(self.pulsar.directory / "state"), "PATH": "", "HOME": "/"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode in codes, (arguments, done.returncode, done.stderr)
        return done.stdout

    def ask(self, topic: Topic, what: str) -> Any:
        return self.pulsar.admin("GET", f"{topic.path}/{what}")

    def take(
        self, topic: Topic, subscription: str, places: list[int], options: dict[str, Any]
    ) -> list[Message]:
        """Receive everything, acknowledge the messages at `places` in that order."""
        more, url = {**options, **topic.options}, self.pulsar.service_url
        return self.java.call(  # type: ignore[no-any-return]
            f"{JAVA}:acknowledge", url, topic.name, subscription, topic.total, places, more
        )

    def drain(self, topic: Topic, subscription: str, expected: int) -> list[Message]:
        """Receive `expected` messages and whatever else comes; acknowledge nothing."""
        url = self.pulsar.service_url
        return self.java.call(  # type: ignore[no-any-return]
            f"{JAVA}:drain", url, topic.name, subscription, expected, topic.options
        )

    def payloads(self) -> dict[str, bytes]:
        """The values of all managed ledgers and cursors of the stopped store, out of their envelopes."""
        with open_store(self.store_url) as store:
            found = {value.path: value.value for value in store.scan("/managed-ledgers")}
        opened = {path: open_envelope(value) for path, value in found.items()}
        return {path: found[path] if form is None else form.payload for path, form in opened.items()}

    def rewrite(self, codec: str) -> dict[str, int]:
        """Write all cursors and ledgers in another form and then in `codec`; return how many that rewrote.

        What the broker wrote since it started is plain, and each codec is to start from there. What is
        in the envelopes stays byte for byte.
        """
        done, before = {}, self.payloads()
        for command in ("compress-cursors", "compress-ledgers"):
            for chosen in ("zstd" if codec == "none" else "none", codec):
                threshold = ["--threshold", "0"] if chosen != "none" else []
                asked = [command, "--compression", chosen, *threshold, "--for-version", self.pulsar.version]
                summary = json.loads(self.run(*asked, "--yes", "-o", "json"))
                assert summary["conflicts"] == summary["undecodable"] == 0
                done[command] = summary["rewritten"]
        assert self.payloads() == before
        return done


def java_topics(pulsar: PulsarStandalone, java: Jvm) -> Iterator[Topic]:
    keys = java.call(f"{JAVA}:make_keys", str(pulsar.directory))
    kinds: dict[str, dict[str, Any]] = {
        f"java-{codec}": {"compression": codec, "batch": 7} for codec in JAVA_CODECS
    }
    kinds |= {
        "java-single": {"compression": "zstd"},
        "java-chunked": {"chunk": 40},
        "java-encrypted": {"batch": 5, "compression": "lz4", "public_key": keys["public_key"]},
        "java we ird:näme": {"batch": 3},
    }
    for name, options in kinds.items():
        topic = Topic(f"{PUBLIC}/{name}", PER_TOPIC)
        if "public_key" in options:
            topic.options["private_key"] = keys["private_key"]
        keep(pulsar, topic)
        java.call(f"{JAVA}:produce", pulsar.service_url, topic.name, content(name), options)
        yield topic
    transactions = Topic(f"{PUBLIC}/java-transactions", 2 * PER_TOPIC)
    keep(pulsar, transactions)
    for how in ("commit", "abort", "commit"):
        options = {"batch": 4, "transaction": how}
        java.call(f"{JAVA}:produce", pulsar.service_url, transactions.name, content(how), options)
    yield transactions


def keep(pulsar: PulsarStandalone, topic: Topic) -> None:
    """Subscribe, since a broker trims what nobody has subscribed to when it begins another ledger."""
    pulsar.admin("PUT", topic.path)
    pulsar.admin("PUT", f"{topic.path}/subscription/untouched", {"ledgerId": -1, "entryId": -1})


def content(name: str) -> list[Message]:
    """Payloads of many sizes, some null, with keys, properties and event times."""
    source = random.Random(name)
    return [
        {
            "payload": None
            if number % 11 == 5 and "chunk" not in name
            else source.randbytes(source.randrange(120)),
            "key": f"k{number % 5}" if number % 3 else None,
            "properties": {"region": source.choice(["eu", "us"])} if number % 2 else {},
            "event_time": 1_700_000_000_000 + number if number % 4 == 0 else 0,
        }
        for number in range(PER_TOPIC)
    ]


def other_topics(pulsar: PulsarStandalone) -> Iterator[Topic]:
    for codec in CPP_CODECS:
        topic = Topic(f"{PUBLIC}/cpp-{codec.lower()}", PER_TOPIC)
        keep(pulsar, topic)
        programs.produce_cpp(pulsar.service_url, topic.name, codec, 6 if codec != "ZSTD" else 0, PER_TOPIC)
        yield topic
    skip_or_fail("go", programs.why_no_go())
    for codec in GO_CODECS:
        topic = Topic(f"{PUBLIC}/go-{codec.lower()}", PER_TOPIC)
        keep(pulsar, topic)
        programs.produce_go(pulsar.service_url, topic.name, codec, 6 if codec != "LZ4" else 0, PER_TOPIC)
        yield topic
