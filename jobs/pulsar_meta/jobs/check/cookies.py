"""Cookies: whether disks that were given are those of the bookies that the store knows.

Source: apache/bookkeeper bookie/Cookie.java (verify), LegacyCookieValidation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pulsar_meta.access.files import read_regular
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.cookie import Cookie, decode_cookie
from pulsar_meta.codecs.names import LEDGERS
from pulsar_meta.entries.bookie_layout import LARGEST_COOKIE, BookieLayout
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.listing import COOKIES, Surroundings

DIFFERS: Final = Code(
    "cookie-differs",
    Severity.ERROR,
    "A disk whose cookie is not the one in the store",
    means="The VERSION file of a bookie's directory and the cookie that the store has for that bookie"
    " differ, or the store has none.",
    broker="The bookie does not start. **A standalone of older releases with a cookie that does not match"
    " deletes the data directory**: never start one on the only copy.",
    errors=("InvalidCookieException", "instanceId … is not matching with"),
    comes="The store was wiped or restored without its cookies and instance id; disks were swapped or"
    " copied.",
    cure="Write the cookie of the disk into the store, byte for byte, and the instance id that it names.",
    evidence={"directory": str, "fields": list[str], "disk": str},
)
CODES: Final = (DIFFERS,)
INSTANCE_ID: Final = f"{LEDGERS}/INSTANCEID"


def cookies(disks: Sequence[BookieLayout], around: Surroundings) -> Iterator[Finding]:
    """Yield the directories of these disks whose cookie differs from the store's."""
    for bookie in disks if around.cookies else ():
        for directory in dict.fromkeys((*bookie.ledger_dirs, *bookie.index_dirs, *bookie.journal_dirs)):
            held = _on_disk(directory)
            if held is not None and held.fields.bookieHost:
                yield from _compared(held, directory, around)


def _compared(held: Cookie, directory: Path, around: Surroundings) -> Iterator[Finding]:
    name = held.fields.bookieHost
    path = f"{COOKIES}{name}"
    record = around.other.get(path)
    if record is None:
        text = f"the disk is of bookie {name}, of which the store has no cookie"
        yield DIFFERS.found(text, path=path, evidence={"directory": str(directory)})
        return
    try:
        fields = decode_cookie(record.value).fields
    except DecodeError as error:
        yield DIFFERS.found(f"the cookie in the store: {error.message}", path=path)
        return
    names = ("bookieHost", "journalDir", "ledgerDirs", "indexDirs", "instanceId")
    wrong = [one for one in names if getattr(fields, one) != getattr(held.fields, one)]
    known = around.other.get(INSTANCE_ID)
    instance = None if known is None else known.value.decode("utf-8", "replace")
    if instance is not None and held.fields.instanceId not in ("", instance):
        wrong.append("INSTANCEID")
    if wrong:
        yield DIFFERS.found(
            f"the cookie on the disk is not the one in the store: {', '.join(dict.fromkeys(wrong))} differ",
            path=path,
            evidence={"directory": str(directory), "fields": wrong, "disk": held.fields.instanceId},
        )


def _on_disk(directory: Path) -> Cookie | None:
    try:
        return decode_cookie(read_regular(directory / "VERSION", LARGEST_COOKIE))
    except (OSError, DecodeError):
        # Without a cookie a directory was found by its files: there is nothing to compare.
        return None
