"""Reports as an operation: whose receipts are counted, and what one may take at a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest

from pushlane import BadInput, MemoryBackend, Settings
from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.names import own_lane
from pushlane.core.task import Level, Task, now_ms
from pushlane.model.access import Access, Role
from pushlane.model.read_bounds import AT_A_SERVER, ReadBounds
from pushlane.operations import long_reads
from pushlane.operations.doing import do
from pushlane.operations.long_reads import LongReads
from pushlane.operations.reports import GetReport, GetTaskShares, ListReported
from pushlane.operations.session import Caller
from pushlane.operations.views import plain
from pushlane.util.errors import NotNow, UnknownTask
from tests.door.asking import asking
from tests.operations.test_looks import deliver, filled
from tests.receipt_stores import store_of

Reported = Callable[[], AbstractAsyncContextManager[Backend]]
ADMIN = Caller("ada", "cli")
OF_SHOP = Caller("bob", "http", Access(Role.VIEWER, frozenset({"shop"})))


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture(params=["store", "log"])
def reported(request: Any, memory: MemoryBackend, settings: Settings) -> Reported:
    """A backend with receipts of the apps `shop` and `bank`, in a store of reports or the log."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Backend]:
        async with filled(memory, settings) as backend:
            await deliver(memory, settings)
            yield backend

    if request.param == "store":
        at = {"responded_at_ms": now_ms() - 60_000}
        of_apps = [
            {"task_id": f"t-{app}", "task_name": f"of-{app}", "app": app, "seq": seq, **at}
            for app in ("shop", "bank")
            for seq in (1, 2, 3)
        ]
        store_of(settings.reports_root, of_apps)
    return opened


async def test_it_counts_what_is_of_the_apps_of_a_caller(
    reported: Reported, settings: Settings
) -> None:
    async with reported() as backend:
        whole = await do(backend, settings, ADMIN, GetReport(by="app"))
        ours = await do(backend, settings, OF_SHOP, GetReport(by="app,task"))
        rows = await do(backend, settings, OF_SHOP, ListReported())

        assert whole.total is not None
        assert whole.total["n"] == 6
        assert "bank" not in str(plain(ours)) + str(plain(rows))
        assert ours.total is not None
        assert ours.total["n"] == 3
        assert {one.app for one in rows} == {"shop"}


async def test_a_store_that_is_behind_the_log_says_so(
    reported: Reported, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reported() as backend:
        report = await do(backend, settings, ADMIN, GetReport(by="app"))
        monkeypatch.setattr(backend.receipts, "lag", AsyncMock(side_effect=Unreachable("away")))
        away = await do(backend, settings, ADMIN, GetReport(by="app"))

    told = [one for one in report.notes if "of the log are not read yet" in one]
    assert len(told) == settings.has_reports
    assert "are not read yet" not in str(away.notes)


@pytest.mark.parametrize("asked", [GetReport(task="of-bank"), GetReport(where=("task=of-bank",))])
async def test_a_task_of_others_is_one_that_is_not_there(
    reported: Reported, settings: Settings, asked: GetReport
) -> None:
    async with reported() as backend:
        with pytest.raises(UnknownTask) as caught:
            await do(backend, settings, OF_SHOP, asked)
        told = str(caught.value).replace("of-bank", "")

        assert "bank" not in told
        assert "no receipts of a task" in told


async def test_the_rows_alone_have_nothing_else(reported: Reported, settings: Settings) -> None:
    async with reported() as backend:
        shown = plain(await do(backend, settings, ADMIN, GetReport(by="app", rows_alone=True)))

        assert {row["app"]: row["n"] for row in shown["rows"]} == {"shop": 3, "bank": 3}
        assert "funnel" not in shown
        assert shown["columns"][: shown["labels"]] == ["app"]


async def test_a_share_over_time_is_told_by_the_store_of_reports_alone(
    reported: Reported, settings: Settings
) -> None:
    async with reported() as backend:
        for task, app in (("t-shop", "shop"), ("t-none", "shop"), ("t-bank", "bank")):
            lane = own_lane(task)
            task_of = Task(id=task, level=Level.HIGH, lane=lane, app=app, sinks=("webhook",))
            await backend.registry.add(task_of)
        if not settings.has_reports:
            with pytest.raises(BadInput, match="there is no store of reports"):
                await do(backend, settings, ADMIN, GetTaskShares(task="t-shop"))
            return
        found = await do(backend, settings, OF_SHOP, GetTaskShares(task="t-shop"))

        [point] = found.points  # three of six, and as large a quota as the other
        assert (point.observed_per_s, point.entitled_per_s) == (3 / 60, 3 / 60)
        assert found.step_s == 60
        assert (await do(backend, settings, ADMIN, GetTaskShares(task="t-none"))).points == []
        with pytest.raises(UnknownTask):
            await do(backend, settings, OF_SHOP, GetTaskShares(task="t-bank"))


async def test_so_many_are_made_at_once(
    reported: Reported, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_reads, "WAIT_S", 0.0)
    async with reported() as backend:
        reads = LongReads(AT_A_SERVER)
        async with reads.one(), reads.one():
            with pytest.raises(NotNow, match="reads receipts for at most 2 at once"):
                await do(backend, settings, ADMIN, GetReport(), reads=reads)
        assert (await do(backend, settings, ADMIN, GetReport(), reads=reads)).rows


async def test_one_that_takes_too_long_ends(reported: Reported, settings: Settings) -> None:
    async with reported() as backend:
        reads = LongReads(ReadBounds(at_once=1, most_s=0.0, gives_way=True))

        with pytest.raises(BadInput, match="takes longer than 0 s"):
            await do(backend, settings, ADMIN, GetReport(), reads=reads)
        async with reads.one():
            pass


async def test_it_shows_no_more_rows_than_it_may(reported: Reported, settings: Settings) -> None:
    async with reported() as backend:
        reads = LongReads(ReadBounds(most_rows=1))

        made = await do(backend, settings, ADMIN, GetReport(by="app", limit=40), reads=reads)
        rows = await do(backend, settings, ADMIN, ListReported(limit=40), reads=reads)

        assert (len(made.rows), made.rows_in_all, len(rows)) == (1, 2, 1)


async def test_of_the_log_it_counts_no_more_receipts_than_a_server_does(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)
        reads = LongReads(ReadBounds(most_receipts=4))
        with pytest.raises(BadInput, match="more than 4 receipts"):
            await do(backend, settings, ADMIN, GetReport(), reads=reads)
        ours = await do(backend, settings, OF_SHOP, GetReport(), reads=reads)

    assert ours.total is not None
    assert ours.total["n"] == 3


async def test_work_in_a_thread_is_one_of_those_at_once_until_it_ends() -> None:
    reads, goes_on, begun = LongReads(AT_A_SERVER), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        goes_on.wait()

    async def read() -> None:
        async with reads.one():
            await reads.in_thread(work)

    running = asyncio.create_task(read())
    await asyncio.to_thread(begun.wait)
    running.cancel()
    await asyncio.sleep(0)
    async with reads.one():
        with pytest.raises(NotNow):
            async with reads.one():
                pass
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with reads.one(), reads.one():
        pass
    reads.close()


async def test_over_http_who_comes_too_much_is_told_when_to_ask_again(settings: Settings) -> None:
    async with asking(settings) as http:
        async with http.door.reads.one(), http.door.reads.one():
            refused = await http("POST", "/v1/reports", {})
        taken = await http("POST", "/v1/reports", {"since_ms": 0, "by": "level"})

    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert (taken.status, taken.json["rows"]) == (200, [])
