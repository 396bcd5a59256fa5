"""Shows what is left of tasks that have ended, and how long the leader ever holds its loop.

A dispatcher leads beside many ended and many running tasks: the longest of all steps of its event
loop is timed. Then Redis is emptied, and filled again from the journal. Last, tasks are made,
delivered and forgotten, with retentions as short as the settings allow: what is left then in Redis,
the journal, the broker and the process (lanes that are served, and tasks of its event loop).
With `--refill` Redis is filled again from a journal of so many tasks, and that is all (`refill`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.backends import backend_settings
from bench.backlog import add_tasks, write_tasks
from bench.cleanup import remove_keys
from bench.figures import Figure, at_most, say
from bench.footprint import journal_bytes, redis_keys, store_bytes
from bench.refill import figures as refill_figures
from bench.refill import refilled
from bench.singles import write_singles
from bench.steps import Steps
from pushlane.backends.backend import Backend, connect
from pushlane.backends.ports import TaskQuery
from pushlane.core.errors import BadInput
from pushlane.core.names import is_pool
from pushlane.core.task import State
from pushlane.dispatcher.service import Dispatcher
from pushlane.dispatcher.sinks.plain import NullSink
from pushlane.model import task_changes
from pushlane.settings import Settings

RUNS = (
    ("--broker", "embedded"),
    ("--broker", "pulsar"),
    ("--broker", "pulsar", "--refill", "1000000"),
)
_OF_OWN = 40
_BLOCKED_MS = 10.0
_REBUILT_S = 60.0
_WINDOW_S = 61.0
_NEWER_MS = 120_000
_LOOK_S = 0.5
_LOOKS = 2_400


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--tasks", type=int, default=20_000, help="made and forgotten")
    parser.add_argument("--ended", type=int, default=100_000, help="kept while a leader works")
    parser.add_argument("--running", type=int, default=10_000, help="that it works for")
    parser.add_argument("--seconds", type=float, default=75.0, help="so long its steps are timed")
    parser.add_argument("--refill", type=int, default=0, help="fill Redis with so many, no more")


def run(options: argparse.Namespace) -> dict[str, Any]:
    if options.refill:
        if options.broker == "embedded":
            raise BadInput("--refill fills Redis, which is there with --broker pulsar alone")
        with backend_settings(options.broker, receipts="off") as settings:
            return asyncio.run(refilled(settings, options.refill))
    short = {
        "retention_s": 0.0,
        "dead_retention_s": 0.0,
        "ledger_window_s": _WINDOW_S,
        "task_retention_s": _WINDOW_S,
        "receipts": "off",
    }
    with backend_settings(options.broker, receipts="off") as settings:
        led = asyncio.run(_led(settings, options))  # first: the other leaves much to collect
    with backend_settings(options.broker, **short) as settings:
        left = asyncio.run(_forgotten(settings, options.tasks))
    return {"broker": options.broker, "tasks": options.tasks, **left, **led}


def figures(result: dict[str, Any]) -> list[Figure]:
    if "refill_s" in result:
        return refill_figures(result)
    shown = [
        at_most("longest step of the loop, ms", result["blocked_ms_max"], _BLOCKED_MS),
        Figure("by the clock on the wall, ms", f"{result['blocked_ms_wall']:g}"),
        *_by_name(result),
        Figure("topics or lanes left", f"{result['topics_left']}", "0", not result["topics_left"]),
        Figure("handles left", f"{result['handles_left']}", "0", not result["handles_left"]),
    ]
    if result["rebuild_s"] is not None:
        shown += [
            at_most("an emptied Redis is filled again in, s", result["rebuild_s"], _REBUILT_S),
            Figure("keys left in Redis", f"{result['redis_keys_left']}"),
            Figure("bytes of the task topic, before and after", _change(result, "journal_bytes")),
        ]
    else:
        shown.append(Figure("bytes of the store, before and after", _change(result, "store_bytes")))
    return shown


def _by_name(result: dict[str, Any]) -> list[Figure]:
    """Return whose the longest steps were; results from before that was kept have none."""
    if "longest_step_of" not in result:
        return []
    return [
        Figure("the longest step's task", result["longest_step_of"]),
        Figure("by the CPU time of its thread, ms", f"{result['blocked_ms_cpu']:g}"),
        Figure("the task of that step", result["busiest_step_of"]),
    ]


def _change(result: dict[str, Any], what: str) -> str:
    return f"{result[what + '_most']:,} → {result[what + '_left']:,}"


async def _forgotten(settings: Settings, tasks: int) -> dict[str, Any]:
    """Count what is there once all are forgotten, beyond what is there when none was ever made."""
    async with connect(settings) as backend, _leading(backend, settings) as dispatcher:
        await _until(partial(_reads_all, dispatcher))
        before, had = await _kept(settings, backend, dispatcher), time.monotonic()
        say(f"making {tasks:,} tasks, one of {_OF_OWN} with a lane of its own")
        await write_tasks(backend, tasks // _OF_OWN, 1)
        await write_singles(settings, tasks - tasks // _OF_OWN)
        say(f"  made in {time.monotonic() - had:.0f} s; waiting until they are forgotten")
        most = await _kept(settings, backend, dispatcher)
        await _until(partial(_knows_none, backend))
        say(f"  forgotten after {time.monotonic() - had:.0f} s")
        after = await _kept(settings, backend, dispatcher, compact=True)
    left = {f"{what}_left": after[what] - before[what] for what in ("topics", "handles")}
    keys = None if after["redis_keys"] is None else after["redis_keys"] - before["redis_keys"]
    sizes = {
        f"{what}_{when}": kept[what]
        for what in ("journal_bytes", "store_bytes")
        for when, kept in (("most", most), ("left", after))
    }
    return {**left, "redis_keys_left": keys, **sizes}


async def _knows_none(backend: Backend) -> bool:
    return not (await backend.registry.page(TaskQuery(), most=1)).after


async def _reads_all(dispatcher: Dispatcher) -> bool:
    """True once it has opened what it serves when there is no task yet."""
    lanes = dispatcher.lanes()
    return bool(lanes) and all(map(dispatcher.reads, lanes))


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(_LOOKS):
        if await holds():
            return
        await asyncio.sleep(_LOOK_S)
    raise TimeoutError(f"{holds} did not come to hold in {_LOOKS * _LOOK_S:g} s")


async def _kept(
    settings: Settings, backend: Backend, dispatcher: Dispatcher, *, compact: bool = False
) -> dict[str, Any]:
    gc.collect()
    on_pulsar = settings.broker != "embedded"
    lanes = [lane for lane in await backend.broker.lanes() if not is_pool(lane)]
    return {
        "topics": len(lanes),
        "handles": len(dispatcher.lanes()) + len(asyncio.all_tasks()),
        "redis_keys": await redis_keys(settings) if on_pulsar else None,
        "journal_bytes": await journal_bytes(settings, compact) if on_pulsar else None,
        "store_bytes": None if on_pulsar else store_bytes(Path(settings.data_dir)),
    }


async def _led(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    async with connect(settings) as backend:
        say(f"making {options.ended:,} ended and {options.running:,} running tasks")
        now = task_changes.now_ms()
        await add_tasks(backend, options.ended, State.DONE, finished_at_ms=now, lane_dropped=True)
        later_ms = now + _NEWER_MS  # else the leader looks for counts that a new Redis has lost
        await add_tasks(backend, options.running, State.RUNNING, created_at_ms=later_ms)
        say(f"timing the steps of a leader for {options.seconds:g} s")
        gc.collect()
        gc.freeze()  # as `dispatch` does when it starts
        with Steps() as steps:
            async with _leading(backend, settings):
                await asyncio.sleep(options.seconds)
    gc.unfreeze()
    say(f"  the longest: {steps.longest}")
    rebuild_s = await _rebuilt_s(settings) if settings.broker != "embedded" else None
    return {
        "blocked_ms_max": round(steps.most_ms, 1),
        "blocked_ms_wall": round(steps.wall_ms, 1),
        "blocked_ms_cpu": round(steps.cpu_ms, 1),
        "longest_step_of": steps.longest_of,
        "busiest_step_of": steps.busiest_of,
        "rebuild_s": rebuild_s,
    }


async def _rebuilt_s(settings: Settings) -> float:
    await remove_keys(settings)
    started_s = time.monotonic()
    async with connect(settings) as backend:
        await backend.registry.page(TaskQuery(), most=1)
        return round(time.monotonic() - started_s, 1)


@asynccontextmanager
async def _leading(backend: Backend, settings: Settings) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(backend, NullSink(), settings)
    running = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
    finally:
        dispatcher.stop()
        await running
