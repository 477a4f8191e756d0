"""The commands by name: where each lives and under which heading `--help` lists it.

Strings, not functions: a command's module is imported when that command is called, so that `decode`
never pays for what `seek` needs.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Command(NamedTuple):
    """`module:function` of a command, and its heading in `--help`."""

    target: str
    group: str


READ: Final = "Read"
SEARCH: Final = "Search"
STORE: Final = "Work on a store"
REWRITE: Final = "Rewrite, with undo"
BROKERS: Final = "Brokers"
FRAMES: Final = "Frames and batches"

COMMANDS: Final[dict[str, Command]] = {
    "decode": Command("pulsar_meta.cli.commands.decode:decode", READ),
    "encode": Command("pulsar_meta.cli.commands.encode:encode", READ),
    "dump-entries": Command("pulsar_meta.cli.commands.dump_entries:dump_entries", READ),
    "seek": Command("pulsar_meta.cli.commands.seek:seek", SEARCH),
    "lookup": Command("pulsar_meta.cli.commands.lookup:lookup", BROKERS),
    "brokers": Command("pulsar_meta.cli.commands.brokers:brokers", BROKERS),
    "lookup-properties": Command("pulsar_meta.cli.commands.brokers:lookup_properties", BROKERS),
    "compress-cursors": Command("pulsar_meta.cli.commands.compress:compress_cursors", REWRITE),
    "compress-ledgers": Command("pulsar_meta.cli.commands.compress:compress_ledgers", REWRITE),
    "undo": Command("pulsar_meta.cli.commands.undo:undo", REWRITE),
    "check-readable": Command("pulsar_meta.cli.commands.check_readable:check_readable", REWRITE),
    "ls": Command("pulsar_meta.cli.commands.store:ls", STORE),
    "get": Command("pulsar_meta.cli.commands.store:get", STORE),
    "tree": Command("pulsar_meta.cli.commands.store:tree", STORE),
    "top": Command("pulsar_meta.cli.commands.top:top", STORE),
    "put": Command("pulsar_meta.cli.commands.put:put", STORE),
    "rm": Command("pulsar_meta.cli.commands.put:rm", STORE),
    "properties": Command("pulsar_meta.cli.commands.properties:properties", READ),
    "set-property": Command("pulsar_meta.cli.commands.properties:set_property", REWRITE),
    "unset-property": Command("pulsar_meta.cli.commands.properties:unset_property", REWRITE),
    "build-index": Command("pulsar_meta.cli.commands.build_index:build_index", REWRITE),
    "check-index": Command("pulsar_meta.cli.commands.check_index:check_index", SEARCH),
    "strip-metadata": Command("pulsar_meta.cli.commands.frame_metadata:strip_metadata", FRAMES),
    "attach-metadata": Command("pulsar_meta.cli.commands.frame_metadata:attach_metadata", FRAMES),
    "verify-entries": Command("pulsar_meta.cli.commands.verify_entries:verify_entries", FRAMES),
    "plan-batches": Command("pulsar_meta.cli.commands.batches:plan_batches", FRAMES),
    "pack-entries": Command("pulsar_meta.cli.commands.batches:pack_entries", FRAMES),
}
