"""Draws docs/screens/*.svg: the output of commands on the capture of a real cluster, as a terminal shows it.

The pictures of `browse` are its own screens after a few keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

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
        "pulsar-meta check marks orders -o table",
        "pulsar-meta whois 64",
        "pulsar-meta get cursor marks holes | head -7",
    ),
    "disk": ("pulsar-meta disk --by subscription -o table | head -14",),
    "entries": ("pulsar-meta dump-entries orders --from -5 -o table",),
}
# The place at which the browser starts, and its keys, each with a text that the right side shows after it.
BROWSED: Final = {
    "browse-cursor": (("cursor", "marks", "holes"), (("c", "checked:"), ("3", "mark-delete"))),
    "browse-ledgers": (("topic", "marks"), (("2", "open, closed"),)),
    "browse-entries": (("topic", "orders"), (("z", "ledgers:"), ("4", "page 1"))),
}
WORDS: Final = {
    r"(?m)^\$.*$": "bold green",
    r"\berror\b|cannot load": "bold red",
    r"\bkept\b": "yellow",
    r"─+": "bright_black",
}


def svg(name: str, steps: Iterable[tuple[str, str]]) -> str:
    """Return the picture `name` of a terminal with commands and their output."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    output = "\n\n".join(
        f"$ {command.replace(' -o table', '')}\n{printed.rstrip()}" for command, printed in steps
    )
    width = max(map(len, output.splitlines())) + 1
    console = Console(
        record=True, width=width, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    text = Text(output)
    for pattern, style in WORDS.items():
        text.highlight_regex(pattern, style)
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

    with contextlib.chdir(folder):
        app = Browser(places, where)
        picture = asyncio.run(drawn(app))
        app.end()
    return picture


def main() -> None:
    """Draw all pictures."""
    program = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    SCREENS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(ROOT / "fixtures" / "captures" / f"{CAPTURE}.tar.xz") as packed:
            packed.extractall(folder)
        for name, commands in COMMANDS.items():
            steps = [(command, _printed(command, folder, program)) for command in commands]
            (SCREENS / f"{name}.svg").write_text(svg(name, steps), encoding="utf-8")
        for name in BROWSED:
            (SCREENS / f"{name}.svg").write_text(browsed(name, folder), encoding="utf-8")


def _printed(command: str, folder: str, program: str) -> str:
    words = ["sh", "-c", command] if "|" in command else shlex.split(command)
    env = os.environ | SETTINGS | {"PATH": program}
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=folder, env=env, check=False).stdout


if __name__ == "__main__":
    main()
