"""Tests of the browser that press keys and read the screen."""

from __future__ import annotations

import asyncio
import os
import pty
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, OptionList, Static

from pulsar_meta.cli.browse import entry_panes, topic_panes, tree
from pulsar_meta.cli.browse.app import Browser
from pulsar_meta.cli.browse.drawing import PACE, FindScreen, Job, Lines, LinesScreen, StoppedError, strip
from pulsar_meta.cli.browse.finding_panes import scope_of
from pulsar_meta.cli.browse.tree import Branch, Places, Spot, StoreTree
from pulsar_meta.cli.render.pages import Part
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.snapshot import SnapshotStore
from tests.cli.program import MAIN, environment, pulsar_meta_here
from tests.servers.etcd import EtcdServer
from tests.servers.scripted import closed_port
from tests.servers.zookeeper import ZookeeperServer

Capture = Callable[[str], Path]
MARKS = "persistent://public/default/marks"
TOPICS = "/managed-ledgers/public/default/persistent"


class Screen:
    """A browser in a terminal of 80 by 24 characters, and the contents of its screen."""

    def __init__(self, app: Browser, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def tree(self) -> StoreTree:
        return self.app.store_tree

    @property
    def lines(self) -> str:
        return self.app.lines.text

    @property
    def status(self) -> str:
        return str(self.app.status.visual)

    @property
    def names(self) -> list[str]:
        """The labels of the tree, from top to bottom."""
        labels, pending = list[str](), [self.tree.root]
        while pending:
            node = pending.pop()
            labels.append(str(node.label))
            pending += reversed(node.children) if node.is_expanded else ()
        return labels

    @property
    def positions(self) -> list[str]:
        table = self.app.query_one(DataTable)
        return [str(table.get_row_at(number)[0]) for number in range(table.row_count)]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, f"{self.names}\n{self.lines}\n{self.status}"
            await self.pilot.pause(0.02)

    async def find(self, text: str) -> None:
        """Search for a text and press Enter."""
        await self.press("slash")
        await self.until(
            lambda: isinstance(self.app.screen, FindScreen) and bool(self.app.screen.query(Input))
        )
        self.app.screen.query_one(Input).value = text
        await self.press("enter")

    async def go(self, text: str, path: str) -> None:
        """Search for a text that fits a single place, and go there."""
        await self.find(text)
        await self.until(lambda: not isinstance(self.app.screen, FindScreen))
        await self.until(lambda: self.tree.spot.path == path)


Script = Callable[[Screen], Awaitable[None]]


def browsed(places: Places, *where: str, script: Script, ended: bool = True) -> Browser:
    """Run the browser with a script and return it when it has ended."""

    async def run() -> Browser:
        app = Browser(places, where)
        async with app.run_test(size=(80, 24)) as pilot:
            await script(Screen(app, pilot))
        return app

    app = asyncio.run(run())
    assert app.end() == ended
    return app


def filled(store: Store, values: dict[str, bytes]) -> None:
    for path, value in values.items():
        store.put(path, value, ABSENT)


@pytest.fixture
def places(capture: Capture) -> Places:
    folder = capture("pulsar-4.2.4")
    return Places(f"rocksdb:{folder / 'rocksdb'}", (f"bookie-disk:{folder / 'bookie0'}",))


def lines_of(*words: str, places: Places) -> list[str]:
    """Return the lines that a command prints for the same store and entries."""
    urls = [word for url in places.entries for word in ("--entries", url)]
    done = pulsar_meta_here(*words, "--store", places.store, *urls)
    return done.stdout.decode().splitlines()


def test_a_topic_is_shown_like_the_commands_show_it(places: Places) -> None:
    async def script(screen: Screen) -> None:
        await screen.until(lambda: screen.tree.spot.topic == MARKS and "ledger 64" in screen.lines)
        assert set(lines_of("get", "topic", "marks", places=places)) <= {*screen.lines.splitlines()}
        await screen.press("2")
        await screen.until(lambda: MARKS in screen.lines)
        rows = [line.split() for line in screen.lines.splitlines()]
        ledgers = " ".join(lines_of("get", "topic", "marks", places=places)).split(" ledger ")
        ids = [word.partition(":")[0] for word in ledgers[1:]]
        assert [row[0] for row in rows if row[0].isdigit()] == ids
        assert len(ids) == 81
        assert any("█" in line or "▒" in line for line in screen.lines.splitlines()[-5:])
        await screen.press("3")
        await screen.until(lambda: "with-props" in screen.lines)
        for line in lines_of("show-cursor", "marks", places=places):
            _, name, position, backlog, *_ = line.split("\t")
            assert f"  {name}\n    {position}, backlog {backlog}" in screen.lines

    browsed(places, "topic", "marks", script=script)


def test_a_cursors_holes_are_drawn_as_strips(places: Places) -> None:
    async def script(screen: Screen) -> None:
        await screen.until(lambda: screen.tree.spot.cursor == "holes" and "mark-delete" in screen.lines)
        await screen.press("3")
        await screen.until(lambda: "Individually acknowledged" in screen.lines)
        detail = lines_of("show-cursor", "marks", "holes", "-o", "plain", places=places)
        assert len(detail) > 5
        assert set(detail) <= {*screen.lines.splitlines()}
        (drawn,) = [line for line in screen.lines.splitlines() if line.split()[:2] == ["ledger", "64"]][-1:]
        assert {"▒", "█"} & {*drawn}

    browsed(places, "cursor", "marks", "holes", script=script)


def test_entries_are_shown_page_by_page(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_panes, "PAGE", 10)
    every = [line.split("\t")[0] for line in lines_of("dump-entries", "marks", places=places)]

    async def script(screen: Screen) -> None:
        await screen.until(lambda: screen.tree.spot.topic == MARKS)
        await screen.press("4")
        await screen.until(lambda: bool(screen.app.query(DataTable)) and screen.positions == every[:10])
        table = screen.app.query_one(DataTable)
        assert [column.width for column in table.ordered_columns][:2] == [8, len("2026-11-21T06:02:29.016Z")]
        await screen.press("tab", "n")
        await screen.until(lambda: screen.positions == every[10:20])
        await screen.press("p")
        await screen.until(lambda: screen.positions == every[:10])
        await screen.press("e")
        await screen.until(lambda: screen.positions[-1:] == every[-1:])
        await screen.press("n")
        await screen.pilot.pause()
        assert screen.positions[-1] == every[-1]
        await screen.press("b")
        await screen.until(lambda: screen.positions == every[:10])
        await screen.press("enter")
        await screen.until(lambda: isinstance(screen.app.screen, LinesScreen))
        assert "payload: 0:eta" in screen.app.screen.query_one(Lines).text
        await screen.press("escape")
        await screen.find("66:10")
        await screen.until(lambda: screen.positions[:1] == ["66:10"])
        await screen.go("ledger 70", "/ledgers/00/0000/L0070")
        await screen.until(lambda: screen.positions[:1] == ["70:0"])
        await screen.go("/admin", "/admin")
        note = screen.app.query_one("#entries-note", Static)
        await screen.until(lambda: "neither a topic nor a ledger" in str(note.visual))

    browsed(places, "topic", "marks", script=script)


def test_a_note_tells_that_no_entries_were_given(places: Places) -> None:
    async def script(screen: Screen) -> None:
        await screen.until(lambda: screen.tree.spot.topic == MARKS)
        await screen.press("4")
        await screen.until(lambda: bool(screen.app.query("#entries-note")))
        note = screen.app.query_one("#entries-note", Static)
        await screen.until(lambda: "no entries to show" in str(note.visual))

    browsed(Places(places.store), "topic", "marks", script=script)


def test_findings_are_marked_at_their_places(places: Places) -> None:
    async def script(screen: Screen) -> None:
        await screen.until(lambda: screen.tree.spot.topic == MARKS)
        await screen.press("c")
        await screen.until(lambda: "checked:" in screen.lines)
        for line in lines_of("check", "marks", places=places):
            severity, code, *_ = line.split("\t")
            assert f"{severity}  {code}" in screen.lines
        assert {"▲1 managed-ledgers", "▲1 marks 745 B"} <= {*screen.names}
        await screen.go("/", "/")
        assert "record-unreadable" in screen.lines
        await screen.press("f")
        await screen.until(lambda: screen.tree.spot.path == f"{TOPICS}/marks/with-props")
        await screen.go("topic orders", f"{TOPICS}/orders")
        await screen.until(lambda: "this place was not checked" in screen.lines)
        await screen.go(TOPICS, TOPICS)
        # The findings arrive while another screen is open.
        await screen.press("c", "slash")
        await screen.until(lambda: "check of public/default: done" in screen.status)
        await screen.press("escape")
        await screen.until(lambda: screen.lines.startswith("check of public/default\n"))
        assert "not ended" not in screen.lines
        await screen.go("topic orders", f"{TOPICS}/orders")
        await screen.until(lambda: "no findings here" in screen.lines)

    browsed(places, "topic", "marks", script=script)


def test_searches_and_totals_are_shown(places: Places) -> None:
    async def script(screen: Screen) -> None:
        await screen.until(lambda: "managed-ledgers" in screen.names)
        assert screen.names[0] == "/"
        await screen.find("WITH-props")
        await screen.until(lambda: "1 found in 361 values" in screen.status)
        options = screen.app.screen.query_one(OptionList)
        assert str(options.get_option_at_index(0).prompt) == f"{TOPICS}/marks/with-props"
        await screen.press("enter")
        await screen.until(lambda: screen.tree.spot.cursor == "with-props")
        await screen.press("left")
        await screen.until(lambda: screen.tree.spot.topic == MARKS and screen.tree.spot.cursor is None)
        await screen.press("s")
        total = lines_of("top", f"{TOPICS}/marks", "-o", "ndjson", places=Places(places.store))[0]
        count = total.partition('"count":')[2].split(",")[0].strip()
        await screen.until(lambda: f"{TOPICS}/marks: {count} values" in screen.status)
        assert any(name.startswith(f"marks {count} values") for name in screen.names)
        await screen.find("topic nobody")
        await screen.until(lambda: "no topic persistent://public/default/nobody" in screen.status)

    browsed(places, script=script)


def test_without_a_place_the_first_screen_says_what_to_do(places: Places) -> None:
    async def script(screen: Screen) -> None:
        await screen.until(lambda: "check the whole store" in screen.lines)
        assert "no value" not in screen.lines
        assert "? Help" in str(screen.app.query_one("#keys", Static).visual)[:20]

    browsed(places, script=script)


def test_a_question_mark_shows_the_keys(places: Places) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("question_mark")
        await screen.until(lambda: isinstance(screen.app.screen, LinesScreen))
        await screen.until(lambda: "add up the values" in screen.app.screen.query_one(Lines).text)
        await screen.press("escape")
        await screen.until(lambda: not isinstance(screen.app.screen, LinesScreen))

    browsed(places, script=script)


def test_the_mouse_selects_and_z_maximizes_the_right_side(places: Places) -> None:
    async def script(screen: Screen) -> None:
        await screen.until(lambda: screen.tree.spot.topic == MARKS)
        await screen.pilot.click("#tabs", offset=(10, 0))
        await screen.until(lambda: screen.app.tab == "ledgers")
        await screen.press("z")
        await screen.until(lambda: screen.app.lines.size.width > 70)
        await screen.press("z")
        await screen.until(lambda: screen.app.lines.size.width < 50)
        await screen.pilot.click("#keys", offset=(3, 0))

    browsed(places, "topic", "marks", script=script)


def test_secrets_are_redacted_unless_requested(capture: Capture) -> None:
    store = f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}"

    async def script(screen: Screen) -> None:
        await screen.until(lambda: "ensemble" in screen.lines or "password" in screen.lines)
        await screen.press("escape")

    for show in (False, True):
        shown = list[str]()

        async def keep(screen: Screen, shown: list[str] = shown) -> None:
            await script(screen)
            shown.append(screen.lines)

        browsed(Places(store, show_secrets=show), "ledger", "64", script=keep)
        more = ["--show-passwords"] if show else []
        expected = pulsar_meta_here("get", "ledger", "64", "--store", store, *more).stdout.decode()
        assert {*expected.splitlines()} <= {*shown[0].splitlines()}


def test_many_children_are_loaded_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "PAGE", 20)
    url = f"dir:{tmp_path}"
    with open_store(url, read_only=False) as store:
        filled(store, {f"/many/n{number:02}": b"x" for number in range(45)})

    async def script(screen: Screen) -> None:
        def loaded() -> list[str]:
            branches = [node.data for node in screen.tree.root.children[0].children]
            return sorted(branch.name for branch in branches if isinstance(branch, Branch))

        await screen.until(lambda: screen.names == ["/", "many"])
        await screen.press("down", "right")
        await screen.until(lambda: len(loaded()) == 20)
        assert "more" in screen.names[-1]
        # A search result from a later page is shown without the rest of that page.
        await screen.go("/many/n44", "/many/n44")
        assert loaded() == [*(f"n{at:02}" for at in range(20)), "n44"]
        await screen.press("down", "enter")
        await screen.until(lambda: len(loaded()) == 41)
        screen.tree.move_cursor(screen.tree.root.children[0].children[-1])
        await screen.press("enter")
        await screen.until(lambda: len(loaded()) == 45)
        assert loaded() == [f"n{at:02}" for at in range(45)]
        await screen.until(lambda: "more" not in screen.names[-1])
        with open_store(url, read_only=False) as store:
            filled(store, {"/many/zz": b"x"})
        await screen.go("/many", "/many")
        await screen.press("r")
        await screen.until(lambda: len(loaded()) == 20)

    browsed(Places(url), script=script)


def test_strange_names_and_broken_values_are_shown_as_text(tmp_path: Path) -> None:
    url, bad = f"dir:{tmp_path}", "%5Bred%5Dx%5B%5D%1B%5B2J"
    with open_store(url, read_only=False) as store:
        filled(
            store,
            {
                f"{TOPICS}/{bad}": b"\xff\xff",
                f"{TOPICS}/{bad}/cursor": b"\xff\xff",
                "/admin/policies/a/b": b'{"a": "[bold]b[/bold]"}',
                "/[red]": b"",
            },
        )

    async def script(screen: Screen) -> None:
        await screen.go(f"{TOPICS}/{bad}", f"{TOPICS}/{bad}")
        assert any(name.startswith("[red]x[]\\x1b[2J") for name in screen.names)
        assert "[red]" in screen.names
        await screen.until(lambda: "BROKEN" in screen.lines)
        for key in ("2", "3"):
            await screen.press(key)
            await screen.until(lambda: "broken protobuf" in screen.lines)
        await screen.go("/", "/")
        await screen.press("c")
        await screen.until(lambda: "error  " in screen.lines)
        await screen.find("[2j")
        await screen.until(lambda: "2 found in 4 values" in screen.status)
        await screen.press("escape", "1")
        await screen.go("/admin/policies/a/b", "/admin/policies/a/b")
        await screen.until(lambda: "[bold]b[/bold]" in screen.lines)
        await screen.find("topic a//b")
        note = screen.app.screen.query_one("#find-note", Static)
        await screen.until(lambda: "a//b" in str(note.visual))

    browsed(Places(url), script=script)


async def wait_for_fault(screen: Screen) -> None:
    await screen.until(lambda: screen.app.fault is not None)


def test_a_store_that_cannot_be_opened_ends_the_browser(tmp_path: Path, places: Places) -> None:
    (tmp_path / "cut").write_bytes(b'{"path": "/a", "version": 1, "val')
    (tmp_path / "empty").mkdir()
    for url, kind in (
        (f"snapshot:{tmp_path / 'cut'}", DecodeError),
        (f"dir:{tmp_path / 'empty'}", NotFoundError),
        (f"rocksdb:{tmp_path / 'none'}", NotFoundError),
        (f"zk://127.0.0.1:{closed_port()}?timeout=1", UnreachableError),
    ):
        assert isinstance(browsed(Places(url), script=wait_for_fault).fault, kind), url
    fault = browsed(places, "topic", "nobody", script=wait_for_fault).fault
    assert "no topic persistent://public/default/nobody" in str(fault)


def test_an_internal_error_ends_the_browser(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("internal")

    monkeypatch.setattr(topic_panes, "value_of", broken)
    app = Browser(places)

    async def run() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await Screen(app, pilot).until(lambda: app.fault is not None)

    with pytest.raises(Exception, match="internal"):
        asyncio.run(run())
    assert app.end()
    assert isinstance(app.fault, ValueError)


def test_a_zookeeper_that_stops_answering_is_reported_and_recovers(
    zookeeper_server: ZookeeperServer, root: str
) -> None:
    with open_store(f"zk://{zookeeper_server.address}", read_only=False) as store:
        filled(store, {f"{root}/a/b": b"text", f"{root}/c": b"[]"})
    url = f"zk://{zookeeper_server.address}{root}?timeout=4"

    async def script(screen: Screen) -> None:
        await screen.until(lambda: screen.names == ["/", "a", "c"])
        await screen.go("/a/b", "/a/b")
        await screen.until(lambda: "text" in screen.lines)
        with zookeeper_server.paused():
            await screen.press("r")
            await screen.until(lambda: "no answer within" in screen.lines)
            screen.tree.move_cursor(screen.tree.root.children[1])
            await screen.press("right")
            await screen.until(lambda: any("no answer within" in name for name in screen.names))
        await screen.until(lambda: screen.tree.spot.path == "/c")
        await screen.press("r")
        await screen.until(lambda: "[]" in screen.lines)

    browsed(Places(url), script=script)


def test_quitting_does_not_wait_for_a_server(etcd_server: EtcdServer, root: str) -> None:
    with open_store(f"etcd://{etcd_server.address}", read_only=False) as store:
        filled(store, {f"{root}/a": b"text"})

    async def script(screen: Screen) -> None:
        await screen.until(lambda: root.strip("/") in screen.names)
        screen.tree.move_cursor(screen.tree.root.children[0])
        stack.enter_context(etcd_server.paused())
        await screen.press("right", "r", "s", "q")

    with ExitStack() as stack:
        app = browsed(Places(f"etcd://{etcd_server.address}?timeout=600"), script=script, ended=False)
    assert app.fault is None
    app.end()


def test_indexing_a_snapshot_shows_progress_and_can_be_stopped(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_continue, prepare = threading.Event(), SnapshotStore.prepare

    def slow(store: SnapshotStore, advance: Callable[[int], None]) -> None:
        time.sleep(PACE)
        advance(5)
        may_continue.wait(60)
        prepare(store, advance)

    monkeypatch.setattr(SnapshotStore, "prepare", slow)
    places = Places(f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}")

    async def to_the_end(screen: Screen) -> None:
        await screen.until(lambda: screen.status == "opening: 5 values  (Escape stops)")
        await screen.press("c", "slash")
        may_continue.set()
        await screen.until(lambda: "managed-ledgers" in screen.names)
        assert screen.status == ""

    async def stopped(screen: Screen) -> None:
        await screen.until(lambda: "values" in screen.status)
        await screen.press("escape")

    browsed(places, script=to_the_end)
    assert browsed(places, script=stopped).fault is None


def test_no_other_command_imports_textual() -> None:
    code = (
        "import sys; from pulsar_meta.cli.app import build_app; build_app(); print('textual' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stdout == b"False\n"


def test_a_stopped_job_ends() -> None:
    messages = list[str]()
    job = Job("sum", messages.append)
    job.advance(3)
    assert messages == ["sum: 3 values"]
    job.stopped = True
    with pytest.raises(StoppedError):
        job.advance(1)


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/", ([], "/")),
        ("/ledgers/00", ([], "/")),
        ("/managed-ledgers/a", ([], "/")),
        ("/managed-ledgers/a/b", (["a/b"], "/managed-ledgers/a/b")),
        ("/managed-ledgers/a/b/persistent", (["a/b"], "/managed-ledgers/a/b")),
        ("/managed-ledgers/a/b/c", (["a/b/c"], "/managed-ledgers/a/b/c")),
        ("/managed-ledgers/a/b/c/persistent", (["a/b/c"], "/managed-ledgers/a/b/c")),
    ],
)
def test_a_check_covers_the_selected_place(path: str, scope: tuple[list[str], str]) -> None:
    assert scope_of(Spot(path)) == scope
    assert scope_of(Spot(f"{path}/t/c", "persistent://a/b/t", "c")) == (["persistent://a/b/t"], f"{path}/t")


@pytest.mark.parametrize(
    ("parts", "drawn"),
    [
        ([], "····"),
        ([Part(0, 1)], "████"),
        ([Part(0, 0.5)], "██··"),
        ([Part(0.5, 0.25), Part(0.75, 0.25)], "··██"),
        ([Part(0.3, 0.1)], "·▒··"),
        ([Part(0, 1, "pale"), Part(0, 0.125), Part(0.125, 0.125)], "█···"),
        ([Part(0.9999, 0.0001)], "···▒"),
    ],
)
def test_strips_are_drawn(parts: list[Part], drawn: str) -> None:
    assert strip(parts, 4) == drawn


def test_browse_needs_a_terminal(places: Places, tmp_path: Path) -> None:
    done = pulsar_meta_here("browse", "--store", places.store, env=environment(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (b"pulsar-meta: browse needs a terminal: in a script, use ls, get, tree or check\n")


@pytest.mark.parametrize("reachable", [True, False])
def test_browse_runs_in_a_terminal(reachable: bool, places: Places, tmp_path: Path) -> None:
    our_end, program_end = pty.openpty()
    ioctl(program_end, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    url = places.store if reachable else f"zk://127.0.0.1:{closed_port()}?timeout=1"
    program = subprocess.Popen(
        [*MAIN, "browse", "--store", url],
        stdin=program_end, stdout=program_end, stderr=program_end, env=environment(tmp_path, TERM="xterm"),
    )  # fmt: skip
    os.close(program_end)
    sent = b""
    # Reading from a terminal whose last process has ended fails with EIO.
    with suppress(OSError):
        while part := os.read(our_end, 65536):
            if b"managed-ledgers" in part:
                os.write(our_end, b"q")
            sent += part
    os.close(our_end)
    assert program.wait(60) == (0 if reachable else 6)
    assert b"Traceback" not in sent
    if not reachable:
        assert sent.count(b"cannot connect to") == 1
