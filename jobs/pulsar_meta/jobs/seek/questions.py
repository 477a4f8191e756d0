"""Questions: an index or a time in a topic, as people and scripts write them, and the topics to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import read_json_object, shown
from pulsar_meta.codecs.metadata.envelope import managed_place
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.times import parse_time
from pulsar_meta.jobs.seek.search import CLOSE_TIME_SKEW
from pulsar_meta.jobs.topics.related import ScalableTopics
from pulsar_meta.jobs.topics.scope import chosen_topics, named_topics, with_cursor
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    import pyarrow as pa

# The ledger property with the first index of the ledger. Pulsar reserves no name for it (PIP-404).
FIRST_INDEX: Final = "first-index"
INDEX: Final = "index"
TIME: Final = "time"
MAX_INDEX: Final = 2**64 - 1

Kind = Literal["index", "time"]
# Takes a line that a person should read.
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Question:
    """An index or a time to find in a topic, or the newest entry that a time to live has expired.

    `topic` may be a segment of `scalable_topic`. A time in a scalable topic becomes a question to each of its
    segments; `segments` is then their number, and the earliest of their answers is the answer.
    """

    topic: str
    kind: Kind
    target: int
    time_to_live: int | None = None
    scalable_topic: str | None = None
    segments: int = 1


@dataclass(frozen=True, slots=True)
class SeekOptions:
    """How to search. `skew` is in milliseconds. `after` and `before` are exclusive.

    `readable`: only entries count that consumers can see, as brokers with transactions decide it.
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
    """Return an index from 0 to 2⁶⁴-1. Raises UsageError."""
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) > MAX_INDEX:
        raise UsageError(f"invalid index {shown(text)}: give a whole number from 0 to 2⁶⁴-1")
    return int(text)


def read_questions(lines: Iterable[str], source: str, topic: str | None = None) -> Iterator[Question]:
    """Yield the questions of a file with one per line: `topic<TAB>index` or `{"topic", "index" | "time"}`.

    With `topic`, a line may leave its topic out. Raises UsageError with the number of an invalid line.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _from_json(line, topic) if line.lstrip().startswith("{") else _from_fields(line, topic)
        except UsageError as error:
            raise error.within(f"{source}, line {number}") from error


def read_question_table(file: Path, topic: str | None = None) -> Iterator[Question]:
    """Yield the questions of a Parquet file with the columns `topic` and `index` or `time`.

    Times are milliseconds or timestamps. With `topic`, the file may leave the column `topic` out. Raises
    UsageError for other columns or an invalid row, and OSError from the file.
    """
    import pyarrow as pa

    try:
        for number, row in enumerate(_rows(file), start=1):
            try:
                yield _from_mapping({name: value for name, value in row.items() if value is not None}, topic)
            except UsageError as error:
                raise error.within(f"{file}, row {number}") from error
    except pa.ArrowException as error:
        raise UsageError(f"not a Parquet file of questions: {error}", source=str(file)) from error


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as table:
        columns = [name for name in ("topic", INDEX, TIME) if name in table.schema_arrow.names]
        if INDEX not in columns and TIME not in columns:
            raise UsageError("expected the columns topic and index or time", source=str(file))
        for batch in table.iter_batches(columns=columns):
            for at, field in enumerate(batch.schema):
                batch = batch.set_column(at, field.name, _as_integers(batch.column(at)))
            yield from batch.to_pylist()


def _as_integers(column: pa.Array) -> pa.Array:
    """Return timestamps as milliseconds, and floats, which pandas writes beside gaps, as integers.

    Raises ArrowInvalid for a fraction.
    """
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64()) if pa.types.is_floating(column.type) else column


def _from_fields(line: str, topic: str | None) -> Question:
    fields = line.rstrip("\r\n").split("\t")
    if len(fields) == 1 and topic is not None:
        fields.insert(0, topic)
    if len(fields) != 2 or not fields[0].strip():
        raise UsageError("expected topic<TAB>index")
    return Question(fields[0].strip(), INDEX, parse_index(fields[1].strip()))


def _from_json(line: str, topic: str | None) -> Question:
    try:
        fields = read_json_object(line)
    except DecodeError as error:
        raise UsageError(str(error)) from error
    return _from_mapping(fields, topic)


def _from_mapping(fields: Mapping[str, Any], topic: str | None) -> Question:
    name = fields.get("topic", topic)
    if not isinstance(name, str):
        raise UsageError('expected a "topic"')
    kinds: list[Kind] = [kind for kind in (INDEX, TIME) if kind in fields]
    if len(kinds) != 1:
        raise UsageError('expected "index" or "time"')
    target = fields[kinds[0]]
    if kinds[0] == TIME and type(target) is int and abs(target) < 2**63:
        # A number in a file is always milliseconds. On a command line, a small one may be seconds or a year.
        return Question(name, TIME, target)
    parse = parse_index if kinds[0] == INDEX else parse_time
    return Question(name, kinds[0], parse(str(target)))


def expand(store: Store, questions: Iterable[Question], cursor: str | None, note: Note) -> Iterator[Question]:
    """Yield the questions with full topic names, one for each partition or segment of a topic.

    With a cursor, only those segments of a scalable topic are asked that have it. `note` gets a line about
    the others, unless no segment has it.
    """
    scalable_topics = ScalableTopics(store)
    parts: dict[str, list[TopicName]] = {}
    for question in questions:
        name = TopicName.parse(question.topic)
        if question.topic not in parts:
            topics = named_topics(store, name)
            parts[question.topic] = topics if cursor is None else _having(store, topics, cursor, note)
        topics = parts[question.topic]
        # If the question names a segment, only that segment is asked.
        names_all = name.domain == "topic" or name.short
        has_one_answer = names_all and question.kind == TIME and question.time_to_live is None
        scalable_of = scalable_topics.of(topics)
        for topic in topics:
            scalable = scalable_of[topic]
            count = len(topics) if has_one_answer and scalable else 1
            yield replace(question, topic=str(topic), scalable_topic=scalable, segments=count)


def _having(store: Store, topics: list[TopicName], cursor: str, note: Note) -> list[TopicName]:
    """Return the segments that have a cursor, all of them if none has it."""
    if len(topics) < 2 or topics[0].scalable_topic is None:
        return topics
    having = with_cursor(store, topics, cursor)
    if having and len(having) < len(topics):
        name, without = topics[0].scalable_topic, len(topics) - len(having)
        note(f"{name}: {without} of its segments have no cursor {cursor!r} and are left out")
    return having or topics


def topics_of_namespace(store: Store, namespace: str, cursor: str | None = None) -> list[str]:
    """Return the names of the topics and partitions of a namespace, sorted; with `cursor` those that have it.

    Raises UsageError if the name is not `tenant/namespace`, and NotFoundError if there is no such topic.
    """
    if "://" in namespace or namespace.count("/") != 1 or not all(namespace.split("/")):
        raise UsageError(f"invalid namespace {namespace!r}: give tenant/namespace")
    places = (managed_place(record.path, record.value) for record in chosen_topics(store, [namespace]))
    topics = [place[0] for place in places if place is not None]
    if cursor is not None:
        topics = with_cursor(store, topics, cursor)
        if not topics:
            raise NotFoundError(f"no topic of {namespace} has a cursor {cursor!r}", source=store.url)
    return sorted(str(topic) for topic in topics)
