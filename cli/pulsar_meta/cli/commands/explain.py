"""`explain`: print the explanation of a finding code, or find it by an error message of a broker."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from pulsar_meta.cli.render.findings import CODES, EXPLANATION
from pulsar_meta.cli.shell import Shell
from pulsar_meta.jobs.check.codes import all_codes
from pulsar_meta.jobs.check.explanations import explanation, find_codes

# More explanations than this are listed, not printed in full.
_MOST: Final = 3


def explain(
    shell: Shell,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CODE|MESSAGE",
            help="A finding code, or an error message from the log of a broker or client.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Explain a finding code, or an error message of a broker.

    Use it when check reports a code that you don't know, or when a broker or client logs an error. It prints
    the meaning, what brokers do, the cause and the fix. The message can be a complete line of a log; if more
    than three codes match, they are listed. Without an argument, it lists all codes. Exits with 3 if nothing
    matches. It opens no store.

    Examples:
      pulsar-meta explain
      pulsar-meta explain record-unreadable
      pulsar-meta explain "IllegalReferenceCountException: refCnt: 0"
      pulsar-meta explain ledger-lost -o json
    """
    codes = find_codes(" ".join(words)) if words else list(all_codes().values())
    documents = [dict(explanation(code)) for code in codes]
    shell.emit(documents, EXPLANATION if len(codes) <= _MOST else CODES, single=len(codes) == 1)
    if words and " ".join(words) not in all_codes():
        shell.note("find out if your topic has this problem: pulsar-meta check TOPIC --entries bookie:")
