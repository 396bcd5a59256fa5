"""The terminal's screen: how it stands, a table, and keys to sort, filter, ask why and steer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.events import Key, Resize
from textual.widgets import Input, Static
from textual.worker import WorkerFailed

from pushlane.core.errors import BadInput
from pushlane.operations.finding import FindTasks, FoundPage
from pushlane.operations.now import TaskShareView
from pushlane.operations.operation import Operation
from pushlane.operations.processes import ListProcesses
from pushlane.top.dialogs import ChangeDialog, Dialog, QuotaDialog, WhyDialog
from pushlane.top.look import Do, Look, every
from pushlane.top.rows import Rows
from pushlane.top.search import found_parts, search
from pushlane.top.tables import PROCESSES, SHARES, TABLES, TASKS, Order, Seen, Table
from pushlane.top.texts import LEGEND, local_time, states_text, verdict_in
from pushlane.util.columns import plain

EVERY_S = 1.0
_KEYS = "1-5 table  s sort  r reverse  / filter  q quit"
_TASK_KEYS = "1-5 table  s sort  r reverse  / find  a all  w why  p pause  u quota  q quit"
_SEARCH_HINT = "words of id, key or name, app=, level=, sink=, state=; Esc for all"
_FILTER_HINT = "type what to look for; Esc for all"

_LAYOUT = """
Screen, Dialog { layout: vertical; background: ansi_default; color: ansi_default; }
Static { height: 1; background: ansi_default; color: ansi_default; }
#head, #tabs, #title { text-style: bold; }
#head.-old { text-style: bold reverse; }
#verdict { height: 3; }
#detail { height: 3; }
Rows { height: 1fr; background: ansi_default; color: ansi_default; }
VerticalScroll { height: 1fr; background: ansi_default; scrollbar-size: 0 0; }
#told { height: auto; }
Input { height: 1; background: ansi_default; color: ansi_default; text-style: underline; }
#find { display: none; }
#find.-open { display: block; }
"""


class Line(Static):
    """Some text, drawn anew only when it is another."""

    def __init__(self, name: str) -> None:
        super().__init__("", id=name, markup=False)
        self.text = ""

    def say(self, text: str) -> None:
        if (text := "\n".join(map(plain, text.split("\n")))) != self.text:
            self.text = text
            self.update(text, layout=False)


class Top(App[None]):
    """Shows the view of now that `look` keeps, of the place `where`.

    `failure` is what went wrong in it, and ended it.
    """

    CSS = _LAYOUT
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [  # noqa: RUF012 - textual's own way
        *((str(place + 1), f"table({place})") for place in range(len(TABLES))),
        ("tab", "next_table(1)"),
        ("shift+tab", "next_table(-1)"),
        ("s", "sort"),
        ("r", "reverse"),
        ("slash", "filter"),
        ("escape", "unfiltered"),
        ("a", "finished"),
        ("w", "why"),
        ("p", "pause"),
        ("u", "quota"),
        ("q", "quit"),
        Binding("ctrl+c", "quit", priority=True),  # of a field, too
    ]

    def __init__(self, do: Do, look: Look, where: str, every_s: float = EVERY_S) -> None:
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self.failure: Exception | None = None
        self._do, self._look, self._where = do, look, where
        self._every_s = every_s
        self._table: Table[Any] = TABLES[0]
        self._orders: dict[str, int] = {}
        self._is_reversed = False
        self._find = ""
        self._with_finished = False
        self._wrong = ""
        self._is_asking = False
        self._shown: Sequence[Any] = ()

    def compose(self) -> ComposeResult:
        yield Line("head")
        yield Line("verdict")
        yield Line("tabs")
        yield Rows()
        yield Line("detail")
        field = Input(id="find", compact=True)
        field.cursor_blink = False
        yield field
        yield Line("keys")

    def on_mount(self) -> None:
        self.query_one(Rows).focus()
        self.show()
        if self._every_s:
            self.set_interval(self._every_s, self._say_head)
            self.run_worker(self._follow())

    async def _follow(self) -> None:
        """Look again and again. What a look uses is counted with what was drawn since the last."""
        before_s = time.process_time()
        while True:
            began_s = time.monotonic()
            await self.look()
            after_s = time.process_time()
            next_s = began_s + every(self._every_s, after_s - before_s)
            before_s = after_s
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def look(self) -> None:
        """Look once, and show what is seen."""
        self._want()
        await self._look.again()
        self.show()

    def _want(self) -> None:
        """Have the look ask beside the picture what the table needs."""
        self._wrong = ""
        try:
            self._look.want(self._also())
        except BadInput as error:
            self._look.want(None)
            self._wrong = str(error)

    def _also(self) -> Operation[Any] | None:
        """Return what is to be asked. Raises BadInput for a filter that cannot be one."""
        if self._table is PROCESSES:
            return ListProcesses()
        order, view = self._order(), self._look.view
        has_more = sum(view.states.values()) > len(view.tasks)
        if self._table is TASKS and (self._find or self._with_finished or (order and has_more)):
            return search(
                self._find,
                order,
                is_reversed=self._is_reversed,
                with_finished=self._with_finished,
            )
        return None

    def _choose(self) -> None:
        """Show what is chosen now, and ask at once for what that needs."""
        self._want()
        self.show()
        if not (self._look.is_answered or self._is_asking):
            self._is_asking = True
            self.run_worker(self._ask())

    async def _ask(self) -> None:
        """Ask until what was asked for last is answered: none of it is broken off."""
        try:
            asked = None
            while asked != self._look.also:
                asked = self._look.also
                await self.look()
        finally:
            self._is_asking = False

    def show(self) -> None:
        """Show the picture of now as it is sorted and filtered."""
        seen, table = self._seen(), self._table
        if self._is_searched:  # as the search has put it in order
            self._shown = table.rows(seen)
        else:
            find = "" if table is TASKS else self._find
            self._shown = table.chosen(
                seen, self._order(), is_reversed=self._is_reversed, find=find
            )
        keys = [table.key(one) for one in self._shown]
        self._main(Rows).show(table.columns(seen), self._shown, keys)
        self._say_head()
        self._line("verdict").say("\n".join(verdict_in(seen.view, self.size.width)))
        self._line("tabs").say(self._tabs_text())
        self._line("keys").say(_TASK_KEYS if table is TASKS else _KEYS)
        self._say_detail()

    def _main(self, kind: type[Rows]) -> Rows:
        return self.screen_stack[0].query_one(kind)

    def _line(self, name: str) -> Line:
        return self.screen_stack[0].query_one(f"#{name}", Line)

    @property
    def _is_searched(self) -> bool:
        return bool(self._wrong) or isinstance(self._look.also, FindTasks)

    def _seen(self) -> Seen:
        """Return what is shown: of a search that is not answered yet, no task."""
        view, answer = self._look.view, self._look.answer
        if not self._is_searched:
            return Seen(view, answer if isinstance(answer, list) else ())
        is_page = isinstance(answer, FoundPage) and not (self._wrong or self._look.refusal)
        nothing = FoundPage(tasks=[], in_all=0, at_ms=view.at_ms, error=None)
        return Seen(view, found=answer if is_page else nothing)

    def _order(self) -> Order[Any] | None:
        place = self._orders.get(self._table.title, 0)
        return self._table.orders[place - 1] if place else None

    def _say_head(self) -> None:
        look = self._look
        head = self._line("head")
        head.set_class(look.is_old, "-old")
        now = f"{datetime.now():%H:%M:%S}"
        if look.is_old:
            at = local_time(look.view.at_ms, look.view.at_ms)
            head.say(f"OLD: of {at}, {look.age_s:.0f} s ago; asked again each second  {now}")
        else:
            head.say(f"pushlane top  {self._where}  {now}  {states_text(look.view)}")

    def _tabs_text(self) -> str:
        counts = [len(table.rows(self._seen())) for table in TABLES]
        counts[-1] = self._look.view.processes
        names = [
            f"[{place} {table.title} {count}]"
            if table is self._table
            else f" {place} {table.title} {count} "
            for place, (table, count) in enumerate(zip(TABLES, counts, strict=True), 1)
        ]
        return "".join(names)

    def _say_detail(self) -> None:
        place = self._main(Rows).selected
        lines = [self._said_of_rows()]
        if place is not None and place < len(self._shown):
            lines.insert(0, self._table.detail(self._shown[place], self._seen()))
        self._line("detail").say("\n".join(lines))

    def _said_of_rows(self) -> str:
        """Say what is in the way of a newer picture, else how the rows are chosen."""
        if self._look.error:
            return self._look.error
        if self._wrong or self._look.refusal:
            return self._wrong or self._look.refusal
        order = self._order()
        parts: list[str] = []
        if self._is_searched:
            found = self._look.answer if self._look.is_answered else None
            parts += found_parts(found, self._find, with_finished=self._with_finished)
        elif self._find:
            all_rows = len(self._table.rows(self._seen()))
            parts.append(f"{len(self._shown)} of {all_rows} shown have {self._find!r}")
        elif not self._shown:
            parts.append(self._table.nothing)
        total = sum(self._look.view.states.values())
        if self._table is TASKS and not self._is_searched and total > len(self._look.view.tasks):
            parts.append(f"of {total:,} the {len(self._look.view.tasks)} with most are looked at")
        if order:
            parts.append(f"by {order.name}{', reversed' if self._is_reversed else ''}")
        if self._table is SHARES and not parts:
            return LEGEND
        return "; ".join(parts)

    def on_rows_moved(self) -> None:
        self._say_detail()

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self.show)

    def action_table(self, place: int) -> None:
        self._table = TABLES[place]
        self._choose()

    def action_next_table(self, by: int) -> None:
        self.action_table((TABLES.index(self._table) + by) % len(TABLES))

    def action_sort(self) -> None:
        place = self._orders.get(self._table.title, 0)
        self._orders[self._table.title] = (place + 1) % (len(self._table.orders) + 1)
        self._choose()

    def action_reverse(self) -> None:
        self._is_reversed = not self._is_reversed
        self._choose()

    def action_finished(self) -> None:
        """Find finished tasks too, or no longer."""
        self._with_finished = not self._with_finished
        self._choose()

    def on_key(self, event: Key) -> None:
        """Type into the filter what came right behind the key that opened it."""
        field = self.focused
        if isinstance(field, Input) and event.is_printable and event.character:
            field.insert_text_at_cursor(event.character)
            event.prevent_default()

    def action_filter(self) -> None:
        field = self.query_one("#find", Input)
        field.placeholder = _SEARCH_HINT if self._table is TASKS else _FILTER_HINT
        field.add_class("-open")
        self.screen.set_focus(field)

    def action_unfiltered(self) -> None:
        """Show all rows again."""
        self.query_one("#find", Input).value = self._find = ""
        self.on_input_submitted()
        self._choose()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "find":
            self._find = event.value
            self._choose()

    def on_input_submitted(self) -> None:
        self.query_one("#find", Input).set_class(bool(self._find), "-open")
        self.query_one(Rows).focus()

    def action_why(self) -> None:
        self._open(WhyDialog)

    def action_pause(self) -> None:
        self._open(ChangeDialog)

    def action_quota(self) -> None:
        self._open(QuotaDialog)

    def _open(self, dialog: type[Dialog]) -> None:
        """Ask about the selected task, if tasks are shown."""
        place = self._main(Rows).selected
        if self._table is TASKS and place is not None and self._look.is_answered:
            task: TaskShareView = self._shown[place]
            self.push_screen(dialog(self._do, task))

    def _handle_exception(self, error: Exception) -> None:
        """End, and leave the error to who runs it: a traceback here would show values."""
        inner = error.error if isinstance(error, WorkerFailed) else error
        if self.failure is None and isinstance(inner, Exception):
            self.failure = inner
        self._exception = self.failure
        self._exception_event.set()
        self.exit(return_code=1)
