"""What an undo file may change: only what the command that it names can have changed.

An undo file brings old values, which nobody can compute again. So each record is compared with its command:
`compress-cursors`, for example, never creates or removes a value, and its values differ only in their codec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, GuardError
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor, open_envelope
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, ledger_of_path, managed_ledger_places
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.rewrite.undo_log import UndoRecord
from pulsar_meta.jobs.topics.owners import SCHEMAS
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.directory import FilesStore

PARTITIONS: Final = "/admin/partitioned-topics"


def _is_topic(path: str) -> bool:
    return any(cursor is None for _, cursor in managed_ledger_places(path))


def _is_cursor(path: str) -> bool:
    return any(cursor is not None for _, cursor in managed_ledger_places(path))


def _below(*trees: str) -> Callable[[str], bool]:
    starts = tuple(f"{tree}/" for tree in trees)
    return lambda path: path.startswith(starts)


def _payload(value: bytes) -> bytes:
    envelope = open_envelope(value)
    return value if envelope is None else envelope.payload


def _same_payload(old: bytes, new: bytes) -> bool:
    return _payload(old) == _payload(new)


def _same_without_properties(old: bytes, new: bytes) -> bool:
    infos = [parse_message(ManagedLedgerInfo, _payload(value)) for value in (old, new)]
    for info in infos:
        for ledger in info.ledgerInfo:
            del ledger.properties[:]
    return infos[0] == infos[1]


def _moves_state(old: bytes, new: bytes) -> bool:
    return decode_cursor(old).cursorsLedgerId != STATE_IN_RECORD == decode_cursor(new).cursorsLedgerId


@dataclass(frozen=True, slots=True)
class Limits:
    """What a command changes: values at these paths, and whether it creates or removes some.

    `single` is True if it changes one value. `same` compares the old and the new value, None if they can
    differ in any way. `loses` is False if undoing it makes no data unreachable.
    """

    path: Callable[[str], bool] = lambda path: True
    creates: bool = False
    removes: bool = False
    replaces: bool = True
    single: bool = False
    same: Callable[[bytes, bytes], bool] | None = None
    loses: bool = True

    def fits(self, record: UndoRecord) -> bool:
        """Return True if the command can have made the change of a record."""
        if record.old is None:
            allowed = self.creates and record.new_sha256 is not None
        else:
            allowed = self.removes if record.new_sha256 is None else self.replaces
        return allowed and self.path(record.path)

    def fits_value(self, old: bytes | None, new: bytes | None) -> bool:
        """Return True if the command can have replaced `old` by `new`."""
        if self.same is None or old is None or new is None:
            return True
        try:
            return self.same(old, new)
        except DecodeError:
            return False


ANY: Final = Limits(creates=True, removes=True)
_RECORDS: Final = replace(ANY, path=_below(MANAGED_LEDGERS, LEDGERS))
_PROPERTIES: Final = Limits(_is_topic, same=_same_without_properties, loses=False)
_LIMITS: Final = {
    "compress-cursors": Limits(_is_cursor, same=_same_payload, loses=False),
    "compress-ledgers": Limits(_is_topic, same=_same_payload, loses=False),
    "convert-cursor": Limits(_is_cursor, same=_moves_state, loses=False),
    "build-index": _PROPERTIES,
    "set-property": _PROPERTIES,
    "unset-property": _PROPERTIES,
    "put": Limits(creates=True, single=True),
    "rm": Limits(removes=True, replaces=False, single=True),
    "restore": Limits(creates=True),
    "undo": ANY,
    "repair-cursor": replace(_RECORDS, path=_is_cursor),
    "repair-ledger-metadata": replace(_RECORDS, path=lambda path: ledger_of_path(path) is not None),
    "repair-partitions": replace(ANY, path=_below(PARTITIONS)),
    "repair-plan": replace(ANY, path=_below(MANAGED_LEDGERS, LEDGERS, SCHEMAS, PARTITIONS)),
    "repair-schema": replace(ANY, path=_below(SCHEMAS)),
}


def limits_of(command: object, store: Store) -> Limits:
    """Return the limits of a command in a store, by the name in an undo file.

    Raises GuardError for an unknown command, and for one that doesn't rewrite value files if the store is the
    file system.
    """
    name = str(command)
    limits = _LIMITS.get(name, _RECORDS if name.startswith("repair-") else None)
    if limits is None:
        raise GuardError(f"refusing to undo: there is no command {name!r}")
    if not isinstance(store, FilesStore):
        return limits
    if limits.same is None:
        raise GuardError(f"refusing to undo: {name} doesn't rewrite value files")
    return replace(limits, path=lambda path: True)
