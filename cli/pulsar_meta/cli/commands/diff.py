"""`diff`: two stores side by side."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.options import ShowPasswords
from pulsar_meta.cli.outputs import talk_json
from pulsar_meta.cli.render.changes import change_summary
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.text import looked_at
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.documents.document import DecodeOptions
from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.values.comparison import Compared, Terms, compare

COLUMNS = ["change", "path", "left", "right", "differences"]


class Ignored(StrEnum):
    """What a comparison can leave out."""

    EPHEMERAL = "ephemeral"
    PARENTS = "parents"
    BROKERS = "brokers"


def diff(
    shell: Shell,
    left: Annotated[str, typer.Argument(help="A store: any URL that --store takes.")],
    right: Annotated[str, typer.Argument(help="The other one.")],
    ignore: Annotated[
        list[Ignored] | None,
        typer.Option(
            "--ignore",
            help="Values of sessions; empty values, which parents may have; all that restore leaves"
            " out (repeatable).",
        ),
    ] = None,
    bytes_too: Annotated[
        bool, typer.Option("--bytes", help="Other bytes with the same meaning are a difference, too.")
    ] = False,
    versions: Annotated[bool, typer.Option("--versions", help="Compare versions, too.")] = False,
    show_passwords: ShowPasswords = False,
) -> None:
    """Compare two stores: what only one has, and which fields of a value differ. Exit code 1 where they do.

    Live stores, snapshots, ZooKeeper's files, in any pair; that is how a move from one store to another is
    shown to be complete. Two sums that do not depend on the order of values are given for each side, the
    second without ephemeral values and empty parents, which differ between kinds of stores.

    Examples:
      pulsar-meta diff snapshot:before.zst oxia://oxia:6648 --ignore parents
      pulsar-meta diff 'zk-files:/zookeeper?at=2026-05-01T03:00' zk://zk1:2181
    """
    left_out = set(ignore or ())
    terms = Terms(
        bytes=bytes_too,
        versions=versions,
        ephemeral=Ignored.EPHEMERAL not in left_out,
        parents=Ignored.PARENTS not in left_out,
        brokers=Ignored.BROKERS not in left_out,
        options=DecodeOptions(show_secrets=show_passwords),
    )
    compared = Compared()
    with shell.other_store(left) as one, shell.other_store(right) as two:
        shell.emit(
            compare(one, two, terms, compared),
            VIEW,
            about=lambda: (
                *map(redact, (left, right)),
                looked_at(_counts(compared), _not_compared(compared, left_out)),
            ),
        )
    _account(shell, compared, left_out)
    if compared.differ:
        raise typer.Exit(Exit.FAULT)
    if not any(sums.values for sums in compared.sums):
        raise NotFoundError("neither store has a value", source=" and ".join(map(redact, (left, right))))


def _counts(compared: Compared) -> dict[str, int]:
    return {
        "equal": compared.equal,
        "encoded differently": compared.same_meaning,
        "different": compared.different,
        "only left": compared.only_left,
        "only right": compared.only_right,
    }


def _not_compared(compared: Compared, left_out: set[Ignored]) -> dict[str, str]:
    why = "--ignore " + " --ignore ".join(sorted(left_out))
    return {f"{compared.left_out} values": why} if compared.left_out else {}


def _account(shell: Shell, compared: Compared, left_out: set[Ignored]) -> None:
    shell.account(_counts(compared), _not_compared(compared, left_out))
    if shell.speaks_json:
        talk_json(compared.both_sums())
        return
    for side, sums in zip(("left: ", "right:"), compared.sums, strict=True):
        shell.say(f"{side} {sums.values} values, sum {sums.everything}, lasting {sums.lasting}")


def _row(document: Document) -> list[str]:
    sides = [_side(document.get(side)) for side in ("left", "right")]
    return [document["change"], document["path"], *sides, change_summary(document["differences"])]


def _side(held: Document | None) -> str:
    return "" if held is None else f"{held['size']} bytes, version {held['version']}"


VIEW = View(COLUMNS, _row, fields=COLUMNS, title="Differences of two stores")
