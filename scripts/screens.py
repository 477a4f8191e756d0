"""Draw docs/screens/*.svg: what a terminal shows when commands run on the capture of a real cluster.

The commands run in a pseudo-terminal, whose text and colours are drawn. The pictures of `browse` are its own
screens after a few keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ
from typing import Final
from unittest.mock import patch

ROOT: Final = Path(__file__).parent.parent
SCREENS: Final = ROOT / "docs" / "screens"
CAPTURE: Final = "pulsar-4.2.4"
SETTINGS: Final = {
    "PULSAR_META_STORE": f"rocksdb:{CAPTURE}/rocksdb",
    "PULSAR_META_ENTRIES": f"bookie-disk:{CAPTURE}/bookie0",
}
# The commands of each picture.
COMMANDS: Final = {
    "start": (
        "pulsar-meta check marks --for-version 4.2.4",
        "pulsar-meta compress-cursors --topic persistent://public/default/marks --cursor with-props \\\n"
        "    --compression none --yes --undo-file undo.ndjson | tail -1",
        "pulsar-meta check marks --for-version 4.2.4; echo exit code $?",
    ),
    "disk": ("pulsar-meta disk --by subscription -o table | head -14",),
    "entries": ("pulsar-meta dump-entries orders --from -5",),
}
# The place at which the browser starts, and its keys, each with a text that the right side shows after it.
BROWSED: Final = {
    "browse-cursor": (("cursor", "marks", "holes"), (("c", "checked:"), ("3", "mark-delete"))),
    "browse-ledgers": (("topic", "marks"), (("2", "open, closed"),)),
    "browse-entries": (("topic", "orders"), (("z", "ledgers:"), ("4", "page 1"))),
}
COLUMNS: Final = 120
# A day after the capture. The pictures show the ages of backlogs.
NOW: Final = 1795327587.0


def svg(name: str, steps: Iterable[tuple[str, str]]) -> str:
    """Return the picture `name` of a terminal with commands and their output."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    parts = []
    for command, shown in steps:
        prompt = f"$ {command.replace(' -o table', '')}\n"
        parts.append(Text.assemble((prompt, "bold green"), Text.from_ansi(shown.rstrip())))
    text = Text("\n\n").join(parts)
    width = max(map(len, text.plain.splitlines())) + 1
    console = Console(
        record=True, width=width, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(text, soft_wrap=True)
    return without_fonts(console.export_svg(title="pulsar-meta", unique_id=f"pulsar-meta-{name}"))


def without_fonts(drawn: str) -> str:
    """Remove the fonts from a picture of rich, because they are loaded from another server."""
    return re.sub(r"(?s)\s*@font-face \{.*?\}", "", drawn)


def browsed(name: str, folder: str | Path) -> str:
    """Return the picture `name` of the browser, on the capture in a folder."""
    from textual.pilot import Pilot
    from textual.widgets import Static

    from pulsar_meta.cli.browse.app import Browser
    from pulsar_meta.cli.browse.tree import Places

    where, steps = BROWSED[name]
    places = Places(SETTINGS["PULSAR_META_STORE"], (SETTINGS["PULSAR_META_ENTRIES"],))

    async def drawn(app: Browser) -> str:
        async with app.run_test(size=(80, 24)) as pilot:
            for key, shown in (("", where[-1]), *steps):
                await pilot.press(*filter(None, [key]))
                while not any(shown in text for text in seen(app)):
                    await pilot.pause(0.02)
            return without_fonts(await settled(app, pilot))

    async def settled(app: Browser, pilot: Pilot[None]) -> str:
        before, now = "", app.export_screenshot(title="pulsar-meta browse")
        while now != before:
            await pilot.pause(0.3)
            before, now = now, app.export_screenshot(title="pulsar-meta browse")
        return now

    def seen(app: Browser) -> list[str]:
        notes = app.query("#entries-note").results(Static)
        return [app.lines.text, *(str(note.visual) for note in notes)]

    with contextlib.chdir(folder), patch("pulsar_meta.jobs.cursors.subscriptions.time", lambda: NOW):
        app = Browser(places, where)
        picture = asyncio.run(drawn(app))
        app.end()
    return picture


def main() -> None:
    """Draw all pictures, each on an unchanged capture."""
    SCREENS.mkdir(exist_ok=True)
    env = {**os.environ, **SETTINGS}
    for name in (*COMMANDS, *BROWSED):
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(ROOT / "fixtures" / "captures" / f"{CAPTURE}.tar.xz") as packed:
                packed.extractall(folder)
            steps = [(command, shown_by(command, folder, env)) for command in COMMANDS.get(name, ())]
            picture = svg(name, steps) if steps else browsed(name, folder)
        (SCREENS / f"{name}.svg").write_text(picture, encoding="utf-8")


def shown_by(command: str, folder: str | Path, env: Mapping[str, str]) -> str:
    """Run a shell command in a pseudo-terminal; returns its output on stdout with colours."""
    our_end, program_end = pty.openpty()
    ioctl(program_end, TIOCSWINSZ, pack("HHHH", 50, COLUMNS, 0, 0))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=program_end,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={name: value for name, value in env.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        | {"TERM": "xterm", "PATH": path},
    )
    os.close(program_end)
    sent = b""
    # Reading from a terminal whose last process has ended fails with EIO.
    with contextlib.suppress(OSError):
        while part := os.read(our_end, 65536):
            sent += part
    os.close(our_end)
    shell.wait()
    return sent.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main()
