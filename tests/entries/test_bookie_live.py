"""Bookies that answer wrongly, stall, drip or refuse cause an error in bounded time, not an empty ledger."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError, UnreachableError
from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.base import RawEntry, read_each
from pulsar_meta.entries.bookie_client import TIMEOUTS_TO_GIVE_UP, Ensembles, Segment
from pulsar_meta.entries.bookie_live import LiveBookies
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.cli.program import pulsar_meta_here
from tests.servers.limits import must_end
from tests.servers.scripted import STRANGE_SERVERS, BookieScript, Talk, bookie, dripping, honest, tcp_server

LEDGER = 7
SECONDS = 0.5


class Cluster:
    """One ledger on some bookies. The id of a bookie is its port."""

    def __init__(self, ports: Sequence[int], last: int | None, quorums: tuple[int, int]) -> None:
        self.ports, self.last, self.quorums = ports, last, quorums

    def ledgers(self) -> list[int]:
        return [LEDGER]

    def ensembles(self, ledger_id: int, *, again: bool = False) -> Ensembles:
        if ledger_id != LEDGER:
            raise NotFoundError(f"no ledger {ledger_id}")
        segment = Segment(0, tuple(str(port) for port in self.ports))
        return Ensembles(LEDGER, *self.quorums, (segment,), self.last, "DUMMY")

    def address(self, bookie_id: str) -> tuple[str, int]:
        return "127.0.0.1", int(bookie_id)


@contextmanager
def bookies(
    *scripts: Talk, last: int | None = None, quorums: tuple[int, int] | None = None
) -> Iterator[LiveBookies]:
    with ExitStack() as stack:
        ports = [stack.enter_context(tcp_server(script)) for script in scripts]
        cluster = Cluster(ports, last, quorums or (len(ports), len(ports)))
        yield stack.enter_context(LiveBookies(cluster, seconds=SECONDS))


def refusing(code: int) -> BookieScript:
    return lambda ledger_id, entry_id: (code, b"")


def in_time(call: Callable[[], object], *kinds: type[PulsarMetaError]) -> PulsarMetaError:
    with pytest.raises(kinds) as caught, must_end():
        call()
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.exit_code in (4, 6)
    return caught.value


@pytest.mark.parametrize("code", [101, 104, -1234, 103])
def test_an_error_of_a_bookie_does_not_mean_an_empty_ledger(code: int) -> None:
    with bookies(bookie(refusing(code))) as source:
        error = in_time(lambda: source.last_entry(LEDGER), UnreachableError)
        assert str(error).startswith("bookie ")


def test_too_few_answers_do_not_mean_an_empty_ledger() -> None:
    with bookies(bookie(refusing(2)), bookie(refusing(101)), bookie(refusing(101)), quorums=(3, 2)) as source:
        in_time(lambda: source.last_entry(LEDGER), UnreachableError)
    with bookies(bookie(refusing(2)), bookie(refusing(2)), bookie(refusing(101)), quorums=(3, 2)) as source:
        assert source.last_entry(LEDGER) is None
        assert source.notes == []


def test_a_note_names_bookies_that_did_not_answer() -> None:
    scripts = (bookie(honest(5)), bookie(refusing(101)), bookie(refusing(101)))
    with bookies(*scripts, quorums=(3, 2)) as source:
        assert source.last_entry(LEDGER) == 5
        assert ["did not answer" in note for note in source.notes] == [True]


@pytest.mark.parametrize("last", [2**62, 2**40])
def test_an_open_ledger_that_claims_to_be_huge_is_an_error(last: int) -> None:
    def script(ledger_id: int, entry_id: int) -> tuple[int, bytes]:
        return honest(last)(ledger_id, entry_id) if entry_id < 0 else honest(3)(ledger_id, entry_id)

    with bookies(bookie(script)) as source:
        error = in_time(lambda: list(source.read_many(LEDGER)), DecodeError)
        assert f"ends with entry {last - 1}" in str(error)


def test_a_closed_ledger_that_claims_to_be_huge_is_an_error() -> None:
    with bookies(bookie(honest(3)), last=2**62) as source:
        in_time(lambda: list(source.entry_ids(LEDGER)), DecodeError)


def test_a_last_confirmed_entry_after_the_last_entry_is_an_error() -> None:
    with bookies(bookie(honest(3, confirmed=2**62))) as source:
        error = in_time(lambda: source.last_entry(LEDGER), UnreachableError)
        assert "impossible last confirmed entry" in str(error)


@pytest.mark.parametrize("name", STRANGE_SERVERS)
@pytest.mark.parametrize("last", [3, None])
def test_strange_servers_are_an_error(name: str, last: int | None) -> None:
    with bookies(STRANGE_SERVERS[name], last=last) as source:
        error = in_time(lambda: list(source.read_many(LEDGER)), UnreachableError, DecodeError)
        assert "bookie 127.0.0.1:" in str(error)


def test_a_bookie_that_drips_its_answer_times_out() -> None:
    """Each byte arrives in time, but the complete answer does not."""
    answer = dripping(b"\0\0\0\x40\x02\x02\0\0\0\0\0\0", pause=SECONDS / 4)
    with bookies(answer, last=3) as source:
        error = in_time(lambda: source.read(LEDGER, 0), UnreachableError)
        assert f"no answer within {SECONDS:g} seconds" in str(error)


def test_a_bookie_that_stalls_is_given_up_after_time_outs_in_a_row() -> None:
    requests: list[bytes] = []

    def silent(client: socket.socket) -> None:
        while data := client.recv(65536):
            requests.append(data)

    with bookies(silent, last=99) as source:
        outcomes = [outcome for _, outcome in unreachable_each(source)]
        assert len(requests) == TIMEOUTS_TO_GIVE_UP
        assert len(outcomes) == 100
        assert "not asked again after 3 time-outs of 0.5 seconds in a row" in outcomes[-1]
        (note,) = source.notes
        assert "bookie-disk:" in note


def unreachable_each(source: LiveBookies) -> Iterator[tuple[int, str]]:
    for entry_id in range(100):
        with pytest.raises(UnreachableError) as caught:
            source.read(LEDGER, entry_id)
        yield entry_id, str(caught.value)


def test_a_bookie_that_answers_between_time_outs_is_asked_again() -> None:
    served = honest(99)

    def slow(ledger_id: int, entry_id: int) -> tuple[int, bytes]:
        if entry_id % 2:
            time.sleep(SECONDS * 1.5)
        return served(ledger_id, entry_id)

    with bookies(bookie(slow), last=99) as source:
        for entry_id in range(8):
            with suppress(UnreachableError):
                source.read(LEDGER, entry_id)
        assert source.read(LEDGER, 98).entry_id == 98
        assert source.notes == []


def test_another_bookie_serves_the_entries_of_one_that_drips() -> None:
    with bookies(dripping(b"\0\0\0\x40"), bookie(honest(3)), last=3) as source:
        assert [entry.entry_id for entry in source.read_many(LEDGER)] == [0, 1, 2, 3]


def test_a_ledger_that_is_deleted_while_it_is_read_has_no_more_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, reads = Cluster.ensembles, 0

    def read_once(self: Cluster, ledger_id: int, *, again: bool = False) -> Ensembles:
        nonlocal reads
        reads += 1
        return read(self, ledger_id if reads == 1 else ledger_id + 1, again=again)

    with bookies(bookie(honest(3))) as source:
        monkeypatch.setattr(Cluster, "ensembles", read_once)
        # The first read shows that there are entries.
        assert [outcome for _, outcome in read_each(source, LEDGER) if isinstance(outcome, RawEntry)] == []
        assert reads > 1
        assert source.lacking(LEDGER, 0) == frozenset()


@pytest.mark.parametrize(
    ("script", "code"),
    [(refusing(101), 6), (refusing(104), 6), (refusing(-1234), 6), (honest(2**62), 4)],
    ids=["I/O error", "fenced", "unknown", "huge"],
)
@pytest.mark.parametrize("command", ["verify-entries", "dump-entries"])
def test_the_program_reports_a_faulty_bookie(
    command: str, script: BookieScript, code: int, tmp_path: Path
) -> None:
    def answer(ledger_id: int, entry_id: int) -> tuple[int, bytes]:
        return script(ledger_id, entry_id) if entry_id < 0 or code == 6 else (2, b"")

    metadata = LedgerMetadataFormat(quorumSize=1, ensembleSize=1, length=9, state=LedgerMetadataFormat.OPEN)
    metadata.digestType = LedgerMetadataFormat.DUMMY
    with tcp_server(bookie(answer)) as port, open_store(f"dir:{tmp_path}", read_only=False) as store:
        metadata.segment.add(firstEntryId=0, ensembleMember=[f"127.0.0.1:{port}"])
        store.put(ledger_path(LEDGER), encode_ledger_metadata(LedgerMetadata(3, metadata)), ABSENT)
        done = pulsar_meta_here(command, LEDGER, "--store", f"dir:{tmp_path}", "--entries", "bookie:")
    # verify-entries reports a wrong ledger as a finding, so it ends with 1.
    assert done.returncode == (1 if (command, code) == ("verify-entries", 4) else code)
    assert b"ledger 7" in done.stderr + done.stdout
