"""A change of many tasks by the console: of those that were counted, in the background.

All processes of `serve` know how far it is, and can stop it and go on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pushlane import Settings
from pushlane.console import batches
from pushlane.console.sessions import sessions
from pushlane.core.errors import Unreachable
from pushlane.core.task import Level, State, now_ms
from pushlane.door import batches as making
from pushlane.model import batches as kept
from pushlane.model.batches import Batch, add_batch, change_batch, find_batch, lease_of, newest
from pushlane.operations.access import CreateToken, RevokeToken
from pushlane.operations.doing import do
from pushlane.operations.session import Session
from pushlane.operations.tasks import CancelTask, PauseTask, PromoteTask
from pushlane.util.errors import Superseded
from tests.console.browsing import Browser, browsing, form_of, led_to, text_of
from tests.console.test_tasks import SCRIPT, add, get, links, now
from tests.door.asking import ADMIN


async def begun(browser: Browser, query: str) -> str:
    """Press the button of what is counted; return the address of how far it is."""
    page = await get(browser, f"all?{query}")
    answer = await browser.post("/console/batch", form_of(page, "batch"))
    return led_to(answer, "/console/batch").removeprefix("/console/")


async def ended(browser: Browser, address: str) -> str:
    """The page, once it is through or has stopped."""
    async with browser.stream(f"/console/live/{address}") as stream:
        while "so far" in (html := await stream.html()):
            pass
    return html


async def test_all_that_fit_when_they_were_counted_are_changed(settings: Settings) -> None:
    async with browsing(settings) as browser:
        for number in range(25):
            await add(browser, f"t{number:02}", app="shop", created_at_ms=number + 1)
        await add(browser, "other", app="bank")
        await browser.log_in()
        view = await get(browser, "tasks?app=shop")
        [there] = links(view, "Pause all of them")
        counted = await get(browser, there)
        await add(browser, "later", app="shop")
        answer = await browser.post("/console/batch", form_of(counted, "batch"))
        html = await ended(browser, led_to(answer, "/console/batch").removeprefix("/console/"))
        states = {
            task: (await now(browser, task)).state for task in ("t00", "t24", "other", "later")
        }

    assert there == "all?action=pause-task&app=shop"
    assert "<h1>Pause 25 tasks</h1>" in counted
    assert "and 5 more" in counted
    assert "pushlane pause TASK" in counted
    assert "It is through: 25 done." in html
    assert states == {"t00": "paused", "t24": "paused", "other": "running", "later": "running"}


async def test_what_cannot_be_changed_is_told_with_why(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await add(browser, "b", name=SCRIPT)
        await browser.log_in()
        form = form_of(await get(browser, "all?action=pause-task"), "batch")
        await do(browser.backend, settings, ADMIN, CancelTask(task="b"))
        answer = await browser.post("/console/batch", form)
        html = await ended(browser, led_to(answer, "/console/batch").removeprefix("/console/"))
        paused = (await now(browser, "a")).state

    assert paused == "paused"
    assert "1 could not be." in html
    assert ">b</a>: " in html
    assert SCRIPT not in html


@pytest.mark.parametrize(
    ("query", "tasks", "told"),
    [
        ("pause-task&state=any", "low high", "2 others that match have ended or are paused"),
        ("resume-task&state=any", "held", "3 others that match have ended or are not paused"),
        ("resume-task", "held", "2 others that match have ended or are not paused"),
        ("promote-task&state=any", "low", "3 others that match have ended or are of level high"),
        ("demote-task", "high held", "1 other that matches has ended or is of level low already"),
        ("cancel-task&state=any", "low high held", "1 other that matches has ended."),
        ("pause-task", "low high", "1 other that matches has ended or is paused already"),
        ("pause-task&state=paused", "", "1 task matches, but has ended or is paused already"),
        ("cancel-task&state=done", "", "1 task matches, but has ended."),
    ],
)
async def test_just_those_are_counted_that_can_be_changed_so(
    settings: Settings, query: str, tasks: str, told: str
) -> None:
    async with browsing(settings) as browser:
        await add(browser, "low", level=Level.LOW, created_at_ms=1)
        await add(browser, "high", level=Level.HIGH, created_at_ms=2)
        await add(browser, "held", level=Level.HIGH, state=State.PAUSED, created_at_ms=3)
        await add(browser, "over", state=State.DONE, created_at_ms=4)
        await browser.log_in()
        html = await get(browser, f"all?action={query}")

    assert told in text_of(html)
    assert (form_of(html, "batch")["tasks"] if tasks else "") == tasks
    assert ('action="./batch"' in html) is bool(tasks)


async def test_it_can_be_stopped(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    begins, goes_on, original = asyncio.Event(), asyncio.Event(), PauseTask.run

    async def slow(self: PauseTask, at: Session) -> Any:
        begins.set()
        await goes_on.wait()
        return await original(self, at)

    monkeypatch.setattr(PauseTask, "run", slow)
    async with browsing(settings) as browser:
        for task in ("a", "b", "c"):
            await add(browser, task)
        await browser.log_in()
        address = await begun(browser, "action=pause-task")
        await begins.wait()
        page = await get(browser, address)
        stop = form_of(page, "stop")
        forged = await browser.post(f"/console/{address}/stop", {})
        stopped = await browser.post(f"/console/{address}/stop", stop)
        goes_on.set()
        html = await ended(browser, address)

    assert "0 of 3 so far." in page
    assert forged.status == 403
    assert led_to(stopped, f"/console/{address}/stop") == f"/console/{address}"
    assert "Stopped after 1 of 3: somebody stopped it." in html


async def test_it_ends_with_the_process_after_what_is_under_way(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, goes_on, original = asyncio.Event(), asyncio.Event(), PauseTask.run

    async def slow(self: PauseTask, at: Session) -> Any:
        begins.set()
        await goes_on.wait()
        return await original(self, at)

    monkeypatch.setattr(PauseTask, "run", slow)
    async with browsing(settings) as browser:
        await add(browser, "a", created_at_ms=1)
        await add(browser, "b", created_at_ms=2)
        await browser.log_in()
        address = await begun(browser, "action=pause-task")
        await begins.wait()
        closing = asyncio.create_task(browser.console.close())
        await asyncio.sleep(0)
        assert not closing.done()
        goes_on.set()
        await closing
        html = await get(browser, address)
        states = [(await now(browser, task)).state for task in ("a", "b")]

    assert "Stopped after 1 of 2: serve stops." in html
    assert states == ["paused", "running"]


async def test_it_ends_with_the_token(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    async with browsing(settings) as browser:
        for task in ("a", "b", "c"):
            await add(browser, task)
        made = await do(
            browser.backend, settings, ADMIN, CreateToken.made(name="gone", grants="operator")
        )
        await browser.log_in(made.token)
        original = PauseTask.run

        async def revoking(self: PauseTask, at: Session) -> Any:
            shown = await original(self, at)
            await do(browser.backend, settings, ADMIN, RevokeToken.made(token=made.id))
            browser.door.gate._known.clear()  # which is remembered for half a second
            return shown

        monkeypatch.setattr(PauseTask, "run", revoking)
        address = await begun(browser, "action=pause-task")
        await asyncio.wait(browser.console._batches._running)
        batch = await find_batch(browser.backend.documents, address.partition("/")[2])

    assert batch is not None
    assert (batch.done, batch.failed) == (1, 0)
    assert "token" in batch.why


async def test_what_is_away_stops_it(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: PauseTask, at: Session) -> Any:
        raise Unreachable(f"the registry is away {SCRIPT}")

    monkeypatch.setattr(PauseTask, "run", fail)
    async with browsing(settings) as browser:
        await add(browser, "a")
        await add(browser, "b")
        await browser.log_in()
        html = await ended(browser, await begun(browser, "action=pause-task"))

    assert "Stopped after 0 of 2: the registry is away" in html
    assert SCRIPT not in html


async def test_who_may_not_sees_no_button_and_is_refused(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await add(browser, "b")
        await browser.log_in(await browser.made("viewer"))
        view = await get(browser, "tasks")
        page = await get(browser, "all?action=cancel-task")
        token = form_of(page, "logout")
        sent = {**token, "action": "cancel-task", "tasks": "a b"}
        refused = await browser.post("/console/batch", sent)
        forged = await browser.post("/console/batch", {**sent, "_form": ""})
        running = (await now(browser, "a")).state

    assert not links(view, "all of them")
    assert 'action="./batch"' not in page
    assert (refused.status, forged.status, running) == (403, 403, "running")


async def test_it_is_shown_to_who_began_it(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await browser.log_in()
        address = await begun(browser, "action=pause-task")
        other = browser.other()
        await other.log_in(await browser.made("admin"))
        refused = await other.get(f"/console/{address}")

    assert refused.status == 404


@pytest.mark.parametrize("query", ["action=forget-task", "action=", "action=pause-task&find=none"])
async def test_what_is_nothing_to_do_has_no_button(settings: Settings, query: str) -> None:
    async with browsing(settings) as browser:
        await add(browser, "a")
        await browser.log_in()
        html = (await browser.get(f"/console/all?{query}")).body.decode()

    assert 'action="./batch"' not in html


async def test_too_many_are_told_before(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST", 3)
    monkeypatch.setattr(making, "MOST", 3)
    monkeypatch.setattr(batches, "_A_PAGE", 2)
    async with browsing(settings) as browser:
        for number in range(3):
            await add(browser, f"t{number}")
        await browser.log_in()
        few = await get(browser, "all?action=pause-task")
        await add(browser, "t3")
        many = await get(browser, "all?action=pause-task")
        sent = {**form_of(few, "batch"), "tasks": "t0 t1 t2 t3"}
        refused = await browser.post("/console/batch", sent)

    assert form_of(few, "batch")["tasks"] == "t0 t1 t2"
    assert "narrow the view" in many
    assert 'action="./batch"' not in many
    assert refused.status == 400


@asynccontextmanager
async def two_processes(settings: Settings) -> AsyncIterator[tuple[Browser, Browser]]:
    """One session at two processes of `serve`, which have a store and a key in common."""
    key = sessions(None)
    async with browsing(settings, key) as first, browsing(settings, key) as second:
        await first.log_in()
        second.cookies = first.cookies
        yield first, second


def held(monkeypatch: pytest.MonkeyPatch, at: int) -> tuple[asyncio.Event, asyncio.Event]:
    """Have the pause of a task wait, the first being 1; return that it waits, and its leave."""
    waits, goes_on, original, seen = asyncio.Event(), asyncio.Event(), PauseTask.run, [0]

    async def slow(self: PauseTask, session: Session) -> Any:
        seen[0] += 1
        if seen[0] == at:
            waits.set()
            await goes_on.wait()
        return await original(self, session)

    monkeypatch.setattr(PauseTask, "run", slow)
    return waits, goes_on


async def made_by_a_process_that_is_gone(browser: Browser, tasks: list[str], word: str) -> str:
    """A change of which one task is counted, by a process that was killed."""
    who = (await browser.door.gate.caller(f"Bearer {browser.token}")).name
    batch = Batch(
        id="gone", who=who, word=word, count=len(tasks), began_ms=now_ms(), run="1", process="a"
    )
    await add_batch(browser.backend.documents, batch, tasks)
    await change_batch(browser.backend.documents, "gone", newest(replace(batch, done=1)))
    return "batches/gone"


async def test_any_process_knows_how_far_it_is_and_can_stop_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "_SAVE_EVERY_S", 0.0)
    waits, goes_on = held(monkeypatch, at=2)
    async with two_processes(settings) as (first, second):
        for task in ("a", "b", "c"):
            await add(first, task)
        address = await begun(first, "action=pause-task")
        await waits.wait()
        page = await get(second, address)
        await second.post(f"/console/{address}/stop", form_of(page, "stop"))
        goes_on.set()
        html = await ended(second, address)

    assert "1 of 3 so far." in page
    assert "Stopped after 2 of 3: somebody stopped it." in html


async def test_another_process_goes_on_with_what_was_stopped(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, goes_on = held(monkeypatch, at=1)
    async with two_processes(settings) as (first, second):
        for number in range(3):
            await add(first, f"t{number}", created_at_ms=number + 1)
        address = await begun(first, "action=pause-task")
        await waits.wait()
        closing = asyncio.create_task(first.console.close())
        await asyncio.sleep(0)
        goes_on.set()
        await closing
        page = await get(second, address)
        form = form_of(page, "go-on")
        forged = await second.post(f"/console/{address}/go-on", {})
        led = led_to(await second.post(f"/console/{address}/go-on", form), f"/console/{address}/x")
        html = await ended(second, address)
        nothing = await second.post(f"/console/{address}/go-on", form)
        left = await first.backend.documents.list("batch-tasks")

    assert "Stopped after 1 of 3: serve stops." in page
    assert "Go on with 2" in page
    assert (forged.status, led, nothing.status) == (403, f"/console/{address}", 404)
    assert "It is through: 3 done." in html
    assert left == []


async def test_a_process_that_is_gone_is_told_and_no_task_is_changed_twice(
    settings: Settings,
) -> None:
    async with browsing(settings) as browser:
        for task in ("a", "b", "c"):
            await add(browser, task, level=Level.LOW)
        await browser.log_in()
        caller = await browser.door.gate.caller(f"Bearer {browser.token}")
        address = await made_by_a_process_that_is_gone(browser, ["a", "b", "c"], "promote-task")
        await do(browser.backend, settings, caller, PromoteTask(task="b"))
        page = await get(browser, address)
        await browser.post(f"/console/{address}/go-on", form_of(page, "go-on"))
        html = await ended(browser, address)
        levels = [(await now(browser, task)).level for task in ("a", "b", "c")]

    assert "Its process is gone: 1 of 3 are done. Go on with the rest." in page
    assert "It is through: 3 done." in html
    assert levels == ["low", "medium", "medium"]


async def test_nobody_goes_on_with_what_a_process_makes(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await browser.log_in()
        address = await made_by_a_process_that_is_gone(browser, ["a", "b"], "pause-task")
        form = form_of(await get(browser, address), "go-on")
        await browser.backend.lease.acquire(lease_of("gone"), "another", 60.0)
        page = await get(browser, address)
        refused = await browser.post(f"/console/{address}/go-on", form)

    assert "1 of 2 so far." in page
    assert refused.status == 503


async def test_who_has_lost_its_lease_counts_no_more(settings: Settings) -> None:
    async with browsing(settings) as browser:
        await made_by_a_process_that_is_gone(browser, ["a", "b"], "pause-task")
        documents = browser.backend.documents
        mine = await find_batch(documents, "gone")
        assert mine is not None
        await change_batch(documents, "gone", lambda one: replace(one, run="2", done=2))
        with pytest.raises(Superseded):
            await change_batch(documents, "gone", newest(mine))


async def test_few_are_kept_and_none_for_long(settings: Settings) -> None:
    async with browsing(settings) as browser:
        documents = browser.backend.documents
        for number in range(kept.MOST_KEPT + 2):
            batch = Batch(
                id=f"b{number}",
                who="me",
                word="pause-task",
                count=9_000,
                began_ms=number,
                run="1",
                process="a",
            )
            await add_batch(documents, batch, [f"task-{n:05}" for n in range(9_000)])
        there = {one.name for one in await documents.list("batch")}
        tasks = await kept.tasks_of(documents, "b51")
        await kept.forget_batches(documents, 25 * 3_600_000)
        left = [*await documents.list("batch"), *await documents.list("batch-tasks")]

    assert there == {f"b{number}" for number in range(2, kept.MOST_KEPT + 2)}
    assert (len(tasks), tasks[-1]) == (9_000, "task-08999")
    assert left == []


def test_failures_that_are_named_have_a_bound() -> None:
    batch = Batch(id="b", who="me", word="pause-task", count=500, began_ms=1, run="1", process="a")
    for number in range(500):
        batch = batch.with_failed(f"t{number}", "\u00e4" * 1_000)

    assert batch.failed == 500
    assert 0 < len(batch.failures) < 100
    assert len(msgspec.json.encode(batch)) < 64 * 1024
