"""A level, or one task, is answered fifty times slower: shows what the others keep.

50 slots, five tasks a level, a webhook that answers after 0.1 s; then low after 5 s, then one of
the high tasks. Rates and slots held are by the receiver's log: what came, and how long it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.backends import anew, backend_settings
from bench.backlog import write_task
from bench.deliveries import account, tell_lost
from bench.dispatching import dispatching, drain
from bench.fast_receiver import fast_receiver
from bench.figures import Figure, at_least, at_most, exactly, say
from bench.late import arrived
from dev.receiver import ArrivalLine, Follower
from pushlane.backends.backend import connect
from pushlane.core.task import Level, Weights
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_SLOTS = 50
_USUAL_S = 0.1
_SLOW_S = 5.0
_TASKS = 5
_WARM_S = 10.0
_SETTLED_S = 15.0
_PER_S = {level: _SLOTS * weight / 10 / _USUAL_S for level, weight in Weights().by_level().items()}

Which = Callable[[ArrivalLine], bool]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each run (default 40)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with backend_settings(options.broker, slots=_SLOTS) as settings:
        say("low is answered after 5 s")
        level = _play(anew(settings), options.seconds, lambda tasks: {Level.LOW.value: _SLOW_S})
        say("one of five high tasks is answered after 5 s")
        task = _play(anew(settings), options.seconds, lambda tasks: {tasks[Level.HIGH][0]: _SLOW_S})
    return {
        "broker": options.broker,
        **_of_level(level, options.seconds),
        **_of_task(task, options.seconds),
        "lost": level.lost + task.lost,
        "duplicates": level.duplicates + task.duplicates,
    }


class _Played:
    """One run, by the log of its webhook; times count from its first push."""

    def __init__(
        self,
        arrivals: Sequence[ArrivalLine],
        tasks: Mapping[Level, Sequence[str]],
        takes_s: Mapping[str, float],
    ) -> None:
        self.arrivals = arrivals
        self.tasks = tasks
        self._takes_s = takes_s
        self._start_s = arrivals[0].at_s
        self.lost = self.duplicates = 0

    def of(self, level: Level) -> Which:
        return lambda arrival: arrival.level == level.value

    def kept(self, which: Which, part: float, start_s: float, end_s: float) -> float:
        """The rate at which these were answered, of what is their part a second."""
        answered_s = (one.at_s + self._takes(one) - self._start_s for one in self._some(which))
        return sum(start_s <= at_s < end_s for at_s in answered_s) / (end_s - start_s) / part

    def held(self, which: Which, start_s: float, end_s: float) -> float:
        """Slots that these held on average."""
        spans = (
            (one.at_s - self._start_s, one.at_s - self._start_s + self._takes(one))
            for one in self._some(which)
        )
        inside = (max(0.0, min(end, end_s) - max(begin, start_s)) for begin, end in spans)
        return sum(inside) / (end_s - start_s)

    def most_in_flight(self, which: Which) -> int:
        steps = [(one.at_s, 1) for one in self._some(which)]
        steps += [(one.at_s + self._takes(one), -1) for one in self._some(which)]
        most = now = 0
        for _, step in sorted(steps):
            now += step
            most = max(most, now)
        return most

    def _some(self, which: Which) -> list[ArrivalLine]:
        return [one for one in self.arrivals if which(one)]

    def _takes(self, one: ArrivalLine) -> float:
        return self._takes_s.get(one.task, self._takes_s[one.level])


def _play(
    settings: Settings,
    seconds: float,
    slow: Callable[[Mapping[Level, Sequence[str]]], dict[str, float]],
) -> _Played:
    tasks, totals = asyncio.run(_write(settings, seconds))
    takes_s = {**{level.value: _USUAL_S for level in Level}, **slow(tasks)}
    with tempfile.TemporaryDirectory(prefix="pushlane-slow-") as folder:
        webhook, file = Path(folder) / "webhook.jsonl", Path(folder) / "rest.jsonl"
        log, rest = Follower(webhook), Follower(file)
        with (
            fast_receiver(webhook, takes_s) as receiver,
            dispatching(settings, f"webhook:{receiver.url}") as dispatcher,
        ):
            asyncio.run(arrived(log, 1, lambda: dispatcher.has_ended))
            time.sleep(seconds)
        drain(settings, f"log:{file}")
        log.read()
        rest.read()
    played = _Played(log.arrivals, tasks, takes_s)
    lost, played.duplicates = account([*log.arrivals, *rest.arrivals], totals)
    tell_lost(lost)
    played.lost = len(lost)
    return played


async def _write(
    settings: Settings, seconds: float
) -> tuple[dict[Level, list[str]], dict[str, int]]:
    """Tasks that are backlogged for so long, and how many pushes each has."""
    tasks: dict[Level, list[str]] = {level: [] for level in Level}
    totals: dict[str, int] = {}
    async with connect(settings) as backend:
        for _ in range(_TASKS):
            for level, per_s in _PER_S.items():
                pushes = int(per_s * (seconds + 10) / (_TASKS - 1))
                tasks[level].append(await write_task(backend, level, pushes))
                totals[tasks[level][-1]] = pushes
    return tasks, totals


def _of_level(played: _Played, seconds: float) -> dict[str, Any]:
    others = {level: played.of(level) for level in (Level.HIGH, Level.MEDIUM)}
    later = {
        level: played.kept(which, _PER_S[level], _WARM_S, seconds)
        for level, which in others.items()
    }
    first = {
        end_s: min(played.kept(which, _PER_S[level], 0, end_s) for level, which in others.items())
        for end_s in (5.0, 10.0, 20.0)
    }
    parts = {level: _SLOTS * weight / 10 for level, weight in Weights().by_level().items()}
    held = {level: played.held(played.of(level), _SETTLED_S, seconds) for level in Level}
    return {
        "high_kept": round(later[Level.HIGH], 3),
        "medium_kept": round(later[Level.MEDIUM], 3),
        "kept_from_start": round(min(first.values()), 3),
        "kept_in_first_s": {f"{end_s:g}": round(kept, 3) for end_s, kept in first.items()},
        "slots_held": {level.value: round(held[level], 2) for level in Level},
        "slot_share_error": round(max(abs(held[level] - parts[level]) for level in Level), 2),
        "low_in_flight_max": played.most_in_flight(played.of(Level.LOW)),
    }


def _of_task(played: _Played, seconds: float) -> dict[str, Any]:
    part = _PER_S[Level.HIGH] / _TASKS
    others = [
        played.kept(lambda one, task=task: one.task == task, part, _WARM_S, seconds)  # type: ignore[misc]
        for task in played.tasks[Level.HIGH][1:]
    ]
    levels = [
        played.kept(played.of(level), _PER_S[level], _WARM_S, seconds)
        for level in (Level.MEDIUM, Level.LOW)
    ]
    return {
        "others_kept": round(min(others), 3),
        "other_levels_kept": round(min(levels), 3),
    }


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        at_least("low slow: high keeps, from 10 s on", result["high_kept"], 0.95),
        at_least("low slow: medium keeps, from 10 s on", result["medium_kept"], 0.95),
        at_least("low slow: both keep, from the start on", result["kept_from_start"], 0.80),
        at_most("low slow: slots off 30/15/5, settled", result["slot_share_error"], 1),
        at_most("low slow: most in flight of low", result["low_in_flight_max"], 13),
        at_least("one high task slow: its four siblings keep", result["others_kept"], 0.95),
        at_least("one high task slow: other levels keep", result["other_levels_kept"], 0.97),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]
