"""What goes to and fro between this process and those that work for it; plain values, pickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources

Input = TypeVar("Input")
Result = TypeVar("Result")
# Takes bytes of a part's output, in order.
Write = Callable[[Buffer], object]
# What is done of each part: it gets the sources, the part, and where output goes. To be a function of a
# module, or an object of such a class.
Work = Callable[[Opened, Input, Write], Result]


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a process: where entries are, and what is to be done of each part."""

    sources: Sources
    work: Work[Any, Any]


@dataclass(frozen=True, slots=True)
class Ready:
    """The first answer: the sources are open."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the work. The next one comes when this one is done."""

    input: Any


@dataclass(frozen=True, slots=True)
class Turn:
    """All parts before this one are done: its output may be written."""


@dataclass(frozen=True, slots=True)
class End:
    """There are no more parts."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What was raised in place of a result."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a part, whose output is written."""

    result: Any | Failure


@dataclass(frozen=True, slots=True)
class Met:
    """The last answer: what each part of the sources noted, and found damaged beside what was read."""

    notes: tuple[tuple[str, ...], ...]
    faults: tuple[tuple[DecodeError, ...], ...]
