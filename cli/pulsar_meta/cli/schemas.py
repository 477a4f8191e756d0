"""The JSON Schemas (2020-12) of all documents that pulsar-meta prints or writes to files.

They are generated from the types of the documents. A TypedDict becomes an object with its docstring as
description. Objects allow more fields, because later releases may add some. Types are listed as strings, so
that printing one schema imports only the modules of that schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from importlib import import_module
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pulsar_meta.codecs.shapes import ByMember, Either, Members

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
INTEGER: Final = {
    "description": "A number; beyond ±(2⁵³−1), which not every reader of JSON can hold, its digits.",
    "type": ["integer", "string"],
    "pattern": "^-?[0-9]+$",
}

Schema = dict[str, Any]
_PLAIN: Final[dict[Any, Schema]] = {
    Any: {},
    NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    object: {},
    str: {"type": "string"},
}


def document_schema(title: str, kinds: list[Any]) -> Schema:
    """Return the schema of a document of one of these TypedDicts, or of a list of such documents.

    Raises TypeError if a type has no form in JSON.
    """
    definitions: dict[str, Schema] = {}
    document = _any_of([_schema(kind, definitions) for kind in kinds])
    return {
        "$schema": DIALECT,
        "title": title,
        "anyOf": [{"$ref": "#/$defs/document"}, {"type": "array", "items": {"$ref": "#/$defs/document"}}],
        "$defs": {"document": document, **dict(sorted(definitions.items()))},
    }


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a type; schemas of objects are added to `definitions` by type name."""
    if is_typeddict(kind):
        return _reference(kind.__name__, lambda: _object(kind, definitions), definitions)
    if isinstance(kind, Members):
        return _reference(kind.name, lambda: _members(kind, definitions), definitions)
    if isinstance(kind, Either):
        return _union(kind.kinds, definitions)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if kind is int:
        definitions["Integer"] = INTEGER
        return {"$ref": "#/$defs/Integer"}
    made = _OF_GENERIC.get(get_origin(kind))
    if made is not None:
        return made(get_args(kind), definitions)
    if kind not in _PLAIN:
        raise TypeError(f"no JSON Schema for {kind!r}")
    return dict(_PLAIN[kind])


def _reference(name: str, made: Callable[[], Schema], definitions: dict[str, Schema]) -> Schema:
    if name not in definitions:
        # Registered before its members are resolved, because a member may have the same type.
        definitions[name] = {}
        definitions[name] |= made()
    return {"$ref": f"#/$defs/{name}"}


def _members(kind: Members, definitions: dict[str, Schema]) -> Schema:
    properties = {name: _schema(member, definitions) for name, member in kind.of().items()}
    return {"description": kind.about, "type": "object", "properties": properties}


def _object(kind: Any, definitions: dict[str, Schema]) -> Schema:
    # `__required_keys__` ignores NotRequired in annotations that are strings. The empty namespaces make each
    # annotation resolve names in its own module.
    hints = get_type_hints(kind, {}, {}, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    required = [name for name in hints if name not in optional | kind.__optional_keys__]
    members = {name: get_args(hint)[0] if name in optional else hint for name, hint in hints.items()}
    about = {"description": " ".join(kind.__doc__.split())} if kind.__doc__ else {}
    properties = {name: _schema(member, definitions) for name, member in members.items()}
    cases = [case for name, member in members.items() for case in _cases(name, member, definitions)]
    by_member = {"allOf": cases} if cases else {}
    return {**about, "type": "object", "properties": properties, "required": required, **by_member}


def _cases(name: str, kind: Any, definitions: dict[str, Schema]) -> Iterator[Schema]:
    """Yield a conditional schema of the member `name` for each value of the member that decides its type."""
    by = get_args(kind)[1] if get_origin(kind) is Annotated else None
    if isinstance(by, ByMember):
        for value, type_then in by.of().items():
            condition = {"properties": {by.name: {"const": value}}, "required": [by.name]}
            yield {"if": condition, "then": {"properties": {name: _schema(type_then, definitions)}}}


def _annotated(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    declared, detail = arguments
    return _schema(declared if isinstance(detail, ByMember) else detail, definitions)


def _list(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    return {"type": "array", "items": _schema(arguments[0], definitions)}


def _tuple(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    items = [_schema(argument, definitions) for argument in arguments]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _map(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}


def _literal(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    return {"enum": list(arguments)}


def _union(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    return _any_of([_schema(argument, definitions) for argument in arguments])


def _any_of(schemas: list[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


_OF_GENERIC: Final[Mapping[Any, Callable[[tuple[Any, ...], dict[str, Schema]], Schema]]] = {
    list: _list,
    tuple: _tuple,
    dict: _map,
    Mapping: _map,
    Annotated: _annotated,
    Literal: _literal,
    Union: _union,
    UnionType: _union,
}


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
        ("pulsar_meta.jobs.export.files:DoneDocument",),
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
