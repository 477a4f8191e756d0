"""Whether the brokers at hand can load a value that is about to be written, or that lies in a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.cursor import decode_cursor
from pulsar_meta.codecs.metadata.envelope import is_enveloped
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from pulsar_meta.codecs.names import split_managed_ledger_path
from pulsar_meta.jobs.rewrite.releases import Form, parse_version, why_unreadable
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Store, Versioned

BROKERS = "/loadbalance/brokers"


@dataclass(frozen=True, slots=True)
class Readers:
    """The releases that will read what is written; none: nobody said, and no broker is registered."""

    versions: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: Store, versions: Sequence[str] = ()) -> Readers:
        """Return these releases (UsageError for what is none), else those of the registered brokers."""
        for version in versions:
            parse_version(version)
        return cls(tuple(versions) or registered_versions(store))

    def why_not(self, form: Form) -> str | None:
        """Return why one of them cannot read `form`; where nobody is known, the form decides."""
        if not self.versions:
            return None if form is not Form.CURSOR_WITH_PROPERTIES else "some releases cannot load it"
        for version in self.versions:
            reason = why_unreadable(form, version)
            if reason is not None:
                return f"Pulsar {version} cannot load it: {reason}"
        return None


def holds_properties(cursor: ManagedCursorInfo) -> bool:
    """Return whether a cursor has properties of either kind: of its position, or of the subscription."""
    return bool(cursor.properties or cursor.cursorProperties)


def form_of(path: str, value: bytes) -> Form | None:
    """Name the form of a stored value that not every release reads, None for all others.

    DecodeError where the record of a topic or a cursor cannot be decoded.
    """
    place = split_managed_ledger_path(path)
    if place is None:
        return None
    if place[1] is None:
        decode_managed_ledger(value)
        return Form.LEDGER if is_enveloped(value) else None
    cursor = decode_cursor(value)
    if not is_enveloped(value):
        return None
    return Form.CURSOR_WITH_PROPERTIES if holds_properties(cursor) else Form.CURSOR


def registered_versions(store: Store) -> tuple[str, ...]:
    """Return the releases of the brokers that are registered in the store."""
    found = set()
    for name in store.children(BROKERS):
        try:
            value = read_json_object(store.read(f"{BROKERS}/{name}").value)
        except (NotFoundError, DecodeError):
            continue
        version = value.get("brokerVersion") or value.get("brokerVersionString")
        if isinstance(version, str) and version:
            found.add(version)
    return tuple(sorted(found))


def find_unreadable(values: Iterable[Versioned], versions: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a document for each value of a topic or cursor that a broker of those releases cannot load."""
    readers = Readers(tuple(versions))
    for value in values:
        place = split_managed_ledger_path(value.path)
        reason = None if place is None else _fault(value, readers)
        if place is not None and reason is not None:
            named = {} if place[1] is None else {"cursor": place[1]}
            yield {"path": value.path, "version": value.version, "topic": str(place[0]), **named, **reason}


def _fault(value: Versioned, readers: Readers) -> dict[str, str] | None:
    try:
        form = form_of(value.path, value.value)
    except DecodeError as error:
        return {"form": "undecodable", "reason": str(error)}
    why = None if form is None else readers.why_not(form)
    return None if why is None else {"form": str(form), "reason": why}
