"""A change of many tasks by the console: of those that were counted, in the background."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pushlane import Settings
from pushlane.console import batches
from pushlane.core.errors import Unreachable
from pushlane.core.task import State
from pushlane.operations.access import CreateToken, RevokeToken
from pushlane.operations.doing import do
from pushlane.operations.session import Session
from pushlane.operations.tasks import PauseTask
from tests.console.browsing import Browser, browsing, form_of, led_to
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
        await add(browser, "b", state=State.DONE, name=SCRIPT)
        await browser.log_in()
        html = await ended(browser, await begun(browser, "action=pause-task&state=any"))
        paused = (await now(browser, "a")).state

    assert paused == "paused"
    assert "1 could not be." in html
    assert ">b</a>: " in html
    assert SCRIPT not in html


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
    assert "Stopped after 1 of 3: somebody has stopped it." in html


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
        await begun(browser, "action=pause-task")
        [batch] = browser.console._batches._by_id.values()
        await asyncio.wait(browser.console._batches._running)

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
