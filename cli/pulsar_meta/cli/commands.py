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
    "decode": Command("pulsar_meta.cli.decode:decode", READ),
    "encode": Command("pulsar_meta.cli.encode:encode", READ),
    "dump-entries": Command("pulsar_meta.cli.dump_entries:dump_entries", READ),
    "seek": Command("pulsar_meta.cli.seek:seek", SEARCH),
    "lookup": Command("pulsar_meta.cli.lookup:lookup", BROKERS),
    "brokers": Command("pulsar_meta.cli.brokers:brokers", BROKERS),
    "lookup-properties": Command("pulsar_meta.cli.brokers:lookup_properties", BROKERS),
    "compress-cursors": Command("pulsar_meta.cli.compress:compress_cursors", REWRITE),
    "compress-ledgers": Command("pulsar_meta.cli.compress:compress_ledgers", REWRITE),
    "undo": Command("pulsar_meta.cli.undo:undo", REWRITE),
    "check-readable": Command("pulsar_meta.cli.check_readable:check_readable", REWRITE),
    "ls": Command("pulsar_meta.cli.store:ls", STORE),
    "get": Command("pulsar_meta.cli.store:get", STORE),
    "tree": Command("pulsar_meta.cli.store:tree", STORE),
    "top": Command("pulsar_meta.cli.top:top", STORE),
    "put": Command("pulsar_meta.cli.put:put", STORE),
    "rm": Command("pulsar_meta.cli.put:rm", STORE),
    "properties": Command("pulsar_meta.cli.properties:properties", READ),
    "set-property": Command("pulsar_meta.cli.properties:set_property", REWRITE),
    "unset-property": Command("pulsar_meta.cli.properties:unset_property", REWRITE),
    "build-index": Command("pulsar_meta.cli.build_index:build_index", REWRITE),
    "check-index": Command("pulsar_meta.cli.check_index:check_index", SEARCH),
    "strip-metadata": Command("pulsar_meta.cli.frame_metadata:strip_metadata", FRAMES),
    "attach-metadata": Command("pulsar_meta.cli.frame_metadata:attach_metadata", FRAMES),
    "verify-entries": Command("pulsar_meta.cli.verify_entries:verify_entries", FRAMES),
    "plan-batches": Command("pulsar_meta.cli.batches:plan_batches", FRAMES),
    "pack-entries": Command("pulsar_meta.cli.batches:pack_entries", FRAMES),
}
