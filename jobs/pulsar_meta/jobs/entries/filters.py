"""A small filter language for properties: `region=eu and not (type^=test or retired)`.

    name=value    the property has this value        name^=start   its value begins with this text
    name!=value   it has another value               name          it exists
    not x, x and y, x or y, (x)                      'quoted' or "quoted" for words with special characters

`not` binds strongest, `or` weakest. A filter depends only on a mapping of names to values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from pulsar_meta.codecs.errors import UsageError

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
