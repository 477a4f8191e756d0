"""Use the Python API as a notebook does, on captures of real clusters with pyarrow, polars and DuckDB."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from pulsar_meta import api
from tests.message_truth import rows_of
from tests.seek_truth import bookie_urls, read_truth

Capture = Callable[[str], Path]
ORDERS = "persistent://public/default/orders"


@pytest.fixture
def folder(capture: Capture) -> Path:
    return capture("pulsar-4.2.4")


@pytest.fixture
def cluster(folder: Path) -> Iterator[api.Cluster]:
    with api.Cluster(f"snapshot:{folder / 'metadata.ndjson'}", bookie_urls(folder)) as opened:
        yield opened


def test_a_topics_ledgers_agree_with_the_brokers_statistics(cluster: api.Cluster, folder: Path) -> None:
    import polars

    topic = cluster.topic("orders")
    assert (topic.name, topic.scalable_topic, topic.shadow_of) == (ORDERS, None, None)
    stats = read_truth(folder)[ORDERS]["internalStats"]["ledgers"]
    last = topic.ledgers[-1]
    assert [ledger.ledger_id for ledger in topic.ledgers] == [ledger["ledgerId"] for ledger in stats]
    assert (last.state, last.entries, last.closed_at) == ("open", None, None)
    assert topic.ledgers[0].properties == {"first-index": "0"}
    frame = polars.DataFrame(
        [{"id": ledger.ledger_id, "entries": ledger.entries} for ledger in topic.ledgers]
    )
    assert frame["entries"].sum() == sum(ledger["entries"] for ledger in stats[:-1])


def test_topics_can_be_selected_by_namespace_and_pattern(cluster: api.Cluster) -> None:
    everything = {topic.name for topic in cluster.topics()}
    assert ORDERS in everything
    assert {topic.name for topic in cluster.topics("public/default/order*", "marks")} < everything
    with pytest.raises(api.NotFoundError, match="no topic persistent://public/default/nowhere"):
        list(cluster.topics("nowhere"))


def test_a_partitioned_topic_yields_its_partitions(cluster: api.Cluster) -> None:
    names = [topic.name for topic in cluster.topics() if "-partition-" in topic.name]
    partitioned = names[0].rpartition("-partition-")[0]
    with pytest.raises(api.UsageError, match="call topics"):
        cluster.topic(partitioned)
    parts = [topic.name for topic in cluster.topics(partitioned)]
    assert names[0] in parts
    assert [answer["topic"] for answer in cluster.seek(partitioned, index=0)] == parts
    assert cluster.topic(names[0]).name == names[0]


def test_seek_finds_the_positions_that_the_messages_have(cluster: api.Cluster) -> None:
    topic = cluster.topic("orders")
    columns = ["ledger_id", "entry_id", "batch_index", "index", "broker_timestamp"]
    rows = topic.messages(columns).read_all().to_pylist()
    for row in rows[:: len(rows) // 7]:
        answer = topic.seek(index=row["index"])
        batch_index = -1 if row["batch_index"] is None else row["batch_index"]
        place = answer["ledger_id"], answer["entry_id"], answer["batch_index"]
        assert place == (row["ledger_id"], row["entry_id"], batch_index)
    time = rows[len(rows) // 2]["broker_timestamp"]
    first = next(row for row in rows if row["broker_timestamp"] >= time)
    for text in (time, datetime.fromtimestamp(0, UTC).isoformat(), datetime.fromtimestamp(time / 1000, UTC)):
        answer = topic.seek(time=text)
        assert answer["status"] == "found"
    assert (answer["ledger_id"], answer["entry_id"]) == (first["ledger_id"], first["entry_id"])
    assert topic.seek(index=10**9)["status"] == "after-last"
    for wrong in ({}, {"index": 1, "time": time}, {"time": time // 1000}):
        with pytest.raises(api.UsageError):
            topic.seek(**wrong)


def test_messages_equal_those_that_pulsars_consumer_read(cluster: api.Cluster, folder: Path) -> None:
    expected, _ = rows_of(folder, ["orders"], readable=False)
    messages = cluster.topic("orders").messages().read_all().to_pylist()
    assert messages == list(expected.values())


def test_messages_in_polars_and_duckdb(cluster: api.Cluster, folder: Path) -> None:
    import duckdb
    import polars

    topic = cluster.topic("orders")
    by_producer = Counter(message["prod"] for message in read_truth(folder)[ORDERS]["messages"])
    frame = polars.DataFrame(topic.messages(["producer_name", "payload"]))
    assert dict(frame["producer_name"].value_counts().iter_rows()) == by_producer
    messages = topic.messages(["producer_name"], where="region=eu")
    counted = duckdb.from_arrow(messages).aggregate("producer_name, count(*)").fetchall()
    assert 0 < sum(count for _, count in counted) < by_producer.total()


def test_entries_are_arrow_within_bounds(cluster: api.Cluster) -> None:
    import duckdb

    topic = cluster.topic("orders")
    table = topic.entries(verify=True).read_all()
    assert table.schema.field("index").type == pa.int64()
    assert set(table["digest"].to_pylist()) == set(table["frame_checksum"].to_pylist()) == {"ok"}
    assert not any(table["broken"].to_pylist())
    ledger = topic.ledgers[1].ledger_id
    some = topic.entries(["topic", "entry_id"], first=(ledger, 3), last=(ledger, 5)).read_all()
    assert some.to_pylist() == [{"topic": ORDERS, "entry_id": number} for number in (3, 4, 5)]
    of_ledger = cluster.entries(ledger, columns=["topic", "ledger_id"]).read_all()
    assert set(of_ledger["topic"].to_pylist()) == {None}
    entries = cluster.entries("orders", columns=["ledger_id"])
    assert duckdb.from_arrow(entries).count("*").fetchall() == [(table.num_rows,)]
    with pytest.raises(api.UsageError, match="no column 'colour'"):
        topic.entries(["colour"])


def test_cursor_lines_are_part_of_the_cursors_document(cluster: api.Cluster) -> None:
    topic = cluster.topic("marks")
    lines = topic.cursors()
    assert lines
    assert all(line["topic"] == topic.name for line in lines)
    detail = topic.cursor(lines[0]["cursor"])
    assert {name: detail[name] for name in lines[0]} == lines[0]  # type: ignore[literal-required]
    assert detail["record"]["path"].endswith(lines[0]["cursor"])
    with pytest.raises(api.NotFoundError):
        topic.cursor("nobody")


def test_values_are_decoded_and_encoded_to_the_same_bytes(cluster: api.Cluster) -> None:
    path = "/managed-ledgers/public/default/persistent"
    values = list(cluster.values(path))
    assert len(values) > len(cluster.children(path)) > 5
    for value in values:
        if value.data:
            document = value.decode()
            assert (document["path"], document["kind"] is None) == (value.path, False)
            again = api.encode(document)
            assert again == value.data or document["envelope"] is not None
            assert api.decode(again, path=value.path)["value"] == document["value"]
    packed = api.encode(cluster.value(f"{path}/orders").decode(), codec="zstd")
    envelope = api.decode(packed, kind="ManagedLedgerInfo")["envelope"]
    assert envelope is not None
    assert envelope["codec"] == "zstd"
    with pytest.raises(api.NotFoundError):
        cluster.value(f"{path}/nowhere")


def test_broken_bytes_raise_or_decode_partly() -> None:
    encoded = api.encode({"kind": "ManagedCursorInfo", "value": {"cursorsLedgerId": 7}}, codec="none")
    with pytest.raises(api.DecodeError):
        api.decode(encoded[:1], kind="ManagedCursorInfo")
    part = api.decode(encoded[:1], kind="ManagedCursorInfo", partly=True)
    assert part["error"]["error"] == "decode"
    with pytest.raises(api.UsageError, match="Nonsense"):
        api.decode(encoded, kind="Nonsense")
    with pytest.raises(api.DecodeError):
        api.encode({"kind": "ManagedCursorInfo", "value": {"colour": 7}})


def test_skipped_records_and_missing_entries_raise_warnings(capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    lines = (folder / "metadata.ndjson").read_text().splitlines(keepends=True)
    record = next(line for line in lines if '"/managed-ledgers/' in line and "/persistent/" in line)
    damaged = record.partition('"value": "')[0]
    (tmp_path / "hurt.ndjson").write_text(
        "".join(line for line in lines if line.startswith('{"path"') and not line.startswith(damaged))
        + f'{damaged}"value": "AQID"}}\n'
    )
    with api.Cluster(f"snapshot:{tmp_path / 'hurt.ndjson'}", bookie_urls(folder)[:1]) as cluster:
        with pytest.warns(api.Incomplete, match="managed-ledgers"):
            topics = list(cluster.topics())
        readers = [topic.entries(["entry_id"]) for topic in topics]
        with pytest.warns(api.Incomplete, match="only bookies have them whose disks were not given"):
            assert sum(reader.read_all().num_rows for reader in readers) > 100
        with warnings.catch_warnings():
            warnings.simplefilter("error", api.Incomplete)
            with pytest.raises(api.Incomplete):
                list(cluster.topics())


def test_segments_and_shadow_topics_are_read(capture: Capture) -> None:
    scalable = capture("pulsar-5.0.0-M1-scalable")
    with api.Cluster(f"snapshot:{scalable / 'metadata.ndjson'}", bookie_urls(scalable)) as cluster:
        segments = [topic for topic in cluster.topics() if topic.scalable_topic is not None]
        name = str(segments[0].scalable_topic)
        parts = list(cluster.topics(name))
        assert {topic.scalable_topic for topic in parts} == {name}
        assert [answer["scalable_topic"] for answer in cluster.seek(name, index=0)] == [name] * len(parts)
        assert len(cluster.seek(name, time=10**12)) == 1
    shadows = capture("pulsar-4.2.4-shadows")
    with api.Cluster(f"snapshot:{shadows / 'metadata.ndjson'}", bookie_urls(shadows)) as cluster:
        with pytest.warns(api.Incomplete, match=r"its source .* does not exist"):
            names = [topic.name for topic in cluster.topics() if topic.shadow_of is not None]
        shadow = cluster.topic(next(name for name in names if "deleted" not in name))
        assert shadow.ledgers == cluster.topic(str(shadow.shadow_of)).ledgers
        assert set(shadow.entries(["topic"]).read_all()["topic"].to_pylist()) == {shadow.name}


def test_an_error_names_the_source_that_was_not_opened(folder: Path) -> None:
    with api.Cluster(entries=bookie_urls(folder)[0]) as cluster:
        assert cluster.entries(columns=["entry_id"]).read_all().num_rows > 1000
        with pytest.raises(api.UsageError, match=r"Cluster\(store=URL\)"):
            list(cluster.topics())
    with api.Cluster(f"snapshot:{folder / 'metadata.ndjson'}") as cluster:
        topic = cluster.topic("orders")
        assert topic.cursors()
        with pytest.raises(api.UsageError, match="none were opened"):
            topic.entries()
    for url in ("nothing:x", "snapshot:/nowhere/at/all"):
        with pytest.raises(api.PulsarMetaError):
            api.Cluster(url)
