"""The tree pane of `browse`: the paths of a store, read page by page, and the store that is being browsed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.browse.drawing import SIGNS, STYLES, Lane, fault_line, line
from pulsar_meta.cli.render.text import size
from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.jobs.values.store_tree import Child, list_children, walk
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store

if TYPE_CHECKING:
    from pulsar_meta.entries.base import EntrySource


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Places:
    """The URLs of a store and of entries, and whether secrets are shown."""

    store: str
    entries: tuple[str, ...] = ()
    show_secrets: bool = False

    @property
    def title(self) -> str:
        """Where they are, without passwords."""
        return "  ".join(map(redact, (self.store, *self.entries)))


@dataclass(frozen=True, slots=True)
class Spot:
    """A path of a store, and whose it is: `topic` by its full name, and one of its cursors."""

    path: str
    topic: str | None = None
    cursor: str | None = None


class Opened(ExitStack):
    """A store opened for reading; its entries are opened when they are first asked for."""

    def __init__(self, places: Places) -> None:
        """Raise what `open_store` does."""
        super().__init__()
        self.places = places
        self.store: Store = self.enter_context(open_store(places.store))
        self._entries: Callable[[], EntrySource] | None = None

    @property
    def entries(self) -> EntrySource | None:
        """The entries, None where none were given; raises what `open_entry_sources` does."""
        opening = self.opening_entries
        return None if opening is None else opening()

    @property
    def opening_entries(self) -> Callable[[], EntrySource] | None:
        """What opens the entries, None where none were given."""
        if self._entries is None and self.places.entries:
            from pulsar_meta.jobs.entries.entry_sources import EntriesOnDemand

            held = self.enter_context(EntriesOnDemand(self.places.entries, self.store))
            self._entries = lambda: held.source
        return self._entries


class Ask(Protocol):
    """Asks what was opened, in a thread of its own; raises PulsarMetaError."""

    async def __call__(self, call: Callable[[Opened], T]) -> T:
        """Return what `call` returns."""
        ...


# Children that are loaded in one go.
PAGE: Final = 200


@dataclass(slots=True)
class Branch:
    """A node of the tree: a place, and what is known of it; `rest` are the children not yet loaded."""

    spot: Spot
    name: str
    size: int | None = None
    sum: str = ""
    rest: Iterator[Child] | None = None
    opened: bool = False


@dataclass(slots=True)
class More:
    """The last child of a node that has more of them."""

    of: TreeNode[Branch | More | None]


Node = TreeNode[Branch | More | None]


def branch_of(document: Any) -> Branch:
    """Return the branch of a child, as `ls` has it, or of a node of `tree`."""
    topic = document.get("topic") or document.get("scalable_topic")
    spot = Spot(document["path"], topic, document.get("cursor"))
    return Branch(spot, document.get("decoded", document["name"]), document.get("size"))


class StoreTree(Tree[Branch | More | None]):
    """Shows a store; `marks` says of a path how grave what lies there is, and how much of it there is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "open", "Open", show=False),
        Binding("left", "leave", "Close", show=False),
    ]
    DEFAULT_CSS = "StoreTree { width: 2fr; padding: 0; }"

    @dataclass
    class Moved(Message):
        """The place that is looked at is another one."""

        spot: Spot

    def __init__(self, lane: Lane, marks: Callable[[str], tuple[str, int] | None]) -> None:
        super().__init__("/", Branch(Spot("/"), "/"))
        self.guide_depth = 2
        self._lane, self._marks = lane, marks
        self._store: Opened | None = None

    @property
    def spot(self) -> Spot:
        """The place under the cursor; of what is no place, the one above it."""
        node: Node | None = self.cursor_node
        while node is not None:
            if isinstance(node.data, Branch):
                return node.data.spot
            node = node.parent
        return Spot("/")

    async def begin(self, opened: Opened) -> None:
        """Show the root's children; raises what the store does."""
        self._store = opened
        await self._load(self.root)
        self.root.expand()

    async def reveal(self, path: str) -> None:
        """Open the tree down to a path and go there; NotFoundError where nothing is at it or below."""
        node, at = self.root, ""
        for name in path.strip("/").split("/") if path != "/" else ():
            at = f"{at}/{name}"
            if isinstance(node.data, Branch) and not node.data.opened:
                await self._load(node)
            node.expand()
            node = _child(node, at) or await self._add(node, at)
        self.call_after_refresh(self._go_to, node)

    def relabel(self) -> None:
        """Draw all names anew: what is known of the places changed."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            if isinstance(node.data, Branch):
                node.set_label(self._label(node.data))
            waiting += node.children

    @work(exclusive=True, group="reload")
    async def reload(self) -> None:
        """Ask anew for the children of the place under the cursor."""
        node = self.cursor_node or self.root
        while not isinstance(node.data, Branch) and node.parent is not None:
            node = node.parent
        node.remove_children()
        if isinstance(node.data, Branch):
            node.data.opened, node.data.rest = False, None
        await self._load_or_say(node)

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[Branch | More | None]) -> None:
        """Load the children the first time."""
        if isinstance(event.node.data, Branch) and not event.node.data.opened:
            self._open(event.node)

    def on_tree_node_selected(self, event: Tree.NodeSelected[Branch | More | None]) -> None:
        """Load the next page where there are more children."""
        if isinstance(event.node.data, More):
            above = event.node.data.of
            event.node.remove()
            self._open(above)

    def on_tree_node_highlighted(self) -> None:
        """Say where the cursor is."""
        self.post_message(self.Moved(self.spot))

    def action_open(self) -> None:
        """Open the node under the cursor."""
        if self.cursor_node is not None and self.cursor_node.allow_expand:
            self.cursor_node.expand()

    def action_leave(self) -> None:
        """Close the node under the cursor, or go to the one above it."""
        node = self.cursor_node
        if node is not None and node.is_expanded and node.children:
            node.collapse()
        elif node is not None and node.parent is not None:
            self.move_cursor(node.parent)

    @work(group="load")
    async def _open(self, node: Node) -> None:
        await self._load_or_say(node)

    async def _load_or_say(self, node: Node) -> None:
        try:
            await self._load(node)
        except PulsarMetaError as error:
            node.add_leaf(fault_line(error), None)

    async def _load(self, node: Node) -> None:
        """Load the next page of children; one that is there already stays."""
        branch, opened = node.data, self._store
        assert isinstance(branch, Branch)
        assert opened is not None
        branch.opened = True
        try:
            page = await self._lane.ask(partial(_next_page, opened, branch))
        except BaseException:
            branch.opened, branch.rest = False, None
            raise
        for one in [one for one in node.children if one.data is None]:
            one.remove()
        there = {one.data.spot.path for one in node.children if isinstance(one.data, Branch)}
        for document in page:
            if document["path"] not in there:
                self._insert(node, branch_of(document))
        if len(page) == PAGE:
            node.add_leaf(line("… more (Enter)", "dim"), More(node))
        node.allow_expand = bool(node.children)

    async def _add(self, node: Node, path: str) -> Node:
        """Add a child that comes in a later page."""
        opened = self._store
        assert opened is not None
        document = await self._lane.ask(lambda: next(walk(opened.store, path, 0)))
        return self._insert(node, branch_of(document))

    def _insert(self, node: Node, branch: Branch) -> Node:
        more = next((one for one in node.children if isinstance(one.data, More)), None)
        return node.add(self._label(branch), branch, before=more, allow_expand=branch.spot.cursor is None)

    def _go_to(self, node: Node) -> None:
        self.move_cursor(node)
        self.scroll_to_node(node, animate=False)

    def _label(self, branch: Branch) -> Text:
        mark = self._marks(branch.spot.path)
        shown = Text() if mark is None else Text(f"{SIGNS[mark[0]]}{mark[1]} ", STYLES[mark[0]])
        shown.append_text(line(branch.name))
        if branch.sum or branch.size:
            shown.append_text(line(f" {branch.sum or size(branch.size or 0)}", "dim"))
        return shown


def _child(node: Node, path: str) -> Node | None:
    found = (one for one in node.children if isinstance(one.data, Branch) and one.data.spot.path == path)
    return next(found, None)


def _next_page(opened: Opened, branch: Branch) -> list[Child]:
    if branch.rest is None:
        # Sizes are in the values, which a server would have to send.
        branch.rest = list_children(opened.store, branch.spot.path, details=not opened.store.networked)
    return list(islice(branch.rest, PAGE))
