"""Shows which level runs dry at full speed, for how long, and whether the event loop was late then.

The lanes and the log of `fairness`, several rounds on one broker, with the dispatcher in this
process: a lane is dry from when a reader has nothing until it is told that there is something. Its
level loses its share only when all of its lanes are dry at once for longer than a reader waits.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from bench.backends import anew, backend_settings
from bench.fairness import judge, submit
from bench.figures import Figure, say
from dev.receiver import Follower
from pushlane.backends.backend import connect
from pushlane.core.names import task_of
from pushlane.core.ports import LaneReader, OnReady
from pushlane.core.task import Level
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.sinks.plain import LogSink
from pushlane.settings import Settings

RUNS = (("--broker", "pulsar"),)
_BEAT_S = 0.001
_NOTABLE_S = 0.02

Spell = tuple[float, float]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="pulsar")
    parser.add_argument("--tasks", type=int, default=20, help="tasks a level (default 20)")
    parser.add_argument("--pushes", type=int, default=1_000, help="pushes a task (default 1000)")
    parser.add_argument("--rounds", type=int, default=5)


def run(options: argparse.Namespace) -> dict[str, Any]:
    rounds = []
    with backend_settings(options.broker) as settings:
        for number in range(options.rounds):
            rounds.append(_round(anew(settings), options))
            say(f"round {number + 1}: {rounds[-1]}")
    return {"broker": options.broker, "rounds": rounds}


def figures(result: dict[str, Any]) -> list[Figure]:
    shown = []
    for number, one in enumerate(result["rounds"], start=1):
        shown += [
            Figure(f"{number}: share error", f"{one['share_error_max']:g}"),
            Figure(f"{number}: a lane dry, ms (high, medium, low)", _levels(one["dry_ms"])),
            Figure(f"{number}: a level dry, ms", _levels(one["level_dry_ms"])),
            Figure(f"{number}: of a dry spell the loop was late, ms", f"{one['loop_late_ms']:g}"),
        ]
    return shown


def _levels(of_level: dict[str, float]) -> str:
    return ", ".join(f"{of_level[level]:g}" for level in Level)


def _round(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    levels = asyncio.run(submit(settings, options.tasks, options.pushes))
    with tempfile.TemporaryDirectory(prefix="pushlane-dry-") as folder:
        path = Path(folder) / "deliveries.jsonl"
        spells, late = uvloop.run(_drained(settings, path))
        judged = judge(list(Follower(path).read()), levels, options.pushes)
    of_level: dict[Level, list[Spell]] = defaultdict(list)
    for lane, spell in spells:
        if level := levels.get(task_of(lane) or ""):
            of_level[level].append(spell)
    return {
        "share_error_max": judged["share_error_max"],
        "gap_max": judged["gap_max"],
        "dry_ms": {level.value: _ms(_longest(of_level[level], 1)) for level in Level},
        "level_dry_ms": {
            level.value: _ms(_longest(of_level[level], options.tasks)) for level in Level
        },
        "loop_late_ms": _ms(_late_meanwhile(late, [spell for _, spell in spells])),
    }


async def _drained(settings: Settings, path: Path) -> tuple[list[tuple[str, Spell]], list[Spell]]:
    """When each lane was dry, and from when to when the loop kept its beat waiting."""
    spells: list[tuple[str, Spell]] = []
    async with connect(settings) as backend:
        watched: Any = _Broker(backend.broker, spells)
        dispatcher = Dispatcher(
            replace(backend, broker=watched), LogSink(path), settings, drain=True
        )
        draining = asyncio.create_task(dispatcher.run())
        late: list[Spell] = []
        while not draining.done():
            due_s = time.monotonic() + _BEAT_S
            await asyncio.wait({draining}, timeout=_BEAT_S)
            late.append((due_s, time.monotonic()))
        await draining
    return spells, late


class _Broker:
    """The broker, whose readers note when they are dry."""

    def __init__(self, real: Any, spells: list[tuple[str, Spell]]) -> None:
        self._real = real
        self._spells = spells

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        reader = _Reader(lane, on_ready, self._spells)
        reader.real = await self._real.read(lane, reader.told, depth)
        return reader


class _Reader:
    real: LaneReader

    def __init__(self, lane: str, on_ready: OnReady, spells: list[tuple[str, Spell]]) -> None:
        self.lane = lane
        self._on_ready = on_ready
        self._spells = spells
        self._dry_s = 0.0

    def take(self) -> Any:
        taken = self.real.take()
        if taken is None and not self._dry_s:
            self._dry_s = time.monotonic()
        return taken

    def told(self, _: LaneReader) -> None:
        if self._dry_s:
            self._spells.append((self.lane, (self._dry_s, time.monotonic())))
            self._dry_s = 0.0
        self._on_ready(self)

    def refill_wait_s(self) -> float:
        return self.real.refill_wait_s()

    async def close(self) -> None:
        await self.real.close()


def _longest(spells: list[Spell], at_once: int) -> float:
    """The longest time for which so many lanes were dry together."""
    edges = sorted([(start, 1) for start, _ in spells] + [(end, -1) for _, end in spells])
    dry, since, longest = 0, 0.0, 0.0
    for at_s, step in edges:
        if dry == at_once and step < 0:
            longest = max(longest, at_s - since)
        dry += step
        if dry == at_once and step > 0:
            since = at_s
    return longest


def _late_meanwhile(late: list[Spell], dry: list[Spell]) -> float:
    """The longest part of a dry spell in which the loop was late: it may have hidden an arrival."""
    return max(
        (
            min(until, end) - max(due, start)
            for start, end in dry
            if end - start > _NOTABLE_S
            for due, until in late
            if due < end and until > start
        ),
        default=0.0,
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
