"""Edits of ledger properties leave everything else in a record unchanged."""

from __future__ import annotations

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger, open_envelope, wrap_envelope
from pulsar_meta.codecs.metadata.ledger_metadata import Edit
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.index.properties import property_rule, remove_properties
from pulsar_meta.jobs.rewrite.apply import Batches
from pulsar_meta.jobs.topics.related import SOURCE
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.memory import MemoryStore


def test_an_envelope_keeps_its_unknown_fields() -> None:
    record = ManagedLedgerInfo()
    record.ledgerInfo.add(ledgerId=7, entries=3)
    later = b"\x98\x06\x07"
    value = wrap_envelope(record.SerializeToString(), "zstd", unknown=later)
    decision = property_rule({7: [Edit("a", "b")]})(Versioned("/managed-ledgers/t/n/persistent/x", value, 1))
    assert decision.new is not None
    envelope = open_envelope(decision.new)
    assert envelope is not None
    assert (envelope.codec, envelope.unknown) == ("zstd", later)
    edited = decode_managed_ledger(decision.new).ledgerInfo[0].properties
    assert [(prop.key, prop.value) for prop in edited] == [("a", "b")]


def test_properties_are_removed_from_all_topics_except_shadows() -> None:
    store = MemoryStore()
    for name, source in (("orders", None), ("shadow", "persistent://public/default/orders"), ("none", None)):
        info = ManagedLedgerInfo()
        for ledger_id in (7, 8, 9):
            ledger = info.ledgerInfo.add(ledgerId=ledger_id, entries=1, timestamp=1)
            if name != "none" and ledger_id != 8:
                ledger.properties.add(key="a", value="1")
                ledger.properties.add(key="b", value="2")
        if source:
            info.properties.add(key=SOURCE, value=source)
        store.put(TopicName.parse(name).path, info.SerializeToString(), ABSENT)
    store.put(TopicName.parse("broken").path, b"\xff", ABSENT)
    rewrite = remove_properties(store, lambda: select(store, Scope(), "ledger"), ["a", "a", "no-such"])
    with Batches(store, 1) as batches:
        decided = {seen.path.rpartition("/")[2]: decision for seen, decision in rewrite.decided(batches)}
    assert {name: (decision.action, decision.reason) for name, decision in decided.items()} == {
        "orders": ("rewrite", None),
        "shadow": ("skip", "shadow"),
        "none": ("keep", "already"),
        "broken": ("skip", "undecodable"),
    }
    new = decided["orders"].new
    assert new is not None
    assert [[prop.key for prop in ledger.properties] for ledger in decode_managed_ledger(new).ledgerInfo] == [
        ["b"], [], ["b"],
    ]  # fmt: skip
