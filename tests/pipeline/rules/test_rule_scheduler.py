"""The leader of the rules, on a real store: each due run once, whoever dies, fails or races."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from pushlane.backends.backend import Backend, connect
from pushlane.backends.ports import listed
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.pipeline.fanout import AudienceTooLarge, EmptyAudience
from pushlane.pipeline.rules.history import RunState, run_key
from pushlane.pipeline.rules.rule_scheduler import (
    LOOK_S,
    RunId,
    request_again,
    request_now,
    wait_for_end,
    withdraw_request,
)
from pushlane.pipeline.rules.rule_store import LEASE
from pushlane.settings import Settings
from pushlane.util.errors import NotFound
from tests.contract.reading import until
from tests.rules import Clock, Leading, a_rule, ms

NINE = ms("2026-01-01T09:00")
DAY_MS = 86_400_000


@asynccontextmanager
async def backends(tmp_path, count: int = 1):
    async with AsyncExitStack() as stack:
        settings = Settings(data_dir=tmp_path / "store")
        yield [await stack.enter_async_context(connect(settings)) for _ in range(count)]


@asynccontextmanager
async def leading(tmp_path, now_ms: int = NINE + 1000):
    async with backends(tmp_path) as [backend]:
        yield Leading(backend, Clock(now_ms))


async def keys_of_tasks(backend: Backend) -> list[str]:
    return sorted(task.key for task in await listed(backend.registry))


async def test_what_is_due_is_expanded_under_the_key_of_its_time(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule(budget_run=10))

        await one.once()

        [order] = one.expander.orders
        assert (order.key, order.most) == ("rule-weekly-2026-01-01T09:00:00Z", 10)
        [run] = (await one.history()).runs
        assert (run.state, run.total) == (RunState.DONE, 5)
        assert run.task_id == (await one.backend.registry.get(order.key)).id


async def test_looks_and_what_runs_came_to_are_counted(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule())
        assert not one.stats.leads

        await one.once()

        assert one.stats.leads
        assert one.stats.due == 0
        assert one.stats.events == {("weekly", "done"): 1}
        assert one.stats.pushes == {"weekly": 5}


async def test_what_is_not_due_is_left_alone(tmp_path):
    async with leading(tmp_path, NINE - 1000) as one:
        await one.add(a_rule())

        await one.once()

        assert one.expander.orders == []


async def test_runs_go_one_at_a_time_the_longest_due_first(tmp_path):
    at_once = 0

    async with leading(tmp_path, NINE + DAY_MS // 2) as one:
        await one.add(a_rule("b", cron="0 10 * * *"), a_rule("a", cron="0 11 * * *"))

        async def alone() -> None:
            nonlocal at_once
            at_once += 1
            await asyncio.sleep(0)
            assert at_once == 1
            at_once -= 1

        one.expander.before = lambda order: alone()
        await one.once()

        assert [order.rule.name for order in one.expander.orders] == ["b", "a"]
        assert await one.states("a") == await one.states("b") == ["done"]


async def test_two_who_race_for_the_lease_run_each_due_time_once(tmp_path):
    async with backends(tmp_path, 2) as [here, there]:
        clock = Clock(NINE, patience_s=0.005)
        both = [Leading(here, clock, "a", ttl_s=0.03), Leading(there, clock, "b", ttl_s=0.03)]
        rule = a_rule("busy", since="2026-01-01T09:00", cron="* * * * *", catch_up="all")
        await both[0].add(rule)
        end_ms = NINE + 20 * 60_000

        async def over() -> bool:
            history = await both[0].history("busy")
            return history.handled_ms > end_ms and not history.open

        running = [asyncio.create_task(one.scheduler.run()) for one in both]
        await until(over)
        for one in both:
            one.scheduler.stop()
        await asyncio.gather(*running)

        history = await both[0].history("busy")
        due = [*rule.schedule.between(NINE, history.handled_ms)]
        assert [run.at_ms for run in history.runs] == due
        assert {run.state for run in history.runs} == {RunState.DONE}
        assert await keys_of_tasks(here) == sorted(run_key("busy", at_ms) for at_ms in due)
        assert set(both[0].expander.keys) | set(both[1].expander.keys) == {
            run_key("busy", at_ms) for at_ms in due
        }


class Died(BaseException):
    """What a kill -9 does: nothing after it is done."""


async def test_a_run_whose_leader_was_killed_is_gone_on_with_as_it_began(tmp_path):
    async with backends(tmp_path, 2) as [here, there]:
        clock = Clock(NINE + 1000)
        killed, next_one = Leading(here, clock, "a"), Leading(there, clock, "b")
        await killed.add(a_rule())
        await killed.store.change_history("weekly", lambda history: history)

        def die(order) -> None:
            raise Died

        killed.expander.before = die
        fence = (await here.lease.acquire(LEASE, "a", 0.01)).number
        await request_again(killed.store, "weekly", NINE, clock.now_ms())
        with pytest.raises(Died):
            await killed.runner.carry_out("weekly", NINE, fence)
        await killed.store.change("weekly", lambda rule: rule.changed(where="changed"))

        async def leads() -> bool:
            await next_one.once()
            return next_one.scheduler.leads

        await until(leads)

        assert next_one.expander.keys == killed.expander.keys
        assert next_one.expander.orders[0].rule.where == ""
        [run] = (await next_one.history()).runs
        assert (run.state, run.begun, run.revision) == (RunState.DONE, 2, 1)


async def test_a_leader_that_is_told_to_stop_leaves_its_run_for_the_next_one(tmp_path):
    async with backends(tmp_path, 2) as [here, there]:
        clock = Clock(NINE + 1000)
        first, second = Leading(here, clock, "a"), Leading(there, clock, "b")
        await first.add(a_rule())
        begun = asyncio.Event()

        async def hang() -> None:
            begun.set()
            await asyncio.Event().wait()

        first.expander.before = lambda order: hang()
        running = asyncio.create_task(first.scheduler.run())
        await begun.wait()
        first.scheduler.stop()
        await running
        assert await first.states() == ["running"]

        await second.once()

        assert await second.states() == ["done"]
        assert second.expander.keys == first.expander.keys


async def test_a_run_that_fails_is_tried_again_later_and_others_go_on(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule("bad"), a_rule("good", cron="0 9 1 * *"))

        def fail(order) -> None:
            if order.rule.name == "bad":
                raise PushlaneError("Spark stopped")

        one.expander.before = fail
        await one.once()
        assert await one.states("bad") == ["waiting"]
        assert await one.states("good") == ["done"]

        one.expander.before = lambda order: None
        one.clock.ms += 29_000
        await one.once()
        assert await one.states("bad") == ["waiting"]
        one.clock.ms += 2_000
        await one.once()
        assert await one.states("bad") == ["done"]
        assert one.expander.keys[run_key("bad", NINE)] == 2


async def test_a_run_that_fails_again_and_again_has_failed(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule(budget_day=100))

        def fail(order) -> None:
            raise PushlaneError("Spark stopped")

        one.expander.before = fail
        for _ in range(6):
            await one.once()
            one.clock.ms += 600_000

        [run] = (await one.history()).runs
        assert (run.state, run.reason, run.total) == (RunState.FAILED, "Spark stopped", 0)
        assert len(one.expander.orders) == 4
        assert (await one.history()).spent == {}


@pytest.mark.parametrize(
    ("raised", "state", "said"),
    [
        (BadInput("there is no column 'x'"), "failed", "there is no column 'x'"),
        (AudienceTooLarge("7 are more than 5"), "refused", "7 are more than 5"),
        (EmptyAudience("no rows"), "done", "no rows"),
        (ValueError("recipient 0171"), "waiting", "unexpected ValueError; please report it"),
    ],
)
async def test_how_a_run_ends_when_nothing_can_be_expanded(tmp_path, raised, state, said):
    async with leading(tmp_path) as one:
        await one.add(a_rule())

        def refuse(order) -> None:
            raise raised

        one.expander.before = refuse
        await one.once()

        [run] = (await one.history()).runs
        assert (run.state.value, run.reason) == (state, said)


async def test_a_rule_added_while_it_runs_is_seen(tmp_path):
    async with leading(tmp_path, NINE - 30_000) as one:
        one.clock.patience_s = 0.02
        running = asyncio.create_task(one.scheduler.run())
        await one.add(a_rule())

        async def done() -> bool:
            return await one.states() == ["done"]

        await until(done)
        one.scheduler.stop()
        await running

        [run] = (await one.history()).runs
        assert run.at_ms == NINE
        assert run.begun_at_ms - NINE <= 2 * LOOK_S * 1000


async def test_a_second_process_stands_by(tmp_path):
    async with backends(tmp_path, 2) as [here, there]:
        clock = Clock(NINE + 1000)
        first, second = Leading(here, clock, "a"), Leading(there, clock, "b")
        await first.add(a_rule())
        await here.lease.acquire(LEASE, "a", 600)

        await second.once()

        assert not second.scheduler.leads
        assert second.expander.orders == []


async def test_a_removed_rule_has_no_more_runs_and_a_new_one_of_its_name_starts_afresh(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule())
        await one.once()
        await one.store.remove("weekly")
        one.clock.ms += DAY_MS
        await one.once()
        assert len(one.expander.orders) == 1

        await one.add(a_rule(since="2026-01-02T12:00"))

        assert await one.states() == []


async def test_a_run_asked_for_twice_at_one_moment_is_two_runs(tmp_path):
    async with leading(tmp_path, NINE - DAY_MS) as one:
        await one.add(a_rule())

        asked = [await request_now(one.store, "weekly", NINE - DAY_MS) for _ in range(2)]
        await one.once()

        assert asked == [NINE - DAY_MS + 1, NINE - DAY_MS + 2]
        assert await one.states() == ["done", "done"]
        assert len(one.expander.keys) == 2


async def test_a_run_asked_for_is_carried_out_alone_and_what_is_due_waits(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule("weekly", cron="0 8 * * *"), a_rule("other"))
        at_ms = await request_now(one.store, "weekly", one.clock.now_ms())

        run = await wait_for_end(
            one.backend, RunId("weekly", at_ms), one.expander, one.clock, lambda text: None
        )

        assert run.state is RunState.DONE
        assert one.expander.keys == {run_key("weekly", at_ms): 1}
        assert await one.states("other") == ["due"]


async def test_while_another_leads_that_one_makes_the_run(tmp_path):
    async with backends(tmp_path, 2) as [here, there]:
        clock = Clock(NINE - 1000)
        leader, asker = Leading(here, clock, "a"), Leading(there, clock, "b")
        await leader.add(a_rule(cron="0 0 1 2 *"))
        running = asyncio.create_task(leader.scheduler.run())

        async def leads() -> bool:
            return leader.scheduler.leads

        await until(leads)
        at_ms = await request_now(asker.store, "weekly", clock.now_ms())
        told: list[str] = []
        run = await wait_for_end(there, RunId("weekly", at_ms), asker.expander, clock, told.append)
        leader.scheduler.stop()
        await running

        assert run.state is RunState.DONE
        assert (len(leader.expander.orders), len(asker.expander.orders), len(told)) == (1, 0, 1)


async def test_a_scheduled_run_asked_for_again_is_made_once(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule())
        await one.once()

        await request_again(one.store, "weekly", NINE, one.clock.now_ms())
        await one.once()

        assert one.expander.keys == {run_key("weekly", NINE): 1}


async def test_a_run_that_failed_is_made_when_it_is_asked_for_again(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule())

        def refuse(order) -> None:
            raise BadInput("no such table")

        one.expander.before = refuse
        await one.once()
        one.expander.before = lambda order: None
        await request_again(one.store, "weekly", NINE, one.clock.now_ms())
        await one.once()

        assert await one.states() == ["done"]


async def test_a_time_at_which_a_rule_is_not_due_is_refused_with_the_next_that_is(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule())

        with pytest.raises(BadInput, match="2026-01-01T09:00:00Z"):
            await request_again(one.store, "weekly", NINE - 1000, one.clock.now_ms())
        with pytest.raises(BadInput, match="still to come"):
            await request_again(one.store, "weekly", NINE + DAY_MS, one.clock.now_ms())


async def test_a_run_that_is_given_up_before_it_began_is_not_made(tmp_path):
    async with leading(tmp_path, NINE - DAY_MS) as one:
        await one.add(a_rule())
        at_ms = await request_now(one.store, "weekly", one.clock.now_ms())

        await withdraw_request(one.store, RunId("weekly", at_ms))
        await one.once()

        assert one.expander.orders == []


async def test_an_unknown_rule_is_refused_with_the_nearest(tmp_path):
    async with leading(tmp_path) as one:
        await one.add(a_rule())

        with pytest.raises(NotFound, match="did you mean 'weekly'"):
            await one.store.record("wekly")
