"""The kinds of values, and how to detect them.

`--type` and a document's `kind` have the same names. Without a name, the path in the store decides, and
without a path, the content.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pulsar_meta.codecs.compression import DEFAULT_MAX_SIZE
from pulsar_meta.codecs.documents.value import (
    FUNCTION_KINDS,
    JSON_KINDS,
    LOG_ENTRY_KINDS,
    POLICIES_KINDS,
    SCALABLE_KINDS,
    TRANSACTION_KINDS,
)
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import shown
from pulsar_meta.codecs.names import (
    MANAGED_LEDGERS,
    POLICIES_ROOTS,
    TopicName,
    ledger_of_path,
    policies_place,
    split_managed_ledger_path,
)

# The module that decodes and encodes each kind. Modules are imported on first use.
FAMILIES: Final[dict[str, str]] = {
    "ManagedLedgerInfo": "message_values",
    "ManagedCursorInfo": "message_values",
    "PositionInfo": "message_values",
    "LedgerMetadata": "bookkeeper_values",
    "Cookie": "bookkeeper_values",
    "BookieServiceInfo": "message_values",
    **dict.fromkeys(JSON_KINDS, "plain_values"),
    "Counter": "plain_values",
    "SchemaLocator": "message_values",
    "SchemaEntry": "message_values",
    "Frame": "entry_values",
    "BookieEntry": "entry_values",
    "Command": "entry_values",
    **dict.fromkeys(LOG_ENTRY_KINDS, "transaction_values"),
    **dict.fromkeys(FUNCTION_KINDS, "message_values"),
    "Text": "plain_values",
    "Bytes": "plain_values",
}
KINDS: Final = tuple(FAMILIES)
ENVELOPED: Final = ("ManagedLedgerInfo", "ManagedCursorInfo")

# Paths that determine the kind. The patterns are compiled on first use, because many commands need none.
_PATHS: Final = (
    (r"/ledgers/cookies/[^/]+", "Cookie"),
    (r"/ledgers/available/(readonly/)?(?!readonly$)[^/]+", "BookieServiceInfo"),
    (r"/schemas/[^/]+/[^/]+/[^/]+", "SchemaLocator"),
)
# Records of Pulsar 5. An empty value at their paths is a parent node that the store created.
_NEVER_EMPTY: Final = (*SCALABLE_KINDS, *TRANSACTION_KINDS, *POLICIES_KINDS, "Counter")
COUNTER_SUFFIX: Final = "__seq_counter__"
_ROOTS_5: Final = ("/topics/", "/txn/")
_TOPIC: Final = r"/topics/[^/]+/[^/]+/[^/]+"
_PATHS_5: Final = (
    (_TOPIC, "ScalableTopic"),
    (_TOPIC + r"/segments/\d+/load", "SegmentLoad"),
    (_TOPIC + r"/subscriptions/[^/]+", "ScalableSubscription"),
    (_TOPIC + r"/subscriptions/[^/]+/consumers/[^/]+", "ScalableConsumer"),
    (r"/txn/id/[^/]+", "Transaction"),
    (r"/txn/op/[^/]+", "TransactionOp"),
    (r"/txn/(segment|subscription)-events/[^/]+", "TransactionEvent"),
    (r"/txn/segment-state/aborted/[^/]+", "AbortedTransaction"),
    (r"/txn/segment-state/watermark/[^/]+", "SegmentWatermark"),
    (r"/txn/tc/leader/[^/]+", "TransactionCoordinator"),
    (r"/txn/tc-seq/[^/]+", "TransactionSequence"),
)
_BROKERS: Final = r"/loadbalance/brokers/[^/]+"
_ROOTS: Final = r"/(managed-ledgers|ledgers|schemas|loadbalance|admin)/.+"


def kind_of_path(path: str) -> str | None:
    """Return the kind of values at a path in the store, or None if the path does not determine it."""
    location = split_managed_ledger_path(path)
    if location is not None:
        return _kind_at(location)
    if ledger_of_path(path) is not None:
        return "LedgerMetadata"
    if path.endswith(COUNTER_SUFFIX):
        return "Counter"
    if path.startswith(POLICIES_ROOTS):
        return None if policies_place(path) is None else "TopicPolicies"
    known = _PATHS_5 if path.startswith(_ROOTS_5) else _PATHS
    return next((kind for pattern, kind in known if re.fullmatch(pattern, path)), None)


def _kind_at(place: tuple[TopicName, str | None]) -> str:
    return "ManagedLedgerInfo" if place[1] is None else "ManagedCursorInfo"


def store_path_of_file(file: str) -> str | None:
    """Return the store path at the end of a file's name, or None if there is none of a known kind."""
    match = re.search(_ROOTS, "/" + file.removesuffix("/.value"))
    return match[0] if match and kind_of_path(match[0]) else None


def kind_of(
    data: bytes, *, named: str | None = None, path: str | None = None, max_size: int = DEFAULT_MAX_SIZE
) -> str:
    """Return the kind of `data`; `max_size` limits decompression (bytes).

    At paths that do not determine the kind, a value is JSON, text or bytes. Without a path or a name, the
    content decides: raises UsageError if it fits several kinds, DecodeError if it fits none.
    """
    if named is not None:
        return checked_kind(named)
    if path is None:
        return _only_one(fitting_kinds(data, max_size), "the content" if data else "an empty value")
    # Imported late, because it imports protobuf, which is slow.
    from pulsar_meta.codecs.metadata.envelope import managed_place

    place = managed_place(path, data)
    if place is not None:
        return _kind_at(place)
    known = None if path.startswith(f"{MANAGED_LEDGERS}/") else kind_of_path(path)
    if known is not None and (data or known not in _NEVER_EMPTY):
        return known
    plain = _plain_kind(data)
    if re.fullmatch(_BROKERS, path) and plain == "Json":
        return "BrokerLookupData"
    return plain


def checked_kind(name: str) -> str:
    """Return the kind with a name in upper or lower case. Raises UsageError if there is none."""
    by_name = {kind.lower(): kind for kind in KINDS}
    if name.lower() not in by_name:
        raise UsageError(f"unknown kind {shown(name)}: choose {', '.join(KINDS)}")
    return by_name[name.lower()]


def fitting_kinds(data: bytes, max_size: int = DEFAULT_MAX_SIZE) -> list[str]:
    """Return the kinds that `data` fits completely and without unknown fields, in a fixed order.

    If there is none, return the kinds that it fits with fields that a later release may have added.
    Raises DecodeError for a broken envelope, because it could be of two kinds.
    """
    from pulsar_meta.codecs.documents import message_values
    from pulsar_meta.codecs.metadata.envelope import is_enveloped
    from pulsar_meta.codecs.metadata.ledger_metadata import HEADER

    if not data:
        return ["ManagedLedgerInfo", "Text", "Bytes"]
    if is_enveloped(data):
        return _enveloped_kinds(data, max_size)
    if data.startswith(HEADER):
        return ["LedgerMetadata"]
    if _is_cookie(data):
        return ["Cookie"]
    if data[:1] in (b"{", b"[") and _plain_kind(data) in JSON_KINDS:
        return [_plain_kind(data)]
    kinds = [kind for kind in message_values.GUESSED if message_values.fits(kind, data)]
    kinds += _entry_kinds(data)
    if _is_printable(data):
        kinds += [_old_text_kind(data) or "Text"]
    # Log entries come last, because data that also fits another kind is more likely of that kind.
    kinds = kinds or _log_kinds(data)
    return kinds or [kind for kind in message_values.GUESSED if message_values.fits_newer(kind, data)]


def _only_one(kinds: list[str], what: str) -> str:
    if len(kinds) == 1:
        return kinds[0]
    if not kinds:
        raise DecodeError(f"{what} fits no kind of value: specify one with --type")
    raise UsageError(f"{what} fits {', '.join(kinds[:-1])} and {kinds[-1]}: choose one with --type")


def _enveloped_kinds(data: bytes, max_size: int) -> list[str]:
    from pulsar_meta.codecs.documents import message_values
    from pulsar_meta.codecs.metadata.envelope import open_envelope

    envelope = open_envelope(data, max_size=max_size)
    payload = envelope.payload if envelope is not None else data
    for fits in (message_values.fits, message_values.fits_newer, message_values.parses):
        kinds = [kind for kind in ENVELOPED if payload and fits(kind, payload)]
        if kinds:
            return kinds
    return list(ENVELOPED)


def _entry_kinds(data: bytes) -> list[str]:
    from pulsar_meta.codecs.documents import entry_values

    return [kind for kind in entry_values.KINDS if entry_values.fits(kind, data)]


def _log_kinds(data: bytes) -> list[str]:
    from pulsar_meta.codecs.documents import transaction_values

    return transaction_values.fitting(data)


def _is_cookie(data: bytes) -> bool:
    from pulsar_meta.codecs.metadata.ledger_metadata import decode_cookie

    if not data[:1].isdigit():
        return False
    try:
        decode_cookie(data)
    except DecodeError:
        return False
    return True


def _plain_kind(data: bytes) -> str:
    from pulsar_meta.codecs.documents import plain_values

    if data[:1] in (b"{", b"["):
        value = plain_values.decode_value("Json", data)
        if value.error is None:
            return plain_values.broker_kind(value.value) or "Json"
    return "Text" if not data or _is_printable(data) else "Bytes"


def _is_printable(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\t\r\n" for character in text)


def _old_text_kind(data: bytes) -> str | None:
    """Return the kind of a value in protobuf's text format (brokers before 1.20), or None."""
    from pulsar_meta.codecs.documents import message_values
    from pulsar_meta.codecs.protobuf.parse import looks_like_text, parse_text

    for kind in ENVELOPED:
        message: Any = message_values.message_type(kind)
        if looks_like_text(message, data):
            try:
                parse_text(message, data.decode())
            except DecodeError:
                continue
            return kind
    return None
