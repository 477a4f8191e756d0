"""Names from entries on disks (coordinator logs, snapshots, schemas), from logs, and from a file of names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError, UsageError
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.names import TopicName, ledger_of_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.offload import open_offload
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.rebuild.cursor_ledgers import CursorClues
from pulsar_meta.jobs.rebuild.cursors import FoundCursor, rebuilt_cursors, unnamed_cursors
from pulsar_meta.jobs.rebuild.evidence import Rebuilt
from pulsar_meta.jobs.rebuild.names import names_in_log, read_names
from pulsar_meta.jobs.rebuild.old_store import names_in_objects
from pulsar_meta.jobs.rebuild.rebuilt import Known, rebuilt_values
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of, read_bookkeeper_ledger
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.registry import open_store
from tests.codecs.bookie_files.offload_objects import offloaded
from tests.damage.damaged_disks import EntryDamage

UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"
DEFAULT = "/managed-ledgers/public/default/persistent"
LOG = "/managed-ledgers/pulsar/system/persistent/__transaction_log_0"


def rebuilt(folder: Path, *names: str) -> dict[str, Rebuilt]:
    known = Known(given=read_names(names, "names"))
    with open_entries([f"bookie-disk:{folder}"]) as source:
        return {value.path: value for value in rebuilt_values(source, print, known)}


@pytest.mark.parametrize("version", ["4.0.7", "4.2.4"])
def test_ledgers_whose_topic_is_certain_name_it(capture: Callable[[str], Path], version: str) -> None:
    folder = capture(f"transactions-{version}")
    written = 0
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        for path, value in rebuilt(folder).items():
            ledger_id = ledger_of_path(path)
            if ledger_id is None or value.value is None:
                continue
            custom = bookkeeper_ledger_of(ledger_id, Versioned(path, value.value, 0)).custom
            # A ledger that was deleted may still be on the disks.
            if custom and store.read_many([path])[0] is not None:
                assert custom.items() <= read_bookkeeper_ledger(store, ledger_id).custom.items(), ledger_id
                written += 1
    assert written > 5


@pytest.mark.parametrize("version", ["4.0.7", "4.2.4"])
def test_transactions_name_topics(capture: Callable[[str], Path], version: str) -> None:
    folder = capture(f"transactions-{version}")
    made = rebuilt(folder)
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        true = {record.path: record.value for record in store.scan(DEFAULT)}
        log = decode_managed_ledger(store.read(LOG).value)
    named = {
        path: value for path, value in made.items() if path.startswith(DEFAULT) and value.facts.get("ledgers")
    }
    assert {f"{DEFAULT}/money", f"{DEFAULT}/acked"} <= named.keys()
    pending = {path for path in true if path.endswith("__transaction_pending_ack")}
    # 4.0.7 did not encode names, so the log of a subscription with a slash is at another path. Transactions
    # of the other one had two subscriptions each.
    assert len(pending) == (3 if version == "4.2.4" else 2)
    assert len(pending & named.keys()) == (3 if version == "4.2.4" else 1)
    for path, rebuilt_value in named.items():
        # Newer releases encode the subscription's name in the name of its log.
        if path in true:
            ledgers = {info.ledgerId for info in decode_managed_ledger(true[path]).ledgerInfo}
            assert ledgers & set(rebuilt_value.facts["ledgers"]) or not rebuilt_value.facts["messages"], path
    value = made[LOG].value
    assert value is not None
    assert [(p.key, p.value) for p in decode_managed_ledger(value).properties] == [
        (p.key, p.value) for p in log.properties
    ]
    record = made["/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"].value
    assert record == b'{"partitions":1,"deleted":false}'


def test_schemas_are_rebuilt_as_they_were(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4")
    made = rebuilt(folder)
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        true = {record.path: record.value for record in store.scan("/schemas") if record.value}
    assert len(true) == 8
    exact = 0
    for path, value in true.items():
        rebuilt_bytes = made[path].value
        assert rebuilt_bytes is not None
        locator, expected = (parse_message(SchemaLocator, data) for data in (rebuilt_bytes, value))
        assert (locator.info.version, locator.info.hash) == (expected.info.version, expected.info.hash), path
        exact += rebuilt_bytes == value
        assert rebuilt_bytes == value or made[path].certainty == "likely"
    # Two ledgers have the first version, and nothing shows which one the record referred to.
    assert exact >= 7


def test_compaction_cursors_are_rebuilt(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4")
    made = rebuilt(folder, '{"ledger_id": 59, "topic": "compacted"}')
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        for topic in ("compacted", "__transaction_buffer_snapshot"):
            path = TopicName.parse(topic).cursor_path("__compaction")
            value = made[path].value
            assert value is not None
            cursor, true = decode_cursor(value), decode_cursor(store.read(path).value)
            assert [(p.name, p.value) for p in cursor.properties] == [
                (p.name, p.value) for p in true.properties
            ]
            assert (cursor.markDeleteLedgerId, cursor.markDeleteEntryId) == (
                true.markDeleteLedgerId,
                true.markDeleteEntryId,
            )


def test_subscriptions_in_the_file_of_names_are_created(capture: Callable[[str], Path]) -> None:
    begin = '{"topic": "marks", "cursor": "new/one", "position": "%s"}'
    made = rebuilt(
        capture("pulsar-4.2.4"),
        '{"ledger_id": 64, "topic": "marks"}',
        '{"ledger_id": 145, "topic": "marks", "cursor": "holes"}',
        begin % "earliest",
        (begin % "latest").replace("new/one", "late"),
        '{"topic": "not-here", "cursor": "x", "position": "latest"}',
    )
    marks = f"{DEFAULT}/marks"
    cursor = made[f"{marks}/holes"]
    assert (cursor.certainty, cursor.facts["position"]) == ("certain", "64:2")
    assert made[f"{marks}/recovered-146"].certainty == "lost+found"
    assert made[f"{marks}/new%2Fone"].facts["position"] == "64:-1"
    last = made[marks].facts["ledgers"][-1]
    assert str(made[f"{marks}/late"].facts["position"]).startswith(f"{last}:")
    assert made[f"{DEFAULT}/not-here/x"].certainty == "refused"


def test_a_cursor_of_a_topic_without_ledgers_on_the_disks_is_named_and_not_written(
    capture: Callable[[str], Path],
) -> None:
    folder = capture("pulsar-4.2.4")
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        ledgers = decode_managed_ledger(store.read(f"{DEFAULT}/marks").value).ledgerInfo
    damage = EntryDamage(lost={(None, info.ledgerId): lambda entry: True for info in ledgers})
    with open_entries([f"bookie-disk:{folder}"]) as source:
        made = {value.path: value for value in rebuilt_values(damage.remaining(source), print, Known())}
    cursor = made["/managed-ledgers/lost-found/ledgers/persistent/recovered-145"]
    assert (cursor.certainty, cursor.value) == ("lost+found", None)
    assert cursor.evidence == ("none of its ledgers is on the disks", "no record of it is written")
    assert cursor.facts == {"topic": None, "cursor": None, "position": "64:2", "cursor_ledger": 145}


def test_a_cursor_without_a_name_is_a_line_to_fill_in_with_its_topic_if_that_has_a_name() -> None:
    topics = (TopicName.parse("marks"), TopicName.parse("lost-found/ledgers/ledger-64"), None)
    clues = CursorClues(7, frozenset((65, 64)), None, Position(64, 2))
    cursors = [FoundCursor(clues, topic, None, "its subscription is unknown") for topic in topics]
    named = FoundCursor(clues, topics[0], "holes", "the file of names")
    lines = list(unnamed_cursors([*cursors, named]))
    assert [line["topic"] for line in lines] == ["persistent://public/default/marks", None, None]
    assert lines[0] == {
        "ledger_id": 7, "topic": "persistent://public/default/marks", "cursor": None, "position": "64:2",
        "ledgers": [64, 65], "evidence": ["its subscription is unknown"],
    }  # fmt: skip


def test_a_cursor_whose_entries_are_unreadable_says_so_even_if_its_topic_is_known() -> None:
    clues = CursorClues(7, frozenset(), None, None)
    unreadable = FoundCursor(clues, TopicName.parse("marks"), "holes", "the file of names")
    nothing: Any = None
    (cursor,) = rebuilt_cursors(nothing, (), [unreadable], {})
    assert (cursor.certainty, cursor.value) == ("lost+found", None)
    assert cursor.evidence == ("its entries can't be read", "no record of it is written")
    assert cursor.facts == {"topic": None, "cursor": "holes", "position": None, "cursor_ledger": 7}


@pytest.mark.parametrize(
    "line",
    [
        '{"topic": "x", "cursor": "y", "position": "somewhere"}',
        '{"ledger_id": 6, "topic": "x", "cursor": ""}',
        '{"ledger_id": 6, "topic": 7}',
        '{"ledger_id": 6, "topic": "x", "cursor": 7}',
        '{"ledger_id": 6, "topic": "../.."}',
        '{"ledger_id": 6, "topic": "../../x"}',
        '{"ledger_id": 6, "topic": "public/../x"}',
        '{"ledger_id": 6, "topic": "persistent://public/east/../x"}',
        '{"ledger_id": 6, "topic": "public/na me/x"}',
        '{"ledger_id": 6, "topic": "public/default/.."}',
        '{"ledger_id": 6, "topic": "public/east/default/../x"}',
        '{"ledger_id": 6, "topic": "public/default/ "}',
        '{"ledger_id": 6, "topic": "x", "cursor": ".."}',
        '{"topic": "../../x", "cursor": "y", "position": "earliest"}',
        '{"topic": "x", "cursor": "..", "position": "earliest"}',
    ],
)
def test_invalid_lines_of_names_are_refused(line: str) -> None:
    with pytest.raises(UsageError, match="line 1"):
        read_names([line], "names")


def test_objects_in_tiered_storage_name_topics(capture: Callable[[str], Path], tmp_path: Path) -> None:
    """Properties that a 4.2.4 broker gave its ledgers, in index objects as an offload writes them."""
    folder, objects = capture("pulsar-4.2.4"), tmp_path / "objects"
    objects.mkdir()
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        info = decode_managed_ledger(store.read(f"{DEFAULT}/orders").value)
        ledgers = [ledger.ledgerId for ledger in info.ledgerInfo if ledger.entries]
        for ledger_id in ledgers:
            custom = read_bookkeeper_ledger(store, ledger_id).custom
            written = offloaded([b"frame"], custom={key: value.encode() for key, value in custom.items()})
            for end, data in zip(("", "-index"), written, strict=True):
                (objects / f"{UUID}-ledger-{ledger_id}{end}").write_bytes(data)
    (objects / f"{UUID}-ledger-7").write_bytes(b"x")
    (objects / f"{UUID}-ledger-7-index").write_bytes(b"torn")
    faults: list[PulsarMetaError] = []
    with open_offload(f"offload:{objects}") as source:
        names = names_in_objects(source, faults.append)
    assert {at: (str(named.topic), named.cursor, named.sure) for at, named in names.items()} == dict.fromkeys(
        ledgers, ("persistent://public/default/orders", None, True)
    )
    assert [type(fault) for fault in faults] == [DecodeError]
    with open_entries([f"bookie-disk:{folder}"]) as source:
        made = {value.path: value for value in rebuilt_values(source, print, Known(logged=names))}
    assert made[f"{DEFAULT}/orders"].facts["ledgers"][-len(ledgers) :] == ledgers
    assert "its copy in tiered storage names its topic" in made[f"{DEFAULT}/orders"].evidence


# Lines that a 4.2.4 and a 4.0.7 broker logged.
LOG_LINES = """
2026-11-22T06:16:56,338 - INFO  - [BookKeeperClientWorker-OrderedExecutor-1-0:ManagedLedgerImpl@626] - \
[public/default/persistent/we+ird%3An%C3%A4me] Created ledger 1354 after closed null
2026-11-22T06:10:24,002 - INFO  - [bookkeeper-ml-scheduler-OrderedScheduler-1-0:ManagedLedgerImpl@1824] - \
[public/default/persistent/orders] Created new ledger 1360
2026-11-22T06:10:22,192 - INFO  - [bookkeeper-ml-scheduler-OrderedScheduler-1-0:ManagedCursorImpl$32@3608] - \
[public/default/persistent/marks] Updated cursor odd%2Fname+with with ledger id 1386 md-position=64:2
2026-11-22T06:16:56,449 - INFO  - [bookkeeper-ml-scheduler-OrderedScheduler-1-0:ManagedCursorImpl$2@595] - \
[public/default/persistent/marks] Cursor recovered-145 meta-data recover from ledger 145
2026-11-22T06:16:56,453 - INFO  - [BookKeeperClientWorker-OrderedExecutor-0-0:ManagedCursorImpl@615] - \
[public/default/persistent/marks] Opened ledger 145 for cursor recovered-145. rc=-13
2026-11-22T06:16:56,461 - INFO  - [main:X@1] - [public/default/persistent/%ff] Created new ledger 7
"""


def test_a_brokers_log_names_topics_and_cursors() -> None:
    lines = LOG_LINES.replace("\\\n", "").splitlines()
    named = {
        at: (named_ledger.topic.local, named_ledger.cursor)
        for at, named_ledger in names_in_log(lines).items()
    }
    assert named == {
        1354: ("we ird:näme", None),
        1360: ("orders", None),
        1386: ("marks", "odd/name with"),
        145: ("marks", "recovered-145"),
    }


@pytest.mark.parametrize("text", ["[" + "a/" * 500_000, "[a/b] Cursor " * 80_000, "[" * 1_000_000])
def test_the_time_for_a_line_of_a_brokers_log_grows_with_its_length(text: str) -> None:
    # It grew by the square: minutes for the first text.
    assert names_in_log([text]) == {}


def test_a_cursors_name_for_a_data_ledger_is_refused(capture: Callable[[str], Path]) -> None:
    with pytest.raises(UsageError, match="of kind data"):
        rebuilt(capture("pulsar-4.2.4"), '{"ledger_id": 64, "topic": "marks", "cursor": "holes"}')
