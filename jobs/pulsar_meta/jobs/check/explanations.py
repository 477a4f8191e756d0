"""Find the explanation of a finding code by the code's name, or by a message of a broker or client."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, NotRequired, TypedDict

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.jobs.check.codes import Code, Severity, all_codes

# A shorter part of a message fits too many messages.
_SHORTEST: Final = 6
_exception_re: Final = re.compile(r"\w{1,120}(?:exception|error)\b")
_Score = Callable[[str, str], int]


class Explanation(TypedDict):
    """Everything about a finding code. `page` is its place on the documentation site; texts are Markdown."""

    code: str
    severity: Severity
    group: str
    title: str
    meaning: str
    broker: str
    cause: str
    fix: str
    exceptions: NotRequired[str]
    errors: list[str]
    repairs: list[str]
    no_repair: NotRequired[str]
    page: str


def explanation(code: Code) -> Explanation:
    """Return the explanation of a code as it is printed."""
    texts = code.sections
    document: Explanation = {
        "code": code.name,
        "severity": code.severity,
        "group": code.group,
        "title": code.title,
        "meaning": texts["Meaning"],
        "broker": texts["Broker"],
        "cause": texts["Cause"],
        "fix": texts["Fix"],
        "errors": list(code.errors),
        "repairs": [f"pulsar-meta {command}" for command in code.repairs],
        "page": code.page,
    }
    if "Exceptions" in texts:
        document["exceptions"] = texts["Exceptions"]
    if code.no_repair:
        document["no_repair"] = code.no_repair
    return document


def find_codes(text: str) -> list[Code]:
    """Return the code with this name, or the codes that explain a message, best match first.

    The message may be a complete line of a log, or part of a message. Raises NotFoundError with similar
    codes if nothing matches.
    """
    name = text.strip().lower()
    if name in all_codes():
        return [all_codes()[name]]
    codes = _ranked(_normalized(text), _score_text) or _ranked(_normalized(text), _score_exceptions)
    if not codes:
        raise NotFoundError(f"no finding code or broker message matches {text!r}: {_advice(name)}")
    return codes


def _normalized(text: str) -> str:
    return " ".join(text.lower().split())


def _ranked(text: str, score: _Score) -> list[Code]:
    """Return the codes with matching messages; codes of which more or longer messages match come first."""
    scores = {
        name: sum(score(text, _normalized(message)) for message in code.errors)
        for name, code in all_codes().items()
    }
    return [all_codes()[name] for name in sorted(scores, key=lambda name: -scores[name]) if scores[name]]


def _score_text(text: str, message: str) -> int:
    """Return the length of the common text if one contains the other, else 0; `…` stands for any text."""
    if re.search(".*".join(map(re.escape, message.split("…"))), text):
        return len(message)
    return len(text) if len(text) >= _SHORTEST and text in message else 0


def _score_exceptions(text: str, message: str) -> int:
    """Return the length of the longest exception name in both texts, else 0."""
    common = {*_exception_re.findall(text)} & {*_exception_re.findall(message)}
    return max(map(len, common), default=0)


def _advice(name: str) -> str:
    similar = get_close_matches(name, all_codes(), cutoff=0.7) or _with_words(name)
    if similar:
        return f"did you mean {', '.join(similar)}?"
    return "run pulsar-meta explain for a list of the codes"


def _with_words(name: str) -> list[str]:
    """Return up to three codes whose name or title has all words of a text."""
    words = set(re.findall(r"\w+", name))
    texts = {code.name: f"{code.name} {code.title}".lower() for code in all_codes().values()}
    return [each for each, text in texts.items() if words and words <= set(re.findall(r"\w+", text))][:3]
