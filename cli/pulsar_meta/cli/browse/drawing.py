"""Draw lines, strips and long lists for `browse`, and run slow calls in threads of their own.

The program does not wait for these threads when it ends, unlike textual's workers, so a slow server can't
keep
it open. A long list draws only the visible lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Final, TypeVar

from rich.style import Style
from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.errors import os_failure
from pulsar_meta.cli.render.pages import Part
from pulsar_meta.cli.render.text import in_a_cell
from pulsar_meta.codecs.errors import PulsarMetaError

# Columns of a strip.
STRIP: Final = 20
# Characters of a line that are shown; what is longer says so.
LONGEST: Final = 10_000
NOTHING, SOME, ALL = "·", "▒", "█"
STYLES: Final = {
    "error": Style(color="red", bold=True),
    "warning": Style(color="yellow"),
    "note": Style(dim=True),
    "dim": Style(dim=True),
    "head": Style(bold=True),
}
# What stands in the tree where something was found.
SIGNS: Final = {"error": "✖", "warning": "▲", "note": "●"}
LEGEND: Final = f"{ALL} all, {SOME} some, {NOTHING} none"


def line(text: str, look: str = "") -> Text:
    """Return a line of text from outside: nothing in it is markup, or steers a terminal."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … {len(text) - LONGEST} characters more"
    return Text(in_a_cell(text), STYLES.get(look, Style.null()))


def lines(texts: Iterable[str], look: str = "") -> list[Text]:
    """Return several."""
    return [line(text, look) for text in texts]


def fault_line(error: PulsarMetaError) -> Text:
    """Return an error as one line."""
    return line(redact(str(error)), "error")


def buttons(named: Sequence[tuple[str, str]], chosen: int | None = None) -> Text:
    """Return a line of names, each of which does something (an action of textual) where it is clicked."""
    shown = Text()
    for number, (name, action) in enumerate(named):
        look = Style(reverse=number == chosen, meta={"@click": action})
        shown.append(f" {name} ", look)
    return shown


def strip(parts: Sequence[Part], width: int = STRIP) -> str:
    """Return the parts that are no background drawn in so many columns: all of a column, some of it, none."""
    shares = [0.0] * width
    for part in parts:
        if part.look != "pale":
            _add(shares, part.start * width, (part.start + part.width) * width)
    return "".join(ALL if share > 0.999 else SOME if share > 0 else NOTHING for share in shares)


def _add(shares: list[float], start: float, end: float) -> None:
    """Add to each column how much of it lies between two places, counted in columns."""
    first = min(int(start), len(shares) - 1)
    for column in range(first, min(int(end), len(shares) - 1) + 1):
        shares[column] += max(0.0, min(end, column + 1) - max(start, column))


T = TypeVar("T")
# Seconds between two words about how far a job is.
PACE: Final = 0.1


class Lane:
    """Makes calls one after the other."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any] | None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def ask(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, or raise what it raises; what nobody waits for any more is not begun.

        An OSError is raised as the error that the commands make of it.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((call, future))
        return await future

    def leave(self, call: Callable[[], object]) -> None:
        """Make a last call, whose answer nobody waits for."""
        self._calls.put((call, None))

    def end(self) -> None:
        """Let the thread end once it has made its calls."""
        self._calls.put(None)

    def wait(self, seconds: float) -> bool:
        """Return whether it ended within so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, future = asked
            if future is None:
                with suppress(PulsarMetaError):
                    call()
            elif not future.cancelled():
                _answer(call, future)


def _answer(call: Callable[[], Any], future: asyncio.Future[Any]) -> None:
    result: Any = None
    fault: Exception | None = None
    try:
        result = call()
    except OSError as error:
        fault = os_failure(error)
    except Exception as error:  # noqa: BLE001
        fault = error
    except BaseException as error:  # noqa: BLE001
        # As RocksDB's binding panics; the thread goes on.
        fault = RuntimeError(f"{type(error).__name__}: {error}")
    # Who asked may have left, and the loop with it.
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_settle, future, result, fault)


def _settle(future: asyncio.Future[Any], result: Any, fault: Exception | None) -> None:
    if future.done():
        return
    if fault is not None:
        future.set_exception(fault)
    else:
        future.set_result(result)


class StoppedError(Exception):
    """Nobody wants the answer of a job any more."""


class Job:
    """What goes over much of a store: it says how far it is, and can be stopped."""

    def __init__(self, what: str, say: Callable[[str], object]) -> None:
        """`say` is called from the thread of the job, with a line about it."""
        self.what, self.count, self.stopped = what, 0, False
        self._say, self._next = say, 0.0

    def advance(self, count: int) -> None:
        """Count what was passed; StoppedError once the job is to end."""
        if self.stopped:
            raise StoppedError
        self.count += count
        now = monotonic()
        if now >= self._next:
            self._next = now + PACE
            self._say(f"{self.what}: {self.count} values")


# Lines that are shown.
MOST: Final = 5000


class Lines(ScrollView, can_focus=True):
    """Lines of text, folded to the width there is."""

    DEFAULT_CSS = "Lines { height: 1fr; padding: 0 1; scrollbar-gutter: stable; }"

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Text] = []
        self._folded: list[Text] = []

    @property
    def text(self) -> str:
        """All of it as it would be copied."""
        return "\n".join(line.plain for line in self.lines)

    def show(self, lines: Sequence[Text], *, keep_place: bool = False) -> None:
        """Show other lines, from the first one on."""
        self.lines = list(lines[:MOST])
        if len(lines) > MOST:
            self.lines.append(Text(f"… {len(lines) - MOST} lines more, which get and show-cursor print"))
        self._fold()
        if not keep_place:
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        """Fold the lines anew."""
        self._fold()

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        at, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        if at >= len(self._folded):
            return Strip.blank(width, self.rich_style)
        strip = Strip(self._folded[at].render(self.app.console))
        return strip.crop_extend(0, width, self.rich_style).apply_style(self.rich_style)

    def _fold(self) -> None:
        width = max(self.scrollable_content_region.width, 1)
        console = self.app.console
        self._folded = [
            part
            for line in self.lines
            for part in (line.wrap(console, width, overflow="fold") if line.cell_len > width else [line])
        ]
        self.virtual_size = Size(width, len(self._folded))
        self.refresh()
