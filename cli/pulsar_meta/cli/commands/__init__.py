"""All commands by name, with the function that runs each of them and its heading in `--help`.

Functions are listed as strings, because a command's module is imported only when that command runs: `decode`
should not wait for the imports of `seek`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pulsar_meta.cli.render.tables import Format


class Command(NamedTuple):
    """A command: `module:function`, its heading in `--help`, and the formats of its `-o`."""

    target: str
    heading: str
    forms: tuple[Format, ...]


# Formats of commands that print documents.
TEXT: Final = (Format.TABLE, Format.PLAIN, Format.JSON, Format.NDJSON)
# Formats of commands that print rows with columns.
ROWS: Final = (*TEXT, Format.CSV)
# Formats of the files that `export` writes.
EXPORT: Final = (Format.PARQUET, Format.NDJSON, Format.CSV)
PAGES: Final = (*ROWS, Format.HTML)
BYTES: Final = (Format.RAW,)
# `browse` draws a screen and prints no data.
SCREEN: Final = ()

CHECK: Final = "Find problems"
REWRITE: Final = "Rewrite, with undo"
SEARCH: Final = "Search"
READ: Final = "Read"
STORE: Final = "Work on a store"
KEEP: Final = "Snapshot, compare, restore"
BROKERS: Final = "Brokers"
FRAMES: Final = "Frames and batches"

# Groups of commands by their first word: heading and help text.
COMMAND_GROUPS: Final[dict[str, tuple[str, str]]] = {
    "repair": (REWRITE, "Repair damage that check reports."),
}
COMMANDS: Final[dict[str, Command]] = {
    "check": Command("pulsar_meta.cli.commands.check:check", CHECK, (*PAGES, Format.OPENMETRICS)),
    "explain": Command("pulsar_meta.cli.commands.explain:explain", CHECK, ROWS),
    "check-index": Command("pulsar_meta.cli.commands.properties:check_index", CHECK, ROWS),
    "check-readable": Command("pulsar_meta.cli.commands.check:check_readable", CHECK, ROWS),
    "verify-entries": Command("pulsar_meta.cli.commands.verify_entries:verify_entries", CHECK, ROWS),
    "repair ledger-metadata": Command(
        "pulsar_meta.cli.commands.repair:repair_ledger_metadata", REWRITE, PAGES
    ),
    "repair topic-record": Command("pulsar_meta.cli.commands.repair:repair_topic_record", REWRITE, PAGES),
    "repair missing-ledger": Command("pulsar_meta.cli.commands.repair:repair_missing_ledger", REWRITE, PAGES),
    "repair count": Command("pulsar_meta.cli.commands.repair:repair_count", REWRITE, PAGES),
    "repair generator": Command("pulsar_meta.cli.commands.repair:repair_generator", REWRITE, PAGES),
    "repair partitions": Command("pulsar_meta.cli.commands.repair:repair_partitions", REWRITE, PAGES),
    "repair termination": Command("pulsar_meta.cli.commands.repair:repair_termination", REWRITE, PAGES),
    "repair cursor": Command("pulsar_meta.cli.commands.repair:repair_cursor", REWRITE, PAGES),
    "repair compaction": Command("pulsar_meta.cli.commands.repair:repair_compaction", REWRITE, PAGES),
    "repair schema": Command("pulsar_meta.cli.commands.repair:repair_schema", REWRITE, PAGES),
    "repair offload": Command("pulsar_meta.cli.commands.repair:repair_offload", REWRITE, PAGES),
    "repair adopt": Command("pulsar_meta.cli.commands.repair:repair_adopt", REWRITE, PAGES),
    "repair plan": Command("pulsar_meta.cli.commands.repair:repair_plan", REWRITE, PAGES),
    "undo": Command("pulsar_meta.cli.commands.snapshot:undo", REWRITE, PAGES),
    "compress-cursors": Command("pulsar_meta.cli.commands.compress:compress_cursors", REWRITE, PAGES),
    "compress-ledgers": Command("pulsar_meta.cli.commands.compress:compress_ledgers", REWRITE, PAGES),
    "convert-cursor": Command("pulsar_meta.cli.commands.show_cursor:convert_cursor", REWRITE, PAGES),
    "set-property": Command("pulsar_meta.cli.commands.properties:set_property", REWRITE, PAGES),
    "unset-property": Command("pulsar_meta.cli.commands.properties:unset_property", REWRITE, PAGES),
    "build-index": Command("pulsar_meta.cli.commands.properties:build_index", REWRITE, PAGES),
    "seek": Command("pulsar_meta.cli.commands.seek:seek", SEARCH, (*ROWS, Format.PARQUET)),
    "decode": Command("pulsar_meta.cli.commands.decode:decode", READ, (*TEXT, Format.RAW)),
    "encode": Command("pulsar_meta.cli.commands.decode:encode", READ, (Format.RAW, Format.NDJSON)),
    "dump-entries": Command(
        "pulsar_meta.cli.commands.dump_entries:dump_entries", READ, (*ROWS, Format.PARQUET, Format.RAW)
    ),
    "export": Command("pulsar_meta.cli.commands.export:export", READ, EXPORT),
    "whois": Command("pulsar_meta.cli.commands.disk:whois", READ, ROWS),
    "ledgers": Command("pulsar_meta.cli.commands.disk:ledgers", READ, ROWS),
    "disk": Command("pulsar_meta.cli.commands.disk:disk", READ, PAGES),
    "show-cursor": Command("pulsar_meta.cli.commands.show_cursor:show_cursor", READ, PAGES),
    "schema": Command("pulsar_meta.cli.commands.decode:schema", READ, ROWS),
    "properties": Command("pulsar_meta.cli.commands.properties:properties", READ, ROWS),
    "ls": Command("pulsar_meta.cli.commands.store:ls", STORE, ROWS),
    "get": Command("pulsar_meta.cli.commands.store:get", STORE, (*ROWS, Format.RAW)),
    "tree": Command("pulsar_meta.cli.commands.store:tree", STORE, ROWS),
    "browse": Command("pulsar_meta.cli.commands.store:browse", STORE, SCREEN),
    "top": Command("pulsar_meta.cli.commands.diff:top", STORE, (*PAGES, Format.OPENMETRICS)),
    "put": Command("pulsar_meta.cli.commands.store:put", STORE, PAGES),
    "rm": Command("pulsar_meta.cli.commands.store:rm", STORE, PAGES),
    "snapshot": Command("pulsar_meta.cli.commands.snapshot:snapshot", KEEP, TEXT),
    "bundle": Command("pulsar_meta.cli.commands.snapshot:bundle", KEEP, TEXT),
    "diff": Command("pulsar_meta.cli.commands.diff:diff", KEEP, PAGES),
    "history": Command("pulsar_meta.cli.commands.snapshot:history_of", KEEP, PAGES),
    "restore": Command("pulsar_meta.cli.commands.restore:restore", KEEP, PAGES),
    "rebuild": Command("pulsar_meta.cli.commands.rebuild:rebuild", KEEP, ROWS),
    "lookup": Command("pulsar_meta.cli.commands.lookup:lookup", BROKERS, ROWS),
    "brokers": Command("pulsar_meta.cli.commands.lookup:brokers", BROKERS, ROWS),
    "lookup-properties": Command("pulsar_meta.cli.commands.lookup:lookup_properties", BROKERS, TEXT),
    "strip-metadata": Command("pulsar_meta.cli.commands.batches:strip_metadata", FRAMES, BYTES),
    "attach-metadata": Command("pulsar_meta.cli.commands.batches:attach_metadata", FRAMES, BYTES),
    "plan-batches": Command("pulsar_meta.cli.commands.batches:plan_batches", FRAMES, ROWS),
    "pack-entries": Command("pulsar_meta.cli.commands.batches:pack_entries", FRAMES, BYTES),
}
