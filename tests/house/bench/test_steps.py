"""Whose the longest step of an event loop was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from bench.steps import Steps


async def _waits() -> None:
    await asyncio.Event().wait()


async def _works_then_waits() -> None:
    _work(0.03)
    await _waits()


def _work(seconds: float) -> None:
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def test_a_step_of_a_task_is_named_by_the_task_and_where_it_waits() -> None:
    async def lead() -> None:
        leading = asyncio.create_task(_works_then_waits(), name="leader")
        await asyncio.sleep(0)
        leading.cancel()

    assert _longest_of(lead) == "leader: _works_then_waits > _waits > Event.wait"


def test_a_step_of_a_callback_is_named_by_its_function() -> None:
    async def call() -> None:
        asyncio.get_running_loop().call_soon(partial(_work, 0.03))
        await asyncio.sleep(0)

    assert _longest_of(call) == "_work"


def _longest_of(work: Callable[[], Coroutine[Any, Any, None]]) -> str:
    with Steps() as steps, asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(work())
    assert steps.busiest_of == steps.longest_of
    assert 30 <= steps.cpu_ms <= steps.most_ms + 1  # by two clocks
    return steps.longest_of
