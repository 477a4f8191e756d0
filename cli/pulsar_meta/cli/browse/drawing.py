"""Draw lines, strips, long lists and dialogs for `browse`, and run slow calls in background threads.

The program does not wait for these threads when it ends, unlike textual's workers, so a slow server can't
keep it open. A long list draws only the visible lines. A dialog is a screen on top of the main one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, ClassVar, Final, TypeVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, OptionList, Static

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.errors import from_os_error
from pulsar_meta.cli.render.pages import Part
from pulsar_meta.cli.render.text import in_a_cell
from pulsar_meta.codecs.errors import PulsarMetaError

# Columns of a strip.
STRIP: Final = 20
# Characters of a line that are shown; a longer line ends with the number of the others.
LONGEST: Final = 10_000
NOTHING, SOME, ALL = "·", "▒", "█"
STYLES: Final = {
    "error": Style(color="red", bold=True),
    "warning": Style(color="yellow"),
    "note": Style(dim=True),
    "dim": Style(dim=True),
    "head": Style(bold=True),
}
# Signs in the tree at places with findings.
SIGNS: Final = {"error": "✖", "warning": "▲", "note": "●"}
LEGEND: Final = f"{ALL} all, {SOME} some, {NOTHING} none"


def line(text: str, look: str = "") -> Text:
    """Return untrusted text as a line without markup and control characters."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … {len(text) - LONGEST} more characters"
    return Text(in_a_cell(text), STYLES.get(look, Style.null()))


def lines(texts: Iterable[str], look: str = "") -> list[Text]:
    """Return several lines, as `line` does."""
    return [line(text, look) for text in texts]


def fault_line(error: PulsarMetaError) -> Text:
    """Return an error as one line."""
    return line(redact(str(error)), "error")


def buttons(named: Sequence[tuple[str, str]], chosen: int | None = None) -> Text:
    """Return a line of names; clicking a name runs its textual action."""
    shown = Text()
    for number, (name, action) in enumerate(named):
        look = Style(reverse=number == chosen, meta={"@click": action})
        shown.append(f" {name} ", look)
    return shown


def strip(parts: Sequence[Part], width: int = STRIP) -> str:
    """Draw the parts that are not pale; each column shows whether it is covered fully, partly or not."""
    shares = [0.0] * width
    for part in parts:
        if part.look != "pale":
            _add(shares, part.start * width, (part.start + part.width) * width)
    return "".join(ALL if share > 0.999 else SOME if share > 0 else NOTHING for share in shares)


def _add(shares: list[float], start: float, end: float) -> None:
    """Add to each column the share of it between two places, counted in columns."""
    first = min(int(start), len(shares) - 1)
    for column in range(first, min(int(end), len(shares) - 1) + 1):
        shares[column] += max(0.0, min(end, column + 1) - max(start, column))


T = TypeVar("T")
# Seconds between progress messages of a job.
PACE: Final = 0.1


class Lane:
    """A thread that makes calls one after the other."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any] | None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def ask(self, call: Callable[[], T]) -> T:
        """Run `call` in the thread; returns its result or raises its error.

        A call whose caller was cancelled is not started. An OSError becomes the error that commands report.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((call, future))
        return await future

    def leave(self, call: Callable[[], object]) -> None:
        """Queue a last call without waiting for it."""
        self._calls.put((call, None))

    def end(self) -> None:
        """End the thread after the calls in its queue."""
        self._calls.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the thread; returns True if it has ended."""
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
        fault = from_os_error(error)
    except Exception as error:  # noqa: BLE001
        fault = error
    except BaseException as error:  # noqa: BLE001
        # RocksDB's binding panics with a BaseException; the thread survives it.
        fault = RuntimeError(f"{type(error).__name__}: {error}")
    # The event loop may be closed already.
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
    """A job was stopped."""


class Job:
    """A long scan of a store that reports its progress and can be stopped."""

    def __init__(self, name: str, say: Callable[[str], object]) -> None:
        """`say` is called from the job's thread with a line about its progress."""
        self.name, self.count, self.stopped = name, 0, False
        self._say, self._next = say, 0.0

    def advance(self, count: int) -> None:
        """Count values. Raises StoppedError once the job was stopped."""
        if self.stopped:
            raise StoppedError
        self.count += count
        now = monotonic()
        if now >= self._next:
            self._next = now + PACE
            self._say(f"{self.name}: {self.count} values")


# Lines that are shown at most.
MOST: Final = 5000


class Lines(ScrollView, can_focus=True):
    """Lines of text, folded to the available width."""

    DEFAULT_CSS = "Lines { height: 1fr; padding: 0 1; scrollbar-gutter: stable; }"

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Text] = []
        self._folded: list[Text] = []

    @property
    def text(self) -> str:
        """The lines as plain text, for copying."""
        return "\n".join(line.plain for line in self.lines)

    def show(self, lines: Sequence[Text], *, keep_place: bool = False) -> None:
        """Replace the lines; scrolls to the first one unless `keep_place` is set."""
        self.lines = list(lines[:MOST])
        if len(lines) > MOST:
            self.lines.append(Text(f"… {len(lines) - MOST} more lines: use get or show-cursor"))
        self._fold()
        if not keep_place:
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        """Fold the lines again."""
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


HINT = "part of a name, /a/path, topic NAME, cursor TOPIC NAME, ledger ID, LEDGER:ENTRY"
HELP = (
    "arrows        move in the tree; right opens a place, left closes it",
    "Enter         open a place, or load more of a long list",
    "Tab           move between the tree and the right side",
    "1 2 3 4 5     show the value, ledgers, cursors, entries or findings of a place",
    "z             give the right side the whole width, and back",
    f"/             find {HINT}",
    "c             check the topic or namespace under the cursor, or the whole store",
    "f             go to the next finding; pulsar-meta explain CODE explains it",
    "s             add up the values at and below the place under the cursor",
    "r             read the place under the cursor again",
    "Escape        stop a check, a search or a sum; close a window",
    "q             quit",
    "",
    "In entries: n and p turn pages, b and e go to the first and last page, Enter opens an entry.",
    "To copy text, hold Shift (Option on a Mac) while you select it.",
)
_BOX = """
    {name} {{ align: center middle; }}
    {name} > Vertical {{ width: 94%; height: 90%; border: round $primary; background: $surface; }}
    {name} Static {{ height: auto; padding: 0 1; }}
"""
_OPTIONS = """
    FindScreen OptionList { height: 1fr; border: none; }
    FindScreen OptionList:focus { border: none; }
"""


class LinesScreen(ModalScreen[None]):
    """Lines with a heading; Escape closes the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Back")]
    DEFAULT_CSS = _BOX.format(name="LinesScreen")

    def __init__(self, heading: str, lines: Sequence[Text]) -> None:
        super().__init__()
        self._heading, self._lines = heading, lines

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Vertical():
            yield Static(line(f"{self._heading}  (Escape goes back)", "head"), markup=False)
            yield Lines()

    def on_mount(self) -> None:
        """Show the lines."""
        lines = self.query_one(Lines)
        lines.show(self._lines)
        lines.focus()


class FindScreen(ModalScreen[str | None]):
    """Asks for a text, lists the paths found, and returns the chosen one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]
    DEFAULT_CSS = _BOX.format(name="FindScreen") + _OPTIONS

    def __init__(self, find: Callable[[FindScreen, str], None]) -> None:
        """`find` starts a search, which calls `found` and `say`."""
        super().__init__()
        self._find = find
        self._paths: list[str] = []

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Vertical():
            yield Input(placeholder=HINT)
            yield OptionList()
            yield Static(line(HINT, "dim"), markup=False, id="find-note")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Start a search."""
        self._paths.clear()
        self.query_one(OptionList).clear_options()
        if event.value.strip():
            self._find(self, event.value.strip())

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the chosen path."""
        self.dismiss(self._paths[event.option_index])

    def found(self, path: str) -> None:
        """List a path; does nothing if the screen was closed."""
        for options in self.query(OptionList):
            self._paths.append(path)
            options.add_option(line(path))
            if len(self._paths) == 1:
                options.highlighted = 0
                options.focus()

    def say(self, text: Text) -> None:
        """Show the progress or an error of the search; does nothing if the screen was closed."""
        for note in self.query("#find-note").results(Static):
            note.update(text)
