"""The tree pane of `browse`, which reads the paths of a store page by page, and the opened store."""

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
        """The URLs without passwords."""
        return "  ".join(map(redact, (self.store, *self.entries)))


@dataclass(frozen=True, slots=True)
class Spot:
    """A path of a store, with the full name of the topic and the cursor that it belongs to."""

    path: str
    topic: str | None = None
    cursor: str | None = None


class Opened(ExitStack):
    """A store opened for reading; its entries are opened on first use."""

    def __init__(self, places: Places) -> None:
        """Raises the errors of `open_store`."""
        super().__init__()
        self.places = places
        self.store: Store = self.enter_context(open_store(places.store))
        self._entries: Callable[[], EntrySource] | None = None

    @property
    def entries(self) -> EntrySource | None:
        """The entries, None if no URL was given. Raises the errors of `open_entry_sources`."""
        opening = self.opening_entries
        return None if opening is None else opening()

    @property
    def opening_entries(self) -> Callable[[], EntrySource] | None:
        """A function that opens the entries, None if no URL was given."""
        if self._entries is None and self.places.entries:
            from pulsar_meta.jobs.entries.entry_sources import EntriesOnDemand

            on_demand = self.enter_context(EntriesOnDemand(self.places.entries, self.store))
            self._entries = lambda: on_demand.source
        return self._entries


class Ask(Protocol):
    """Runs a call with the opened store in a background thread. Raises PulsarMetaError."""

    async def __call__(self, call: Callable[[Opened], T]) -> T:
        """Return the result of `call`."""
        ...


# Children that are loaded at once.
PAGE: Final = 200


@dataclass(slots=True)
class Branch:
    """A node of the tree: a place and facts about it; `rest` yields the children not yet loaded."""

    spot: Spot
    name: str
    size: int | None = None
    sum: str = ""
    rest: Iterator[Child] | None = None
    opened: bool = False


@dataclass(slots=True)
class More:
    """The last child of a node with further children."""

    of: TreeNode[Branch | More | None]


Node = TreeNode[Branch | More | None]


def branch_of(document: Any) -> Branch:
    """Make a branch from a document of `ls` or `tree`."""
    topic = document.get("topic") or document.get("scalable_topic")
    spot = Spot(document["path"], topic, document.get("cursor"))
    return Branch(spot, document.get("decoded", document["name"]), document.get("size"))


class StoreTree(Tree[Branch | More | None]):
    """Shows a store; `marks` returns the highest severity and number of findings at and below a path."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "open", "Open", show=False),
        Binding("left", "leave", "Close", show=False),
    ]
    DEFAULT_CSS = "StoreTree { width: 2fr; padding: 0; }"

    @dataclass
    class Moved(Message):
        """The cursor moved to another place."""

        spot: Spot

    def __init__(self, lane: Lane, marks: Callable[[str], tuple[str, int] | None]) -> None:
        super().__init__("/", Branch(Spot("/"), "/"))
        self.guide_depth = 2
        self._lane, self._marks = lane, marks
        self._store: Opened | None = None

    @property
    def spot(self) -> Spot:
        """The place under the cursor, or the place above it if the node is not a place."""
        node: Node | None = self.cursor_node
        while node is not None:
            if isinstance(node.data, Branch):
                return node.data.spot
            node = node.parent
        return Spot("/")

    async def begin(self, opened: Opened) -> None:
        """Show the root's children. Raises the errors of the store."""
        self._store = opened
        await self._load(self.root)
        self.root.expand()

    async def reveal(self, path: str) -> None:
        """Expand the tree down to a path and go there. Raises NotFoundError if the path does not exist."""
        node, at = self.root, ""
        for name in path.strip("/").split("/") if path != "/" else ():
            at = f"{at}/{name}"
            if isinstance(node.data, Branch) and not node.data.opened:
                await self._load(node)
            node.expand()
            node = _child(node, at) or await self._add(node, at)
        self.call_after_refresh(self._go_to, node)

    def relabel(self) -> None:
        """Draw all labels again after findings or sums changed."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            if isinstance(node.data, Branch):
                node.set_label(self._label(node.data))
            waiting += node.children

    @work(exclusive=True, group="reload")
    async def reload(self) -> None:
        """Load the children of the place under the cursor again."""
        node = self.cursor_node or self.root
        while not isinstance(node.data, Branch) and node.parent is not None:
            node = node.parent
        node.remove_children()
        if isinstance(node.data, Branch):
            node.data.opened, node.data.rest = False, None
        await self._load_or_say(node)

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[Branch | More | None]) -> None:
        """Load the children on first use."""
        if isinstance(event.node.data, Branch) and not event.node.data.opened:
            self._open(event.node)

    def on_tree_node_selected(self, event: Tree.NodeSelected[Branch | More | None]) -> None:
        """Load the next page of children if the node is the `… more` node."""
        if isinstance(event.node.data, More):
            above = event.node.data.of
            event.node.remove()
            self._open(above)

    def on_tree_node_highlighted(self) -> None:
        """Announce the place under the cursor."""
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
        """Load the next page of children; existing ones stay."""
        branch, opened = node.data, self._store
        assert isinstance(branch, Branch)
        assert opened is not None
        branch.opened = True
        try:
            page = await self._lane.ask(partial(_next_page, opened, branch))
        except BaseException:
            branch.opened, branch.rest = False, None
            raise
        for error in [child for child in node.children if child.data is None]:
            error.remove()
        shown = {child.data.spot.path for child in node.children if isinstance(child.data, Branch)}
        for document in page:
            if document["path"] not in shown:
                self._insert(node, branch_of(document))
        if len(page) == PAGE:
            node.add_leaf(line("… more (Enter)", "dim"), More(node))
        node.allow_expand = bool(node.children)

    async def _add(self, node: Node, path: str) -> Node:
        """Add a child that belongs to a later page."""
        opened = self._store
        assert opened is not None
        document = await self._lane.ask(lambda: next(walk(opened.store, path, 0)))
        return self._insert(node, branch_of(document))

    def _insert(self, node: Node, branch: Branch) -> Node:
        more = next((child for child in node.children if isinstance(child.data, More)), None)
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
    for child in node.children:
        if isinstance(child.data, Branch) and child.data.spot.path == path:
            return child
    return None


def _next_page(opened: Opened, branch: Branch) -> list[Child]:
    if branch.rest is None:
        # Sizes need the values, which are slow to get from a server.
        branch.rest = list_children(opened.store, branch.spot.path, details=not opened.store.networked)
    return list(islice(branch.rest, PAGE))
