"""Refills an emptied Redis from a journal of many tasks, while several processes ask for them.

Each process is one of its own: it says how often it read the journal, and its peak of memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from bench.backends import environment
from bench.cleanup import remove_keys
from bench.figures import Figure, at_most, exactly, say
from pushlane.backends.backend import connect
from pushlane.backends.ports import JournalPage, TaskQuery
from pushlane.backends.pulsar.admin import connect_admin
from pushlane.backends.pulsar.connection import open_connection
from pushlane.backends.pulsar.journal import PulsarJournal
from pushlane.backends.redis.keys import Keys
from pushlane.core.names import pool_lane
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.model.task_bytes import encode
from pushlane.settings import Settings, load

PROCESSES = 3
_AT_ONCE = 2_000
_MOST_MIB = 1_024
_FILLED = "registry_refilled"


async def refilled(settings: Settings, tasks: int) -> dict[str, Any]:
    """Write the journal, empty Redis, and have the processes ask for tasks all at once."""
    say(f"journalling {tasks:,} tasks that have ended")
    async with connect(settings):
        await _journal(settings, tasks)
    await remove_keys(settings)
    redis = Redis.from_url(settings.redis_url)
    await redis.slowlog_reset()
    say(f"{PROCESSES} processes ask an emptied Redis for its tasks")
    seen = await asyncio.gather(*(asyncio.to_thread(_asked, settings) for _ in range(PROCESSES)))
    filler = max(seen, key=lambda each: int(each["fills"]))
    slow = [int(entry["duration"]) for entry in await redis.slowlog_get(128)]
    there = await redis.hlen(Keys(settings.namespace).tasks)
    await redis.aclose()
    return {
        "refill_tasks": there,
        "refill_of": tasks,
        "refill_fills": sum(each["fills"] for each in seen),
        "refill_readings": sum(each["readings"] for each in seen),
        "refill_s": filler["seconds"],
        "refill_mib": filler["mib"],
        "refill_blocked_ms": round(max(slow, default=0) / 1000, 1),
    }


def figures(result: dict[str, Any]) -> list[Figure]:
    there, wanted = result["refill_tasks"], result["refill_of"]
    return [
        Figure("tasks in Redis again", f"{there:,}", f"{wanted:,}", there == wanted),
        exactly(f"fills, with {PROCESSES} processes that ask", result["refill_fills"], 1),
        exactly("readings of the task topic", result["refill_readings"], 1),
        Figure("and all of them are filled in within, s", f"{result['refill_s']:g}"),
        at_most("peak memory of the process that fills, MiB", result["refill_mib"], _MOST_MIB),
        Figure("longest command of Redis over 10 ms, ms", f"{result['refill_blocked_ms']:g}"),
    ]


async def _journal(settings: Settings, tasks: int) -> None:
    async with (
        connect_admin(settings) as admin,
        open_connection(settings, admin.credentials) as connection,
    ):
        journal = PulsarJournal(connection, admin, f"{settings.namespace}-registry")
        for start in range(0, tasks, _AT_ONCE):
            some = [_task(number) for number in range(start, min(start + _AT_ONCE, tasks))]
            await asyncio.gather(*(journal.append(task.id, encode(task)) for task in some))
        await journal.close()


def _task(number: int) -> Task:
    task_id = f"{new_task_id()}-{number}"  # so many may draw one id twice
    now_ms = task_changes.now_ms()
    return Task(
        id=task_id,
        level=Level.LOW,
        lane=pool_lane(task_id, 8),
        name=f"Task {task_id}",
        state=State.DONE,
        total=1,
        created_at_ms=now_ms,
        finished_at_ms=now_ms,
        lane_dropped=True,
    )


def _asked(settings: Settings) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.refill"]
    ran = subprocess.run(command, env=environment(settings), stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


class _Counting(logging.Handler):
    """Counts the fills that this process ends, and its readings of the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.fills = self.readings = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.fills += getattr(record, "action", "") == _FILLED
        say(f"  {record.getMessage()}")

    async def pages(self, journal: PulsarJournal) -> AsyncGenerator[JournalPage, None]:
        async with aclosing(_pages(journal)) as pages:
            async for page in pages:
                self.readings += page.is_first
                yield page


_pages = PulsarJournal.pages


async def _ask() -> dict[str, Any]:
    counting = _Counting()
    logger = logging.getLogger("pushlane.registry")
    logger.setLevel(logging.INFO)
    logger.addHandler(counting)
    logger.propagate = False

    def pages(self: PulsarJournal) -> AsyncGenerator[JournalPage, None]:
        return counting.pages(self)

    PulsarJournal.pages = pages  # type: ignore[method-assign]
    started_s = time.monotonic()
    async with connect(load()) as backend:
        await backend.registry.page(TaskQuery(), most=1)
        seconds = round(time.monotonic() - started_s, 1)
    return {
        "fills": counting.fills,
        "readings": counting.readings,
        "seconds": seconds,
        "mib": _peak_mib(),
    }


def _peak_mib() -> int:
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return round(int(found[1]) / 1024) if found else 0


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_ask())))
