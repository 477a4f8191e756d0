"""Generate docs/findings.md from the files of the finding codes in jobs/check/codes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any, Final

# As wide as the other pages are.
WIDTH: Final = 112
ERRORS: Final = Path(__file__).parent.parent / "docs" / "errors"
_RECORDS: Final = ("record-undecodable", "record-empty", "record-wrong-kind")
_INTRODUCTION: Final = """# What `check` finds

Every finding of `pulsar-meta check` has one of these codes. `pulsar-meta explain CODE` prints the same
explanation, and `pulsar-meta explain "MESSAGE"` finds it by an error message of a broker.

- **error**: data is lost, unreachable or silently skipped, or a topic doesn't load.
- **warning**: the broker recovers and loses some state, or the problem is probably an error and could not be
  confirmed.
- **note**: the broker handles it.

We tested the effects on brokers, and the fixes, with real brokers (4.0.7 and 4.2.4) unless a code says
otherwise. One access to any topic of a bundle loads all topics of the bundle, so repair everything that
loading would destroy before a broker runs. At their next garbage collection, bookies delete the entries of
ledgers without metadata.

The disks of running bookies, and the RocksDB of a running standalone, are read as they were when `check`
opened them. If a disk or database changes while `check` reads it, findings that depend on comparing the two
are held back. `check` reopens the store and then the disks, and reports only what it finds twice in a row.
Findings on which no two looks agree are reported on stderr as not checked. If the store is a copy, `check`
can't tell which side is newer, so it reports such errors as warnings. Bookies with `journalWriteData=false`
keep their newest entries in memory only, so their disks prove nothing: use `--entries bookie:`.
"""


def findings_page() -> str:
    """Return docs/findings.md."""
    codes = import_module("pulsar_meta.jobs.check.codes")
    parts = [_INTRODUCTION]
    for group, title in codes.GROUPS.items():
        parts.append(f"## {title}\n\n`--only {group}` reports only these.\n")
        parts += [_section(code) for code in codes.all_codes().values() if code.group == group]
    return "\n".join(parts)


@cache
def error_pages() -> dict[str, str]:
    """Return the pages in docs/errors by their titles, which are error messages of brokers."""
    pages = {page.read_text(encoding="utf-8").splitlines()[0]: page.stem for page in ERRORS.glob("*.md")}
    return {title.removeprefix("# "): stem for title, stem in pages.items()}


def _section(code: Any) -> str:
    errors, pages, texts = "\n".join(["```text", *code.errors, "```"]), error_pages(), code.sections
    parts = [
        f"### {code.name}\n\n**{code.severity}** · {code.title}.\n",
        _paragraph("", texts["Meaning"]),
        _paragraph("Effect on brokers.", texts["Broker"]),
        *([f"In the logs of brokers or clients:\n\n{errors}\n"] if code.errors else []),
        *(f"More: [{error}](errors/{pages[error]}.md).\n" for error in code.errors if error in pages),
        _paragraph("Cause.", texts["Cause"]),
        *([_paragraph("Exceptions.", texts["Exceptions"])] if "Exceptions" in texts else []),
        *([_paragraph("Evidence.", _names(code.evidence))] if code.evidence else []),
        _paragraph("Fix.", texts["Fix"]),
        _paragraph("Repair.", _repair(code)),
    ]
    return "\n".join(parts)


def _names(evidence: Iterable[str]) -> str:
    return f"With `-o json`, if known: {', '.join(f'`{name}`' for name in evidence)}."


def _repair(code: Any) -> str:
    """Return the commands that repair findings of a code, or the reason if there are none."""
    if not code.repairs:
        return f"No command: {code.no_repair}."
    commands = " or ".join(f"`pulsar-meta {template}`" for template in code.repairs)
    return f"Depending on the record's path, {commands}." if code.name in _RECORDS else f"{commands}."


def _paragraph(heading: str, text: str) -> str:
    whole = f"**{heading}** {text}" if heading else text
    return fill(whole, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"
