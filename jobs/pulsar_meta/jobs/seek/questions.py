"""The questions of a seek, and how people and scripts write them: times, positions, durations, files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import read_json_object, shown
from pulsar_meta.codecs.times import parse_time
from pulsar_meta.jobs.seek.search import CLOSE_TIME_SKEW
from pulsar_meta.jobs.topics.topic import Position

# Where `build-index` and `seek` keep a ledger's first index. Pulsar reserves no name (PIP-404).
FIRST_INDEX: Final = "first-index"
INDEX: Final = "index"
TIME: Final = "time"
MAX_INDEX: Final = 2**64 - 1

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
