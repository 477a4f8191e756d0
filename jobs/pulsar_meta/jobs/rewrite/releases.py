"""What each release of Pulsar can read of what lies in a store, with the evidence for each row.

A version between two rows of the same answer has that answer. A version that nothing was seen or read of
counts as one that cannot, since writing what a broker cannot load takes a topic away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pulsar_meta.codecs.errors import UsageError

_version_re = re.compile(r"^v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-.+].*)?$")


class Form(StrEnum):
    """Forms of stored values that not every release reads."""

    LEDGER = "compressed-ledger"
    CURSOR = "compressed-cursor"
    CURSOR_WITH_PROPERTIES = "compressed-cursor-with-properties"


@dataclass(frozen=True, slots=True)
class Row:
    """Whether the releases from `first` to `last` read a form, and how that is known."""

    form: Form
    first: tuple[int, int, int]
    last: tuple[int, int, int]
    reads: bool
    evidence: str


Version = tuple[int, int, int]

_START: Final = (0, 0, 0)
TABLE: Final = (
    Row(Form.LEDGER, _START, (2, 7, 3), False, "apache/pulsar#11490 came with 2.7.4, 2.8.1 and 2.9.0"),
    Row(Form.LEDGER, (2, 7, 4), (2, 7, 99), True, "apache/pulsar#11490, 2.7.4"),
    Row(Form.LEDGER, (2, 8, 0), (2, 8, 0), False, "apache/pulsar#11490 came with 2.8.1"),
    Row(Form.LEDGER, (2, 8, 1), (5, 0, 0), True, "2.8.2, 3.0.7, 4.0.7, 4.2.4, 5.0.0-M1 loaded them"),
    Row(Form.CURSOR, _START, (2, 9, 1), False, "MetaStoreImpl of 2.8.2 and 2.9.1 has no reader for it"),
    Row(Form.CURSOR, (2, 10, 5), (2, 10, 99), True, "MetaStoreImpl of 2.10.5 has the reader (not run)"),
    Row(Form.CURSOR, (2, 11, 0), (5, 0, 0), True, "2.11.0, 3.0.7, 4.0.7, 4.2.4, 5.0.0-M1 loaded them"),
    Row(Form.CURSOR_WITH_PROPERTIES, _START, (2, 9, 1), False, "2.8.2 and 2.9.1 read no compressed cursor"),
    Row(Form.CURSOR_WITH_PROPERTIES, (2, 11, 0), (4, 0, 7), True, "2.11.0, 3.0.7 and 4.0.7 loaded them"),
    Row(
        Form.CURSOR_WITH_PROPERTIES,
        (4, 2, 4),
        (5, 0, 0),
        False,
        "4.2.4 and 5.0.0-M1 failed to load the topic: IllegalReferenceCountException: refCnt: 0",
    ),
)


def parse_version(text: str) -> Version:
    """Return a release as numbers, without what follows a dash; UsageError where it is none."""
    match = _version_re.match(text.strip())
    if match is None:
        raise UsageError(f"{text!r}: a Pulsar version is like 4.0.7 or 5.0.0-M1")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def why_unreadable(form: Form, version: str) -> str | None:
    """Return why a broker of that release cannot be trusted to read `form`, None where it reads it."""
    number = parse_version(version)
    for row in TABLE:
        if row.form is form and row.first <= number <= row.last:
            return None if row.reads else row.evidence
    return f"nobody tried {version}: nothing is known of it"
