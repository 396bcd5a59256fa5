"""No process starts beside one that delivers by the same name to somewhere else, unless it may."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.core.errors import TaskConflict, Unreachable
from pushlane.dispatcher import presence
from pushlane.dispatcher.presence import TargetCheck
from pushlane.model.presence import Process, ServedSink, SinkTarget, split_sinks

NEW = SinkTarget("webhook", "new.example.com", "01")
OLD = SinkTarget("webhook", "old.example.com", "02")
NULL = SinkTarget("null", "", "03", delivers=False)


def process(name: str, target: SinkTarget | None, at_ms: int = 1, sink: str = "default") -> Process:
    served = (ServedSink(name=sink, target=target),)
    return Process(
        id=name,
        kind="dispatcher",
        pid=7,
        version="1",
        serves=(sink,),
        served=served,
        started_at_ms=at_ms,
    )


class Live:
    """Presence in a dict; `before` is called ahead of each call."""

    def __init__(self, *processes: Process) -> None:
        self.processes = {one.id: one for one in processes}
        self.before: Callable[[], Awaitable[None]] | None = None

    async def announce(self, process: Process, ttl_s: float) -> None:
        await self._pass()
        self.processes[process.id] = process

    async def list(self) -> list[Process]:
        await self._pass()
        return list(self.processes.values())

    async def leave(self, process_id: str) -> None:
        self.processes.pop(process_id, None)

    async def _pass(self) -> None:
        if self.before is not None:
            await self.before()


class Starting:
    """A process with its check, on a clock that only its waits move."""

    def __init__(self, live: Live, me: Process, *, replaces: bool = False) -> None:
        self.now_s = 0.0
        self.live = live
        self.me = me
        self.check = TargetCheck(
            live, self.describe, self.announce, replaces=replaces, clock_s=lambda: self.now_s
        )
        self.waited = 0
        self.after_wait: Callable[[], None] = lambda: None
        self.check._pause = self._pause  # type: ignore[method-assign]

    def describe(self) -> Process:
        return replace(self.me, is_starting=self.check.is_starting)

    async def announce(self) -> None:
        await self.live.announce(self.describe(), 20.0)

    async def enter(self) -> bool:
        await self.announce()
        try:
            return await self.check.enter()
        except TaskConflict:
            await self.live.leave(self.me.id)
            raise

    async def _pause(self) -> None:
        await asyncio.sleep(0)
        self.waited += 1
        self.now_s += 1.0
        self.after_wait()


@pytest.mark.parametrize(
    ("mine", "theirs", "replaces", "starts"),
    [
        (NEW, NEW, False, True),
        (NEW, OLD, False, False),
        (NEW, OLD, True, True),
        (NULL, OLD, False, False),
        (NULL, OLD, True, False),
        (NEW, NULL, False, False),
        (NEW, NULL, True, True),
        (NULL, NULL, False, True),
        (replace(NULL, kind="log", hash="04"), NULL, True, True),
        (NEW, None, False, True),
        (NULL, None, False, True),
    ],
)
async def test_who_may_start_beside_whom(
    mine: SinkTarget, theirs: SinkTarget | None, replaces: bool, starts: bool
) -> None:
    one = Starting(Live(process("there", theirs)), process("me", mine, 2), replaces=replaces)
    if starts:
        assert await one.enter()
        assert one.waited == 0
        assert not one.check.is_starting
    else:
        with pytest.raises(TaskConflict):
            await one.enter()
        assert one.waited == presence.PATIENCE_S


async def test_a_refusal_names_the_sink_both_targets_the_process_and_what_to_do() -> None:
    there = process("dispatcher-1", OLD)
    with pytest.raises(TaskConflict) as refused:
        await Starting(Live(there), process("me", NEW, 2)).enter()
    for part in ("default", str(OLD), str(NEW), "dispatcher-1", "pid 7", "--replace-sink"):
        assert part in str(refused.value)

    with pytest.raises(TaskConflict) as refused:
        await Starting(Live(there), process("me", NULL, 2), replaces=True).enter()
    for part in ("default", str(OLD), "null", "dispatcher-1", "delivers nothing", "--data-dir"):
        assert part in str(refused.value)
    assert "--replace-sink" not in str(refused.value)


async def test_two_places_that_look_the_same_are_told_apart() -> None:
    there = process("there", replace(NEW, hash="05"))
    with pytest.raises(TaskConflict, match=r"new\.example\.com \(another URL\)"):
        await Starting(Live(there), process("me", NEW, 2)).enter()


async def test_another_name_is_no_conflict() -> None:
    assert await Starting(Live(process("there", OLD, sink="sms")), process("me", NEW)).enter()


async def test_it_waits_for_one_that_was_killed_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    live = Live(process("killed", OLD))
    one = Starting(live, process("me", NEW, 2))
    one.after_wait = lambda: (one.waited == 20 and live.processes.pop("killed") and None) or None

    assert await one.enter()

    assert one.waited == 20
    [said] = [record for record in caplog.records if record.action == "sink_waits"]
    assert "killed" in said.getMessage()
    assert "25 s" in said.getMessage()


async def test_a_stop_ends_the_wait() -> None:
    one = Starting(Live(process("there", OLD)), process("me", NEW, 2))
    one.after_wait = one.check.stop

    assert not await one.enter()

    assert one.check.is_starting


async def test_a_clock_that_is_behind_lets_nobody_in_beside_one_that_is_there() -> None:
    with pytest.raises(TaskConflict):
        await Starting(Live(process("there", OLD, at_ms=5_000)), process("me", NEW, 1)).enter()


async def test_it_waits_for_no_starter_that_is_kept_out_itself() -> None:
    kept_out = replace(process("kept-out", OLD, 2), is_starting=True)
    live = Live(process("there", NEW), kept_out)

    assert await Starting(live, process("me", NEW, 3)).enter()


async def test_an_earlier_starter_that_nobody_keeps_out_is_in_the_way() -> None:
    before_me = replace(process("before-me", OLD, 2), is_starting=True)
    one = Starting(Live(before_me), process("me", NEW, 3))

    with pytest.raises(TaskConflict, match="before-me"):
        await one.enter()


async def test_a_registry_that_is_away_while_it_waits_ends_no_start() -> None:
    live = Live(process("killed", OLD))
    one = Starting(live, process("me", NEW, 2))
    away = iter([True] * 3)

    async def before() -> None:
        if one.waited and next(away, False):
            raise Unreachable("Redis does not answer")

    live.before = before
    one.after_wait = lambda: (one.waited == 5 and live.processes.pop("killed") and None) or None

    assert await one.enter()
    assert one.waited >= 5


async def test_a_registry_that_is_away_from_the_first_ends_the_start() -> None:
    live = Live()
    one = Starting(live, process("me", NEW, 2))

    async def before() -> None:
        raise Unreachable("Redis does not answer")

    live.before = before
    with pytest.raises(Unreachable):
        await one.check.enter()
    assert one.check.is_starting


@pytest.mark.parametrize(("there_ms", "ends"), [(1, True), (3, False)])
async def test_who_throws_away_what_an_earlier_one_delivers_ends(there_ms: int, ends: bool) -> None:
    live = Live()
    one = Starting(live, process("me", NULL, 2))
    assert await one.enter()
    live.processes["there"] = process("there", OLD, there_ms)  # it was not seen at the start

    if ends:
        with pytest.raises(TaskConflict, match="throw them away"):
            await one.check.tell()
    else:
        await one.check.tell()


async def both_ends(order: Iterator[int], first_ms: int, second_ms: int) -> list[Any]:
    """Start two at once, whose calls of the presence take turns in this order."""
    live, turn = Live(), asyncio.Condition()
    left = {0, 1}
    next_one = [next(order)]
    of_task: dict[Any, int] = {}

    async def before() -> None:
        me = of_task[asyncio.current_task()]
        async with turn:
            await turn.wait_for(lambda: next_one[0] == me or left == {me})
            next_one[0] = next(order)
            turn.notify_all()

    async def run(number: int, one: Starting) -> bool:
        of_task[asyncio.current_task()] = number
        try:
            return await one.enter()
        finally:
            async with turn:
                left.discard(number)
                turn.notify_all()

    live.before = before
    starting = [
        Starting(live, process("a", NEW, first_ms)),
        Starting(live, process("b", OLD, second_ms)),
    ]
    return await asyncio.gather(
        *(run(number, one) for number, one in enumerate(starting)), return_exceptions=True
    )


@pytest.mark.parametrize("times", [(1, 2), (2, 1), (1, 1)])
def test_of_two_that_start_at_once_exactly_one_does_however_their_steps_fall(
    times: tuple[int, int],
) -> None:
    async def all_orders() -> set[tuple[str, ...]]:
        found = set()
        for order in itertools.product((0, 1), repeat=6):
            turns = itertools.chain(order, itertools.cycle((0, 1)))
            ends = await both_ends(turns, *times)
            found.add(tuple(sorted(type(one).__name__ for one in ends)))
        return found

    assert asyncio.run(all_orders()) == {("TaskConflict", "bool")}


async def test_while_two_targets_are_live_it_says_so_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    live = Live(process("there", OLD))
    one = Starting(live, process("me", NEW, 2), replaces=True)
    assert await one.enter()
    caplog.set_level(logging.WARNING)

    said = []
    for now_s in (0.0, 30.0, 59.0, 60.0, 119.0, 120.0):
        one.now_s = now_s
        caplog.clear()
        await one.check.tell()
        said.append(bool(caplog.records))
        if caplog.records:
            assert str(OLD) in caplog.text
            assert str(NEW) in caplog.text
    assert said == [True, False, False, True, False, True]

    live.processes.pop("there")
    one.now_s, _ = 180.0, caplog.clear()
    await one.check.tell()
    assert not caplog.records


def test_one_that_still_starts_splits_nothing() -> None:
    there, me = process("there", OLD), process("me", NEW, 2)
    assert split_sinks([there, replace(me, is_starting=True)]) == {}
    assert list(split_sinks([there, me])) == ["default"]
    assert split_sinks([there, process("twin", OLD)]) == {}
