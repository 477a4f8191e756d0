"""`repair generator`: the counter of ledger ids goes above every id that was ever used, as far as is known.

Known are the counter itself, the ledgers in `/ledgers`, those that topics, cursors and schemas name, and with
`--entries` those on the bookies' disks, deleted ones that are still in entry logs among them. An id that is
given out twice overwrites entries of the first ledger, and a new ledger with an id below those of its topic
comes before all others when the topic is read.

Sources: apache/pulsar PulsarLedgerIdGenerator.java.
"""

from __future__ import annotations

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import SHORT_LEDGER_LIMIT
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.repair.repair import Repair, becoming
from pulsar_meta.jobs.restore.floors import floors_of, missing_bucket
from pulsar_meta.jobs.restore.survey import Survey, survey_target
from pulsar_meta.jobs.rewrite.rules import current
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.jobs.values.counters import IDGEN, read_counters
from pulsar_meta.stores.base import Store


def repair_generator(
    store: Store, source: EntrySource | None, report: Report, at_least: int | None = None
) -> Repair:
    """Return what brings the generator of ledger ids behind every id that is known, or to `at_least`.

    Broken records go to `report`: the ids that they name are not known. UsageError for a store that counts
    nothing.
    """
    if not store.counts_sequences:
        raise UsageError(
            "has no generator of ids: brokers live on zk:, etcd:, oxia: and rocksdb:", source=store.url
        )
    surveys = [survey_target(store, report)]
    if source is not None:
        surveys.append(Survey())
        surveys[-1].take_entries(source, report)
    if at_least is not None:
        surveys.append(_asked(at_least))
    now = read_counters(store, {bucket for survey in surveys for bucket in survey.buckets})
    floors = floors_of(store, store, surveys)
    values = [becoming(current(store, one.path), one.value) for one in missing_bucket(surveys)]
    highest = max((high for survey in surveys for high in survey.ids.highest.items()), default=(0, -1))
    shown = ", ".join(f"{path} at {number}" for path, number in now.items() if path.startswith("/ledgers/"))
    used = highest[0] << 32 | max(highest[1], 0)
    not_checked = {} if source is not None else {"ids that only bookies know": "no --entries"}
    broken = sum(survey.broken for survey in surveys)
    if broken:
        not_checked["ledgers that broken records name"] = str(broken)
    return Repair(
        "generator",
        tuple(values),
        checked={"counters": len(now)},
        not_checked=not_checked,
        said=(f"{shown or IDGEN + ' has no number yet'}; the highest id in use is {used}",),
        counters={path: floor for path, floor in floors.counters.items() if path.startswith("/ledgers/")},
    )


def _asked(at_least: int) -> Survey:
    """Return a survey as if the ledger before that number were there."""
    if at_least >= SHORT_LEDGER_LIMIT:
        raise UsageError(f"--at-least {at_least}: ids of 63 bits go on from those in use, by themselves")
    survey = Survey()
    survey.ids.add(at_least - 1)
    return survey
