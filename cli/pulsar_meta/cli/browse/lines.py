"""A widget with many lines, of which only those are drawn that are seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

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
