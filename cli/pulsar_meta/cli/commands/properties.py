"""`properties`, `set-property` and `unset-property`: what ledgers carry since PIP-404."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from pulsar_meta.cli.errors import Parts
from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.ledger_properties import Edit
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.index.properties import list_properties, parse_sets, set_properties, topic_of_ledgers
from pulsar_meta.jobs.topics.partitions import named_topics

Topic = Annotated[
    str, typer.Argument(help="persistent://tenant/namespace/name, tenant/namespace/name or name.")
]
Ledgers = Annotated[str, typer.Argument(help="A ledger's number; several separated by commas.")]


def properties(
    shell: Shell,
    topic: Topic,
    store: StoreUrl = None,
    ledger: Annotated[int | None, typer.Option("--ledger", help="Show only this ledger.")] = None,
) -> None:
    """Show the properties of a topic's ledgers (PIP-404).

    Examples:
      pulsar-meta properties public/default/orders --store zk://zk1:2181
    """
    with shell.store(store) as opened:
        topics = named_topics(opened, TopicName.parse(topic))
        found = Parts(shell, (list_properties(opened, one) for one in topics))
        shown = [row for row in found if ledger in (None, row["ledger_id"])]
        if ledger is not None and not shown:
            raise NotFoundError(f"no ledger {ledger} in {topic}", source=opened.url)
        shell.emit(shown, PROPERTIES if len(topics) == 1 else OF_PARTITIONS)
    found.check()


def set_property(
    shell: Shell,
    topic: Topic,
    ledger: Ledgers,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE")],
    writing: WriteOptions,
    store: StoreUrl = None,
) -> None:
    """Set properties of ledgers, in one write; everything else in the record stays byte for byte.

    As Pulsar's asyncAddLedgerProperty, but unknown fields and double keys are kept. Released brokers drop
    the properties of a topic's last ledger when they close it or load the topic again.

    Examples:
      pulsar-meta set-property orders 1234 first-index=56789 --store zk://zk1:2181
    """
    _change(shell, store, topic, ledger, parse_sets(pairs), writing, "set-property")


def unset_property(
    shell: Shell,
    topic: Topic,
    ledger: Ledgers,
    keys: Annotated[list[str], typer.Argument(metavar="KEY")],
    writing: WriteOptions,
    store: StoreUrl = None,
) -> None:
    """Remove properties of ledgers, in one write; no write where there is none.

    Examples:
      pulsar-meta unset-property orders 1234 first-index --store zk://zk1:2181
    """
    _change(shell, store, topic, ledger, [Edit(key, None) for key in keys], writing, "unset-property")


def _change(
    shell: Shell,
    url: str | None,
    topic: str,
    ledgers: str,
    edits: list[Edit],
    writing: WriteOptions,
    command: str,
) -> None:

    wanted = dict.fromkeys(_numbers(ledgers.split(",")), edits)
    with open_for_writing(shell, url, writing) as store:
        name = topic_of_ledgers(store, TopicName.parse(topic), wanted)
        rewrite = set_properties(command, store, name, wanted, shell.warn)
        write(shell, store, rewrite, writing)


def _numbers(words: Iterable[str]) -> list[int]:
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise UsageError("a ledger is its number; several are separated by commas") from error


def _row(ledger: dict[str, Any]) -> list[str]:
    held = ledger["properties"]
    return [str(ledger["ledger_id"]), ", ".join(f"{key}={value}" for key, value in held.items())]


FIELDS = ("topic", "ledger_id", "properties")
PROPERTIES = View(["ledger", "properties"], _row, frozenset({"ledger"}), fields=FIELDS)
OF_PARTITIONS = View(
    ["topic", "ledger", "properties"],
    lambda row: [row["topic"], *_row(row)],
    frozenset({"ledger"}),
    fields=FIELDS,
)
