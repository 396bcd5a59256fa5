"""Waits in scenes whose answer is known, in virtual time: each within a few parts in a hundred."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace as replace_in

from pushlane.backends.backend import Backend
from pushlane.backends.guard_ports import ClaimResult
from pushlane.core.names import pool_lane
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, MAX_PUSH_BYTES, Kind, Outcome, Push, Scope, encode
from pushlane.core.task import DeliveryMode, Level, State, now_ms
from pushlane.dispatcher import Dispatcher
from pushlane.model import task_changes
from pushlane.model.limits import Limit, Subject, change_limit
from pushlane.model.names import new_task_id
from tests.core.support import Wrapped
from tests.waits.scenes import (
    BEGUN_S,
    SETTINGS,
    TOOK_S,
    TakesTime,
    Told,
    add,
    played,
    sent,
    serving,
    split,
)
from tests.waits.virtual import Clock

RETRY = Outcome(Kind.RETRY, "HTTP 500", after_s=5.0, scope=Scope.PUSH)
ROUND_MS = 110
"""A round of the loop, in which all slots are filled anew, with the flush of its outcomes."""


def near(expected_ms: float) -> Any:
    return pytest.approx(expected_ms, rel=0.02, abs=ROUND_MS)


def of_task(receipts: Sequence[Told], task_id: str) -> list[Told]:
    return [one for one in receipts if one.task_id == task_id]


def test_alone_on_a_full_sink_all_is_its_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            await add(backend)
            await sent(sink, 400)

    receipts = played(monkeypatch, scene)

    assert split(receipts)["slot"] >= 0.98
    assert max(one.waited_ms for one in receipts) == near(400 / SETTINGS.slots * TOOK_S * 1_000)


def test_no_answer_in_between_makes_capacity_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime(took_s=partial(random.Random(7).uniform, 0.02, 0.2))
        async with serving(backend, sink):
            await add(backend)
            await sent(sink, 400)

    receipts = played(monkeypatch, scene)

    assert split(receipts)["slot"] >= 0.98


def test_of_two_equal_tasks_half_is_the_others_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            for _ in range(2):
                await add(backend)
            await sent(sink, 800)

    receipts = played(monkeypatch, scene)

    assert split(receipts)["share"] == pytest.approx(0.5, abs=0.02)
    assert split(receipts)["slot"] == pytest.approx(0.5, abs=0.02)


def test_levels_wait_for_the_turns_of_others_by_their_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids: dict[str, str] = {}

    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            for level, pushes in ((Level.HIGH, 1_200), (Level.MEDIUM, 600), (Level.LOW, 200)):
                ids[level] = (await add(backend, level, pushes)).id
            await sent(sink, 2_000)

    receipts = played(monkeypatch, scene)

    shares = {level: split(of_task(receipts, task_id)) for level, task_id in ids.items()}
    assert shares[Level.HIGH]["share"] == pytest.approx(0.4, abs=0.02)
    assert shares[Level.MEDIUM]["share"] == pytest.approx(0.7, abs=0.02)
    assert shares[Level.LOW]["share"] == pytest.approx(0.9, abs=0.02)
    assert shares[Level.LOW]["pool"] == pytest.approx(0.1, abs=0.02)


def test_a_limit_is_told_apart_from_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink, task_id = TakesTime(), new_task_id()
        subject = Subject("task", task_id)
        await change_limit(backend.documents, subject, lambda _: Limit(rate_per_s=10.0))
        async with serving(backend, sink):
            await add(backend, pushes=300, task_id=task_id)
            await sent(sink, 300)

    receipts = played(monkeypatch, scene)

    assert split(receipts)["limit"] >= 0.98


def test_what_leaves_a_pool_lane_makes_no_turns_of_others_of_its_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [new_task_id() for _ in range(40)]
    limited, other = [one for one in ids if pool_lane(one, 2) == pool_lane(ids[0], 2)][:2]

    async def scene(backend: Backend) -> None:
        sink, subject = TakesTime(), Subject("task", limited)
        await change_limit(backend.documents, subject, lambda _: Limit(rate_per_s=4.0))
        async with serving(backend, sink):
            for task_id in (limited, other):
                await add(backend, Level.LOW, 300, task_id=task_id)
            await sent(sink, 600)

    receipts = played(monkeypatch, scene)

    assert split(of_task(receipts, other))["pool"] >= 0.9


def test_an_outage_is_the_breakers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        down_until_ms = now_ms() + 30_000 + BEGUN_S * 1_000

        def answer(_: Delivery) -> Outcome:
            return DELIVERED if now_ms() >= down_until_ms else Outcome.throttled("HTTP 503")

        sink = TakesTime(answer=answer)
        async with serving(backend, sink):
            await add(backend, pushes=200)
            await asyncio.sleep(60.0)

    receipts = played(monkeypatch, scene)

    went_on_ms = min(one.dispatched_ms for one in receipts)
    for one in receipts:
        kept_ms = one.parts["breaker"] + one.parts.get("tried", 0)
        rising_ms = min(200, one.dispatched_ms - went_on_ms)
        assert 30_000 < kept_ms == near(went_on_ms + rising_ms - one.submitted_ms)
        assert kept_ms + one.parts.get("slot", 0) == near(one.waited_ms)


def test_quiet_hours_end_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        begin, end = (
            datetime.fromtimestamp(now_ms() / 1_000 + after_s, UTC) for after_s in (-3_600, 1_800)
        )
        async with serving(backend, sink):
            await add(backend, pushes=4, quiet=f"{begin:%H:%M}-{end:%H:%M}", zone="UTC")
            await sent(sink, 4)

    receipts = played(monkeypatch, scene)

    for one in receipts:
        ended_ms = one.dispatched_ms // 60_000 * 60_000
        assert one.parts["quiet"] == ended_ms - one.submitted_ms > 1_700_000


def test_quiet_hours_that_begin_while_it_waits_are_quiet_hours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(backend: Backend) -> None:
        await asyncio.sleep(60.0 - now_ms() % 60_000 / 1_000 + 20.0)  # till 20 s past the minute
        sink = TakesTime(took_s=1.0)
        begin, end = (
            datetime.fromtimestamp(now_ms() / 1_000 + after_s, UTC) for after_s in (60, 660)
        )
        async with serving(backend, sink):
            await add(backend, pushes=400, quiet=f"{begin:%H:%M}-{end:%H:%M}", zone="UTC")
            await sent(sink, 400)

    receipts = played(monkeypatch, scene)

    first, last = receipts[0], receipts[-1]
    assert "quiet" not in first.parts
    assert last.parts["quiet"] == near(600_000)
    assert last.parts["slot"] == near(last.waited_ms - 600_000)


def test_a_start_and_a_time_of_its_own_come_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(backend: Backend) -> None:
        sink, now = TakesTime(), now_ms() + 5_000
        async with serving(backend, sink):
            await add(
                backend,
                pushes=4,
                not_before_ms=now + 60_000,
                of_push=lambda seq: {"not_before_ms": now + 90_000 * (seq > 2)},
            )
            await sent(sink, 4)

    *_, third, fourth = receipts = played(monkeypatch, scene)

    assert {one.parts["start"] for one in receipts} == {60_000}
    assert [third.parts["delay"], fourth.parts["delay"]] == [30_000, 30_000]
    assert split(receipts)["start"] + split(receipts)["delay"] >= 0.98


def test_a_pause_is_told_to_those_that_waited_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            task = await add(backend)
            await asyncio.sleep(2.0)
            await backend.pause(task.id)
            await asyncio.sleep(60.0)
            await backend.registry.change(task.id, task_changes.resume)
            await sent(sink, 400)

    receipts = played(monkeypatch, scene)

    before, after = receipts[: len(receipts) // 4], receipts[len(receipts) // 2 :]
    assert all("paused" not in one.parts for one in before)
    assert all(one.parts["paused"] == near(60_000) for one in after)
    assert all(one.parts["slot"] == near(one.waited_ms - 60_000) for one in after)


def test_pushes_of_one_key_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            await add(backend, pushes=40, ordered=True, of_push=lambda seq: {"after_seq": seq - 1})
            await sent(sink, 40)

    receipts = played(monkeypatch, scene)

    assert split(receipts)["keys"] >= 0.98


class SlowToClaim(Wrapped):
    """A ledger that takes 200 ms to give a claim."""

    async def claim(self, *given: Any, **named: Any) -> Sequence[ClaimResult]:
        await asyncio.sleep(0.2)
        claimed: Sequence[ClaimResult] = await self._real.claim(*given, **named)
        return claimed


def test_a_slow_ledger_is_told_apart_from_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        slow = replace(backend, ledger=SlowToClaim(backend.ledger))
        async with serving(slow, sink):
            await add(backend, pushes=12, delivery=DeliveryMode.ONCE)
            await sent(sink, 12)

    receipts = played(monkeypatch, scene)

    for one in receipts:
        told = one.parts["claim"], one.parts.get("slot", 0)
        assert told == pytest.approx((200, one.waited_ms - 200), abs=1)


class SlowToRecord(Wrapped):
    """A registry that takes half a minute to record what has ended, at first."""

    took_s = 30.0

    async def record(self, *given: Any) -> Any:
        took_s, self.took_s = self.took_s, 0.0
        await asyncio.sleep(took_s)
        return await self._real.record(*given)


def test_outcomes_that_are_not_durable_are_told_apart_from_the_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        slow = replace(backend, registry=SlowToRecord(backend.registry))
        async with serving(slow, sink):
            await add(backend, pushes=200)
            await sent(sink, 200)

    receipts = played(monkeypatch, scene)
    after = receipts[len(receipts) // 2 :]
    assert all(one.parts["durable"] == near(30_000) for one in after)
    assert all(one.parts["slot"] == near(one.waited_ms - 30_000) for one in after)


def test_what_nobody_served_is_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        await add(backend, pushes=40)
        await asyncio.sleep(30.0)
        async with serving(backend, sink):
            await sent(sink, 40)

    receipts = played(monkeypatch, scene)

    assert all(one.parts["unseen"] == near(30_000) for one in receipts)
    assert split(receipts)["unseen"] + split(receipts)["slot"] >= 0.99


def test_what_a_kill_takes_with_it_is_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        dispatcher = Dispatcher(backend, TakesTime(), SETTINGS, clock_s=time.monotonic)
        running = asyncio.create_task(dispatcher.run())
        await asyncio.sleep(BEGUN_S)
        await add(backend)
        await asyncio.sleep(2.02)
        running.cancel()
        await asyncio.wait([running])
        await asyncio.sleep(20.0)
        opened_ms.append(now_ms())
        sink = TakesTime()
        async with serving(backend, sink):
            await sent(sink, 200)

    opened_ms: list[int] = []
    receipts = played(monkeypatch, scene)

    after = [one for one in receipts if one.dispatched_ms >= opened_ms[0]]
    assert len(receipts) == 400
    assert 200 <= len(after) < 300
    for one in after:
        assert one.parts["unseen"] == near(opened_ms[0] - one.submitted_ms)
        assert one.parts.get("slot", 0) == near(one.dispatched_ms - opened_ms[0])


def test_a_retry_in_another_process_has_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        busy = TakesTime(answer=lambda _: RETRY)
        async with serving(backend, busy):
            await add(backend, pushes=40)
            await sent(busy, 40)
        await asyncio.sleep(20.0)
        opened_ms.append(now_ms())
        sink = TakesTime()
        async with serving(backend, sink):
            await sent(sink, 40)

    opened_ms: list[int] = []
    receipts = played(monkeypatch, scene)

    for first, second in zip(receipts[::2], receipts[1::2], strict=True):
        assert (second.parts["tried"], second.parts["retry"]) == (50, 5_000)
        due_ms = first.dispatched_ms + 5_050
        assert second.parts["unseen"] == near(opened_ms[0] - due_ms)
        slot_ms = second.dispatched_ms - opened_ms[0] + first.waited_ms
        assert second.parts.get("slot", 0) == near(slot_ms)


def test_a_push_that_moves_takes_its_parts_along(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            task = await add(backend, Level.LOW)
            await asyncio.sleep(1.0)
            await backend.promote(task.id, Level.HIGH)
            await sent(sink, 400)

    receipts = played(monkeypatch, scene)

    after = receipts[len(receipts) // 2 :]
    assert all(one.parts["pool"] == near(1_000) for one in after)
    assert all(one.parts["slot"] == near(one.waited_ms - 1_000) for one in after)


def test_a_push_that_goes_on_to_the_next_sink_takes_its_parts_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(backend: Backend) -> None:
        def refuses(_: Delivery) -> Outcome:
            return Outcome.dead("HTTP 410", scope=Scope.RECIPIENT)

        first, second = TakesTime(answer=refuses), TakesTime(took_s=0.2)
        async with serving(backend, {"default": first, "sms": second}):
            await add(backend, pushes=40, sinks=("default", "sms"))
            await sent(second, 40)

    receipts = played(monkeypatch, scene)

    for second, first in zip(receipts[::2], receipts[1::2], strict=True):
        assert (first.outcome, second.outcome) == ("retry", "delivered")
        assert second.parts["tried"] == 50
        assert second.parts.get("slot", 0) == near(second.waited_ms - 50)


def test_of_a_backlog_of_100_000_sums_and_the_middle_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime(took_s=1.0, batch_size=50)
        settings = replace_in(SETTINGS, slots=500)
        async with serving(backend, sink, settings):
            for _ in range(2):
                await add(backend, pushes=50_000)
            await sent(sink, 100_000)

    receipts = played(monkeypatch, scene)

    assert split(receipts)["share"] == pytest.approx(0.5, abs=0.01)
    middle = receipts[25_000]
    assert middle.waited_ms == near(100_000)
    assert middle.parts["slot"] == pytest.approx(50_000, rel=0.02)
    assert middle.parts["share"] == pytest.approx(50_000, rel=0.02)


STEPS = pytest.mark.parametrize("step_s", [3_600.0, -3_600.0])


@STEPS
def test_a_step_of_the_wall_clock_moves_nothing(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    clock = Clock()

    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            await add(backend)
            await asyncio.sleep(2.0)
            clock.step_s = step_s
            await sent(sink, 400)

    receipts = played(monkeypatch, scene, clock)

    assert split(receipts)["slot"] >= 0.98
    assert max(one.waited_ms for one in receipts) == near(400 / SETTINGS.slots * TOOK_S * 1_000)


@STEPS
def test_a_step_of_the_wall_clock_moves_no_retry(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    clock = Clock()

    def once(delivery: Delivery) -> Outcome:
        clock.step_s = step_s
        return RETRY if delivery.push.attempt == 1 else DELIVERED

    async def scene(backend: Backend) -> None:
        sink = TakesTime(answer=once, took_s=1.0)
        async with serving(backend, sink):
            await add(backend, pushes=40)
            await sent(sink, 80)

    receipts = played(monkeypatch, scene, clock)

    for first, second in zip(receipts[::2], receipts[1::2], strict=True):
        assert "quiet" not in first.parts
        assert second.parts["retry"] == near(5_000)
        assert "quiet" not in second.parts


@STEPS
def test_a_step_that_stayed_is_followed(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """As of a machine that was suspended, or that began before its clock was set."""
    clock = Clock()

    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            await add(backend, pushes=4)
            await sent(sink, 4)
            clock.step_s = step_s
            for pushes in (8, 12, 16):  # each wakes the loop, which looks at the clock then
                await asyncio.sleep(70.0)
                await add(backend, pushes=4)
                await sent(sink, pushes)
            await add(backend)
            await sent(sink, 416)

    receipts = played(monkeypatch, scene, clock)

    counts = Counter(one.task_id for one in receipts)
    last = [one for one in receipts if counts[one.task_id] == 400]
    assert len(last) == 400
    assert split(last)["slot"] >= 0.98
    assert max(one.waited_ms for one in last) == near(400 / SETTINGS.slots * TOOK_S * 1_000)


@pytest.mark.parametrize("ahead_ms", [60_000, -60_000])
def test_of_a_submitter_whose_clock_is_wrong(
    monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            await add(backend, of_push=lambda _: {"submitted_at_ms": now_ms() + ahead_ms})
            await sent(sink, 400)

    receipts = played(monkeypatch, scene)

    for one in receipts:
        slot_ms = max(0, one.waited_ms - 60_000)
        told = {"unseen": 60_000, "slot": slot_ms} if ahead_ms < 0 else {}
        assert {cause: one.parts.get(cause, 0) for cause in told} == pytest.approx(told, abs=2)


@pytest.mark.parametrize("submitted_ms", [0, -5])
def test_of_a_push_that_does_not_tell_when_it_was_submitted_no_wait_is_told(
    monkeypatch: pytest.MonkeyPatch, submitted_ms: int
) -> None:
    async def scene(backend: Backend) -> None:
        sink = TakesTime()
        async with serving(backend, sink):
            await add(backend, pushes=40, of_push=lambda _: {"submitted_at_ms": submitted_ms})
            await sent(sink, 40)

    receipts = played(monkeypatch, scene)

    assert len(receipts) == 40
    assert not any(one.parts for one in receipts)


def test_pushes_as_large_as_may_be_are_tried_again_and_tell_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a retry adds to a push makes none unreadable."""
    bare = len(encode(Push("t", 1, "to-1", submitted_at_ms=now_ms())))
    largest = MAX_PUSH_BYTES - bare - 20  # of it 20 for the task's id, and for the texts' lengths

    def once(delivery: Delivery) -> Outcome:
        return RETRY if delivery.push.attempt == 1 else DELIVERED

    async def scene(backend: Backend) -> None:
        sink = TakesTime(answer=once)
        async with serving(backend, sink):
            await add(backend, pushes=20, of_push=lambda seq: {"body": "x" * (largest + seq)})
            await sent(sink, 40)

    receipts = played(monkeypatch, scene)

    assert [one.outcome for one in receipts] == ["retry", "delivered"] * 20


@pytest.mark.parametrize("more", [1, 30, 40, 50, 64])
def test_pushes_whose_writer_went_over_the_limit_end(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """None is written again so that nobody can read it: it is sent once more, or dead."""
    task_id = new_task_id()
    bare = len(encode(Push(task_id, 1, "to-1", body="x" * 65_000, submitted_at_ms=now_ms())))
    body = "x" * (65_000 + MAX_PUSH_BYTES + more - bare)

    def once(delivery: Delivery) -> Outcome:
        return RETRY if delivery.push.attempt == 1 else DELIVERED

    async def scene(backend: Backend) -> None:
        sink = TakesTime(answer=once)
        async with serving(backend, sink):
            task = await add(backend, pushes=1, of_push=lambda seq: {"body": body}, task_id=task_id)
            while (await backend.registry.get(task.id)).state is not State.DONE:
                await asyncio.sleep(0.1)

    outcomes = [one.outcome for one in played(monkeypatch, scene)]

    assert outcomes in (["retry", "delivered"], ["dead"])
