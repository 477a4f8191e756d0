"""All codes, by group, and the page of `docs/findings.md` that is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import fill
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.check import (
    bookies,
    cluster,
    cookies,
    copies,
    cursors,
    entries,
    ledgers,
    orphans,
    pointers,
    records,
    schemas,
    segments,
    tiered,
)
from pulsar_meta.jobs.check.codes import Code
from pulsar_meta.jobs.check.repairs import OF_RECORDS, PACKED, PROGRAM, REPAIRS, WITHOUT
from pulsar_meta.jobs.check.sight import Check

# As wide as the other pages are.
WIDTH: Final = 112
ENTRIES: Final = "entries"


class Group(NamedTuple):
    """Codes that belong together, and the checks of topics for them; `of_cursors`: they look at cursors."""

    title: str
    codes: tuple[Code, ...]
    checks: tuple[Check, ...] = ()
    of_cursors: bool = True


GROUPS: Final[dict[str, Group]] = {
    "records": Group("Records", records.CODES, records.TOPIC_CHECKS),
    "ledgers": Group("Ledgers", ledgers.CODES, ledgers.TOPIC_CHECKS, False),
    ENTRIES: Group(
        "Entries (with `--entries`)",
        entries.CODES + copies.CODES,
        entries.TOPIC_CHECKS + copies.TOPIC_CHECKS + schemas.TOPIC_CHECKS,
        False,
    ),
    "cursors": Group("Cursors", cursors.CODES + pointers.CODES, cursors.TOPIC_CHECKS + pointers.TOPIC_CHECKS),
    "segments": Group("Segments of scalable topics", segments.CODES),
    "orphans": Group("Orphans", orphans.CODES),
    "bookies": Group("Bookies", bookies.CODES + cookies.CODES),
    "offload": Group("Tiered storage", tiered.CODES, tiered.TOPIC_CHECKS, False),
    "cluster": Group("Schemas, namespaces, the cluster", schemas.CODES + cluster.CODES),
}
# Pages of docs/errors, each by the broker's words that are its title.
ERROR_PAGES: Final = {
    "LedgerNotExistException: No such ledger exists on Metadata Server": "no-such-ledger-on-metadata-server",
    "LedgerNotExistException: No such ledger exists on Bookies": "no-such-ledger-on-bookies",
    "NonRecoverableLedgerException: No such entry": "no-such-entry",
    "InvalidProtocolBufferException": "invalid-protocol-buffer",
    "IllegalReferenceCountException: refCnt: 0": "ref-cnt-0",
    "Error opening metadata ledger": "error-opening-metadata-ledger",
    "Put schema failed": "put-schema-failed",
    "Timed out after 60 seconds initializing the topic policies cache": "topic-policies-cache",
    "Partition metadata not found for the partitioned topic": "partition-metadata-not-found",
    "InvalidCookieException": "invalid-cookie",
}
CODES: Final[dict[str, Code]] = {code.name: code for group in GROUPS.values() for code in group.codes}


def chosen_codes(only: Iterable[str], excluded: Iterable[str]) -> frozenset[str]:
    """Return the names of the codes that are wanted; groups stand for their codes, no `only` for all.

    UsageError for what is neither a code nor a group.
    """
    wanted = frozenset(_expanded(only)) or frozenset(CODES)
    return wanted - frozenset(_expanded(excluded))


def _expanded(names: Iterable[str]) -> Iterator[str]:
    for name in (one.strip() for text in names for one in text.split(",")):
        if name in GROUPS:
            yield from (code.name for code in GROUPS[name].codes)
        elif name in CODES:
            yield name
        else:
            raise UsageError(f"{name!r} is no code and no group: groups are {', '.join(GROUPS)}")


def findings_page() -> str:
    """Return docs/findings.md."""
    parts = [_INTRODUCTION]
    for name, group in GROUPS.items():
        parts.append(f"## {group.title}\n\n`--only {name}` looks for these alone.\n")
        parts += map(_section, group.codes)
    return "\n".join(parts)


_INTRODUCTION: Final = """# What `check` finds

Generated from the catalogue in `jobs/check` by `make docs`. Every finding has one of these codes.

- **error**: data is lost or cannot be reached, is silently left out, or a topic does not load.
- **warning**: the broker heals it and loses some state, or it is likely an error and could not be decided.
- **note**: the broker copes.

What a broker does, and what cured it, was tried on real brokers (4.0.7 and 4.2.4) unless a code says
otherwise. One access to any topic of a bundle loads all its topics: what loading destroys has to be repaired
before a broker runs. Bookies delete the entries of ledgers without metadata at their next garbage collection.

Disks of bookies that run, and the RocksDB of a running standalone, are read as of their opening. Where they
were written since, what rests on comparing them is not reported at once: store and disks are opened again, in
this order, and what two such looks in a row find is so. What no two agree about is not checked, and stderr
says so. Beside a copy of the store nobody can decide: an error is then a warning. Of bookies with
`journalWriteData=false` the newest entries are in memory alone, and disks are no proof: ask by `bookie:`.
"""


def _section(code: Code) -> str:
    said = "\n".join(["```text", *code.errors, "```"])
    parts = [
        f"### {code.name}\n\n**{code.severity}** · {code.title}.\n",
        _paragraph("", code.means),
        _paragraph("What a broker does.", code.broker),
        *([f"In the broker's log, or the client's:\n\n{said}\n"] if code.errors else []),
        *(f"More: [{one}](errors/{ERROR_PAGES[one]}.md).\n" for one in code.errors if one in ERROR_PAGES),
        _paragraph("How it comes to be.", code.comes),
        *([_paragraph("Not reported, or less grave.", code.unless)] if code.unless else []),
        *([_paragraph("Evidence.", _names(code.evidence))] if code.evidence else []),
        _paragraph("What to do.", code.cure),
        _paragraph("Repair.", _repair(code.name)),
    ]
    return "\n".join(parts)


def _names(evidence: Iterable[str]) -> str:
    return f"With `-o json` as far as they are known: {', '.join(f'`{name}`' for name in evidence)}."


def _repair(code: str) -> str:
    """Return the command that repairs what a code stands for, or why there is none."""
    if code in WITHOUT:
        return f"No command: {WITHOUT[code]}."
    if code in OF_RECORDS:
        verbs = ("topic-record", "cursor", "ledger-metadata", "partitions")
        return f"By its path: {', '.join(f'`repair {verb}`' for verb in verbs)}; of a schema `rm`."
    return " or ".join(f"`{PROGRAM} {words}`" for words in PACKED.get(code) or (REPAIRS[code],)) + "."


def _paragraph(heading: str, text: str) -> str:
    whole = f"**{heading}** {text}" if heading else text
    return fill(whole, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"
