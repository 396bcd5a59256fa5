"""What is asked of one task: why it waits, and a change that is shown before it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from pushlane.core.errors import PushlaneError
from pushlane.core.task import MAX_QUOTA, State, now_ms
from pushlane.operations.looks import WhyTask, WhyView
from pushlane.operations.now import TaskShareView
from pushlane.operations.operation import Operation
from pushlane.operations.preview_texts import end_columns, told_lines
from pushlane.operations.previewing import Apply, Preview, PreviewView
from pushlane.operations.tasks import GetTask, PauseTask, ResumeTask, SetQuota
from pushlane.top.look import Do
from pushlane.top.texts import count_text, rate_text
from pushlane.util.columns import headings, laid, line, plain, soon_text
from pushlane.util.conversion import whole
from pushlane.util.errors import PreviewChanged

_BACK = ("escape", "back", "Back")


def _called(task: TaskShareView) -> str:
    return plain(task.name or task.task)


class Dialog(ModalScreen[None]):
    """A screen about one task, which Esc leaves."""

    BINDINGS = [_BACK]  # noqa: RUF012 - textual's own way

    def __init__(self, do: Do, task: TaskShareView) -> None:
        super().__init__()
        self._do = do
        self._about = task
        self.text = ""

    def say(self, text: str) -> None:
        """Show this text, with none of it read as markup."""
        self.text = text
        self.query_one("#told", Static).update(text)

    def action_back(self) -> None:
        self.dismiss(None)


class WhyDialog(Dialog):
    """Says what a task waits for, and what to do about it."""

    def compose(self) -> ComposeResult:
        yield Static(f"Why {_called(self._about)}", id="title", markup=False)
        with VerticalScroll():
            yield Static("looking, for a second...", id="told", markup=False)
        yield Static("Esc back", id="foot", markup=False)

    def on_mount(self) -> None:
        self.ask()

    @work
    async def ask(self) -> None:
        try:
            found = await self._do(WhyTask(task=self._about.task))
        except PushlaneError as error:
            self.say(plain(str(error)))
        else:
            self.say("\n".join(why_lines(found)))


def why_lines(found: WhyView) -> Iterator[str]:
    """Yield what a task waits for, and how it goes on."""
    yield plain(f"{found.shown_state}{found.shown_reason and ': '}{found.shown_reason}")
    for cause in found.causes:
        yield plain(f"{cause.cause}: {cause.detail}")
        if cause.do:
            yield plain(f"  do: {cause.do}")
    if not found.has_ended:
        share = found.entitled_share
        entitled = "" if share is None else f", its fair share is {100 * share:.3g} % of the sink"
        end = f"ends {soon_text(found.eta_s)}" if found.eta_s is not None else "ETA unknown"
        left = count_text(found.backlog)
        yield f"{left} left, {rate_text(found.observed_per_s)}{entitled}; {end}"


class ChangeDialog(Dialog):
    """Shows what a change would do, and does just that at Enter."""

    BINDINGS = [("enter", "apply", "Do it"), _BACK]  # noqa: RUF012 - textual's own way

    def __init__(self, do: Do, task: TaskShareView) -> None:
        super().__init__(do, task)
        self.token = ""
        self._is_done = False

    def compose(self) -> ComposeResult:
        yield Static(self.title_text(), id="title", markup=False)
        with VerticalScroll():
            yield Static("", id="told", markup=False)
        yield Static("Enter do it   Esc back, nothing is changed", id="foot", markup=False)

    def on_mount(self) -> None:
        self.preview()

    def title_text(self) -> str:
        """Return what is changed, for people."""
        return f"Pause or resume {_called(self._about)}"

    async def wanted(self) -> Operation[Any]:
        """Return the change. Raises BadInput for what cannot be one yet.

        The task is asked for: in the picture it may still be as before the last change.
        """
        task = await self._do(GetTask(task=self._about.task))
        kind = ResumeTask if task.state == State.PAUSED else PauseTask
        title = f"{'Resume' if kind is ResumeTask else 'Pause'} {_called(self._about)}"
        self.query_one("#title", Static).update(title)
        return kind(task=task.id)

    @work(exclusive=True, group="preview")
    async def preview(self, first: str = "") -> None:
        """Show what the change would do. Until it is shown, Enter does nothing."""
        self.token = ""
        self.say("\n".join(text for text in (first, "working out what it would do...") if text))
        try:
            change = await self.wanted()
            asked = Preview(operation=change.word(), parameters=msgspec.to_builtins(change))
            view = await self._do(asked)
        except PushlaneError as error:
            self.say(plain(str(error)))
            return
        self.token = view.token
        lines = list(preview_lines(view, self.size.width - 2))
        self.say("\n".join([*([first] if first else []), *lines]))

    async def action_apply(self) -> None:
        """Do what is shown; at the second Enter, leave."""
        if self._is_done:
            self.dismiss(None)
        elif self.token:
            token, self.token = self.token, ""
            self.do_it(token)

    @work(exclusive=True, group="apply")
    async def do_it(self, token: str) -> None:
        try:
            applied = await asyncio.shield(self._applied(token))
        except PreviewChanged as error:
            self.preview(plain(str(error)))
        except PushlaneError as error:
            self.say(f"not done: {plain(str(error))}")
        else:
            self._is_done = True
            self.say(f"{applied} is done, as it was shown")
            self.query_one("#foot", Static).update("Enter or Esc back")

    async def _applied(self, token: str) -> str:
        return (await self._do(Apply(token=token))).operation


class QuotaDialog(ChangeDialog):
    """Shows what another quota would do, while it is typed."""

    def compose(self) -> ComposeResult:
        yield Static(self.title_text(), id="title", markup=False)
        field = Input(str(self._about.quota), id="quota", compact=True, max_length=9)
        field.cursor_blink = False
        yield field
        with VerticalScroll():
            yield Static("", id="told", markup=False)
        yield Static("Enter do it   Esc back, nothing is changed", id="foot", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def title_text(self) -> str:
        return f"Pushes a turn of {_called(self._about)}, now {self._about.quota:,}:"

    async def wanted(self) -> Operation[Any]:
        given = self.query_one(Input).value
        quota = whole("a quota", given, 1, MAX_QUOTA)
        return SetQuota(task=self._about.task, quota=quota)

    def on_input_changed(self) -> None:
        if not self._is_done:
            self.preview()  # what was shown is of another value

    async def on_input_submitted(self) -> None:
        await self.action_apply()


def preview_lines(view: PreviewView, width: int) -> Iterator[str]:
    """Yield what a change would do: the ends that it moves as a table, then the rest."""
    if view.ends:
        columns = end_columns(now_ms())
        table = laid(columns, view.ends, width)
        yield line(columns, table, headings(columns, table))
        for row in table.cells:
            yield line(columns, table, row)
        yield ""
    for text in told_lines(view):
        yield plain(text)
