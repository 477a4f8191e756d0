"""Edits of ledger properties leave everything else of a record as it is."""

from __future__ import annotations

from pulsar_meta.codecs.metadata.envelope import open_envelope, wrap_envelope
from pulsar_meta.codecs.metadata.ledger_properties import Edit
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from pulsar_meta.jobs.index.properties import property_rule
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import Versioned


def test_an_envelope_of_a_later_release_keeps_its_fields() -> None:
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
    assert [(one.key, one.value) for one in edited] == [("a", "b")]
