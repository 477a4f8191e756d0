"""Decoded values as text: a heading, the envelope, and the content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pulsar_meta.cli.render.text import counted
from pulsar_meta.codecs.json_text import Document, Style, dumps
from pulsar_meta.codecs.secrets import is_redacted
from pulsar_meta.codecs.times import iso_time

_INDENTED: Final = Style(indent="  ")


def document_lines(document: Document) -> Iterable[str]:
    """Return the text of a document, with line breaks and control characters escaped."""
    return map(_harmless, value_lines(document))


def _harmless(line: str) -> str:
    """Escape characters that break a line or control a terminal."""
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)


def value_lines(document: Document) -> Iterator[str]:
    """Yield the text of a document: its heading, envelope, error and content."""
    yield heading(document)
    if document.get("envelope"):
        yield f"  envelope: {envelope_text(document['envelope'])}"
    if document.get("error"):
        fault = document["error"]
        where = f" at byte {fault['offset']}" if "offset" in fault else ""
        yield f"  BROKEN{where}: {fault['message']}; the part before it:"
    if document.get("value") is not None:
        yield from _BODIES.get(document["kind"], generic_lines)(document)


def heading(document: Document) -> str:
    """Return the first line: path or source, kind, version."""
    name = document.get("path") or document["source"]
    version = f", version {document['version']}" if "version" in document else ""
    return f"{name}  {document['kind']}{version}"


def envelope_text(envelope: Document) -> str:
    """Return codec, sizes and ratio of an envelope."""
    stored, raw = envelope["stored_size"], envelope["raw_size"]
    return f"{envelope['codec']}, {stored} bytes stored, {raw} raw, {raw / stored:.2f} times"


def managed_ledger_lines(document: Document) -> Iterator[str]:
    """Yield a summary of a managed ledger, and a line for each of its ledgers, by id."""
    meaning, value = document["meaning"], document["value"]
    open_ledger = meaning.get("open_ledger")
    if "ledger_count" in meaning:
        yield f"  ledgers: {meaning['ledger_count']}, entries: {meaning['entries']}, bytes: {meaning['size']}"
    if "terminated_at" in meaning:
        yield f"  terminated at {meaning['terminated_at']}"
    for name in ("duplicate_ledgers", "ledgers_without_entries"):
        if name in meaning:
            yield f"  {name.replace('_', ' ')}: {', '.join(map(str, meaning[name]))}"
    if meaning.get("unordered"):
        yield "  the record does not have its ledgers in order; they are listed by id"
    special = {item["ledger_id"]: item for item in meaning.get("ledgers", ())}
    for ledger in sorted(value.get("ledgerInfo", ()), key=lambda item: int(item.get("ledgerId", -1))):
        yield ledger_line(ledger, open_ledger, special)
    yield from pair_lines("property", meaning.get("properties"))
    yield from unknown_lines(value)


def ledger_line(ledger: Document, open_ledger: object, special: dict[Any, Document]) -> str:
    """Describe one ledger of a managed ledger's record."""
    number = int(ledger.get("ledgerId", -1))
    text = f"  ledger {number}: "
    if "entries" in ledger:
        text += f"{ledger['entries']} entries, {ledger.get('size', 0)} bytes"
    else:
        text += "open" if number == open_ledger else "entries unknown"
    if int(ledger.get("timestamp", 0)) > 0:
        text += f", closed {iso_time(int(ledger['timestamp']))} ({ledger['timestamp']})"
    extra = special.get(number, {})
    if "offload" in extra:
        text += ", offloaded " + _pairs(extra["offload"])
    if "properties" in extra:
        text += ", properties " + _pairs(extra["properties"])
    return text


def _pairs(pairs: Document) -> str:
    return " ".join(f"{name}={value}" for name, value in pairs.items())


def cursor_lines(document: Document) -> Iterator[str]:
    """Yield a cursor's position and its acknowledged ranges."""
    meaning = document["meaning"]
    if "mark_delete" in meaning:
        yield f"  mark-delete position: {meaning['mark_delete']}"
    if "cursor_ledger" in meaning:
        yield f"  state in cursor ledger {meaning['cursor_ledger']}: {meaning['note']}"
    elif "note" in meaning:
        yield f"  note: {meaning['note']}"
    if "ledger_state" in meaning:
        state = meaning["ledger_state"]
        yield f"  the state, as entry {state['position']} has it: mark-delete position {state['mark_delete']}"
        yield from acknowledged_lines(state)
    elif "cursor_ledger" in meaning and "acked_ranges" not in meaning:
        yield "  individually acknowledged after it: not in this record, but in the cursor's ledger"
    else:
        yield from acknowledged_lines(meaning)
    if meaning.get("last_active"):
        yield f"  last active: {meaning['last_active']}"
    yield from pair_lines("property", meaning.get("properties"))
    yield from pair_lines("subscription property", meaning.get("cursor_properties"))
    yield from unknown_lines(document["value"])


def acknowledged_lines(meaning: Document) -> Iterator[str]:
    """Yield the acknowledgments after the mark-delete position."""
    if "acked_ranges" in meaning:
        entries, ranges = (counted(meaning[f"acked_{name}"], name) for name in ("entries", "ranges"))
        yield f"  individually acknowledged after it: {entries} in {ranges}"
    for ledger in meaning.get("acked", ()):
        yield f"    ledger {ledger['ledger_id']}: entries {_ranges(ledger['entries'])}"
    for item in meaning.get("acked_across_ledgers", ()):
        yield f"    after {item['after']} through {item['through']}"
    for batch in meaning.get("batches", ()):
        before = f"{_ranges(batch['acked'])} and " if batch["acked"] else ""
        left = _ranges(batch["unacked"])
        yield f"    batch {batch['position']}: still open {left}; acknowledged {before}all later ones"


def ledger_metadata_lines(document: Document) -> Iterator[str]:
    """Yield the state, quorums, ensembles and custom metadata of a BookKeeper ledger."""
    meaning, value = document["meaning"], document["value"]
    if "state" not in meaning:
        yield from generic_lines(document)
        return
    last = "" if meaning["last_entry"] is None else f", last entry {meaning['last_entry']}"
    yield f"  {meaning['state']}{last}, {value['length']} bytes, created {meaning.get('created', 'unknown')}"
    yield (
        f"  ensemble {value['ensembleSize']}, write quorum {meaning['write_quorum']},"
        f" ack quorum {meaning['ack_quorum']}, digest {value.get('digestType', 'unknown')}"
    )
    for ensemble in meaning["ensembles"]:
        yield f"  from entry {ensemble['first_entry']}: {', '.join(ensemble['bookies'])}"
    yield from pair_lines("custom", meaning.get("custom"))
    yield from unknown_lines(value)


def scalable_topic_lines(document: Document) -> Iterator[str]:
    """Yield a line for each segment of a scalable topic, and its properties."""
    meaning, value = document["meaning"], document["value"]
    if "segments" not in meaning:
        yield from generic_lines(document)
        return
    counts = f"{meaning['active_segments']} active, {meaning['sealed_segments']} sealed"
    yield f"  {meaning['scalable_topic']}, epoch {value['epoch']}, segments: {counts}"
    yield from map(_segment_line, meaning["segments"])
    yield from pair_lines("property", meaning.get("properties"))
    if value.get("autoScalePolicy"):
        yield f"  auto-scale policy: {dumps(value['autoScalePolicy'])}"


def _segment_line(segment: Document) -> str:
    facts = [segment["state"], f"hashes {segment['hashes']}"]
    for name in ("parents", "children"):
        facts += [f"{name} {', '.join(map(str, segment[name]))}"] if name in segment else []
    facts += [f"{name} {segment[name]}" for name in ("created", "sealed") if name in segment]
    return f"  segment {segment['segment_id']}: {', '.join([*facts, segment['topic']])}"


def generic_lines(document: Document) -> Iterator[str]:
    """Yield a value as indented JSON or text, then its meaning."""
    value = document["value"]
    text = value if isinstance(value, str) else _INDENTED.text(value)
    for line in text.splitlines():
        yield f"  {line}"
    for name, meaning in document["meaning"].items():
        shown = meaning if isinstance(meaning, str) else dumps(meaning)
        yield f"  {name.replace('_', ' ')}: {shown}"


def unknown_lines(value: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each message at any depth that has fields unknown to the schema."""
    if not isinstance(value, dict):
        return
    for name, member in value.items():
        here = f"{path}.{name}" if path else name
        if name == "unknown_fields":
            numbers = ", ".join(str(field["number"]) for field in member)
            yield f"  unknown fields{' in ' + path if path else ''}: {numbers}"
        elif isinstance(member, list):
            for at, item in enumerate(member):
                yield from unknown_lines(item, f"{here}[{at}]")
        else:
            yield from unknown_lines(member, here)


def pair_lines(noun: str, pairs: Document | None) -> Iterable[str]:
    """Return a line for each property, with secrets redacted."""
    return [
        f"  {noun} {name} = {value.get('text', '(redacted)') if is_redacted(value) else value}"
        for name, value in (pairs or {}).items()
    ]


def _ranges(ranges: Iterable[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


_BODIES: dict[str, Callable[[Document], Iterator[str]]] = {
    "ManagedLedgerInfo": managed_ledger_lines,
    "ManagedCursorInfo": cursor_lines,
    "PositionInfo": cursor_lines,
    "LedgerMetadata": ledger_metadata_lines,
    "ScalableTopic": scalable_topic_lines,
}
