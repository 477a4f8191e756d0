"""`properties`, `set-property` and `unset-property`: what ledgers carry since PIP-404."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Annotated

import typer

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.rewriting import BulkOptions, WriteOptions, open_for_writing, write
from pulsar_meta.cli.scope_options import ScopeOptions
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.ledger_properties import Edit
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.index.properties import (
    parse_sets,
    properties_of,
    refuse_shadow,
    remove_properties,
    set_properties,
    topic_of_ledgers,
)
from pulsar_meta.jobs.topics.scope import check_named, check_selected, is_glob, is_namespace
from pulsar_meta.jobs.topics.topic import Topic, chosen_by_name
from pulsar_meta.stores.base import Store

TopicWord = Annotated[
    str, typer.Argument(help="persistent://tenant/namespace/name, tenant/namespace/name or name.")
]
Ledgers = Annotated[str, typer.Argument(help="A ledger's number; several separated by commas.")]


def properties(
    shell: Shell,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC|NAMESPACE", help="Topics, or tenant/namespace.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics.")] = False,
    store: StoreUrl = None,
    ledger: Annotated[int | None, typer.Option("--ledger", help="Show only this ledger.")] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", help="Show only this property, and ledgers that have it (repeatable)."),
    ] = None,
) -> None:
    """Show the properties of topics' ledgers (PIP-404).

    The ledgers of a shadow topic are those of its source, and so are their properties: shadow_of names it.

    Examples:
      pulsar-meta properties public/default/orders --store zk://zk1:2181
      pulsar-meta properties public/default --key first-index -o csv
    """
    faults, checked = Faults(shell), Counter[str]()
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, names or [])
        found = chosen_by_name(opened, names or [], faults, everything=everything)
        topics = list(islice(found, 2))
        one = _is_one(names or [], topics)
        rows = list(_rows(chain(topics, found), ledger, keys or [], checked))
        if not rows:
            _check_found(topics, names or [], ledger, faults, opened)
        shell.emit(rows, _view(rows, one=one))
    shell.account(checked)
    faults.end()


def _rows(
    topics: Iterable[Topic], ledger: int | None, keys: Sequence[str], checked: Counter[str]
) -> Iterator[Document]:
    for topic in topics:
        checked["topics"] += 1
        checked["ledgers"] += len(topic.ledgers)
        yield from (row for row in properties_of(topic, keys) if ledger in (None, row["ledger_id"]))


def _is_one(names: Sequence[str], topics: Sequence[Topic]) -> bool:
    """Return whether a single topic was asked for by its name."""
    return len(names) == 1 and len(topics) < 2 and not is_glob(names[0]) and not is_namespace(names[0])


def _check_found(
    topics: Sequence[Topic], names: Sequence[str], ledger: int | None, faults: Faults, store: Store
) -> None:
    """Leave where there is no topic, or none with the ledger that was asked for."""
    if not topics:
        faults.end()
    if ledger is not None:
        raise NotFoundError(f"no ledger {ledger} in {', '.join(names) or 'any topic'}", source=store.url)


def set_property(
    shell: Shell,
    topic: TopicWord,
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
    where: ScopeOptions,
    bulk: BulkOptions,
    writing: WriteOptions,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TOPIC LEDGER] KEY", help="Whose properties, and their keys; with options KEY alone."
        ),
    ],
    everything: Annotated[bool, typer.Option("--all", help="Of all topics.")] = False,
    store: StoreUrl = None,
) -> None:
    """Remove properties of ledgers: of some of one topic, or of all ledgers of the topics chosen.

    One write a topic, and none where there is nothing to remove; with a plan and an undo file.

    Examples:
      pulsar-meta unset-property orders 1234 first-index --store zk://zk1:2181
      pulsar-meta unset-property first-index --namespace public/default --dry-run
      pulsar-meta unset-property first-index --all --yes
    """
    if everything and where.chosen:
        raise UsageError("--all and a choice of topics exclude each other")
    if not everything and not where.chosen:
        topic, ledger, keys = _one_topic(words)
        if bulk != BulkOptions():
            raise UsageError("--resume, --rate and --concurrency are for many topics")
        _change(shell, store, topic, ledger, [Edit(key, None) for key in keys], writing, "unset-property")
        return
    where.check_answer(writing)
    with open_for_writing(shell, store, writing) as opened:
        if where.stdin:
            check_named(opened, where.scope())
        else:
            check_selected(opened, where.scope(), "ledger")
        shell.warn_of_old_parts(opened, where.scope().topics)
        rewrite = remove_properties(opened, lambda: where.values(opened, "ledger"), words)
        write(shell, opened, rewrite, writing, bulk)


def _one_topic(words: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """Return topic, ledgers and keys; UsageError where one of them is missing."""
    if len(words) < 3:
        raise UsageError("TOPIC LEDGER KEY; for many topics --namespace, --topic, --tenant, --stdin or --all")
    return words[0], words[1], words[2:]


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
        refuse_shadow(store, TopicName.parse(topic))
        name = topic_of_ledgers(store, TopicName.parse(topic), wanted)
        rewrite = set_properties(command, store, name, wanted, shell.warn)
        write(shell, store, rewrite, writing)


def _numbers(words: Iterable[str]) -> list[int]:
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise UsageError("a ledger is its number; several are separated by commas") from error


def _text(ledger: Document) -> str:
    return ", ".join(f"{key}={value}" for key, value in ledger["properties"].items())


# What each column shows; `shadow_of` is only there where a topic is a shadow.
CELLS: dict[str, Callable[[Document], str]] = {
    "topic": lambda ledger: str(ledger["topic"]),
    "shadow of": lambda ledger: str(ledger.get("shadow_of") or ""),
    "ledger": lambda ledger: str(ledger["ledger_id"]),
    "properties": _text,
}
FIELDS = ("topic", "shadow_of", "ledger_id", "properties", "scalable_topic")


def _view(ledgers: list[Document], *, one: bool) -> View:
    """Return the columns that say something; of one topic its name is known."""
    left_out = {"topic"} if one else set()
    if not any("shadow_of" in ledger for ledger in ledgers):
        left_out.add("shadow of")
    cells = {name: cell for name, cell in CELLS.items() if name not in left_out}
    return View(
        tuple(cells),
        lambda ledger: [cell(ledger) for cell in cells.values()],
        frozenset({"ledger"}),
        fields=FIELDS,
    )
