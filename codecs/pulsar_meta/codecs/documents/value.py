"""What decoding the bytes of a value gives, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError

# Kinds that are kept as JSON.
JSON_KINDS: Final = ("BrokerLookupData", "LocalBrokerData", "Json")


@dataclass(frozen=True, slots=True)
class Value:
    """A value in the JSON form of the commands.

    `same_bytes`: encoding `value` gives the bytes it came from. `error`: why `value` is only what could
    be read before a fault (None where it is whole).
    """

    value: Any
    meaning: dict[str, Any] = field(default_factory=dict)
    same_bytes: bool = True
    error: DecodeError | None = None
