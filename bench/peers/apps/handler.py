"""What every Python system does with a push: a line in the log, then 100 ms of work, on average.

Standard library only, since it runs in each rival's own environment.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time

WORK_S = 0.1
_VARIES_MS = 10


def work_s(seq: int) -> float:
    """From 90 to 110 ms, so that slots do not all become free in the same moment for ever."""
    return WORK_S + (seq * 37 % (2 * _VARIES_MS + 1) - _VARIES_MS) / 1000


@functools.cache
def _log() -> int:
    return os.open(os.environ["PEERS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def write(task: str, seq: int, level: str) -> None:
    at_ms = time.time_ns() / 1e6
    line = f'{{"task":"{task}","seq":{seq},"level":"{level}","at_ms":{at_ms:.3f}}}\n'
    os.write(_log(), line.encode())


def work(task: str, seq: int, level: str) -> None:
    """For systems that work in threads."""
    write(task, seq, level)
    time.sleep(work_s(seq))


async def work_async(task: str, seq: int, level: str) -> None:
    write(task, seq, level)
    await asyncio.sleep(work_s(seq))
