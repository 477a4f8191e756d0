from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import Message

from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.envelope import (
    decode_cursor,
    decode_managed_ledger,
    open_envelope,
    wrap_envelope,
)
from pulsar_meta.jobs.rewrite.decision import Decision
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.rules import MinGain, Recompression, estimate, read_broker_conf
from pulsar_meta.jobs.topics.scope import Kind, Scope, select, select_listed
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.memory import MemoryStore

PATH = "/managed-ledgers/public/default/persistent/orders/sub"


def cursor(holes: int = 200, **properties: str) -> bytes:
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=7, markDeleteEntryId=1)
    for number in range(holes):
        hole = info.individualDeletedMessages.add()
        hole.lowerEndpoint.ledgerId = hole.upperEndpoint.ledgerId = 7
        hole.lowerEndpoint.entryId, hole.upperEndpoint.entryId = 3 * number + 2, 3 * number + 3
    for name, value in properties.items():
        info.cursorProperties.add(name=name, value=value)
    return info.SerializeToString()


def decided(rule: Recompression, value: bytes) -> Decision:
    return rule(Versioned(PATH, value, 0))


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_a_value_over_the_threshold_is_compressed_without_loss(codec: str) -> None:
    raw = cursor()
    decision = decided(Recompression("cursor", codec, threshold=100), raw)
    assert (decision.action, decision.codec_before, decision.codec_after) == ("rewrite", "none", codec)
    assert decision.new is not None
    assert len(decision.new) == decision.size_after < decision.size_before == len(raw)
    assert decode_cursor(decision.new) == decode_cursor(raw)


def test_the_threshold_is_strict_as_in_pulsar() -> None:
    raw = cursor()
    assert decided(Recompression("cursor", "zstd", threshold=len(raw)), raw).reason == "threshold"
    assert decided(Recompression("cursor", "zstd", threshold=len(raw) - 1), raw).action == "rewrite"


def test_a_value_that_would_grow_is_kept() -> None:
    assert decided(Recompression("cursor", "zstd", threshold=0), cursor(0)).reason == "not-smaller"


def test_a_value_in_the_right_codec_is_kept() -> None:
    value = wrap_envelope(cursor(), "zstd")
    assert decided(Recompression("cursor", "zstd", threshold=0), value).reason == "already"
    assert decided(Recompression("cursor", "none"), cursor()).reason == "already"


def test_unknown_envelope_fields_keep_the_value_unchanged() -> None:
    later = wrap_envelope(cursor(), "lz4", unknown=b"\x98\x06\x07")
    for codec in ("zstd", "none"):
        decision = decided(Recompression("cursor", codec, threshold=100), later)
        assert (decision.action, decision.reason) == ("skip", "unknown-fields")
    assert decided(Recompression("cursor", "lz4", threshold=100), later).reason == "already"


def test_an_envelope_around_uncompressed_bytes_is_removed() -> None:
    decision = decided(Recompression("cursor", "none"), wrap_envelope(cursor(), "none"))
    assert (decision.action, decision.new) == ("rewrite", cursor())


def test_codec_none_gives_the_message_itself_in_any_case() -> None:
    for codec in CODECS:
        assert decided(Recompression("cursor", "none"), wrap_envelope(cursor(), codec)).new == cursor()


def test_a_gain_below_min_gain_keeps_the_value() -> None:
    value = wrap_envelope(cursor(), "lz4")
    packed = decided(Recompression("cursor", "zstd", threshold=0), value)
    saved = packed.size_before - packed.size_after
    assert saved > 0
    wished = Recompression("cursor", "zstd", threshold=0, min_gain=MinGain.parse(str(saved)))
    assert decided(wished, value).action == "rewrite"
    wished = Recompression("cursor", "zstd", threshold=0, min_gain=MinGain.parse(str(saved + 1)))
    assert decided(wished, value).reason == "not-smaller"
    wished = Recompression("cursor", "zstd", threshold=0, min_gain=MinGain.parse("99%"))
    assert decided(wished, value).reason == "not-smaller"


@pytest.mark.parametrize("text", ["", "-1", "101%", "10 %x", "ten"])
def test_an_invalid_min_gain_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        MinGain.parse(text)


@pytest.mark.parametrize(
    "value", [b"", b"\xff\xff", wrap_envelope(cursor(), "zstd")[:-5], b"Gx", b"Gx\x7f\xff\xff\xff"]
)
def test_a_value_that_cannot_be_decoded_is_skipped(value: bytes) -> None:
    decision = decided(Recompression("cursor", "none"), value)
    assert (decision.action, decision.reason) == ("skip", "undecodable")
    assert decision.note


def test_a_cursor_with_properties_is_compressed_only_for_known_readers() -> None:
    with_string = cursor(rack="A")
    position = ManagedCursorInfo(cursorsLedgerId=-1)
    position.properties.add(name="CompactedTopicLedger", value=7)
    position.MergeFrom(decode_cursor(cursor()))
    for value in (with_string, position.SerializeToString()):
        rule = Recompression("cursor", "zstd", threshold=0)
        assert decided(rule, value).reason == "properties"
        assert decided(rule, wrap_envelope(value, "lz4")).reason == "properties"
        for version in ("4.2.4", "5.0.0-M1", "2.8.2", "9.9.9", "4.0.7", "3.0.7", "2.11.0"):
            for_release = Recompression("cursor", "zstd", threshold=0, readers=Readers((version,)))
            reads = version in ("4.0.7", "3.0.7", "2.11.0")
            assert decided(for_release, value).action == ("rewrite" if reads else "keep")
        both = Recompression("cursor", "zstd", threshold=0, readers=Readers(("4.0.7", "4.2.4")))
        assert decided(both, value).action == "keep"
        assert decided(Recompression("cursor", "none"), wrap_envelope(value, "lz4")).action == "rewrite"


def test_only_cursors_with_properties_are_rewritten_if_asked() -> None:
    rule = Recompression("cursor", "none", only_with_properties=True)
    assert decided(rule, wrap_envelope(cursor(), "lz4")).reason == "no-properties"
    assert decided(rule, wrap_envelope(cursor(a="b"), "lz4")).action == "rewrite"


@pytest.mark.parametrize(("kind", "decode"), [("cursor", decode_cursor), ("ledger", decode_managed_ledger)])
def test_every_captured_value_is_equivalent_in_every_codec(
    kind: Kind, decode: Callable[[bytes], Message], captured: MemoryStore
) -> None:
    seen = 0
    for value in select(captured, Scope(), kind):
        for codec in CODECS:
            rule = Recompression(
                kind, codec, threshold=0, min_gain=MinGain(-(2**31), -1e9), readers=Readers(("4.0.7",))
            )
            decision = rule(value)
            if decision.action != "rewrite":
                continue
            seen += 1
            assert decision.new is not None
            assert decode(decision.new) == decode(value.value)
            before, after = open_envelope(value.value), open_envelope(decision.new)
            raw = value.value if before is None else before.payload
            assert (decision.new if after is None else after.payload) == raw
    assert seen > 150


def test_scopes_select_by_pattern(captured: MemoryStore) -> None:
    def count(**scope: tuple[str, ...]) -> int:
        return len(list(select(captured, Scope(**scope), "cursor")))

    everything = count()
    assert everything == 83
    assert count(tenants=("public",)) + count(tenants=("pulsar",)) == everything
    assert count(tenants=("p*",)) == everything
    assert count(tenants=("publi",)) == 0
    spaces = ("public/default", "public/dedup", "public/[!d]*", "pulsar/system")
    assert sum(count(namespaces=(space,)) for space in spaces) == count(namespaces=spaces) == everything
    assert count(topics=("fanout",)) == count(topics=("persistent://public/default/fan*",)) == 60
    assert count(topics=("fanout",), cursors=("fan-01*", "fan-000")) == 11
    assert count(topics=("public/default/nobody",)) == 0
    assert count(topics=("we ird:näme",)) == len(captured.children(_path("we ird:näme")))
    ledgers = list(select(captured, Scope(topics=("parted",)), "ledger"))
    assert [value.path[-1] for value in ledgers] == ["0", "1", "2"]


def test_values_are_selected_by_a_list_of_topics_and_paths(captured: MemoryStore) -> None:
    path = f"{_path('orders')}/batch-idx"
    listed = list(select_listed(captured, ["fanout\n", "\n", path], Scope(), "cursor"))
    assert len(listed) == 61
    assert listed[-1].path == path
    names = ["fanout", "public/default/fanout", "fan*", f"{_path('fanout')}/fan-000"]
    assert len(list(select_listed(captured, names, Scope(), "cursor"))) == 60
    absent = list(select_listed(captured, [path + "x", "no-such-topic", "no-such-*"], Scope(), "cursor"))
    assert [record.path for record in absent] == [path + "x", _path("no-such-topic"), _path("no-such-*")]
    assert {record.version for record in absent} == {ABSENT}
    with pytest.raises(UsageError):
        list(select_listed(captured, ["/admin/policies/public/default"], Scope(), "cursor"))


def test_the_estimate_equals_the_result(captured: MemoryStore) -> None:
    rule = Recompression("cursor", "none", threshold=0)
    rows = {row["codec"]: row for row in estimate(select(captured, Scope(), "cursor"), rule)}
    assert list(rows) == list(CODECS)
    for codec, row in rows.items():
        decisions = [
            Recompression("cursor", codec, threshold=0)(value)
            for value in select(captured, Scope(), "cursor")
        ]
        assert row["values"] == 83
        assert row["rewritten"] == sum(decision.action == "rewrite" for decision in decisions)
        assert row["bytes_after"] == sum(decision.size_after for decision in decisions)
    spaces = list(estimate(select(captured, Scope(), "cursor"), rule, "namespace"))
    assert sum(row["values"] for row in spaces if row["codec"] == "zstd") == 83


def test_the_settings_of_a_broker_are_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "managedCursorInfoCompressionType = ZSTD\nmanagedCursorInfoCompressionThresholdInBytes=64\n"
    )
    assert read_broker_conf(conf, "cursor") == ("zstd", 64)
    with pytest.raises(DecodeError, match="has no managedLedgerInfoCompressionType"):
        read_broker_conf(conf, "ledger")
    conf.write_text("managedLedgerInfoCompressionType=")
    assert read_broker_conf(conf, "ledger") == ("none", 16384)
    conf.write_text("managedCursorInfoCompressionType=GZIP")
    with pytest.raises(DecodeError):
        read_broker_conf(conf, "cursor")
    conf.write_text("managedCursorInfoCompressionType=LZ4\nmanagedCursorInfoCompressionThresholdInBytes=many")
    with pytest.raises(DecodeError):
        read_broker_conf(conf, "cursor")
    with pytest.raises(NotFoundError):
        read_broker_conf(tmp_path / "nowhere", "cursor")
    conf.write_text("a=\\u00zz")
    with pytest.raises(DecodeError, match=r"broker\.conf"):
        read_broker_conf(conf, "cursor")
    with pytest.raises(DecodeError, match=r"no broker\.conf"):
        read_broker_conf(Path("/dev/zero"), "cursor")


def test_a_deleted_value_is_not_an_error() -> None:
    assert Recompression("cursor", "zstd")(Versioned(PATH, b"", ABSENT)).reason == "gone"


def _path(topic: str) -> str:
    from pulsar_meta.codecs.names import TopicName

    return TopicName.parse(topic).path
