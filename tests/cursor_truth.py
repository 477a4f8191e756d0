"""The positions of subscriptions in a capture's truth, compared with `show-cursor`.

Used by the tests of `show-cursor` and by the capture report (`python -m tests.capture_report`).
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
    """The result of comparing one capture: `right` of `total` subscriptions agree."""

    total: int = 0
    right: int = 0
    in_ledgers: int = 0
    by_reason: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def compare_cursors(folder: Path) -> CursorTable:
    """Compare every subscription that a broker reported with the output of `show-cursor`."""
    table = CursorTable()
    truth = read_truth(folder)
    namespaces = sorted({TopicName.parse(topic).namespace_name for topic in truth})
    lines = [line for namespace in namespaces for line in show(folder, namespace)]
    shown = {(line["topic"], line["cursor"]): line for line in lines if line["topic"] in truth}
    for topic, facts in truth.items():
        for name, reported in brokers_cursors(facts):
            count(table, topic, name, reported, shown.pop((topic, name), None), facts)
    table.wrong += (f"{topic} {name}: shown, and the broker knows of none" for topic, name in shown)
    return table


def show(folder: Path, topic: str, *more: str) -> list[Line]:
    """Return the output of `show-cursor` for a topic or a namespace of a capture."""
    sources = [part for url in bookie_urls(folder) for part in ("--entries", url)]
    store = f"snapshot:{folder / 'metadata.ndjson'}"
    done = pulsar_meta_here("show-cursor", topic, *more, "-o", "ndjson", "--store", store, *sources)
    # Exit code 3 means a shadow topic without its source. A missing state shows in the output.
    if done.returncode not in (0, 3):
        raise SystemExit(f"show-cursor {topic}: {done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def brokers_cursors(facts: Truth) -> Iterator[tuple[str, Any]]:
    """Yield each subscription with the statistics that the broker reported, or else its stored record."""
    statistics = facts.get("internalStats")
    source = statistics if isinstance(statistics, dict) else facts.get("internal-info", {})
    for name, reported in source.get("cursors", {}).items():
        yield decode_name(name), reported


def count(table: CursorTable, topic: str, name: str, reported: Any, line: Line | None, facts: Truth) -> None:
    """Add one subscription to the table."""
    table.total += 1
    reason, fault = judge(name, reported, line, facts)
    if fault is None:
        table.right += 1
        table.by_reason[reason] += 1
        table.in_ledgers += line is not None and line["state"] == "ledger"
    else:
        table.wrong.append(f"{topic} {name}: {fault}")


def judge(name: str, reported: Any, line: Line | None, facts: Truth) -> tuple[str, str | None]:
    """Return how the two positions relate, and the fault if they disagree."""
    if "markDeletePosition" not in reported:
        return NO_ANSWER, compare_record(reported, line)
    if line is None:
        stored = map(decode_name, facts.get("internal-info", {}).get("cursors", {}))
        return NOT_DURABLE, "not shown" if name in stored else None
    statistics = facts["internalStats"]
    left = statistics["entriesAddedCounter"] - reported["messagesConsumedCounter"]
    if line["backlog"] != left:
        return SAME, f"backlog {line['backlog']}, the broker says {left}"
    ranges = brokers_ranges(reported["individuallyDeletedMessages"])
    if line["acked_entries"] != sum(last - first for (_, first), (_, last) in ranges):
        return SAME, f"{line['acked_entries']} entries acknowledged, the broker says {ranges}"
    if line["acked_ranges"] != reported["totalNonContiguousDeletedMessagesRange"]:
        return SAME, f"{line['acked_ranges']} ranges, the broker says {len(ranges)}"
    if line["position"] == reported["markDeletePosition"]:
        return SAME, None
    ledger, entry = map(int, reported["markDeletePosition"].split(":"))
    ours, _ = map(int, line["position"].split(":"))
    if not left and entry == -1 and ledger > ours:
        return NEW_LEDGER, None
    return SAME, f"position {line['position']}, the broker says {reported['markDeletePosition']}"


def compare_record(reported: Any, line: Line | None) -> str | None:
    """Describe how a line differs from the record as the broker read it (internal-info)."""
    if line is None:
        return "not shown"
    position = f"{reported['markDelete']['ledgerId']}:{reported['markDelete']['entryId']}"
    # The record of a cursor in use has no ranges, which were written when the broker stopped.
    ranges = line["acked_ranges"]
    if reported["cursorsLedgerId"] == -1:
        ranges = len(reported.get("individualDeletedMessages") or [])
    if (line["position"], line["acked_ranges"]) != (position, ranges):
        return f"{line['position']}, {line['acked_ranges']} ranges, internal-info has {position}, {ranges}"
    return None


def brokers_ranges(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Parse the ranges in the statistics, which exclude their lower and include their upper end."""
    return [
        ((int(lower), int(first)), (int(upper), int(last)))
        for lower, first, upper, last in _range_re.findall(text)
    ]
