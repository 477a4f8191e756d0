"""Fields that differ, in the one line of a table's cell."""

from __future__ import annotations

from pulsar_meta.cli.render.text import without_middle
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.values.history import NAMED

# Columns for what a field was, and for what it is.
LONGEST = 60


def change_summary(differences: list[Document]) -> str:
    """Return `field: before -> after` of the first few, and the number of the rest."""
    named = "; ".join(
        f"{one['field'].removeprefix('value.')}: {_text(one['before'])} -> {_text(one['after'])}"
        for one in differences[:NAMED]
    )
    more = len(differences) - NAMED
    return f"{named}; {more} more" if more > 0 else named


def _text(value: object) -> str:
    return "(none)" if value is None else without_middle(str(value), LONGEST)
