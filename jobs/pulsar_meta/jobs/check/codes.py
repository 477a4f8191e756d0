"""Findings and the codes that they have.

Everything about a code is in `codes/NAME.md`: front matter (title, severity, group, evidence, error messages,
repair commands), then the sections Meaning, Broker, Cause, Fix and Exceptions. docs/findings.md and the JSON
Schema of a finding are generated from these files. A file is read when its code is first needed.
Its repair commands are templates that `with_repair` fills in.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pkgutil import get_data
from typing import Annotated, Any, Final, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName, decode_name, ledger_of_path
from pulsar_meta.codecs.shapes import ByMember, Members

_PACKAGE: Final = "pulsar_meta.jobs.check"
# Groups in the order of docs/findings.md, with their titles there.
GROUPS: Final[Mapping[str, str]] = {
    "records": "Records",
    "ledgers": "Ledgers",
    "entries": "Entries (with `--entries`)",
    "cursors": "Cursors",
    "segments": "Segments of scalable topics",
    "orphans": "Orphans",
    "bookies": "Bookies",
    "offload": "Tiered storage",
    "cluster": "Schemas, namespaces, the cluster",
}
# The kinds of evidence that a code's file can declare; a question mark after the kind allows null.
_KINDS: Final[Mapping[str, Any]] = {
    "number": int,
    "text": str,
    "yes or no": bool,
    "numbers": list[int],
    "texts": list[str],
    "position": tuple[int, int],
    "ledgers with positions": list[tuple[int, tuple[int, int]]],
}
PROGRAM: Final = "pulsar-meta"
PARTITIONED: Final = "/admin/partitioned-topics/"
SCHEMAS: Final = "/schemas/"
# Findings about a record of any kind: the kind of its path selects the command.
_OF_ANY_RECORD: Final = frozenset(("record-undecodable", "record-empty", "record-wrong-kind"))
_PLACEHOLDERS: Final = frozenset(("TOPIC", "LEDGER", "PARTITIONED", "CURSOR", "SCHEMA"))
# The place, evidence and repair of a finding, by the names of its fields.
Place = dict[str, Any]


class Severity(StrEnum):
    """Error: data is lost or unreachable. Warning: state is lost. Note: the broker handles it."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the most severe."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Code:
    """A finding code, as its file describes it. `severity` is the highest that its findings can have.

    `evidence` are the kinds of evidence by name, `errors` the messages in logs of brokers and clients,
    `repairs` templates of commands (placeholders in capitals), `no_repair` the reason if there is no command,
    `sections` the texts by their headings, `effect` the first paragraph of Broker. `one_record` is
    True if a single record proves the fault: then it doesn't matter when other records were read, or whether
    the store is a copy.
    """

    name: str
    title: str
    severity: Severity
    group: str
    evidence: Mapping[str, str]
    errors: tuple[str, ...]
    repairs: tuple[str, ...]
    no_repair: str
    one_record: bool
    sections: Mapping[str, str]
    effect: str

    @property
    def page(self) -> str:
        """The place of the code's explanation on the documentation site."""
        return page_of(self.name)

    @property
    def members(self) -> Members:
        """The shape of the evidence, for JSON Schemas."""
        return Members(f"evidence-{self.name}", f"{self.title}.", self._types)

    def _types(self) -> dict[str, Any]:
        # Schemas of findings are rarely needed.
        from pulsar_meta.jobs.topics.evidence import PieceDocument

        own = {name: _type_of(kind) for name, kind in self.evidence.items()}
        return own | {"for": list[PieceDocument], "against": list[PieceDocument]}


def _type_of(kind: str) -> Any:
    required = _KINDS[kind.removesuffix("?")]
    return required | None if kind.endswith("?") else required


def page_of(name: str) -> str:
    """Return the place of a code's explanation, relative to the root of the documentation site."""
    return f"findings/#{name}"


@cache
def code(name: str) -> Code:
    """Read the file of a code. Raises KeyError if there is none."""
    try:
        data = get_data(_PACKAGE, f"codes/{name}.md")
    except OSError:
        data = None
    if data is None:
        raise KeyError(name)
    return _parse(name, data.decode("utf-8"))


def _parse(name: str, text: str) -> Code:
    _, head, body = text.split("---\n", 2)
    values, lists = _front_matter(head.splitlines())
    parts = [part.partition("\n") for part in f"\n{body}".split("\n## ")[1:]]
    return Code(
        name,
        values["title"],
        Severity(values["severity"]),
        values["group"],
        dict(_pair(item) for item in lists.get("evidence", ())),
        tuple(lists.get("errors", ())),
        tuple(lists.get("repair", ())),
        values.get("no-repair", ""),
        values.get("rests-on") == "one record",
        {heading: " ".join(section.split()) for heading, _, section in parts},
        next(_first_paragraph(section) for heading, _, section in parts if heading == "Broker"),
    )


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().partition("\n\n")[0].split())


def _front_matter(lines: Iterable[str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the single values and the lists of a file's head, which is a small part of YAML."""
    values, lists, current = dict[str, str](), dict[str, list[str]](), list[str]()
    for line in lines:
        if line.startswith("  "):
            current.append(line.strip().removeprefix("- "))
            continue
        key, _, value = line.partition(":")
        if value:
            values[key] = value.strip()
        else:
            current = lists.setdefault(key, [])
    return values, lists


def _pair(item: str) -> tuple[str, str]:
    name, _, kind = item.rpartition(": ")
    return name, kind


@cache
def all_codes() -> Mapping[str, Code]:
    """Return every code by name, by group, the most severe first."""
    # Only needed for a page, a schema or a choice of codes.
    from importlib.resources import files

    names = (file.name.removesuffix(".md") for file in files(_PACKAGE).joinpath("codes").iterdir())
    groups = list(GROUPS)
    ordered = sorted(
        map(code, names), key=lambda each: (groups.index(each.group), each.severity.rank, each.name)
    )
    return {each.name: each for each in ordered}


def chosen_codes(only: Sequence[str], excluded: Sequence[str]) -> frozenset[str] | None:
    """Return the names of the chosen codes, None for all; each word is a code or a group, or several.

    Raises UsageError if a word is neither.
    """
    if not only and not excluded:
        return None
    chosen = frozenset(_expand(only)) or frozenset(all_codes())
    return chosen - frozenset(_expand(excluded))


def _expand(words: Iterable[str]) -> Iterator[str]:
    for word in (part.strip() for text in words for part in text.split(",")):
        if word in GROUPS:
            yield from (name for name, each in all_codes().items() if each.group == word)
        elif word in all_codes():
            yield word
        else:
            raise UsageError(f"{word!r} is not a code or a group: groups are {', '.join(GROUPS)}")


class Places(TypedDict, total=False):
    """The place of a finding, as it is printed."""

    topic: str
    scalable_topic: str
    cursor: str
    ledger_id: int
    path: str


def _evidence() -> dict[str, Members]:
    """Return the types of `evidence` by `code`."""
    return {name: each.members for name, each in all_codes().items()}


class FindingDocument(Places):
    """A finding of `check`: the problem, its place, the compared values, and the command that repairs it."""

    code: str
    severity: Severity
    message: str
    evidence: Annotated[Document, ByMember("code", _evidence)]
    repair: NotRequired[str]
    page: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, or a fact worth knowing: its place, and the values that were compared.

    `topic` is a full name, `cursor` a subscription's name, `repair` a command. `scalable_topic` is the topic
    that `topic` is a segment of, or `topic` itself. `undecided` is True if the evidence allows no repair.
    """

    code: str
    severity: Severity
    message: str
    topic: str | None = None
    cursor: str | None = None
    ledger_id: int | None = None
    path: str | None = None
    evidence: Document = field(default_factory=dict)
    repair: str | None = None
    scalable_topic: str | None = None
    undecided: bool = False

    @property
    def place(self) -> tuple[object, ...]:
        """The identity of a finding: two findings with the same code and place are the same."""
        return self.code, self.topic, self.cursor, self.ledger_id, self.path

    def document(self) -> FindingDocument:
        """Return the finding as it is printed, without the places that it doesn't have."""
        document: FindingDocument = {
            "code": self.code,
            "severity": self.severity,
            **self._places(),
            "message": self.message,
            "evidence": self.evidence,
            "page": page_of(self.code),
        }
        if self.repair is not None:
            document["repair"] = self.repair
        return document

    def _places(self) -> Places:
        places: Places = {}
        if self.topic is not None:
            places["topic"] = self.topic
        if self.scalable_topic is not None:
            places["scalable_topic"] = self.scalable_topic
        if self.cursor is not None:
            places["cursor"] = self.cursor
        if self.ledger_id is not None:
            places["ledger_id"] = self.ledger_id
        if self.path is not None:
            places["path"] = self.path
        return places


def finding(name: str, message: str, *, severity: Severity | None = None, **fields: Any) -> Finding:
    """Return a finding of a code, with the code's severity by default; `fields` are those of Finding."""
    return Finding(name, severity or code(name).severity, message, **fields)


def first_of(items: Sequence[object], most: int) -> str:
    """Return the first `most` items for a finding's text, with "…" if there are more."""
    return ", ".join(map(str, items[:most])) + (", …" if len(items) > most else "")


def with_repair(finding: Finding) -> Finding:
    """Return the finding with the command that repairs it, if it has none yet and there is one."""
    # A broker handles a note without help, but an unfinished offload can be cleared away.
    needed = finding.severity is not Severity.NOTE or finding.code == "offload-unfinished"
    needed = needed and not finding.undecided
    words = _command(finding) if needed and finding.repair is None else None
    return finding if words is None else replace(finding, repair=command_line(*words))


def command_line(*words: str) -> str:
    """Return a command of pulsar-meta as it is typed into a shell."""
    return shlex.join([PROGRAM, *words])


def _command(finding: Finding) -> list[str] | None:
    """Fill the first template for which the finding has every placeholder."""
    templates: Iterable[str] = code(finding.code).repairs
    if finding.evidence.get("bookkeeper_deleted"):
        # The entries were only in tiered storage, so only the list can be corrected.
        templates = ["repair missing-ledger TOPIC LEDGER"]
    places = _places_by_path(finding) if finding.code in _OF_ANY_RECORD else _places(finding)
    for template in templates:
        words = template.split()
        if all(word in places for word in words if word in _PLACEHOLDERS):
            return [*(places.get(word, word) for word in words), *_options(finding)]
    return None


def _options(finding: Finding) -> list[str]:
    """Return the options that depend on the topic: a sealed segment never accepts messages again."""
    sealed = finding.code == "terminated-before-end" and (finding.topic or "").startswith("segment://")
    return ["--at-end"] if sealed else []


def _places(finding: Finding) -> Mapping[str, str]:
    topic = None if finding.topic is None else TopicName.parse(finding.topic)
    partitioned = None if topic is None else topic.partitioned
    places = {
        "TOPIC": finding.topic,
        "LEDGER": None if finding.ledger_id is None else str(finding.ledger_id),
        "PARTITIONED": None if partitioned is None else str(partitioned),
        "CURSOR": finding.cursor,
    }
    return {name: value for name, value in places.items() if value is not None}


def _places_by_path(finding: Finding) -> Mapping[str, str]:
    """Return the placeholders for the kind of record that the finding's path belongs to."""
    path = finding.path or ""
    ledger_id = ledger_of_path(path)
    if ledger_id is not None:
        # No topic misses a ledger that none refers to.
        return {} if finding.topic is None else {"LEDGER": str(ledger_id)}
    topic = TopicName.from_path(path)
    if topic is not None and finding.cursor is None:
        return {"TOPIC": str(topic)}
    if path.startswith(PARTITIONED):
        return _named_by("PARTITIONED", path.removeprefix(PARTITIONED), "/persistent/")
    if finding.topic is not None and finding.cursor is not None:
        return {"TOPIC": finding.topic, "CURSOR": finding.cursor}
    return _named_by("SCHEMA", path.removeprefix(SCHEMAS), "/") if path.startswith(SCHEMAS) else {}


def _named_by(placeholder: str, path: str, separator: str) -> Mapping[str, str]:
    """Return a placeholder with the topic at the end of a path, nothing if the path has no topic."""
    namespace, _, local = path.rpartition(separator)
    try:
        return {placeholder: f"persistent://{namespace}/{decode_name(local)}"} if namespace else {}
    except DecodeError:
        return {}
