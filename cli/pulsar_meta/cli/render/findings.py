"""Findings of `check`, and explanations of their codes, as blocks for a terminal, rows, and HTML."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.render.metrics import namespace_of
from pulsar_meta.cli.render.pages import Cell, Column, Row, Section, table
from pulsar_meta.cli.render.tables import Detail, View
from pulsar_meta.cli.render.text import Screen
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.check.codes import FindingDocument, Severity, code
from pulsar_meta.jobs.check.explanations import Explanation, explanation

COPIES = ("snapshot:", "zk-files:")
FIELDS = (
    "code", "severity", "topic", "cursor", "ledger_id", "path", "message", "evidence", "repair",
    "scalable_topic",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GivenPlaces:
    """The options of this command line that a repair command needs, too, by the commands that accept them."""

    store: Sequence[str] = ()
    entries: Sequence[str] = ()
    other_stores: Sequence[str] = ()


def given_places(
    store: str | None,
    entries: Iterable[str] | None,
    *,
    ledger_store: str | None = None,
    other_stores: Iterable[str] | None = None,
) -> GivenPlaces:
    """Return the options with the places of this command line.

    The URL of a copy is left out, because a repair has to change the original.
    """
    stores = (("--store", store), ("--ledger-store", ledger_store))
    originals = [(option, url) for option, url in stores if url is not None and not url.startswith(COPIES)]
    return GivenPlaces(
        _words(originals),
        _words(("--entries", url) for url in entries or ()),
        _words(("--other-store", url) for url in other_stores or ()),
    )


def _words(options: Iterable[tuple[str, str]]) -> list[str]:
    return [word for option, url in options for word in (option, redact(url))]


def with_places(document: FindingDocument, given: GivenPlaces) -> FindingDocument:
    """Return the finding with the given places in its repair command."""
    if "repair" not in document:
        return document
    words = shlex.split(document["repair"])
    verb = words[2] if words[1] == "repair" else ""
    entries = given.entries if verb not in ("", "partitions") else ()
    others = given.other_stores if verb in ("topic-record", "adopt") else ()
    return {**document, "repair": shlex.join([*words, *given.store, *entries, *others])}


def _row(finding: Document) -> list[str]:
    ledger = finding.get("ledger_id")
    return [
        finding["severity"],
        finding["code"],
        finding.get("topic") or finding.get("path") or "",
        finding.get("cursor", ""),
        "" if ledger is None else str(ledger),
        finding["message"],
        finding.get("repair", ""),
    ]


def finding_block(finding: Document, screen: Screen) -> Iterator[str]:
    """Yield a finding as lines: its place, the cause, what brokers do, and the command that repairs it."""
    about = code(finding["code"])
    yield _heading(finding["severity"], about.name, screen)
    yield from screen.prose(_place(finding))
    yield from screen.prose(finding["message"])
    yield from screen.prose(about.effect, "broker")
    if "repair" in finding:
        yield screen.command(finding["repair"], "fix")
    else:
        yield from screen.prose(about.sections["Fix"], "fix")
    yield screen.command(f"pulsar-meta explain {about.name}", "explain")


def _heading(severity: str, name: str, screen: Screen) -> str:
    return f"{screen.paint(severity, severity)}  {screen.paint(name, 'bold')}"


def _place(finding: Document) -> str:
    ledger = finding.get("ledger_id")
    parts = [
        finding.get("topic", ""),
        f"subscription {finding['cursor']}" if "cursor" in finding else "",
        "" if ledger is None else f"ledger {ledger}",
    ]
    return ", ".join(filter(None, parts)) or finding.get("path", "the whole store")


@dataclass(frozen=True, slots=True)
class FindingsView(View):
    """Findings; an HTML page also counts them and explains their codes."""

    def sections(self, documents: Iterable[Document]) -> Iterator[Section]:
        """Yield two summaries, the findings, and the explanation of each code, to which the tables link."""
        findings = list(documents)
        counts = Counter((finding["severity"], finding["code"]) for finding in findings)
        if counts:
            yield _summary(counts)
            yield _by_namespace(findings)
        for section in View.sections(self, findings):
            at = [column.heading for column in section.columns].index("code") if findings else 0
            yield replace(section, heading="Findings", rows=[_linked(row, at) for row in section.rows])
        for name in dict.fromkeys(name for _, name in counts):
            yield Section(name, list(_paragraphs(explanation(code(name)))), anchor=name)


def _paragraphs(document: Explanation) -> Iterator[str]:
    """Yield an explanation as the paragraphs of an HTML page."""
    yield f"{document['title']}."
    yield document["meaning"]
    for name in ("broker", "cause", "fix", "exceptions"):
        if name in document:
            yield f"{name}: {document[name]}"
    if document["repairs"]:
        yield f"repair: {_codes(document['repairs'])}"
    if "no_repair" in document:
        yield f"repair: no command; {document['no_repair']}"
    if document["errors"]:
        yield f"in logs: {_codes(document['errors'])}"


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _summary(counts: Counter[tuple[str, str]]) -> Section:
    ordered = sorted(counts.items(), key=lambda item: (Severity(item[0][0]).rank, -item[1]))
    rows = [
        Row([Cell(severity), Cell(name, link=name), Cell(str(count)), Cell(code(name).title)])
        for (severity, name), count in ordered
    ]
    columns = [Column("severity"), Column("code"), Column("findings", "number"), Column("meaning")]
    return Section("Summary", columns=columns, rows=rows)


def _by_namespace(findings: Iterable[Document]) -> Section:
    counts = Counter(namespace_of(finding) or "(none)" for finding in findings)
    rows = [[name, str(count)] for name, count in counts.most_common()]
    bars = {"findings": [count for _, count in counts.most_common()]}
    section = table(["namespace", "findings"], rows, right=frozenset({"findings"}), bars=bars)
    return replace(section, heading="By namespace")


def _linked(row: Row, at: int) -> Row:
    cells = [replace(cell, link=cell.text) if place == at else cell for place, cell in enumerate(row.cells)]
    return replace(row, cells=cells)


VIEW = FindingsView(
    ["severity", "code", "where", "cursor", "ledger", "what", "repair"],
    _row,
    frozenset({"ledger"}),
    fields=FIELDS,
    title="Findings",
    block=finding_block,
)


def explanation_block(document: Document, screen: Screen) -> Iterator[str]:
    """Yield everything about a finding code as lines."""
    yield _heading(document["severity"], document["code"], screen)
    yield from screen.prose(f"{document['title']}.")
    yield ""
    yield from screen.prose(document["meaning"])
    yield ""
    for name in ("broker", "cause", "fix", "exceptions"):
        if name in document:
            yield from screen.prose(document[name], name)
    labels = chain(["repair"], repeat(""))
    yield from (screen.command(command, next(labels)) for command in document["repairs"])
    if "no_repair" in document:
        yield from screen.prose(f"no command; {document['no_repair']}", "repair")
    labels = chain(["in logs"], repeat(""))
    yield from (screen.command(message, next(labels)) for message in document["errors"])


_EXPLANATION_FIELDS = (
    "code", "severity", "group", "title", "meaning", "broker", "cause", "fix", "exceptions", "errors",
    "repairs", "no_repair", "page",
)  # fmt: skip
EXPLANATION = Detail(
    lambda document: explanation_block(document, Screen()),
    fields=_EXPLANATION_FIELDS,
    block=explanation_block,
)
CODES = View(
    ["severity", "code", "meaning"],
    lambda document: [document["severity"], document["code"], document["title"]],
    fields=_EXPLANATION_FIELDS,
)
