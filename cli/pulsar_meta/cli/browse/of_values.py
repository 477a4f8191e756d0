"""What a value says, as `get` shows it, and the sum of what lies below a path, as `top` has it."""

from __future__ import annotations

from rich.text import Text

from pulsar_meta.cli.browse.drawing import fault_line, line, lines
from pulsar_meta.cli.browse.lanes import Job
from pulsar_meta.cli.browse.opened import Opened, Spot
from pulsar_meta.cli.cursor_states import CursorStates
from pulsar_meta.cli.render.text import counted, size
from pulsar_meta.cli.render.values import document_lines
from pulsar_meta.cli.values import OTHER_BYTES
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.values.biggest import measure
from pulsar_meta.jobs.values.value_inputs import ValueInput
from pulsar_meta.stores.base import Versioned


def value_of(opened: Opened, spot: Spot) -> list[Text]:
    """Return the lines of the value at a place; UnreachableError, DecodeError of the store."""
    try:
        held = opened.store.read(spot.path)
    except NotFoundError:
        return [line(spot.path, "head"), line("  no value of its own", "dim")]
    value = ValueInput(opened.store.url, held.value, held.path, held.version)
    options = DecodeOptions(show_secrets=opened.places.show_secrets)
    decoded = decode_document(
        held.value, source=value.source, path=held.path, version=held.version, options=options
    )
    notes: list[str] = []
    fault = CursorStates(opened.store, opened.opening_entries, notes.append).add(value, decoded.document)
    head, *rest = document_lines(decoded.document)
    shown = [line(head, "head"), line(f"  {_facts(held)}", "dim"), *lines(rest)]
    if decoded.error is not None and decoded.document.get("error") is None:
        shown.append(fault_line(decoded.error))
    elif decoded.error is None and not decoded.same_bytes:
        shown.append(line(f"  {OTHER_BYTES}", "warning"))
    return [*shown, *lines(notes, "warning"), *([] if fault is None else [fault_line(fault)])]


def _facts(held: Versioned) -> str:
    times = [("created", held.created), ("modified", held.modified)]
    facts = [counted(len(held.value), "bytes"), "ephemeral" if held.ephemeral else ""]
    facts += [f"{name} {iso_time(time)}" for name, time in times if time]
    return ", ".join(filter(None, facts))


def sum_of(opened: Opened, path: str, job: Job) -> str:
    """Return how many values lie at a path and below it, and how big they are together."""
    total = measure(opened.store.scan(path), 0, advance=job.advance).total
    return f"{counted(total.count, 'values')}, {size(total.size)}"
