"""The commands `strip-metadata` and `attach-metadata`: the broker's part of frames, off and on (PIP-70)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer

from pulsar_meta.cli.outputs import whole_file
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError

FramesFile = Annotated[
    Path, typer.Argument(metavar="FILE|-", help="Frames, each behind its 4-byte size; - for stdin.")
]


def strip_metadata(shell: Shell, file: FramesFile) -> None:
    """Take the broker's part off frames; checksum, metadata and payload stay byte for byte.

    Frames without one pass through and are counted. Writes the form that `frames:` reads; with --output,
    the positions in FILE.idx are copied along.

    Examples:
      pulsar-meta strip-metadata frames --output bare
      pulsar-meta dump-entries 42 -o raw | pulsar-meta strip-metadata - > bare
    """
    from pulsar_meta.jobs.batches.frame_stream import FrameCount, read_frames, strip_frames

    count = FrameCount()
    with _opened(file) as stream:
        shell.emit_bytes(strip_frames(read_frames(stream), count))
    _copy_positions(shell, file)
    shell.say(f"{count.frames} frames: {count.changed} stripped, {count.bare} had no broker metadata")


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
    from pulsar_meta.codecs.frames.broker_metadata import MetadataAppender, parse_interceptors
    from pulsar_meta.jobs.batches.frame_stream import FrameCount, attach_frames, read_frames

    count = FrameCount()
    chosen = parse_interceptors(interceptors)
    appender = MetadataAppender(chosen, _clock(timestamp), start_index - 1, replace)
    with _opened(file) as stream:
        shell.emit_bytes(attach_frames(read_frames(stream), appender, count))
    _copy_positions(shell, file)
    last = f", the last index is {appender.last_index}" if "index" in chosen and count.frames else ""
    shell.say(f"{count.frames} frames: broker metadata attached{last}")


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """Open a file or stdin; a DecodeError from it names it."""
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as stream:
            yield stream
    except FileNotFoundError as error:
        raise NotFoundError("no such file", source=str(file)) from error
    except IsADirectoryError as error:
        raise UsageError("a directory, expected a file of frames", source=str(file)) from error
    except DecodeError as error:
        raise error.within(error.source or str(file)) from error


def _copy_positions(shell: Shell, file: Path) -> None:
    index = file.with_name(file.name + ".idx")
    if shell.output is None or str(file) == "-" or not index.is_file():
        return
    target = shell.output.with_name(shell.output.name + ".idx")
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
