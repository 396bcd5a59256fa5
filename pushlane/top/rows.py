"""A table with a row that is selected, of which only cells that changed are drawn anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from pushlane.util.columns import Column, Laid, fitted, headings, laid, line

_HEADING = Style(bold=True, underline=True)
_SELECTED = Style(reverse=True)
_PLAIN = Style()
_EMPTY = Laid((), (), 1, ())


class Rows(Widget, can_focus=True):
    """Shows rows below their headings. Texts are shown as they are: there is no markup."""

    BINDINGS = [  # noqa: RUF012 - textual's own way
        ("up", "move(-1)"),
        ("down", "move(1)"),
        ("pageup", "page(-1)"),
        ("pagedown", "page(1)"),
        ("home", "move(-1000000)"),
        ("end", "move(1000000)"),
    ]

    class Moved(Message):
        """Another row is selected."""

    def __init__(self) -> None:
        super().__init__()
        self._columns: Sequence[Column[Any]] = ()
        self._items: Sequence[Any] = ()
        self._keys: Sequence[str] = ()
        self._laid = _EMPTY
        self._first = 0
        self._at = 0
        self.drawn_cells = 0

    @property
    def selected(self) -> int | None:
        """The place of the selected row, None where there are no rows."""
        return self._at if self._keys else None

    def show(
        self, columns: Sequence[Column[Any]], items: Sequence[Any], keys: Sequence[str]
    ) -> None:
        """Show these rows. The one that was selected stays so, by its key."""
        before, was_first, was_at = self._laid, self._first, self._at
        old_columns = self._headings()
        selected = self._keys[self._at] if self._keys else None
        self._columns, self._items, self._keys = columns, items, keys
        self._at = (
            keys.index(selected) if selected in keys else min(self._at, max(0, len(keys) - 1))
        )
        self._lay()
        same = self._headings() == old_columns and before.widths == self._laid.widths
        if same and (was_first, was_at) == (self._first, self._at):
            self._refresh_changed(before)
        else:
            self.refresh()

    def texts(self) -> list[str]:
        """Return the heading and the rows that can be seen, as they are drawn."""
        return [self._text(y) for y in range(min(self.size.height, 1 + len(self._keys)))]

    def on_resize(self) -> None:
        self._lay()
        self.refresh()

    def action_move(self, by: int) -> None:
        self._at = max(0, min(len(self._keys) - 1, self._at + by))
        self._scroll()
        self.refresh()
        self.post_message(self.Moved())

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        style = _HEADING if y == 0 else _SELECTED if self._is_selected(y) else _PLAIN
        strip = Strip([Segment(self._text(y), style)])
        return strip.adjust_cell_length(width, style)

    def _is_selected(self, y: int) -> bool:
        return bool(self._keys) and self._first + y - 1 == self._at

    def _text(self, y: int) -> str:
        if y == 0:
            return line(self._columns, self._laid, self._headings())
        place = self._first + y - 1
        if place >= len(self._laid.cells):
            return ""
        return line(self._columns, self._laid, self._laid.cells[place])

    def _headings(self) -> list[str]:
        return headings(self._columns, self._laid)

    def _lay(self) -> None:
        if self._columns and self.size.width:
            self._laid = laid(self._columns, self._items, self.size.width)
        self._scroll()

    def _scroll(self) -> None:
        """Let the selected row be seen, and no room be left below while there are rows above."""
        room = max(1, self.size.height - 1)
        self._first = max(self._at - room + 1, min(self._first, self._at))
        self._first = max(0, min(self._first, len(self._keys) - room))

    def _refresh_changed(self, before: Laid) -> None:
        """Draw the cells anew that can be seen and are not as before."""
        kept = [self._columns[place] for place in self._laid.places]
        for y in range(1, self.size.height):
            place = self._first + y - 1
            now = self._laid.cells[place] if place < len(self._laid.cells) else ()
            was = before.cells[place] if place < len(before.cells) else ()
            if not (now and was):
                if now or was:
                    self.refresh(Region(0, y, self.size.width, 1))
                continue
            x = 0
            for column, width, text, old in zip(kept, self._laid.widths, now, was, strict=True):
                if text != old and fitted(column, text, width) != fitted(column, old, width):
                    self.refresh(Region(x, y, width, 1))
                    self.drawn_cells += 1
                x += width + self._laid.gap
