"""Pictures of HTML pages: a treemap of a disk, and a heat map of subscriptions by ledgers.

The tables of a page have the same numbers for screen readers, so a treemap is only described in a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pulsar_meta.cli.render.pages import Cell, Column, Row, Section, Tile
from pulsar_meta.cli.render.text import size
from pulsar_meta.codecs.json_text import Document

# Smaller topics are one tile together.
TILES: Final = 40
NO_TOPIC: Final = "(no topic)"
# More ledgers are drawn as columns of neighbouring ledgers.
COLUMNS: Final = 30
LEVELS: Final = 5
# A tile below this share of the width has no text, and one line of text takes this share of the height.
_LEAST_WIDE: Final = 0.035
_LINE: Final = 0.042
# The shape that tiles are computed for; the page stretches it.
_WIDE: Final = 2.0
_HIGH: Final = 1.0


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


def treemap(rows: Sequence[Document]) -> Section:
    """Draw rows of `disk` as tiles: one for each topic, divided by what holds the bytes."""
    topics: dict[str, dict[str, int]] = {}
    for row in rows:
        kinds = topics.setdefault(row["name"] or NO_TOPIC, {})
        kinds[row["role"]] = kinds.get(row["role"], 0) + row["size"]
    ordered = sorted(
        ((name, kinds) for name, kinds in topics.items() if any(kinds.values())), key=_bytes, reverse=True
    )
    shown, rest = ordered[:TILES], ordered[TILES:]
    if rest:
        shown.append((f"{len(rest)} smaller", {"other": sum(sum(kinds.values()) for _, kinds in rest)}))
    boxes = squarified([sum(kinds.values()) for _, kinds in shown], Box(0, 0, _WIDE, _HIGH))
    roles = list(dict.fromkeys(role for _, kinds in shown for role in kinds))
    tiles = [
        tile
        for (name, kinds), box in zip(shown, boxes, strict=True)
        for tile in _tiles(name, kinds, box, roles)
    ]
    total = sum(map(_bytes, ordered))
    largest = (f"{short_name(topic[0])} {size(_bytes(topic))}" for topic in ordered[:3])
    text = f"{size(total)} by topic, and by what holds them. The largest areas are {', '.join(largest)}."
    return Section("Where the bytes are", [text], tiles=tiles, legend=roles)


def _bytes(topic: tuple[str, Mapping[str, int]]) -> int:
    return sum(topic[1].values())


def short_name(topic: str) -> str:
    """Return the name of a topic without the usual domain."""
    return topic.removeprefix("persistent://")


def _tiles(name: str, kinds: Mapping[str, int], box: Box, roles: Sequence[str]) -> Iterator[Tile]:
    """Yield the tiles of a topic, side by side in its box."""
    total, x = sum(kinds.values()), box.x
    short = short_name(name)
    for role, amount in sorted(kinds.items(), key=lambda item: -item[1]):
        width = box.width * amount / total
        if amount:
            place = (x / _WIDE, box.y / _HIGH, width / _WIDE, box.height / _HIGH)
            lines = int(place[3] / _LINE) if place[2] >= _LEAST_WIDE else 0
            texts = (short.rpartition("/")[2], size(amount), role)[:lines]
            yield Tile(*place, roles.index(role), f"{short}, {role}: {size(amount)}", texts)
        x += width


def squarified(amounts: Sequence[float], box: Box) -> list[Box]:
    """Divide a box among amounts, the largest first, into rectangles that are nearly squares.

    Source: Bruls, Huizing, van Wijk: Squarified Treemaps (2000).
    """
    boxes, start = list[Box](), 0
    while start < len(amounts):
        left, side = sum(amounts[start:]), min(box.width, box.height)
        scale, end = box.width * box.height / left, start + 1
        while end < len(amounts) and _worst(amounts[start : end + 1], scale, side) <= _worst(
            amounts[start:end], scale, side
        ):
            end += 1
        boxes += _strip(amounts[start:end], scale, box)
        used = sum(amounts[start:end]) * scale / side
        wide = box.width >= box.height
        x, y, width, height = box
        box = Box(x + used, y, width - used, height) if wide else Box(x, y + used, width, height - used)
        start = end
    return boxes


def _worst(amounts: Sequence[float], scale: float, side: float) -> float:
    """Return the worst ratio of sides in a strip of rectangles."""
    total = sum(amounts) * scale
    return max(side**2 * max(amounts) * scale / total**2, total**2 / (side**2 * min(amounts) * scale))


def _strip(amounts: Sequence[float], scale: float, box: Box) -> Iterator[Box]:
    """Yield rectangles along the shorter side of a box."""
    wide, at = box.width >= box.height, 0.0
    thick = sum(amounts) * scale / min(box.width, box.height)
    for amount in amounts:
        long = amount * scale / thick
        yield Box(box.x, box.y + at, thick, long) if wide else Box(box.x + at, box.y, long, thick)
        at += long


def heat_map(topic: str, lines: Sequence[Document]) -> Section:
    """Draw the subscriptions of a topic as rows, its ledgers as columns, and the entries left as heat.

    Each line has `cursor`, `backlog_at_least` and `by_ledger`: pairs of entries left and entries, by ledger.
    """
    ledgers = sorted({ledger for line in lines for ledger in line["by_ledger"]})
    groups = _groups(ledgers)
    headings = [f"{group[0]}–{group[-1]}" if len(group) > 1 else str(group[0]) for group in groups]
    columns = [Column("subscription", "path"), Column("backlog", "number")]
    columns += [Column(heading, "heat") for heading in headings]
    rows = []
    for line in lines:
        left = [[line["by_ledger"].get(ledger, (0, 0)) for ledger in group] for group in groups]
        backlog = line["backlog_at_least"]
        cells = [Cell(line["cursor"]), Cell("" if backlog is None else str(backlog)), *map(_heat, left)]
        rows.append(Row(cells))
    notes = [
        "Each column is one ledger, or several in a row. The number is how many of their entries the"
        " subscription has not acknowledged. The larger their share, the stronger the colour."
    ]
    return Section(f"Backlog of {short_name(topic)}", notes, columns=columns, rows=rows)


def _groups(ledgers: Sequence[int]) -> list[Sequence[int]]:
    each = -(-len(ledgers) // COLUMNS) or 1
    return [ledgers[at : at + each] for at in range(0, len(ledgers), each)]


def _heat(pairs: Sequence[tuple[int, int]]) -> Cell:
    left, entries = (sum(numbers) for numbers in zip(*pairs, strict=True))
    level = LEVELS if left >= entries else 1 + (LEVELS - 1) * left // entries
    return Cell(str(left), level=level) if left else Cell("·")
