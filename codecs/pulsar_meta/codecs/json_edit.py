"""Change values in a JSON text and keep everything else byte for byte.

Unchanged values keep their spelling: spacing, the order of members, escapes, digits and duplicate members. A
number that other programs have rounded counts as unchanged, because most of them hold numbers as doubles
(RFC 8259, section 6). So does an integer that is shown as a string because a double can't hold it
(`json_text.safe`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import pairwise, takewhile
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import LITERALS, Number, java_json, safe

_space_re: Final = re.compile(r"[ \t\r\n\ufeff]*")


@dataclass(frozen=True, slots=True)
class Edited:
    """An edited text. `rounded` has the paths of numbers that came back rounded and were kept as stored."""

    text: str
    rounded: tuple[str, ...] = ()


def edit_json(text: str, value: Any, path: str = "value") -> Edited:
    """Edit the JSON `text` so that it represents `value`.

    `value` is parsed JSON with literals, in the form of `json_text.safe`. Raises DecodeError, naming the
    place below `path`, if a change is ambiguous.
    """
    source = _Source(text)
    root = source.node(source.after_space(0))
    edit = _Edit(text, source.digits, source.doubles)
    return Edited(text[: root.start] + edit.edited(root, value, path) + text[root.end :], tuple(edit.rounded))


@dataclass(slots=True)
class _Node:
    """A value at [`start`, `end`) of a text. Scalars have `shown`, objects `members`, lists `items`."""

    start: int
    end: int
    shown: Any = None
    literal: str | None = None
    members: list[_Member] | None = None
    items: list[_Node] | None = None

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The start and end of each member or item."""
        if self.members is not None:
            return [(member.start, member.node.end) for member in self.members]
        return [(item.start, item.end) for item in self.items or ()]

    @property
    def named(self) -> dict[str, _Node]:
        """The members by name. The last of several duplicates wins, as in most parsers."""
        return {member.name: member.node for member in self.members or ()}


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of an object: its name, the offset of its opening quote, the text of its colon, its value."""

    name: str
    start: int
    colon: str
    node: _Node


@dataclass(slots=True)
class _Source:
    """Parses a text into nodes, and collects the numbers that don't survive a round trip through a double.

    `digits` has the literals that are shown as strings. `doubles` maps a rounded number to its literal.
    """

    text: str
    digits: set[str] = field(default_factory=set)
    doubles: dict[Decimal, str] = field(default_factory=dict)

    def after_space(self, at: int) -> int:
        """Return the offset of the next character that is not a space."""
        match = _space_re.match(self.text, at)
        return at if match is None else match.end()

    def node(self, start: int) -> _Node:
        """Return the value that begins at `start`."""
        opening = self.text[start]
        if opening == "{":
            return self._object(start)
        return self._list(start) if opening == "[" else self._scalar(start)

    def _object(self, start: int) -> _Node:
        members, at = list[_Member](), self.after_space(start + 1)
        while self.text[at] != "}":
            members.append(self._member(at))
            at = self._next(members[-1].node.end)
        return _Node(start, at + 1, members=members)

    def _list(self, start: int) -> _Node:
        items, at = list[_Node](), self.after_space(start + 1)
        while self.text[at] != "]":
            items.append(self.node(at))
            at = self._next(items[-1].end)
        return _Node(start, at + 1, items=items)

    def _next(self, at: int) -> int:
        """Return the offset of the next part or closing bracket, after a part that ends at `at`."""
        at = self.after_space(at)
        return self.after_space(at + 1) if self.text[at] == "," else at

    def _member(self, start: int) -> _Member:
        name, end = LITERALS.raw_decode(self.text, start)
        at = self.after_space(self.after_space(end) + 1)
        return _Member(name, start, self.text[end:at], self.node(at))

    def _scalar(self, start: int) -> _Node:
        value, end = LITERALS.raw_decode(self.text, start)
        node = _Node(start, end, safe(value))
        if isinstance(value, (int, float, Number)) and not isinstance(value, bool):
            node.literal = self.text[start:end]
            if node.shown is not value or isinstance(value, Number):
                self._note(node.literal, node.shown)
        return node

    def _note(self, literal: str, shown: Any) -> None:
        if isinstance(shown, str):
            self.digits.add(literal)
        double = _decimal(repr(float(literal)))
        if double is not None and _decimal(literal) != double:
            self.doubles[double] = literal


@dataclass(slots=True)
class _Edit:
    """Builds the new text. `rounded` collects the paths of numbers that came back rounded and are kept."""

    text: str
    digits: set[str]
    doubles: dict[Decimal, str]
    rounded: list[str] = field(default_factory=list)

    def edited(self, node: _Node, value: Any, path: str) -> str:
        """Return the text of `node`, changed so that it represents `value`."""
        if _is_same(node, value):
            self.rounded += _rounded(node, value, path)
            return self.text[node.start : node.end]
        if node.members is not None and isinstance(value, dict):
            return self._object(node, node.members, value, path)
        if node.items is not None and isinstance(value, list):
            return self._list(node, node.items, value, path)
        return self._new(value, path)

    def _object(self, node: _Node, members: list[_Member], value: dict[str, Any], path: str) -> str:
        """Change and remove members of an object; new members are appended."""
        counts, named = Counter(member.name for member in members), node.named
        parts: list[str | None] = []
        for member in members:
            here, head = f"{path}.{member.name}", self.text[member.start : member.node.start]
            if counts[member.name] > 1:
                self._check_duplicate(named[member.name], value, member.name, here)
                parts.append(self.text[member.start : member.node.end])
            elif member.name in value:
                parts.append(head + self.edited(member.node, value[member.name], here))
            else:
                parts.append(None)
        colon = members[0].colon if members else ":"
        names = [name for name in value if name not in counts]
        new = [java_json(name) + colon + self._new(value[name], f"{path}.{name}") for name in names]
        return self._joined(node, [*parts, *new])

    def _check_duplicate(self, last: _Node, value: dict[str, Any], name: str, path: str) -> None:
        if name not in value or not _is_same(last, value[name]):
            raise DecodeError(f"{path}: the stored text has this member twice; edit it with --raw")

    def _list(self, node: _Node, items: list[_Node], values: list[Any], path: str) -> str:
        """Change, insert and remove items of a list between the unchanged items at its two ends."""
        tail = _tail(items, values)
        middle = min(len(items), len(values)) - tail
        parts: list[str | None] = [
            self.edited(item, value, f"{path}[{at}]")
            for at, (item, value) in enumerate(zip(items[:middle], values, strict=False))
        ]
        parts += [None] * (len(items) - tail - middle)
        more = range(middle, len(values) - tail)
        new = [self._new(values[at], f"{path}[{at}]") for at in more]
        first = len(values) - tail
        last = enumerate(zip(items[len(items) - tail :], values[first:], strict=True), first)
        after = [self.edited(item, value, f"{path}[{at}]") for at, (item, value) in last]
        return self._joined(node, [*parts, *new, *after], inserted=range(len(parts), len(parts) + len(new)))

    def _joined(self, node: _Node, parts: Sequence[str | None], inserted: range | None = None) -> str:
        """Join the parts of a list or object with brackets; None marks a removed part.

        `inserted` has the numbers of the new parts. By default, these are all after the existing ones.
        """
        spans = node.spans
        new = range(len(spans), len(parts)) if inserted is None else inserted
        lead = self.text[node.start + 1 : spans[0][0]] if spans else ""
        between = [self.text[left[1] : right[0]] for left, right in pairwise(spans)]
        usual = between[0] if between else f",{lead}"
        gaps = iter([usual, *between])
        texts = [(usual if at in new else next(gaps, usual), part) for at, part in enumerate(parts)]
        kept = [(gap, part) for gap, part in texts if part is not None]
        if not kept:
            return self.text[node.start] + self.text[node.end - 1]
        closing = self.text[spans[-1][1] : node.end] if spans else self.text[node.end - 1]
        inner = kept[0][1] + "".join(gap + part for gap, part in kept[1:])
        return self.text[node.start] + lead + inner + closing

    def _new(self, value: Any, path: str) -> str:
        """Return the text of a new value."""
        self._check(value, path)
        return java_json(value)

    def _check(self, value: Any, path: str) -> None:
        """Raise DecodeError if a new value may be a changed form of a number from elsewhere in the text."""
        if isinstance(value, dict):
            for name, member in value.items():
                self._check(member, f"{path}.{name}")
        elif isinstance(value, list):
            for at, member in enumerate(value):
                self._check(member, f"{path}[{at}]")
        elif isinstance(value, str) and value in self.digits:
            raise DecodeError(f'{path}: "{value}" may be a number or a string; edit the text with --raw')
        elif _is_number(value):
            number = _decimal(_literal(value))
            literal = None if number is None else self.doubles.get(number)
            if literal is not None:
                raise DecodeError(f"{path}: this may be {literal}, rounded; write all digits of the number")


def _is_same(node: _Node, value: Any) -> bool:
    """Return True if `value` is what the text says, apart from rounding by other programs."""
    if node.members is not None:
        named = node.named
        return (
            isinstance(value, dict)
            and named.keys() == value.keys()
            and all(_is_same(member, value[name]) for name, member in named.items())
        )
    if node.items is not None:
        is_alike = isinstance(value, list) and len(value) == len(node.items)
        return is_alike and all(map(_is_same, node.items, value))
    if node.literal is not None and _is_number(value):
        return _is_exact(node.literal, value) or _decimal(_literal(value)) in _doubles_of(node.literal)
    return type(value) is type(node.shown) and bool(value == node.shown)


def _rounded(node: _Node, value: Any, path: str) -> Iterator[str]:
    """Yield the paths of numbers in an unchanged value that came back rounded."""
    if node.members is not None:
        for name, member in node.named.items():
            yield from _rounded(member, value[name], f"{path}.{name}")
    elif node.items is not None:
        for at, item in enumerate(node.items):
            yield from _rounded(item, value[at], f"{path}[{at}]")
    elif node.literal is not None and _is_number(value) and not _is_exact(node.literal, value):
        yield path


def _tail(items: Sequence[_Node], values: Sequence[Any]) -> int:
    """Count the unchanged items at the end, except those counted as unchanged at the beginning."""
    most = min(len(items), len(values)) - _alike(zip(items, values, strict=False))
    return min(most, _alike(zip(reversed(items), reversed(values), strict=False)))


def _alike(pairs: Iterable[tuple[_Node, Any]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: _is_same(*pair), pairs))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Number)) and not isinstance(value, bool)


def _is_exact(literal: str, value: int | float | Number) -> bool:
    """Return True if two numbers are equal to the last digit."""
    given = _literal(value)
    if literal == given:
        return True
    number = _decimal(literal)
    return number is not None and number == _decimal(given)


def _literal(value: int | float | Number) -> str:
    return value.text if isinstance(value, Number) else repr(value)


def _decimal(literal: str) -> Decimal | None:
    """Return a number exactly, or None if Decimal can't represent it."""
    try:
        return Decimal(literal)
    except InvalidOperation:
        return None


def _doubles_of(literal: str) -> set[Decimal | None]:
    """Return the numbers that programs print for a literal's double: the shortest one, and 17 digits."""
    number = float(literal)
    return {_decimal(repr(number)), _decimal(f"{number:.17g}")} - {None}
