"""Filters on properties, such as `region=eu and not (type^=test or retired)`, and which entries they match.

    name=value    the property has this value        name^=start   its value begins with this text
    name!=value   it has another value               name          it exists
    not x, x and y, x or y, (x)                      'quoted' or "quoted" for words with special characters

`not` binds strongest, `or` weakest. A filter depends only on a mapping of names to values.

The properties of a single message are in the entry's metadata. Those of a batch are with each message
inside. The metadata of a batch has no properties (stock Java and C++ producers), those of the first message
(Go), or the properties that all messages share (a producer as proposed in issue #16680).

Sources: apache/pulsar EntryFilter, FilterContext (PIP-105 gives a filter only the entry's metadata);
BatchMessageContainerImpl; apache/pulsar-client-go batch_builder.go; issue #16680.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NotRequired, Protocol, TypedDict

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.batch import DEFAULT_MAX_SIZE, open_entry
from pulsar_meta.codecs.frames.entry_json import properties_of
from pulsar_meta.codecs.frames.frame import Frame

MAX_DEPTH: Final = 100

Properties = Mapping[str, str]

_token_re = re.compile(
    r"\s*(?:(?P<operator>!=|\^=|=|\(|\))|(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>[^\s()=!^'\"]+))"
)
_escape_re = re.compile(r"\\(.)", re.DOTALL)
_WORDS: Final = ("and", "or", "not")


class Filter(Protocol):
    """A condition on properties."""

    def holds(self, properties: Properties) -> bool:
        """True if the condition holds."""
        ...

    def names(self) -> frozenset[str]:
        """The names of the properties that it depends on."""
        ...


@dataclass(frozen=True, slots=True)
class Present:
    """`name`."""

    name: str

    def holds(self, properties: Properties) -> bool:
        """As `Filter.holds`."""
        return self.name in properties

    def names(self) -> frozenset[str]:
        """As `Filter.names`."""
        return frozenset({self.name})


@dataclass(frozen=True, slots=True)
class Compared:
    """`name=value`, `name!=value` or `name^=value`. None of them holds if the property is absent."""

    name: str
    operator: str
    value: str

    def holds(self, properties: Properties) -> bool:
        """As `Filter.holds`."""
        value = properties.get(self.name)
        if value is None:
            return False
        if self.operator == "^=":
            return value.startswith(self.value)
        return (value == self.value) == (self.operator == "=")

    def names(self) -> frozenset[str]:
        """As `Filter.names`."""
        return frozenset({self.name})


@dataclass(frozen=True, slots=True)
class Not:
    """`not x`."""

    inner: Filter

    def holds(self, properties: Properties) -> bool:
        """As `Filter.holds`."""
        return not self.inner.holds(properties)

    def names(self) -> frozenset[str]:
        """As `Filter.names`."""
        return self.inner.names()


@dataclass(frozen=True, slots=True)
class Joined:
    """`x and y` or `x or y`, of any length."""

    operator: str
    parts: tuple[Filter, ...]

    def holds(self, properties: Properties) -> bool:
        """As `Filter.holds`."""
        answers = (part.holds(properties) for part in self.parts)
        return all(answers) if self.operator == "and" else any(answers)

    def names(self) -> frozenset[str]:
        """As `Filter.names`."""
        return frozenset().union(*(part.names() for part in self.parts))


def parse_filter(text: str) -> Filter:
    """Parse a filter. Raises UsageError with the position and the expected token."""
    parser = _Parser(text)
    condition = parser.disjunction(0)
    parser.end()
    return condition


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent over tokens. `depth` limits nested parentheses, because Python's stack is limited."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._read(text)
        self._next = 0

    def disjunction(self, depth: int) -> Filter:
        return self._joined("or", lambda: self._joined("and", lambda: self._single(depth)))

    def end(self) -> None:
        token = self._peek()
        if token.kind != "end":
            raise self._expected("and, or, or the end", token)

    def _joined(self, operator: str, part: Callable[[], Filter]) -> Filter:
        parts = [part()]
        while self._peek().kind == operator:
            self._take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(operator, tuple(parts))

    def _single(self, depth: int) -> Filter:
        if depth > MAX_DEPTH:
            raise UsageError(f"the filter is nested deeper than {MAX_DEPTH}")
        token = self._take()
        if token.kind == "not":
            return Not(self._single(depth + 1))
        if token.kind == "(":
            inner = self.disjunction(depth + 1)
            closing = self._take()
            if closing.kind != ")":
                raise self._expected(")", closing)
            return inner
        if token.kind != "word":
            raise self._expected("a property's name", token)
        if self._peek().kind not in ("=", "!=", "^="):
            return Present(token.text)
        operator, value = self._take(), self._take()
        if value.kind not in ("word", *_WORDS):
            raise self._expected(f"a value behind {operator.kind} (quote it if it is empty or odd)", value)
        return Compared(token.text, operator.kind, value.text)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _expected(self, what: str, found: _Token) -> UsageError:
        text = "the end" if found.kind == "end" else repr(found.text)
        return UsageError(f"filter {self._text!r}, character {found.at + 1}: expected {what}, found {text}")

    def _read(self, text: str) -> list[_Token]:
        tokens, at = [], 0
        while at < len(text.rstrip()):
            match = _token_re.match(text, at)
            if match is None:
                rest = text[at:].lstrip()
                raise UsageError(
                    f"filter {text!r}, character {len(text) - len(rest) + 1}: {rest[0]!r} is not closed"
                    " or stands for nothing; quote it"
                )
            tokens.append(_token(match))
            at = match.end()
        return [*tokens, _Token("end", "", len(text))]


def _token(match: re.Match[str]) -> _Token:
    at = match.end() - len(match[0].lstrip())
    if match["operator"]:
        return _Token(match["operator"], match["operator"], at)
    if match["quoted"]:
        return _Token("word", _escape_re.sub(r"\1", match["quoted"][1:-1]), at)
    word = match["word"]
    return _Token(word.lower() if word.lower() in _WORDS else "word", word, at)


Level = Literal["entry", "message", "any"]


class WhereDocument(TypedDict):
    """The verdict of a filter on an entry; `decided_at` is null if it could not be decided."""

    matches: bool
    decided_at: Literal["entry", "message"] | None
    messages: NotRequired[list[int]]
    why: NotRequired[str]


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The verdict of a filter on an entry, and which messages of a batch match.

    `decided_at` is "entry", "message", or None if it could not be decided; `why` is the reason.
    """

    matches: bool
    decided_at: Literal["entry", "message"] | None
    messages: tuple[int, ...] | None = None
    why: str | None = None

    def document(self) -> WhereDocument:
        """Convert to the JSON of `dump-entries --where`."""
        document: WhereDocument = {"matches": self.matches, "decided_at": self.decided_at}
        if self.messages is not None:
            document["messages"] = list(self.messages)
        if self.why:
            document["why"] = self.why
        return document


@dataclass(slots=True)
class FilterCounts:
    """Counts of entries: read, matching, decided at each level, undecided."""

    entries: int = 0
    matched: int = 0
    decided_at_entry: int = 0
    decided_at_message: int = 0
    undecided: int = 0
    undecided_why: dict[str, int] = field(default_factory=dict)

    def add(self, verdict: FilterVerdict) -> None:
        """Count one verdict."""
        self.entries += 1
        self.matched += verdict.matches
        self.decided_at_entry += verdict.decided_at == "entry" and verdict.why is None
        self.decided_at_message += verdict.decided_at == "message"
        if verdict.why is not None:
            self.undecided += 1
            self.undecided_why[verdict.why] = self.undecided_why.get(verdict.why, 0) + 1

    def merge(self, other: FilterCounts) -> None:
        """Add the counts of another process."""
        self.entries += other.entries
        self.matched += other.matched
        self.decided_at_entry += other.decided_at_entry
        self.decided_at_message += other.decided_at_message
        self.undecided += other.undecided
        for why, count in other.undecided_why.items():
            self.undecided_why[why] = self.undecided_why.get(why, 0) + count

    def summary(self) -> str:
        """Format the counts as one line."""
        text = (
            f"{self.entries} entries: {self.matched} match; {self.decided_at_entry} decided by their own"
            f" metadata, {self.decided_at_message} by opening them"
        )
        whys = "; ".join(f"{count} {why}" for why, count in sorted(self.undecided_why.items()))
        return f"{text}, {self.undecided} could not be decided" + (f" ({whys})" if whys else "")


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """A filter and how it is decided.

    `entry` uses only the entry's metadata, as a broker's EntryFilter would, and counts undecided batches in
    `why`. `message` opens every entry. `any` opens an entry only if its metadata can't decide. `hoisted` are
    properties that producers share in a batch.
    """

    filter: Filter
    level: Level = "any"
    hoisted: Collection[str] = ()
    max_size: int = DEFAULT_MAX_SIZE

    def decide(self, frame: Frame) -> FilterVerdict:
        """Decide whether an entry matches. If its payload can't be opened, the verdict is undecided.

        If a batch is damaged, a match among the messages before the damage decides.
        """
        if self.level == "entry":
            holds = self.filter.holds(properties_of(frame.metadata.properties))
            return FilterVerdict(
                holds, "entry", why=None if self.speaks(frame) else "batches, only opening tells"
            )
        if frame.metadata.HasField("marker_type"):
            return FilterVerdict(False, "entry")
        if self.level == "any" and self.speaks(frame):
            return FilterVerdict(self.filter.holds(properties_of(frame.metadata.properties)), "entry")
        return self._opened(frame)

    def speaks(self, frame: Frame) -> bool:
        """True if the entry's metadata has the filter's properties for all messages in it."""
        if not frame.metadata.HasField("num_messages_in_batch"):
            return True
        return self.filter.names() <= frozenset(self.hoisted)

    def _opened(self, frame: Frame) -> FilterVerdict:
        try:
            opened = open_entry(frame, max_size=self.max_size, partly=True)
        except DecodeError:
            return FilterVerdict(False, None, why="cannot be opened")
        if opened.unopened is not None and not frame.metadata.HasField("num_messages_in_batch"):
            # The properties of a chunk or an encrypted message are readable.
            return FilterVerdict(self.filter.holds(properties_of(frame.metadata.properties)), "entry")
        if opened.unopened is not None:
            return FilterVerdict(False, None, why=f"are {opened.unopened}")
        matching = tuple(
            message.batch_index or 0
            for message in opened.messages
            if not message.compacted_out and self.filter.holds(properties_of(message.metadata.properties))
        )
        if opened.fault is not None and not matching:
            # Unreadable messages might have matched.
            return FilterVerdict(False, None, why="cannot be opened")
        batch = frame.metadata.HasField("num_messages_in_batch")
        return FilterVerdict(bool(matching), "message", matching if batch else None)
