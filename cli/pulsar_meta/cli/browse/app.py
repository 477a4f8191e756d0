"""The main screen of `browse`: its layout, keys and background work."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.reactive import var
from textual.widgets import Static

from pulsar_meta.cli.browse.drawing import (
    HELP,
    FindScreen,
    Job,
    Lane,
    Lines,
    LinesScreen,
    StoppedError,
    buttons,
    fault_line,
    line,
    lines,
)
from pulsar_meta.cli.browse.finding_panes import Findings
from pulsar_meta.cli.browse.tree import Branch, Opened, Places, Spot, StoreTree
from pulsar_meta.codecs.errors import PulsarMetaError

if TYPE_CHECKING:
    from pulsar_meta.cli.browse.entry_panes import EntriesPane
    from pulsar_meta.jobs.check.codes import FindingDocument
    from pulsar_meta.jobs.entries.entry_choice import Bound

T = TypeVar("T")
TABS: Final = ("Value", "Ledgers", "Cursors", "Entries", "Findings")
# Actions that need an open store.
NEED_STORE: Final = frozenset({"find", "check", "sum", "reload"})
# Seconds between updates of the findings during a check.
PACE: Final = 0.2
# Seconds that the cursor rests before its place is read, so that moving through the tree stays fast.
REST: Final = 0.06
# Seconds that the program waits for a pending answer when it ends.
PATIENCE: Final = 0.5


class Browser(App[None]):
    """The browser of a store; `fault` is the error that ended it, None if the user quit."""

    TITLE = "pulsar-meta browse"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", key_display="q"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("slash", "find", "Find", key_display="/"),
        Binding("c", "check", "Check"),
        Binding("f", "next_finding", "Next"),
        Binding("s", "sum", "Sum"),
        Binding("z", "zoom", "Zoom"),
        Binding("r", "reload", "Reload"),
        Binding("1", "tab(1)", "Tabs", key_display="1-5"),
        *(Binding(str(number), f"tab({number})", show=False) for number in range(2, len(TABS) + 1)),
        Binding("escape", "stop", "Stop", show=False),
    ]
    CSS = """
        #title, #tabs, #status, #keys { height: 1; padding: 0 1; }
        #title, #keys { background: $primary-muted; }
        #tabs, #keys { link-style: none; link-color: $text; link-background-hover: $primary; }
        #status { color: $text-muted; }
        #right { width: 3fr; border-left: solid $primary; }
        .wide #right { width: 1fr; border-left: none; }
        .wide StoreTree { display: none; }
        Screen * { scrollbar-size: 1 1; }
    """
    # The tab on the right.
    tab = var("value", init=False)

    @dataclass
    class Progress(Message):
        """The progress of a job."""

        text: str
        job: Job

    @dataclass
    class Found(Message):
        """A finding of a running check."""

        document: FindingDocument
        job: Job

    @dataclass
    class Hit(Message):
        """A path that a search found."""

        path: str
        screen: FindScreen

    def __init__(self, places: Places, where: Sequence[str] = ()) -> None:
        """`where` names the first place as the commands do; the root by default."""
        super().__init__()
        self.fault: Exception | None = None
        self.findings = Findings()
        self._places, self._where = places, where
        self._opened: Opened | None = None
        self._to_close = ExitStack()
        self._job: Job | None = None
        # The check whose findings are shown, and whether new ones are waiting to be shown.
        self._check: Job | None = None
        self._news = False
        self._search: Job | None = None
        self._entries: EntriesPane | None = None
        # The place shown on the right, None if it has to be read again.
        self._shown: Spot | None = None
        self._of_tree, self._of_jobs = Lane("browse-tree"), Lane("browse-jobs")
        self._of_panes = self._of_tree
        # Kept as attributes, because queries fail while another screen is on top.
        self.store_tree = StoreTree(self._of_tree, self.findings.mark)
        self.right_side, self.lines = Vertical(id="right"), Lines()
        self.tab_bar = Static(self._tabs(), id="tabs", markup=False)
        self.status = Static(id="status", markup=False)

    def compose(self) -> ComposeResult:
        """Build the screen."""
        yield Static(line(self._places.title), id="title", markup=False)
        with Horizontal():
            yield self.store_tree
            with self.right_side:
                yield self.tab_bar
                yield self.lines
        yield self.status
        shown = [binding for binding in self.BINDINGS if isinstance(binding, Binding) and binding.show]
        keys = [(f"{key.key_display or key.key} {key.description}", f"app.{key.action}") for key in shown]
        yield Static(buttons(keys), id="keys", markup=False)

    def _tabs(self) -> Text:
        names = [(name, f"app.tab({number})") for number, name in enumerate(TABS, start=1)]
        return buttons(names, TABS.index(self.tab.capitalize()))

    def on_mount(self) -> None:
        """Start to open the store."""
        self.begin()

    @work(exclusive=True, group="begin")
    async def begin(self) -> None:
        """Open the store and show the requested place; quit if that fails."""
        job = self._new_job("opening")
        job.advance(0)
        try:
            self._opened = opened = await self._of_tree.ask(partial(self._prepared, job))
            if opened.store.networked:
                # A server answers several requests at once, so the tree need not wait for the right side.
                self._of_panes = Lane("browse-panes")
            await self.store_tree.begin(opened)
            if self._where:
                from pulsar_meta.jobs.values.places import places_below

                paths = await self._of_tree.ask(lambda: places_below(opened.store, self._where))
                await self.store_tree.reveal(paths[0])
            self.store_tree.focus()
        except StoppedError:
            self.exit()
            return
        except PulsarMetaError as error:
            self.fault = error
            self.exit()
            return
        self._job = None
        self._say(line(""))
        self.show_place()

    def _prepared(self, job: Job) -> Opened:
        """Open the store and prepare it for reading, which may take time; `end` closes it."""
        opened = self._to_close.enter_context(Opened(self._places))
        opened.store.prepare(job.advance)
        return opened

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return True if an action is available; most need an open store."""
        return self._opened is not None or action not in NEED_STORE

    async def ask(self, call: Callable[[Opened], T]) -> T:
        """Run a call for the right side in a background thread. Raises PulsarMetaError."""
        opened = self._opened
        assert opened is not None
        return await self._of_panes.ask(lambda: call(opened))

    def end(self) -> bool:
        """Close the store; returns True if no call is running any more."""
        self._stop()
        others = {self._of_panes, self._of_jobs} - {self._of_tree}
        for lane in others:
            lane.end()
        ended = all(lane.wait(PATIENCE) for lane in others)
        if ended:
            self._of_tree.leave(self._to_close.close)
        self._of_tree.end()
        return self._of_tree.wait(PATIENCE) and ended

    # The place under the cursor.

    def on_store_tree_moved(self, message: StoreTree.Moved) -> None:
        """Show the new place under the cursor."""
        self.show_place()

    def watch_tab(self) -> None:
        """Show another tab of the same place."""
        self.tab_bar.update(self._tabs())
        self._shown = None
        self.show_place()

    @work(exclusive=True, group="place")
    async def show_place(self, first: Bound | None = None) -> None:
        """Show the current tab of the place under the cursor; entries start at `first`."""
        await sleep(REST)
        spot = self.store_tree.spot
        if self._opened is None or (self._shown == spot and first is None):
            return
        self._shown = None
        await self._fill(spot, first)
        # A call that a newer one replaced was cancelled before this line.
        self._shown = spot

    async def _fill(self, spot: Spot, first: Bound | None) -> None:
        lines, pane = self.lines, await self._entries_pane()
        lines.display = self.tab != "entries"
        if pane is not None:
            pane.display = self.tab == "entries"
        if self.tab == "findings":
            lines.show(self.findings.lines(spot))
        elif pane is not None and pane.display:
            await pane.show(spot, first)
        else:
            lines.show([line("reading…", "dim")])
            try:
                lines.show(await self.ask(partial(_answer, self.tab, spot)))
            except PulsarMetaError as error:
                lines.show([fault_line(error)])

    async def _entries_pane(self) -> EntriesPane | None:
        """Return the pane of entries, which is created on first use."""
        if self.tab == "entries" and self._entries is None:
            from pulsar_meta.cli.browse.entry_panes import EntriesPane

            self._entries = EntriesPane(self.ask)
            await self.right_side.mount(self._entries)
        return self._entries

    # Jobs run one at a time; each opens the store again.

    def _new_job(self, name: str) -> Job:
        self._stop()
        job = Job(name, lambda text: self.post_message(self.Progress(text, job)))
        self._job = job
        return job

    def _stop(self) -> None:
        if self._job is not None:
            self._job.stopped = True

    async def _run(self, job: Job, call: Callable[[Opened], T]) -> T | None:
        """Run a job; returns its result, or None after showing why it was stopped or failed."""
        try:
            return await self._of_jobs.ask(partial(_with_own_store, self._places, call))
        except StoppedError:
            self._say(line(f"{job.name}: stopped after {job.count} values", "warning"))
            return None
        except PulsarMetaError as error:
            self._say(fault_line(error))
            return None
        finally:
            job.stopped = True
            if self._job is job:
                self._job = None

    def on_browser_progress(self, message: Progress) -> None:
        """Show the progress of a job."""
        if not message.job.stopped:
            self._say(line(f"{message.text}  (Escape stops)"))

    def _say(self, text: Text) -> None:
        screen = self.screen
        if isinstance(screen, FindScreen):
            screen.say(text)
        self.status.update(text)

    def action_stop(self) -> None:
        """Stop the running job."""
        self._stop()

    @work(group="job")
    async def action_check(self) -> None:
        """Check the topic or the namespace under the cursor, or the whole store."""
        from pulsar_meta.cli.browse.finding_panes import check

        self.findings.begin(self.store_tree.spot)
        names = self.findings.names or []
        self._check = job = self._new_job(f"check of {self.findings.scope}")
        self._show_findings()
        self.tab = "findings"
        about = await self._run(
            job,
            lambda opened: check(
                opened, names, job, lambda finding: self.post_message(self.Found(finding, job))
            ),
        )
        if about is not None and job is self._check:
            self.findings.about = about
            self._say(line(f"{job.name}: done"))
        self._show_findings()

    def on_browser_found(self, message: Found) -> None:
        """Add a finding, and show it soon."""
        if message.job is not self._check:
            return
        self.findings.add(message.document)
        if not self._news:
            self._news = True
            self.set_timer(PACE, self._show_findings)

    def _show_findings(self) -> None:
        self._news = False
        self.store_tree.relabel()
        if self.tab == "findings":
            self.lines.show(self.findings.lines(self.store_tree.spot), keep_place=True)

    @work(group="job")
    async def action_sum(self) -> None:
        """Add up the values at and below the place under the cursor."""
        from pulsar_meta.cli.browse.topic_panes import sum_of

        tree = self.store_tree
        path, node = tree.spot.path, tree.cursor_node
        job = self._new_job(f"sum of {path}")
        total = await self._run(job, lambda opened: sum_of(opened, path, job))
        if total is None:
            return
        self._say(line(f"{path}: {total}"))
        if node is not None and isinstance(node.data, Branch) and node.data.spot.path == path:
            node.data.sum = total
            tree.relabel()

    # Navigation.

    def action_find(self) -> None:
        """Open the search screen."""
        self.push_screen(FindScreen(self._look_for), self._found)

    def _found(self, path: str | None) -> None:
        if self._search is not None:
            self._search.stopped = True
        if path is not None:
            self._go_to(path)

    def _look_for(self, screen: FindScreen, text: str) -> None:
        self.find(screen, text)

    @work(exclusive=True, group="find")
    async def find(self, screen: FindScreen, text: str) -> None:
        """Find a place by its name, an entry by its position, or all paths that contain the text."""
        from pulsar_meta.cli.browse.finding_panes import POSITION, named, search

        if POSITION.fullmatch(text):
            screen.dismiss(None)
            self._show_entry(text)
            return
        if text.startswith("/"):
            screen.dismiss(text.rstrip("/") or "/")
            return
        try:
            paths = await self.ask(partial(named, text=text))
        except PulsarMetaError as error:
            screen.say(fault_line(error))
            return
        if paths is not None and len(paths) == 1:
            screen.dismiss(paths[0])
            return
        if paths is not None:
            for path in paths:
                screen.found(path)
            return
        self._search = job = self._new_job(f"search for {text}")
        hit = lambda path: self.post_message(self.Hit(path, screen))  # noqa: E731
        summary = await self._run(job, lambda opened: search(opened, text, job, hit))
        if summary is not None:
            self._say(line(summary))

    def on_browser_hit(self, message: Hit) -> None:
        """List a path that a search found."""
        if message.screen is self.screen:
            message.screen.found(message.path)

    def _show_entry(self, text: str) -> None:
        from pulsar_meta.jobs.entries.entry_choice import Bound

        self.tab = "entries"
        self.show_place(Bound.parse(text))

    @work(exclusive=True, group="go")
    async def _go_to(self, path: str) -> None:
        try:
            await self.store_tree.reveal(path)
        except PulsarMetaError as error:
            self._say(fault_line(error))

    def action_next_finding(self) -> None:
        """Go to the next finding."""
        path = self.findings.next_after(self.store_tree.spot.path)
        if path is None:
            self._say(line("no findings: press c to check", "dim"))
        else:
            self._go_to(path)

    def action_tab(self, number: int) -> None:
        """Show another pane."""
        self.tab = TABS[number - 1].lower()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(LinesScreen("Keys", lines(HELP)))

    def action_zoom(self) -> None:
        """Toggle the full width for the right side."""
        self.screen_stack[0].toggle_class("wide")

    def action_reload(self) -> None:
        """Read the place under the cursor again."""
        self._shown = None
        self.store_tree.reload()
        self.show_place()

    def _handle_exception(self, error: Exception) -> None:
        """Quit; the command reports the error, without the values of variables that textual would print."""
        self.fault = self.fault or getattr(error, "error", error)
        self._exception = self._exception or error
        self._exception_event.set()
        self.exit()


def _with_own_store(places: Places, call: Callable[[Opened], T]) -> T:
    """Run a job with its own store, because some stores can only be read by one thread."""
    with Opened(places) as opened:
        return call(opened)


def _answer(tab: str, spot: Spot, opened: Opened) -> list[Text]:
    """Return the content of a tab; its modules are imported here, so that the first screen appears fast."""
    if tab == "value":
        from pulsar_meta.cli.browse.topic_panes import value_of

        return value_of(opened, spot)
    from pulsar_meta.cli.browse.topic_panes import cursors_of, ledgers_of

    return ledgers_of(opened, spot) if tab == "ledgers" else cursors_of(opened, spot)
