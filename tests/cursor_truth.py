"""A capture's truth against `show-cursor`: where each subscription stands by the broker's own statistics.

Used by the tests of `show-cursor` and by the report over a capture (`python -m tests.capture_report`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulsar_meta.codecs.names import TopicName, decode_name
from tests.cli.program import pulsar_meta_here
from tests.seek_truth import Truth, bookie_urls, read_truth

SAME = "the same"
NEW_LEDGER = "all consumed: the broker moved it to a ledger that it made when it loaded the topic"
NOT_DURABLE = "not durable: the broker has it in memory alone"
NO_ANSWER = "the broker failed with 500: its record is as its own reading of it (internal-info)"
_range_re = re.compile(r"\((-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]")

Line = dict[str, Any]


@dataclass
class CursorTable:
    """What the comparison of one capture came to; `right` are those of `stated` that agree."""

    stated: int = 0
    right: int = 0
    in_ledgers: int = 0
    by_reason: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def compare_cursors(folder: Path) -> CursorTable:
    """Compare every subscription that a broker reported with what `show-cursor` shows."""
    table = CursorTable()
    truth = read_truth(folder)
    namespaces = sorted({TopicName.parse(topic).namespace_name for topic in truth})
    lines = [line for namespace in namespaces for line in show(folder, namespace)]
    shown = {(line["topic"], line["cursor"]): line for line in lines if line["topic"] in truth}
    for topic, stated in truth.items():
        for name, said in brokers_cursors(stated):
            count(table, topic, name, said, shown.pop((topic, name), None), stated)
    table.wrong += (f"{topic} {name}: shown, and the broker knows of none" for topic, name in shown)
    return table


def show(folder: Path, topic: str, *more: str) -> list[Line]:
    """Return what `show-cursor` shows of a topic or a namespace of a capture."""
    sources = [part for url in bookie_urls(folder) for part in ("--entries", url)]
    store = f"snapshot:{folder / 'metadata.ndjson'}"
    done = pulsar_meta_here("show-cursor", topic, *more, "-o", "ndjson", "--store", store, *sources)
    # 3: a shadow topic without its source. A state that is not there is seen by what is shown.
    if done.returncode not in (0, 3):
        raise SystemExit(f"show-cursor {topic}: {done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def brokers_cursors(stated: Truth) -> Iterator[tuple[str, Any]]:
    """Yield each subscription and what the broker said of it: its statistics, else its stored record."""
    statistics = stated.get("internalStats")
    source = statistics if isinstance(statistics, dict) else stated.get("internal-info", {})
    for name, said in source.get("cursors", {}).items():
        yield decode_name(name), said


def count(table: CursorTable, topic: str, name: str, said: Any, line: Line | None, stated: Truth) -> None:
    """Add one subscription to the table."""
    table.stated += 1
    reason, fault = judge(name, said, line, stated)
    if fault is None:
        table.right += 1
        table.by_reason[reason] += 1
        table.in_ledgers += line is not None and line["state"] == "ledger"
    else:
        table.wrong.append(f"{topic} {name}: {fault}")


def judge(name: str, said: Any, line: Line | None, stated: Truth) -> tuple[str, str | None]:
    """Return how ours and the broker's go together, and what is wrong where they do not."""
    if "markDeletePosition" not in said:
        return NO_ANSWER, compare_record(said, line)
    if line is None:
        stored = map(decode_name, stated.get("internal-info", {}).get("cursors", {}))
        return NOT_DURABLE, "not shown" if name in stored else None
    statistics = stated["internalStats"]
    left = statistics["entriesAddedCounter"] - said["messagesConsumedCounter"]
    if line["backlog"] != left:
        return SAME, f"backlog {line['backlog']}, the broker says {left}"
    ranges = brokers_ranges(said["individuallyDeletedMessages"])
    if line["acked_entries"] != sum(last - first for (_, first), (_, last) in ranges):
        return SAME, f"{line['acked_entries']} entries acknowledged, the broker says {ranges}"
    if line["acked_ranges"] != said["totalNonContiguousDeletedMessagesRange"]:
        return SAME, f"{line['acked_ranges']} ranges, the broker says {len(ranges)}"
    if line["position"] == said["markDeletePosition"]:
        return SAME, None
    ledger, entry = map(int, said["markDeletePosition"].split(":"))
    ours, _ = map(int, line["position"].split(":"))
    if not left and entry == -1 and ledger > ours:
        return NEW_LEDGER, None
    return SAME, f"position {line['position']}, the broker says {said['markDeletePosition']}"


def compare_record(said: Any, line: Line | None) -> str | None:
    """Return how a line differs from the record as the broker's own reading of it (internal-info) has it."""
    if line is None:
        return "not shown"
    position = f"{said['markDelete']['ledgerId']}:{said['markDelete']['entryId']}"
    # Of a cursor in use the record has no ranges: they came when the broker was stopped.
    ranges = line["acked_ranges"]
    if said["cursorsLedgerId"] == -1:
        ranges = len(said.get("individualDeletedMessages") or [])
    if (line["position"], line["acked_ranges"]) != (position, ranges):
        return f"{line['position']}, {line['acked_ranges']} ranges, internal-info has {position}, {ranges}"
    return None


def brokers_ranges(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the ranges in the text of the statistics, exclusive at the lower end, inclusive at the upper."""
    return [
        ((int(lower), int(first)), (int(upper), int(last)))
        for lower, first, upper, last in _range_re.findall(text)
    ]
