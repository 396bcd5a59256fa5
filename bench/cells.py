"""Eight processes on one lease, one document and each its presence, on one Redis.

Every process does the same thing as fast as it can: takes the lease and lets go of it, puts the
document over the version that it has read, announces itself and lists all. Counted is what got
through and how long it took, tries in between with it: a process that the others keep from its turn
shows in the longest and in the fewest. Numbers of leases must be given once each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import secrets
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

from bench.figures import Figure, at_least, exactly, say
from dev.stack.local import redis_server
from dev.stack.services import free_port, redis_answers, wait_until
from pushlane.backends.redis import RedisPorts, connect_redis
from pushlane.model.presence import Process

_TTL_S = 30.0
_WINDOW_S = 3_600.0
_START_S = 60.0


class Turns(NamedTuple):
    """What one process got: how long each of its turns took, and the numbers that it was given."""

    took_ms: list[float]
    numbers: list[int]
    tries: int


class Client(NamedTuple):
    """One process at the cells; `turn` returns its number once it got through."""

    ports: RedisPorts
    name: str

    async def lease(self) -> tuple[int, int]:
        tries = 1
        while (grant := await self.ports.lease.acquire("one", self.name, _TTL_S)) is None:
            tries += 1
        await self.ports.lease.release("one", self.name)
        return grant.number, tries

    async def document(self) -> tuple[int, int]:
        tries = 0
        while True:
            tries += 1
            found = await self.ports.documents.get("bench", "one")
            version = found.version if found else None
            put = await self.ports.documents.put("bench", "one", self.name.encode(), version)
            if put is not None:
                return put, tries

    async def presence(self) -> tuple[int, int]:
        said = Process(id=self.name, kind="dispatcher", pid=os.getpid(), version="0")
        await self.ports.presence.announce(said, _TTL_S)
        return len(await self.ports.presence.list()), 1


CELLS = ("lease", "document", "presence")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each of the three")


def run(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"processes": options.processes, "seconds": options.seconds}
    with _redis() as url:
        for cell in CELLS:
            say(f"{options.processes} processes at one {cell} for {options.seconds:g} s")
            result[cell] = _summary(_all_at(url, cell, options), cell, options.seconds)
    return result


def figures(result: dict[str, Any]) -> list[Figure]:
    shown = []
    for cell in CELLS:
        of_cell = result[cell]
        shown += [
            Figure(f"{cell}: turns a second", f"{of_cell['turns_per_s']:,}"),
            Figure(f"{cell}: tries a turn", f"{of_cell['tries_per_turn']:g}"),
            Figure(f"{cell}: ms a turn, median", f"{of_cell['median_ms']:g}"),
            Figure(f"{cell}: the 99th percentile", f"{of_cell['p99_ms']:g}"),
            Figure(f"{cell}: the longest", f"{of_cell['longest_ms']:g}"),
            at_least(f"{cell}: turns of who got fewest", of_cell["fewest"], 1),
        ]
    return [*shown, exactly("numbers given twice", result["lease"]["given_twice"], 0)]


def _summary(turns: list[Turns], cell: str, seconds: float) -> dict[str, Any]:
    took_ms = sorted(ms for of_one in turns for ms in of_one.took_ms)
    numbers = [number for of_one in turns for number in of_one.numbers]
    of_each = [len(of_one.took_ms) for of_one in turns]
    return {
        "turns_per_s": round(len(took_ms) / seconds),
        "tries_per_turn": round(sum(of_one.tries for of_one in turns) / max(1, len(took_ms)), 2),
        "median_ms": round(statistics.median(took_ms), 2),
        "p99_ms": round(took_ms[len(took_ms) * 99 // 100], 2),
        "longest_ms": round(took_ms[-1], 2),
        "fewest": min(of_each),
        "most": max(of_each),
        "given_twice": 0 if cell == "presence" else len(numbers) - len(set(numbers)),
    }


def _all_at(url: str, cell: str, options: argparse.Namespace) -> list[Turns]:
    context = multiprocessing.get_context("spawn")
    barrier, done = context.Barrier(options.processes), context.Queue()
    arguments = (url, cell, options.seconds, barrier, done)
    processes = [context.Process(target=_process, args=arguments) for _ in range(options.processes)]
    for process in processes:
        process.start()
    turns = [done.get(timeout=options.seconds + _START_S) for _ in processes]
    for process in processes:
        process.join()
    return turns


def _process(url: str, cell: str, seconds: float, barrier: Barrier, done: Queue[Turns]) -> None:
    done.put(asyncio.run(_turns(url, cell, seconds, barrier)))


async def _turns(url: str, cell: str, seconds: float, barrier: Barrier) -> Turns:
    async with connect_redis(url, "bench", None, _WINDOW_S) as ports:
        client = Client(ports, secrets.token_hex(8))
        turn: Callable[[], Awaitable[tuple[int, int]]] = getattr(client, cell)
        await asyncio.to_thread(barrier.wait, _START_S)
        turns = Turns([], [], 0)
        end_s = (began_s := time.perf_counter()) + seconds
        while began_s < end_s:
            number, tries = await turn()
            ended_s = time.perf_counter()
            turns.took_ms.append((ended_s - began_s) * 1e3)
            turns.numbers.append(number)
            turns = turns._replace(tries=turns.tries + tries)
            began_s = ended_s
        return turns


@contextlib.contextmanager
def _redis() -> Iterator[str]:
    """The URL of a Redis of its own, which keeps nothing."""
    with tempfile.TemporaryDirectory(prefix="pushlane-bench-") as folder:
        port = free_port()
        words = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", ""]
        process = subprocess.Popen(
            [redis_server(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        url = f"redis://127.0.0.1:{port}/0"
        try:
            wait_until(
                lambda: redis_answers(url),
                what="redis",
                deadline_s=_START_S,
                is_running=lambda: process.poll() is None,
                log_tail=lambda: "",
            )
            yield url
        finally:
            process.terminate()
            process.wait()
