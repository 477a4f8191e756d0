"""The questions of a seek, and how people and scripts write them: times, positions, durations, files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import read_json_object, shown
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.seek.search import CLOSE_TIME_SKEW
from pulsar_meta.jobs.topics.topic import Position

# Where `build-index` and `seek` keep a ledger's first index. Pulsar reserves no name (PIP-404).
FIRST_INDEX: Final = "first-index"
INDEX: Final = "index"
TIME: Final = "time"
MAX_INDEX: Final = 2**64 - 1
# Below are no milliseconds that Pulsar wrote (it is March 1973), but what may well be seconds or a year.
LEAST_MILLISECONDS: Final = 10**11
_units: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_duration_re = re.compile(r"(\d{1,12})([smhdw]?)")


# What is asked for.
Kind = Literal["index", "time"]


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for in a topic: an index, a time, or what a time to live has expired by a time.

    `scalable_topic` is the one of which `topic` is a segment; `segments` is more than one where the answer
    is the earliest of those to so many questions, of which this is one: a time, over all of a scalable topic.
    """

    topic: str
    kind: Kind
    target: int
    time_to_live: int | None = None
    scalable_topic: str | None = None
    segments: int = 1


@dataclass(frozen=True, slots=True)
class SeekOptions:
    """How to look. `skew` is in milliseconds; positions are exclusive bounds.

    `readable`: only what readers are given counts, as brokers with transactions decide it.
    """

    clock: str = "auto"
    skew: int = CLOSE_TIME_SKEW
    after: Position | None = None
    before: Position | None = None
    cursor: str | None = None
    index_property: str = FIRST_INDEX
    exhaustive: bool = False
    readable: bool = False


def parse_index(text: str) -> int:
    """Return an index, 0 to 2⁶⁴-1."""
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) > MAX_INDEX:
        raise UsageError(f"an index is a number from 0 on, not {shown(text)}")
    return int(text)


def parse_time(text: str) -> int:
    """Return milliseconds since the epoch: a number of them, or an ISO 8601 time (UTC unless it says so).

    UsageError for a number that is more likely something else: seconds, or a year.
    """
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        if 0 < int(text) < LEAST_MILLISECONDS:
            raise UsageError(_ambiguous(text))
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"a time is milliseconds or 2026-08-20T12:00:00Z, not {shown(text)}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Rounded up: "not before" a fraction of a millisecond is the millisecond after it.
    return -((datetime.fromtimestamp(0, UTC) - moment) // timedelta(milliseconds=1))


def _ambiguous(text: str) -> str:
    """Say what a short number is as milliseconds, and how to write what was more likely meant."""
    if len(text) == 4:
        meant = f"for the year write {text}-01-01"
    elif len(text) == 8:
        meant = f"for a day write {text[:4]}-{text[4:6]}-{text[6:]}"
    else:
        meant = f"for seconds write {int(text)}000"
    return f"{text} milliseconds are {iso_time(int(text))}: {meant}, for times so early ISO 8601"


def parse_duration(text: str) -> int:
    """Return seconds: a number of them, or one with s, m, h, d or w behind it."""
    match = _duration_re.fullmatch(text)
    if not match or int(match[1]) == 0:
        raise UsageError(f"a duration is seconds, or like 90s, 15m, 12h, 7d, not {shown(text)}")
    return int(match[1]) * _units[match[2]]


def read_questions(lines: Iterable[str], source: str, topic: str | None = None) -> Iterator[Question]:
    """Yield the questions of a file: `topic<TAB>index` or `{"topic", "index" | "time"}` a line.

    With `topic` a line may leave its own out. UsageError with the number of a line that is neither.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _from_json(line, topic) if line.lstrip().startswith("{") else _from_fields(line, topic)
        except UsageError as error:
            raise error.within(f"{source}, line {number}") from error


def _from_fields(line: str, topic: str | None) -> Question:
    fields = line.rstrip("\r\n").split("\t")
    if len(fields) == 1 and topic is not None:
        fields.insert(0, topic)
    if len(fields) != 2 or not fields[0].strip():
        raise UsageError("expected topic<TAB>index")
    return Question(fields[0].strip(), INDEX, parse_index(fields[1].strip()))


def _from_json(line: str, topic: str | None) -> Question:
    try:
        asked = read_json_object(line)
    except DecodeError as error:
        raise UsageError(str(error)) from error
    name = asked.get("topic", topic)
    if not isinstance(name, str):
        raise UsageError('expected a "topic"')
    kinds: list[Kind] = [kind for kind in (INDEX, TIME) if kind in asked]
    if len(kinds) != 1:
        raise UsageError('expected "index" or "time"')
    target = asked[kinds[0]]
    if kinds[0] == TIME and type(target) is int and abs(target) < 2**63:
        # A number in JSON is milliseconds, whatever it is.
        return Question(name, TIME, target)
    parse = parse_index if kinds[0] == INDEX else parse_time
    return Question(name, kinds[0], parse(str(target)))
