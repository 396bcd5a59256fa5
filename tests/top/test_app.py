"""The screen of `top`, driven by keys: what it shows, what it asks, and what stays when cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input

from pushlane.core.errors import BadInput, Unreachable
from pushlane.core.task import Level, State, Task
from pushlane.operations.finding import FindTasks, FoundPage
from pushlane.operations.looks import CauseView, WhyTask, WhyView
from pushlane.operations.now import (
    GetNow,
    HeldView,
    NowView,
    ShareNowView,
    SinkNowView,
    TaskShareView,
    VerdictView,
)
from pushlane.operations.previewing import AppliedView, Apply, EndView, Preview, PreviewView
from pushlane.operations.processes import ListProcesses
from pushlane.operations.task_views import TaskNow, view_of
from pushlane.operations.tasks import GetTask
from pushlane.top.app import Line, Top
from pushlane.top.dialogs import Dialog
from pushlane.top.look import Look, every
from pushlane.top.rows import Rows
from pushlane.top.search import search
from pushlane.top.tables import TASKS, Order
from pushlane.util.errors import NotAllowed, PreviewChanged

AT_MS = 1_790_000_000_000
LOCAL = f"{datetime.fromtimestamp(AT_MS / 1000):%H:%M:%S}"


def task(name: str, left: int, **more: Any) -> TaskShareView:
    given: dict[str, Any] = {
        "task": f"id-{name}",
        "name": name,
        "app": "shop",
        "level": "high",
        "sink": "push",
        "quota": 1,
        "state": "running",
        "reason": "",
        "left": left,
        "observed_per_s": 100.0,
        "entitled_per_s": 200.0,
        "eta_ms": AT_MS + 240_000,
    }
    return TaskShareView(**{**given, **more})


VIEW = NowView(
    at_ms=AT_MS,
    error=None,
    verdict=VerdictView("shop is held.", "Without it sale ends sooner.", "pushlane limit app/shop"),
    sinks=[SinkNowView("push", 2, 10, 4, 150.0, "")],
    shares=[
        ShareNowView("push", "high", None, 2, 300, 150.0, 200.0),
        ShareNowView("push", "high", "shop", 2, 300, 150.0, 200.0),
    ],
    tasks=[task("sale", 100), task("news", 200)],
    held=[HeldView("app/shop", "its limit", "pushlane limit app/shop", AT_MS)],
    states={"running": 2},
    processes=2,
)
PREVIEWED = PreviewView(
    operation="set-quota",
    parameters={},
    token="pv_1",
    valid_until_ms=AT_MS,
    ends=[
        EndView(
            task="id-sale",
            name="sale",
            app="shop",
            level="high",
            before_ms=AT_MS,
            after_ms=None,
            expires_at_ms=None,
            expiry=None,
        )
    ],
    later=3,
    sooner=0,
    missed=0,
    kept=0,
    untold=0,
    parts=[],
    resting=[],
    others=None,
)


def found(one: Task) -> TaskNow:
    counts = dict.fromkeys(("delivered", "dead", "expired", "dropped", "finished"), 0)
    reasons: dict[str, Any] = {"died_of": {}, "expired_for": {}, "dropped_for": {}}
    shown = {"percent": None, "shown_state": one.state, "shown_reason": ""}
    return convert({**to_builtins(view_of(one)), **counts, **reasons, **shown}, TaskNow)


SALE = Task(id="id-sale", level=Level.HIGH, lane="task-id-sale", app="shop", name="sale", total=100)


class Server:
    """Answers what is asked, with what a test has put in."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: dict[type[Any], Any] = {
            GetNow: VIEW,
            ListProcesses: [],
            GetTask: found(SALE),
            Preview: PREVIEWED,
            Apply: AppliedView("set-quota", {}),
        }
        self.now_s = 0.0

    async def __call__(self, operation: Any, /) -> Any:
        self.asked.append(operation)
        answer = self.answers[type(operation)]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.asked if isinstance(one, kind)]


class Driven:
    """The screen under test, looked at by texts."""

    def __init__(self, app: Top, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def look(self) -> None:
        await self.app.look()
        await self.pilot.pause()

    @property
    def rows(self) -> Rows:
        return self.app.screen_stack[0].query_one(Rows)

    def names(self) -> list[str]:
        return [text.split()[0] for text in self.rows.texts()[1:]]

    def said(self, name: str) -> str:
        return self.app.screen_stack[0].query_one(f"#{name}", Line).text

    def told(self) -> str:
        dialog = self.app.screen
        assert isinstance(dialog, Dialog)
        return dialog.text

    def drawn(self) -> str:
        """All that the terminal shows."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in lines)


@asynccontextmanager
async def driven(server: Server, *, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Driven]:
    first = server.answers[GetNow]
    app = Top(server, Look(server, first, lambda: server.now_s), "here", every_s=0)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Driven(app, pilot)


async def test_a_long_verdict_and_a_long_reason_leave_the_command_whole() -> None:
    command = "pushlane limit task/a-task --none --preview"
    held = HeldView("task/a-task", "held by " + "this and that " * 20, command, AT_MS)
    long = VerdictView("It waits for " + "this and that " * 20 + ".", "", command)
    server = Server()
    server.answers[GetNow] = replace(VIEW, verdict=long, held=[held])
    async with driven(server) as top:
        await top.press("4")
        drawn = top.drawn().splitlines()
        detail = top.said("detail").splitlines()

    assert drawn[3] == f"do: {command}"
    assert drawn[2].endswith("…")
    assert detail[0] == f"do: {command}"


async def test_at_80_by_24_verdict_shares_and_keys_fit() -> None:
    async with driven(Server()) as top:
        drawn = top.drawn().splitlines()

    assert len(drawn) == 24
    assert max(map(len, drawn)) <= 80
    assert "2 tasks: 2 running; 2 processes" in drawn[0]
    assert drawn[1:3] == [
        "shop is held. Without it sale ends sooner.",
        "do: pushlane limit app/shop",
    ]
    assert [text.split() for text in drawn[5:8]] == [
        ["SINK", "LEVEL", "APP", "TASKS", "LEFT", "SHARE", "OBSERVED", "ENTITLED"],
        ["push", "high", "(all)", "2", "300", "█" * 10 + "░" * 4, "150/s", "200/s"],
        ["push", "high", "shop", "2", "300", "█" * 10 + "░" * 4, "150/s", "200/s"],
    ]
    assert "q quit" in drawn[-1]


async def test_keys_lead_to_each_table() -> None:
    async with driven(Server()) as top:
        found = {}
        for key in "12345":
            await top.press(key)
            found[key] = top.rows.texts()[0].split()[0]

    assert found == {"1": "SINK", "2": "NAME", "3": "SINK", "4": "WHAT", "5": "PROCESS"}


async def test_tasks_are_sorted_by_keys_and_the_selected_one_stays() -> None:
    async with driven(Server()) as top:
        await top.press("2")
        assert top.names() == ["sale", "news"]
        await top.press("s")
        assert top.names() == ["news", "sale"]
        assert top.said("detail").startswith("sale (id-sale)")
        await top.press("r")
        assert top.names() == ["sale", "news"]


def page_of(*tasks: Task, in_all: int = 1) -> FoundPage:
    return FoundPage(tasks=[found(one) for one in tasks], in_all=in_all, at_ms=AT_MS, error=None)


async def test_the_filter_searches_all_tasks_while_one_types() -> None:
    server = Server()
    server.answers[FindTasks] = page_of(replace(SALE, name="old sale"))  # which is in no picture
    async with driven(server) as top:
        await top.press("2", "slash", *"old")
        assert top.names() == ["old"]
        assert server.of(FindTasks)[-1] == FindTasks.made(find="old", sort="-rate", limit=50)
        assert "1 unfinished task fits 'old'" in top.said("detail")
        await top.press("enter", "p")
        assert server.of(Preview)[-1].parameters["task"] == "id-sale"
        await top.press("escape", "escape")

        assert top.names() == ["sale", "news"]
        assert not top.app.query_one("#find").display


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("app=shop level=low sale", {"app": "shop", "level": "low", "find": "sale"}),
        ("state=paused,resting", {"state": ["paused", "resting"]}),
        ("sink=", {}),
        ("size=5", {"find": "size=5"}),
    ],
)
def test_words_of_a_filter_are_fields_of_the_search(typed: str, asked: dict[str, Any]) -> None:
    made = search(typed, None, is_reversed=False, with_finished=False)

    assert made == FindTasks.made(**asked, sort="-rate", limit=50)


@pytest.mark.parametrize("order", TASKS.orders, ids=lambda one: one.name)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_each_order_is_one_of_the_search(order: Order[Any], is_reversed: bool) -> None:
    made = search("", order, is_reversed=is_reversed, with_finished=False)

    assert made.sort.startswith("-") is (order.largest_first != is_reversed)


async def test_a_filter_that_fits_nothing_or_cannot_be_is_told() -> None:
    server = Server()
    server.answers[FindTasks] = page_of(in_all=0)
    async with driven(server) as top:
        await top.press("2", "slash", "x")
        assert top.names() == []
        assert "no unfinished task fits 'x'; a finds finished ones too" in top.said("detail")
        await top.press("backspace", *"level=top", "enter", "p")
        assert top.said("detail").startswith("unknown level 'top'")
        assert (top.names(), server.of(Preview)) == ([], [])


async def test_a_server_that_refuses_a_search_is_told() -> None:
    server = Server()
    server.answers[FindTasks] = BadInput("find is too long")
    async with driven(server) as top:
        await top.press("2", "slash", "x")

        assert top.said("detail") == "find is too long"
        assert top.said("head").startswith("pushlane top")


async def test_of_more_tasks_than_the_picture_has_all_are_sorted() -> None:
    server = Server()
    server.answers[GetNow] = replace(VIEW, states={"running": 9_000})
    server.answers[FindTasks] = page_of(SALE, in_all=9_000)
    async with driven(server) as top:
        await top.press("2", "s")
        assert server.of(FindTasks)[-1].sort == "-left"
        assert top.said("detail").splitlines()[1] == (
            "9,000 unfinished tasks; the first 1 are shown; by left"
        )
        await top.press("r")

        assert server.of(FindTasks)[-1].sort == "left"


async def test_finished_tasks_are_found_too_at_a_key() -> None:
    server = Server()
    server.answers[FindTasks] = page_of(replace(SALE, state=State.DONE))
    async with driven(server) as top:
        await top.press("2", "a")
        assert server.of(FindTasks)[-1].state == ("any",)
        assert "done" in top.rows.texts()[1]
        await top.press("a")

        assert top.names() == ["sale", "news"]


async def test_until_a_search_is_answered_no_other_task_is_shown_or_steered() -> None:
    server = Server()
    server.answers[FindTasks] = Unreachable("the server does not answer")
    async with driven(server) as top:
        await top.press("2", "slash", "x", "enter", "p")

        assert (top.names(), server.of(Preview)) == ([], [])
        assert top.said("detail") == "the server does not answer"


async def test_other_tables_are_filtered_by_any_column() -> None:
    async with driven(Server()) as top:
        await top.press("slash", *"(all)")

        assert len(top.rows.texts()) == 2
        assert "1 of 2 shown have '(all)'" in top.said("detail")


async def test_names_with_markup_and_control_characters_are_text() -> None:
    server = Server()
    named = task("[bold]x[/] \x1b[2J\u202e", 100, reason="[red]no[/]")
    server.answers[GetNow] = replace(VIEW, tasks=[named])
    async with driven(server, size=(140, 24)) as top:
        await top.press("2")
        drawn = top.drawn()

    assert "[bold]x[/]  [2J" in drawn
    assert "[red]no[/]" in drawn
    assert not {"\x1b", "\u202e"} & {*drawn}


async def test_only_cells_that_changed_are_drawn_anew() -> None:
    server = Server()
    async with driven(server) as top:
        await top.press("2")
        before = top.rows.drawn_cells
        await top.look()
        assert top.rows.drawn_cells == before
        server.answers[GetNow] = replace(VIEW, tasks=[task("sale", 101), task("news", 200)])
        await top.look()

        assert top.rows.drawn_cells == before + 1
        assert "101" in top.rows.texts()[1]


@pytest.mark.parametrize(("used_s", "found_s"), [(0.0, 1.0), (0.02, 1.0), (0.04, 2.0), (9.0, 2.5)])
def test_what_costs_much_is_looked_at_less_often(used_s: float, found_s: float) -> None:
    assert every(1.0, used_s) == pytest.approx(found_s)


async def test_a_lost_connection_is_told_keeps_the_picture_and_comes_back() -> None:
    server = Server()
    async with driven(server) as top:
        shown = top.rows.texts()
        server.answers[GetNow] = Unreachable("the server does not answer")
        server.now_s = 12.0
        await top.look()
        assert f"OLD: of {LOCAL}, 12 s ago" in top.said("head")
        assert "the server does not answer" in top.said("detail")
        assert top.rows.texts() == shown
        server.answers[GetNow] = VIEW
        await top.look()

        assert top.said("head").startswith("pushlane top")
        assert "does not answer" not in top.said("detail")


async def test_a_picture_that_is_old_where_it_is_made_is_told_as_such() -> None:
    server = Server()
    async with driven(server) as top:
        server.answers[GetNow] = replace(VIEW, error="redis does not answer")
        server.now_s = 5.0
        await top.look()

        assert "OLD" in top.said("head")
        assert "5 s ago" in top.said("head")
        assert "redis does not answer" in top.said("detail")


async def test_why_says_causes_and_what_to_do() -> None:
    server = Server()
    server.answers[WhyTask] = WhyView(
        task_id="id-sale",
        state="running",
        shown_state="running",
        shown_reason="",
        causes=[CauseView("limit", "200 pushes/s", None, "pushlane limit app/shop")],
        entitled_share=0.5,
        observed_per_s=100.0,
        backlog=100,
        eta_s=240.0,
        eta_note="",
        later=0,
        waits=[],
        unread_limits=[],
    )
    async with driven(server) as top:
        await top.press("2", "w")
        assert top.told().splitlines() == [
            "running",
            "limit: 200 pushes/s",
            "  do: pushlane limit app/shop",
            "100 left, 100/s, its fair share is 50 % of the sink; ends in 4m",
        ]
        await top.press("escape")
        assert top.app.screen is top.app.screen_stack[0]


async def test_a_pause_counts_at_enter_and_not_before() -> None:
    server = Server()
    async with driven(server) as top:
        await top.press("2", "p")
        [asked] = server.of(Preview)
        assert (asked.operation, asked.parameters["task"]) == ("pause-task", "id-sale")
        assert "tasks that end otherwise: 3 later" in top.told()
        assert server.of(Apply) == []
        await top.press("enter")

        assert [one.token for one in server.of(Apply)] == ["pv_1"]
        assert "is done" in top.told()


async def test_of_a_paused_task_the_same_key_resumes() -> None:
    server = Server()
    server.answers[GetTask] = found(replace(SALE, state=State.PAUSED))  # since the last picture
    async with driven(server) as top:
        await top.press("2", "p")

        assert [one.operation for one in server.of(Preview)] == ["resume-task"]
        assert top.drawn().startswith("Resume sale")


async def test_esc_leaves_all_as_it_was() -> None:
    server = Server()
    async with driven(server) as top:
        await top.press("2", "p", "escape")

        assert server.of(Apply) == []


async def test_a_quota_is_previewed_while_it_is_typed() -> None:
    server = Server()
    async with driven(server) as top:
        await top.press("2", "u")
        assert top.app.screen.query_one(Input).value == "1"
        await top.press("2")
        assert server.of(Preview)[-1].parameters == {"task": "id-sale", "quota": 2}
        await top.press("enter")

        assert len(server.of(Apply)) == 1


async def test_a_quota_that_is_none_is_told_and_cannot_be_done() -> None:
    server = Server()
    async with driven(server) as top:
        await top.press("2", "u", "x", "enter")

        assert "a quota" in top.told()
        assert server.of(Apply) == []


async def test_who_may_only_look_is_refused_plainly() -> None:
    server = Server()
    server.answers[Apply] = NotAllowed("view has the role viewer, and apply needs submitter")
    async with driven(server) as top:
        await top.press("2", "p", "enter")

        assert top.told() == "not done: view has the role viewer, and apply needs submitter"


async def test_what_would_do_otherwise_now_is_shown_anew_and_asked_again() -> None:
    server = Server()
    server.answers[Apply] = PreviewChanged("another task would miss its expiry")
    async with driven(server) as top:
        await top.press("2", "p", "enter")

        assert top.told().startswith("another task would miss its expiry\n")
        assert len(server.of(Preview)) == 2


async def test_who_may_not_see_processes_is_told_so() -> None:
    server = Server()
    server.answers[ListProcesses] = NotAllowed("it is about all apps")
    async with driven(server) as top:
        await top.press("5")
        await top.look()

        assert "it is about all apps" in top.said("detail")
        assert top.said("head").startswith("pushlane top")


async def test_without_colours_nothing_but_bold_and_the_like_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with driven(Server()) as top:
        styles = {
            segment.style
            for strip in top.app.screen._compositor.render_strips()
            for segment in strip.apply_filter(
                top.app._filters[-1], top.app.screen.styles.background
            )
            if segment.style
        }

    assert {str(one.color.name) for one in styles if one.color} <= {"default"}
    assert any(one.reverse for one in styles)


async def test_a_defect_ends_it_and_is_left_to_who_runs_it() -> None:
    server = Server()
    app = Top(server, Look(server, VIEW), "here", every_s=0)
    server.answers[GetNow] = ValueError("secret")

    async def fail() -> None:
        async with app.run_test() as pilot:
            app.run_worker(app.look())
            await pilot.pause()

    with pytest.raises(ValueError, match="secret"):
        await fail()

    assert isinstance(app.failure, ValueError)
    assert app._exit_renderables == []


async def test_of_more_tasks_than_fit_the_selected_one_is_seen() -> None:
    server = Server()
    many = [task(f"task-{place:02}", 100) for place in range(50)]
    server.answers[GetNow] = replace(VIEW, tasks=many, states={"running": 9_000})
    async with driven(server) as top:
        await top.press("2", "end")
        assert top.names()[-1] == "task-49"
        assert top.said("detail").startswith("task-49 ")
        assert "of 9,000 the 50 with most are looked at" in top.said("detail")
        await top.press("home", "down")

        assert top.names()[0] == "task-00"
        assert top.said("detail").startswith("task-01 ")


async def test_a_name_of_wide_characters_leaves_the_columns_in_place() -> None:
    server = Server()
    server.answers[GetNow] = replace(VIEW, tasks=[task("新年" * 30, 100), task("news", 200)])
    async with driven(server) as top:
        await top.press("2")
        drawn = top.app.screen._compositor.render_strips()

    assert {strip.cell_length for strip in drawn} == {80}


async def test_keys_right_after_the_filters_are_typed_into_it_and_ctrl_c_ends_it() -> None:
    server = Server()
    server.answers[FindTasks] = page_of(SALE)
    async with driven(server) as top:
        await top.press("2")
        for key in ("slash", "s", "q"):  # with no pause between, as what is pasted
            top.app.post_message(Key(key, key if len(key) == 1 else "/"))
        await top.press("slash")
        assert server.of(FindTasks)[-1].find == "sq/"
        await top.press("ctrl+c")

    assert top.app.return_code == 0
