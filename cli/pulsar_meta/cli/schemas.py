"""The JSON Schemas of all documents that pulsar-meta prints or writes to files.

Types are listed as strings, so that printing one schema imports only the modules of that schema.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

from pulsar_meta.cli.render.json_schema import Schema, document_schema

_DECODED: Final = ("pulsar_meta.codecs.documents.decoded:DecodedDocument",)
_WRITTEN: Final = (
    "pulsar_meta.jobs.rewrite.decision:SummaryDocument",
    "pulsar_meta.jobs.rewrite.plan:PlanHeader",
    "pulsar_meta.jobs.rewrite.plan:PlanLine",
)
_PACKED: Final = (*_WRITTEN, "pulsar_meta.jobs.rewrite.rules:Estimate")
_CURSORS: Final = "pulsar_meta.jobs.cursors.documents"
_SNAPSHOT: Final = "pulsar_meta.codecs.snapshot_lines"
_UNDO: Final = "pulsar_meta.jobs.rewrite.undo_log"

# The types that each command prints. Subcommands such as `repair count` share the entry of their group.
COMMAND_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "brokers": (
        "pulsar_meta.jobs.brokers.registered:RegisteredBroker",
        "pulsar_meta.jobs.brokers.registered:UnreadableBroker",
    ),
    "build-index": _WRITTEN,
    "bundle": ("pulsar_meta.cli.commands.snapshot:WrittenBundle",),
    "check": (
        "pulsar_meta.jobs.check.codes:FindingDocument",
        "pulsar_meta.jobs.check.upgrade:UpgradeVerdict",
    ),
    "check-index": ("pulsar_meta.jobs.index.check:IndexReport",),
    "check-readable": ("pulsar_meta.jobs.rewrite.readable:UnreadableRecord",),
    "compress-cursors": _PACKED,
    "compress-ledgers": _PACKED,
    "convert-cursor": _WRITTEN,
    "decode": _DECODED,
    "diff": ("pulsar_meta.jobs.values.comparison:StoreDifference",),
    "disk": (
        "pulsar_meta.jobs.disk.usage:TopicUsage",
        "pulsar_meta.jobs.disk.usage:SubscriptionUsage",
        "pulsar_meta.jobs.disk.usage:LogUsage",
        "pulsar_meta.jobs.disk.space:BookieUsage",
        "pulsar_meta.jobs.disk.space:FreedSpace",
    ),
    "dump-entries": ("pulsar_meta.jobs.entries.entry_dump:EntryDocument",),
    "encode": (f"{_SNAPSHOT}:SnapshotValue",),
    "explain": ("pulsar_meta.jobs.check.explanations:Explanation",),
    "get": _DECODED,
    "history": ("pulsar_meta.jobs.values.meanings:HistoryStep",),
    "ledgers": ("pulsar_meta.jobs.disk.contents:LedgerLine", "pulsar_meta.jobs.disk.contents:LogLine"),
    "lookup": ("pulsar_meta.brokers.lookup_session:LookupDocument",),
    "lookup-properties": ("pulsar_meta.jobs.brokers.registered:PublishedProperties",),
    "ls": ("pulsar_meta.jobs.values.store_tree:Child",),
    "plan-batches": ("pulsar_meta.jobs.batches.batch_plan:TopicBatchPlan",),
    "properties": ("pulsar_meta.jobs.index.properties:LedgerProperties",),
    "put": _WRITTEN,
    "rebuild": (
        "pulsar_meta.jobs.rebuild.evidence:RebuiltValue",
        "pulsar_meta.jobs.rebuild.topics:UnnamedTopic",
        "pulsar_meta.jobs.rebuild.cursors:UnnamedCursor",
        "pulsar_meta.jobs.rebuild.rebuilt:GoneCursor",
    ),
    "repair": _WRITTEN,
    "restore": _WRITTEN,
    "rm": _WRITTEN,
    "schema": ("pulsar_meta.cli.commands.decode:SchemaName",),
    "seek": ("pulsar_meta.jobs.seek.seek:SeekAnswer",),
    "set-property": _WRITTEN,
    "show-cursor": (
        f"{_CURSORS}:SubscriptionLine",
        f"{_CURSORS}:SubscriptionDetail",
        f"{_CURSORS}:SubscriptionState",
    ),
    "snapshot": ("pulsar_meta.cli.commands.snapshot:WrittenSnapshot",),
    "top": ("pulsar_meta.jobs.values.biggest:TopDocument",),
    "tree": ("pulsar_meta.jobs.values.store_tree:Node",),
    "undo": _WRITTEN,
    "unset-property": _WRITTEN,
    "verify-entries": ("pulsar_meta.jobs.entries.entry_check:EntryFault",),
    "whois": ("pulsar_meta.jobs.disk.whois:LedgerOwnership",),
}


class OtherSchema(NamedTuple):
    """The description and the types of a schema that no command prints on stdout."""

    description: str
    types: tuple[str, ...]


# Lines on stderr with -o json and -o ndjson, and lines of files.
OTHER_TYPES: Final[dict[str, OtherSchema]] = {
    "errors": OtherSchema(
        "an error on stderr",
        ("pulsar_meta.cli.errors:ErrorDocument", "pulsar_meta.cli.errors:UnforeseenDocument"),
    ),
    "notes": OtherSchema("a message on stderr", ("pulsar_meta.cli.shell:MessageDocument",)),
    "counts": OtherSchema(
        "the numbers of things checked, and the sums of `diff`, on stderr",
        ("pulsar_meta.cli.shell:CheckedDocument", "pulsar_meta.jobs.values.comparison:BothSums"),
    ),
    "plan-file": OtherSchema("a line of a plan", _WRITTEN[1:]),
    "undo-file": OtherSchema(
        "a line of an undo file",
        (f"{_UNDO}:UndoHeader", f"{_UNDO}:UndoLine", f"{_UNDO}:UndoAnswer", f"{_UNDO}:UndoEnd"),
    ),
    "snapshot-file": OtherSchema(
        "a line of a snapshot",
        (
            "pulsar_meta.jobs.values.snapshot:SnapshotHead",
            f"{_SNAPSHOT}:SnapshotValue",
            f"{_SNAPSHOT}:SnapshotFooter",
        ),
    ),
    "export-manifest": OtherSchema(
        "a line of the manifest of an export, after the first",
        ("pulsar_meta.jobs.export.manifest:DoneDocument",),
    ),
}
NAMES: Final = (*COMMAND_TYPES, *OTHER_TYPES)


def description_of(name: str) -> str:
    """Return the description of a schema. Raises KeyError for an unknown name."""
    return f"output of `{name}`" if name in COMMAND_TYPES else OTHER_TYPES[name].description


def schema_of(name: str) -> Schema:
    """Return the JSON Schema of a command's documents, or of one of OTHERS; KeyError for another name."""
    types = COMMAND_TYPES[name] if name in COMMAND_TYPES else OTHER_TYPES[name].types
    return document_schema(f"pulsar-meta: {description_of(name)}", [_type(target) for target in types])


def _type(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
