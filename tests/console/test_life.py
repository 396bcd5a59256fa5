"""The life of a task on one line of time: what its changes tell, and what nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from pushlane import Settings
from pushlane.console.life import stood
from pushlane.core.names import own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.model.audit import Entry
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.hour import SpanView
from pushlane.operations.task_views import TaskNow, view_of
from pushlane.operations.tasks import PauseTask, ResumeTask
from tests.console.browsing import browsing
from tests.console.test_tasks import add, get
from tests.door.asking import ADMIN
from tests.receipt_bodies import body

MADE_MS = 1_000
END_MS = 9_000


@pytest.fixture
def task() -> TaskNow:
    """A task that was made at MADE_MS and runs."""
    made = Task(id="a", level=Level.HIGH, lane=own_lane("a"), created_at_ms=MADE_MS, total=9)
    counts: dict[str, Any] = dict.fromkeys(("delivered", "dead", "expired", "dropped"), 0)
    reasons: dict[str, Any] = {key: {} for key in ("died_of", "expired_for", "dropped_for")}
    return TaskNow(
        **asdict(view_of(replace(made, state=State.RUNNING))),
        **counts,
        **reasons,
        finished=0,
        percent=0.0,
        shown_state="running",
        shown_reason="",
    )


def change(at_ms: int, before: str, after: str) -> Entry:
    return Entry(at_ms, "ada", "cli", "x", "task/a", {"state": before}, {"state": after})


PAUSE = change(3_000, "running", "paused")
RESUME = change(5_000, "paused", "running")
CANCEL = change(END_MS, "running", "cancelled")
QUOTA = Entry(4_000, "ada", "cli", "set-quota", "task/a", {"quota": 1}, {"quota": 2})


def lines(
    task: TaskNow, changes: Sequence[Entry], *, is_whole: bool = True, **fields: Any
) -> list[tuple[str, int, int | None]]:
    """How the task stood, from when to when; a question mark where it may begin sooner."""
    found = stood(replace(task, **fields), changes, END_MS, is_whole=is_whole)
    return [(one.name + "?" * one.may_begin_sooner, one.from_ms, one.until_ms) for one in found]


def test_what_nobody_changed_runs_since_it_was_made(task: TaskNow) -> None:
    assert lines(task, []) == [("running", MADE_MS, None)]
    ended: dict[str, Any] = {"state": "done", "finished_at_ms": END_MS}
    assert lines(task, [], **ended) == [("running", MADE_MS, END_MS)]


def test_a_pause_lasts_until_somebody_resumes(task: TaskNow) -> None:
    ran, paused = ("running", MADE_MS, 3_000), ("paused", 3_000, 5_000)
    assert lines(task, [PAUSE, QUOTA, RESUME]) == [ran, paused, ("running", 5_000, None)]
    assert lines(task, [PAUSE, QUOTA], state="paused") == [ran, ("paused", 3_000, None)]
    [_, told] = stood(replace(task, state="paused"), [PAUSE], END_MS, is_whole=True)
    assert told.text == "by ada"


def test_a_cancel_ends_what_was(task: TaskNow) -> None:
    ended: dict[str, Any] = {"state": "cancelled", "finished_at_ms": END_MS}
    assert lines(task, [CANCEL], **ended) == [("running", MADE_MS, END_MS)]


def test_until_its_start_it_is_scheduled(task: TaskNow) -> None:
    assert lines(task, [], not_before_ms=4_000) == [
        *(("scheduled", MADE_MS, 4_000), ("running", 4_000, None))
    ]
    assert lines(task, [], not_before_ms=END_MS + 1) == [("scheduled", MADE_MS, None)]
    assert lines(task, [PAUSE, RESUME], not_before_ms=4_000) == [
        *(("scheduled", MADE_MS, 4_000), ("paused", 3_000, 5_000), ("running", 5_000, None))
    ]


def test_a_pause_that_no_change_tells_has_no_known_begin(task: TaskNow) -> None:
    assert lines(task, [RESUME]) == [("paused?", 5_000, 5_000), ("running", 5_000, None)]
    assert lines(task, [], state="paused") == [("paused?", END_MS, None)]


def test_of_changes_that_are_not_all_told_nothing_is_made_up(task: TaskNow) -> None:
    assert lines(task, [], is_whole=False) == []
    assert lines(task, [PAUSE, RESUME], is_whole=False) == [
        *(("paused", 3_000, 5_000), ("running", 5_000, None))
    ]
    assert lines(task, [PAUSE]) == [("running", MADE_MS, 3_000)]  # and runs again since when?


def test_a_pause_that_somebody_sees_began_when_it_was_seen_to(task: TaskNow) -> None:
    seen = SpanView("task/a", "", "paused", "paused: x", 7_000, None, False, False)
    [spell] = stood(replace(task, state="paused"), [], END_MS, seen, is_whole=True)
    assert (spell.name, spell.from_ms, spell.may_begin_sooner) == ("paused", 7_000, False)


def test_it_runs_until_its_expiry_though_nobody_has_noted_its_end(task: TaskNow) -> None:
    [spell] = stood(replace(task, expires_at_ms=END_MS - 1_000), [], END_MS, is_whole=True)
    assert (spell.name, spell.until_ms) == ("running", END_MS - 1_000)
    [spell] = stood(replace(task, expires_at_ms=END_MS + 1_000), [], END_MS, is_whole=True)
    assert spell.until_ms is None


async def test_its_life_is_drawn_with_who_did_what(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a", name="sale", created_at_ms=now_ms() - 60_000)
        await add(browser, "ab", name="other")
        for one in ("a", "ab"):
            await do(browser.backend, settings, ADMIN, PauseTask(task=one))
        await do(browser.backend, settings, ADMIN, ResumeTask(task="a"))
        await browser.log_in()
        html = await get(browser, "life/a")
        viewer = CreateToken.made(name="eve", grants="viewer")
        await browser.log_in((await do(browser.backend, settings, ADMIN, viewer)).token)
        shown = await get(browser, "life/a")

    assert html.count('state running → state paused <span class="none">by root') == 1
    assert "<strong>paused</strong> by root" in html
    assert '<rect data-kind="running"' in html
    assert "pause-task" not in shown
    assert '<rect data-kind="running"' not in shown
    assert "Only operators see the history of changes" in shown
    assert "Looked at" in html


async def test_its_first_push_is_told_by_its_receipts_when_asked(settings: Settings) -> None:
    async with browsing(settings) as browser:
        at_ms = now_ms()
        await add(browser, "a", name="sale", created_at_ms=at_ms - 60_000)
        await browser.log_in()
        none = await get(browser, "life/a")
        await browser.backend.registry.record([Finished("a", Kind.DELIVERED, [1, 2])])
        unread = await get(browser, "life/a")
        unkept = await get(browser, "life/a?receipts=1")
        sent = body("a", [1], at_ms=at_ms - 30_000)
        await browser.backend.receipts.append([sent])
        read = await get(browser, "life/a?receipts=1")

    assert "None of its pushes has ended yet." in none
    assert "Read in its receipts when its first push was sent" in unread
    assert "There is no receipt of it" in unkept
    assert "first push sent" in read
    assert "No receipt of 1 push is kept: the first may have been one of them." in read
    assert "nobody looked" not in read
