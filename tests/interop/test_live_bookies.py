"""`bookie:` against real bookies."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pulsar import Client, Producer

from pulsar_meta.codecs.errors import NotFoundError, UnreachableError, UsageError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.entries.bookie_client import BookieClient
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.entries.live_changes import has_all
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, pulsar_meta_here
from tests.contracts.entry_source import EntrySourceContract, Held
from tests.servers.bookies import Bookies
from tests.servers.certificates import make_certificates
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop

WRITE = "tests.servers.ledgers:write"
STRIPED = {"ensemble": 3, "write": 2, "ack": 2}


@pytest.fixture(scope="module")
def bookies() -> Iterator[Bookies]:
    with Bookies(3) as running:
        yield running


@pytest.fixture
def store(bookies: Bookies) -> Iterator[Store]:
    with open_store(bookies.store_url) as opened:
        yield opened


@pytest.fixture
def live(store: Store) -> Iterator[EntrySource]:
    with open_entry_sources(["bookie:"], store) as opened:
        yield opened


@pytest.fixture(scope="module")
def closed_ledgers(bookies: Bookies) -> Held:
    entries = [b"%d" % number for number in range(130)]
    layouts = ({"ensemble": 1}, STRIPED, {"ensemble": 3})
    return {bookies.call(WRITE, entries, options): range(130) for options in layouts}


class TestClosedLedgers(EntrySourceContract):
    @pytest.fixture
    def held(self, closed_ledgers: Held) -> Held:
        return closed_ledgers

    @pytest.fixture
    def source(self, live: EntrySource) -> EntrySource:
        return live


def payload(entry: RawEntry) -> bytes:
    return bytes(decode_bookie_entry(entry.data).data)


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "MAC", "DUMMY"])
@pytest.mark.parametrize("quorums", [{"ensemble": 1}, {"ensemble": 3}, STRIPED])
def test_every_entry_of_a_closed_ledger(
    bookies: Bookies, live: EntrySource, digest: str, quorums: dict[str, int]
) -> None:
    written = [b"entry %d" % number + bytes(number) for number in range(250)]
    ledger = bookies.call(WRITE, written, {**quorums, "digest": digest, "password": b"secret"})
    assert ledger in live.ledgers()
    assert live.last_entry(ledger) == 249
    assert list(live.entry_ids(ledger, 240)) == list(range(240, 250))
    read = list(live.read_many(ledger))
    assert [entry.entry_id for entry in read] == list(range(250))
    assert [bytes(decode_bookie_entry(one.data, digest_of(digest)).data) for one in read] == written
    one = live.read(ledger, 17)
    assert bytes(decode_bookie_entry(one.data, digest_of(digest)).data) == written[17]
    with pytest.raises(NotFoundError):
        live.read(ledger, 250)


def digest_of(name: str) -> DigestType:
    digests: dict[str, DigestType] = {"CRC32C": "CRC32C", "CRC32": "CRC32", "MAC": "HMAC", "DUMMY": "DUMMY"}
    return digests[name]


@pytest.mark.parametrize("quorums", [{"ensemble": 1}, {"ensemble": 3}, STRIPED])
def test_an_open_ledger_is_read_to_its_end_and_its_writer_goes_on(
    bookies: Bookies, live: EntrySource, quorums: dict[str, int]
) -> None:
    ledger = bookies.call(WRITE, [b"0", b"1"], {**quorums, "keep_open": True})
    assert live.last_entry(ledger) == 1
    for number in range(2, 9):
        assert bookies.call("tests.servers.ledgers:append", ledger, [b"%d" % number]) == number
        assert live.last_entry(ledger) == number
        assert [payload(entry) for entry in live.read_many(ledger)] == [b"%d" % k for k in range(number + 1)]
    bookies.call("tests.servers.ledgers:close", ledger)
    assert live.last_entry(ledger) == 8


def test_a_ledger_without_entries_and_a_ledger_that_is_not_there(bookies: Bookies, live: EntrySource) -> None:
    closed = bookies.call(WRITE, [], {})
    opened = bookies.call(WRITE, [], {**STRIPED, "keep_open": True})
    for ledger in (closed, opened, 10**15):
        assert live.last_entry(ledger) is None
        assert list(live.read_many(ledger)) == []
    with pytest.raises(NotFoundError, match=f"no ledger {10**15}"):
        live.read(10**15, 0)


def test_entries_of_megabytes(bookies: Bookies, live: EntrySource) -> None:
    written = [os.urandom(3 << 20) for _ in range(4)]
    ledger = bookies.call(WRITE, written, {"ensemble": 2})
    assert [payload(entry) for entry in live.read_many(ledger)] == written


def test_a_bookie_killed_in_the_middle_of_reading(bookies: Bookies, store: Store) -> None:
    written = [b"%d" % number * 40 for number in range(900)]
    striped = bookies.call(WRITE, written, STRIPED)
    # BookKeeper draws the bookie of each: of so many, all but surely some lie on the one that dies.
    alone = {bookies.call(WRITE, [b"alone"], {"ensemble": 1}) for _ in range(40)}
    still_open = bookies.call(WRITE, written[:7], {**STRIPED, "keep_open": True})
    with open_entry_sources(["bookie:"], store) as live:
        reading = live.read_many(striped)
        first = [payload(next(reading)) for _ in range(150)]
        bookies.kill(1)
        try:
            assert first + [payload(one) for one in reading] == written
            assert payload(live.read(striped, 4)) == written[4]
            assert live.last_entry(still_open) == 6
            assert [payload(entry) for entry in live.read_many(still_open)] == written[:7]
            outcomes = [outcome(live, ledger) for ledger in sorted(alone)]
            assert set(outcomes) == {b"alone", "unreachable"}
        finally:
            bookies.start(1)
    # The registration of the killed bookie outlives it for a while, so `start` may return early.
    wait_until(lambda: {fresh_outcome(store, ledger) for ledger in alone} == {b"alone"})


def test_the_entries_of_a_deleted_ledger_are_missing_while_its_metadata_is_kept() -> None:
    with (
        Bookies(1, settings={"gcWaitTime": "1000"}) as bookies,
        open_store(bookies.store_url) as store,
        open_entry_sources(["bookie:"], store) as live,
    ):
        ledger = Ledger(bookies.call(WRITE, [b"0", b"1"], {"ensemble": 1}), 2)
        assert has_all(live, ledger, 0, 1)
        bookies.call("tests.servers.ledgers:delete", ledger.ledger_id)
        wait_until(lambda: not has_all(live, ledger, 0, 1), 40)
        assert list(live.entry_ids(ledger.ledger_id)) == [0, 1]


def fresh_outcome(store: Store, ledger: int) -> bytes | str:
    with open_entry_sources(["bookie:"], store) as live:
        return outcome(live, ledger)


def wait_until(done: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)


def outcome(live: EntrySource, ledger: int) -> bytes | str:
    try:
        return payload(live.read(ledger, 0))
    except UnreachableError:
        return "unreachable"


def verified(bookies: Bookies, ledger: int) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """Return the exit code, the faults and the summary of `verify-entries` with the running bookies."""
    words = ("--store", bookies.store_url, "--entries", "bookie:", "-o", "ndjson")
    done = as_text(pulsar_meta_here("verify-entries", ledger, *words))
    faults = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, faults, json.loads(done.stderr.splitlines()[-1])


def test_a_bad_copy_on_one_of_three_bookies_is_found_over_the_network() -> None:
    with Bookies(3) as bookies:
        ledger = bookies.call(WRITE, [b"%d" % number * 400 for number in range(90)], STRIPED)
        code, faults, summary = verified(bookies, ledger)
        assert (code, faults, summary["checked"]["copies"]) == (0, [], 180)
        bookies.stop(1)
        code, faults, summary = verified(bookies, ledger)
        bad = bookies.addresses()[1]
        assert (code, faults) == (0, [])
        assert list(summary["not_checked"]) == [f"copies on bookie {bad}"]
        assert summary["checked"]["copies"] == 120
        entry_id = damage_an_entry(bookies.directories[1], ledger)
        bookies.start(1)
        code, [fault], _ = verified(bookies, ledger)
        assert (code, fault["layer"], fault["bookie"]) == (1, "copy", bad)
        assert (fault["entry_id"], fault["good"], fault["copies"]) == (entry_id, 1, 2)


def damage_an_entry(directory: Path, ledger: int) -> int:
    """Flip a byte of a ledger's last entry on a stopped bookie, also in its journals; return its id.

    From an intact journal, the bookie would write the entry again.
    """
    with open_entries([f"bookie-disk:{directory}"]) as disk:
        entry_id = max(disk.entry_ids(ledger))
        [(files, table)] = [pair for pair in disk.located(ledger, entry_id) or () if pair[1].entry_ids]
        location = table.location(entry_id)
        assert location is not None
        file, offset = Path(files.name(location >> 32)), location & 0xFFFFFFFF
    intact = file.read_bytes()[offset : offset + 61]
    damaged = intact[:-1] + bytes([intact[-1] ^ 0xFF])
    for each in (file, *directory.rglob("*.txn")):
        each.write_bytes(each.read_bytes().replace(intact, damaged))
    return entry_id


def test_a_live_source_needs_a_store() -> None:
    with pytest.raises(UsageError, match="--store"):
        open_entry_sources(["bookie:"])


def test_a_broker_writes_on_undisturbed_while_its_open_ledger_is_read() -> None:
    environment = {"PULSAR_STANDALONE_USE_ZOOKEEPER": "1"}
    with PulsarStandalone("4.2.4", environment=environment) as pulsar:
        store_url = pulsar.store_url
        topic = TopicName.parse("persistent://public/default/open")
        client = Client(pulsar.service_url)
        producer = client.create_producer(str(topic), batching_enabled=False)
        producer.send(b"0")
        with open_store(store_url) as store:
            ledgers = ledgers_of(store, topic)
            stop, sent = threading.Event(), [b"0"]
            failures: list[Exception] = []
            writer = threading.Thread(target=write, args=(producer, stop, sent, failures))
            writer.start()
            lengths = []
            with open_entry_sources(["bookie:"], store) as live:
                end = time.monotonic() + 4
                while time.monotonic() < end:
                    known = len(sent)
                    entries = list(live.read_many(ledgers[-1]))
                    read = [bytes(decode_frame(payload(entry)).payload) for entry in entries]
                    # All that was acknowledged before the reading began, and nothing that was not sent.
                    assert len(read) >= known
                    assert read == [b"%d" % number for number in range(len(read))]
                    lengths.append(len(read))
            stop.set()
            writer.join()
            assert failures == []
            assert lengths[-1] > lengths[0] > 0
            # A fenced ledger would have been closed and replaced.
            assert ledgers_of(store, topic) == ledgers
        stats = pulsar.admin("GET", "persistent/public/default/open/internalStats")
        assert stats["entriesAddedCounter"] == len(sent)
        assert [ledger["ledgerId"] for ledger in stats["ledgers"]] == ledgers
        client.close()


def write(producer: Producer, stop: threading.Event, sent: list[bytes], failures: list[Exception]) -> None:
    while not stop.is_set():
        message = b"%d" % len(sent)
        try:
            producer.send(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test must see it
            failures.append(error)
            return
        sent.append(message)


def ledgers_of(store: Store, topic: TopicName) -> list[int]:
    info = decode_managed_ledger(store.read(topic.path).value)
    return [ledger.ledgerId for ledger in info.ledgerInfo]


def test_a_bookie_that_wants_authentication_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = tmp_path / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    login.write_text(f'Bookie {{ {module} required user_someone="secret"; }};\n')
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={login}")
    provider = {"bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"}
    refused = pytest.raises(UnreachableError, match="TLS or an authentication plugin")
    with (
        Bookies(1, settings=provider) as guarded,
        closing(BookieClient("127.0.0.1", guarded.ports[0])) as client,
        refused,
    ):
        client.read(5, [7])


@pytest.fixture
def tls_settings(tmp_path: Path) -> dict[str, str]:
    """What lets a bookie speak TLS, with a certificate of its own making."""
    made = make_certificates(tmp_path)
    return {
        "tlsProvider": "JDK",
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(made.server_key),
        "tlsCertificatePath": str(made.server),
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": str(made.authority),
        "tlsClientAuthentication": "true",
    }


def test_a_bookie_that_wants_certificates_is_told(tls_settings: dict[str, str]) -> None:
    provider = {
        "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.tls.BookieAuthZFactory",
        "authorizedRoles": "somebody",
    }
    refused = pytest.raises(UnreachableError, match="TLS or an authentication plugin")
    with (
        Bookies(1, settings=tls_settings | provider) as guarded,
        closing(BookieClient("127.0.0.1", guarded.ports[0])) as client,
        refused,
    ):
        client.read(5, [7])


def test_a_bookie_that_offers_tls_is_read_without_it(tls_settings: dict[str, str]) -> None:
    with Bookies(1, settings=tls_settings) as offering:
        ledger = offering.call(WRITE, [b"one", b"two"], {})
        with closing(BookieClient("127.0.0.1", offering.ports[0])) as client:
            answers = client.read(ledger, [0, 1])
    assert [bytes(answers[at].entries[0])[-3:] for at in (0, 1)] == [b"one", b"two"]
