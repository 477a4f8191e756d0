"""The commands `strip-metadata` and `attach-metadata`: the broker's part of frames, off and on (PIP-70)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.inputs import STDIN, input_name, open_input
from pulsar_meta.cli.outputs import beside, whole_file
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import UsageError, decoding
from pulsar_meta.codecs.frames.broker_metadata import MetadataAppender, parse_interceptors
from pulsar_meta.jobs.batches.frame_stream import FrameCount, attach_frames, read_frames, strip_frames

FramesFile = Annotated[
    Path, typer.Argument(metavar="FILE|-", help="Frames, each behind its 4-byte size; - for stdin.")
]


def strip_metadata(shell: Shell, file: FramesFile) -> None:
    """Take the broker's part off frames; checksum, metadata and payload stay byte for byte.

    Frames without one pass through and are counted; so do bad ones, which are reported: exit code 1. Writes
    the form that `frames:` reads; with --output, the positions in FILE.idx are copied along.

    Examples:
      pulsar-meta strip-metadata frames --output bare
      pulsar-meta dump-entries 42 -o raw | pulsar-meta strip-metadata - > bare
    """
    count = FrameCount()
    with decoding(input_name(file)), open_input(file) as stream:
        shell.emit_bytes(strip_frames(read_frames(stream), count, Faults(shell)))
    _copy_positions(shell, file)
    bad = f", {count.bad} are bad and stay as they are" if count.bad else ""
    shell.say(f"{count.frames} frames: {count.changed} stripped, {count.bare} had no broker metadata{bad}")
    if count.bad:
        raise typer.Exit(Exit.FAULT)


def attach_metadata(
    shell: Shell,
    file: FramesFile,
    interceptors: Annotated[
        str, typer.Option("--interceptors", help="timestamp, index, or the classes' names, in their order.")
    ] = "timestamp,index",
    start_index: Annotated[
        int, typer.Option("--start-index", min=0, help="The index of the first message: continues a topic.")
    ] = 0,
    timestamp: Annotated[
        str, typer.Option("--timestamp", help="now, publish-time, or milliseconds since the epoch.")
    ] = "now",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace broker metadata that is there already.")
    ] = False,
) -> None:
    """Put the broker's part before frames as brokerEntryMetadataInterceptors would.

    An entry's index is that of its last message; a batch in a transaction counts one, as at the broker.

    Examples:
      pulsar-meta attach-metadata bare --start-index 1000 --output frames
    """
    count = FrameCount()
    chosen = parse_interceptors(interceptors)
    appender = MetadataAppender(chosen, _clock(timestamp), start_index - 1, replace)
    with decoding(input_name(file)), open_input(file) as stream:
        shell.emit_bytes(attach_frames(read_frames(stream), appender, count))
    _copy_positions(shell, file)
    last = f", the last index is {appender.last_index}" if "index" in chosen and count.frames else ""
    shell.say(f"{count.frames} frames: broker metadata attached{last}")


def _copy_positions(shell: Shell, file: Path) -> None:
    index = file.with_name(file.name + ".idx")
    if shell.output is None or str(file) == STDIN or not index.is_file():
        return
    target = beside(shell.output, ".idx")
    if target is None:
        return
    with index.open("rb") as source, whole_file(target, "wb") as out:
        shutil.copyfileobj(source, out)


def _clock(text: str) -> Callable[[int], int]:
    import time

    if text == "now":
        return lambda published: time.time_ns() // 1_000_000
    if text == "publish-time":
        return lambda published: published
    if text.isascii() and text.isdigit() and int(text) < 2**63:
        fixed = int(text)
        return lambda published: fixed
    raise UsageError(f"--timestamp {text!r}: expected now, publish-time or milliseconds")
