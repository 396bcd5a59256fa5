"""Measures what two sinks of a process keep while the third one rests, is slow, or refuses pushes.

Three webhooks that answer after 250 ms, each a sink of 50 slots with tasks of all levels, the low
ones on the lanes that low tasks share. A rate is that of whole rounds of the slots, by the
receivers' logs; it is compared with the rate just before and just after. All cases are played
several times, one after the other, and the median of a case counts.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from bench.changing_receiver import SLOWER, TAKES_S, Receivers, changing_receivers
from bench.deliveries import account, tell_lost
from bench.dispatching import Dispatching, dispatching, drain
from bench.figures import say
from bench.late import arrived
from dev.receiver import ArrivalLine, Follower
from pushlane.backends.backend import connect
from pushlane.core.errors import PushlaneError
from pushlane.core.task import Level, Weights
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.settings import Settings
from pushlane.settings.sinks import SinkSettings

SLOTS = 50
NAMES = ("first", "second", "third")
_TROUBLED = NAMES[-1]
_CASES = {"rests": "refuse", "slow": "slow", "throttled": "throttle"}
_PER_S = SLOTS / TAKES_S
_WELL_AGAIN_S = {"rests": 6.0, "slow": TAKES_S * SLOWER + 1.0, "throttled": 6.0}
_WARM_S = 2.0
_PARTS = {level: weight / 10 for level, weight in Weights().by_level().items()}
_BODY = "x" * 150


class Window(NamedTuple):
    """From Unix time `begin_s` to `end_s`."""

    begin_s: float
    end_s: float


class Windows(NamedTuple):
    """Before a sink is in trouble, meanwhile, and when it is well again."""

    before: Window
    meanwhile: Window
    after: Window


class Isolation(NamedTuple):
    """Return what the others kept by case, the one that kept least; and of low tasks alone."""

    kept: dict[str, float]
    low_kept: dict[str, float]
    lost: int
    duplicates: int


def isolation(settings: Settings, seconds: float, rounds: int) -> Isolation:
    """Measure each case for so many seconds, so often."""
    lasts_s = sum(_WELL_AGAIN_S.values()) + 2 * len(_CASES) * seconds
    totals = asyncio.run(_submit(settings, rounds * lasts_s + seconds))
    with tempfile.TemporaryDirectory(prefix="pushlane-sinks-") as name:
        folder = Path(name)
        with changing_receivers(folder, NAMES) as receivers:
            windows = _play(_served(settings, receivers), receivers, seconds, rounds)
            logs = {sink: Follower(receivers.log(sink)) for sink in NAMES}
        rest = Follower(folder / "rest.jsonl")
        drain(_to_file(settings, rest.path), "null")
        for log in (*logs.values(), rest):
            log.read()
    return _judge(logs, rest, totals, windows)


def knowing(settings: Settings, names: Iterable[str]) -> Settings:
    """The settings with these sinks, for who submits to them."""
    return settings.but(sinks=dict.fromkeys(names, SinkSettings(kind="null")))


def _served(settings: Settings, receivers: Receivers) -> Settings:
    """The settings with a webhook for each sink."""
    sinks = {
        name: SinkSettings(kind="webhook", slots=SLOTS, options={"url": url})
        for name, url in receivers.urls.items()
    }
    return settings.but(sinks=sinks)


def _to_file(settings: Settings, path: Path) -> Settings:
    log = SinkSettings(kind="log", options={"path": str(path)})
    return settings.but(sinks=dict.fromkeys(NAMES, log))


async def _submit(settings: Settings, seconds: float) -> dict[str, int]:
    """Tasks that last for so long, and how many pushes each has."""
    totals: dict[str, int] = {}
    settings = knowing(settings, NAMES)
    async with connect(settings) as backend:
        for name in NAMES:
            say(f"submitting to {name}")
            for level, part in _PARTS.items():
                count = round(_PER_S * part * (seconds + 20))
                request = SubmitRequest(
                    source=_rows(count), level=level, sink=(name,), title="title", body=_BODY
                )
                totals[(await submit(backend, settings, request)).task.id] = count
    return totals


def _rows(count: int) -> Iterator[dict[str, str]]:
    return ({"recipient": f"device-{number}"} for number in range(count))


def _play(
    settings: Settings, receivers: Receivers, seconds: float, rounds: int
) -> dict[str, list[Windows]]:
    """The windows of each case, in each round."""
    windows: dict[str, list[Windows]] = {case: [] for case in _CASES}
    with dispatching(settings, "null") as dispatcher:
        for name in NAMES:
            log = Follower(receivers.log(name))
            asyncio.run(arrived(log, 1, lambda: dispatcher.has_ended))
        time.sleep(_WARM_S)
        well = _wait(seconds, dispatcher)
        for case, mood in list(_CASES.items()) * rounds:
            say(f"one sink of three: {case}")
            receivers.change(_TROUBLED, mood)
            troubled = _wait(seconds, dispatcher)
            receivers.change(_TROUBLED, "ok")
            time.sleep(_WELL_AGAIN_S[case])
            before, well = well, _wait(seconds, dispatcher)
            windows[case].append(Windows(before, troubled, well))
    return windows


def _wait(seconds: float, dispatcher: Dispatching) -> Window:
    begin_s = time.time()
    time.sleep(seconds)
    if dispatcher.has_ended:
        dispatcher.stop()  # says what it died of
        raise PushlaneError("the dispatcher ended early")
    return Window(begin_s, time.time())


def _judge(
    logs: dict[str, Follower],
    rest: Follower,
    totals: dict[str, int],
    windows: dict[str, list[Windows]],
) -> Isolation:
    arrivals = [line for log in (*logs.values(), rest) for line in log.arrivals]
    lost, duplicates = account(arrivals, totals)
    tell_lost(lost)
    others = [log.arrivals for name, log in logs.items() if name != _TROUBLED]
    low = [[line for line in lines if line.level == Level.LOW] for lines in others]
    low_slots = round(SLOTS * _PARTS[Level.LOW])
    kept = {case: _kept(others, SLOTS, each) for case, each in windows.items()}
    low_kept = {case: _kept(low, low_slots, each) for case, each in windows.items()}
    return Isolation(kept, low_kept, len(lost), duplicates)


def _kept(others: Sequence[Sequence[ArrivalLine]], slots: int, windows: Sequence[Windows]) -> float:
    """The least that one of the others kept of its rate, in the median round."""
    ratios = [[_ratio(lines, slots, each) for each in windows] for lines in others]
    return round(min(map(median, ratios)), 4)


def _ratio(lines: Sequence[ArrivalLine], slots: int, windows: Windows) -> float:
    well = mean(rounds_per_s(lines, slots, window) for window in (windows.before, windows.after))
    return rounds_per_s(lines, slots, windows.meanwhile) / well


def rounds_per_s(lines: Sequence[ArrivalLine], slots: int, window: Window) -> float:
    """Arrivals a second in whole rounds of the slots: what began together stays together."""
    times = [line.at_s for line in lines if window.begin_s <= line.at_s < window.end_s]
    last = (len(times) - 1) // slots * slots
    return last / (times[last] - times[0]) if last > 0 else 0.0


def summary(found: Isolation) -> dict[str, Any]:
    """The keys of the benchmark's JSON that are of this part."""
    return {
        "isolation": min([*found.kept.values(), *found.low_kept.values()]),
        "kept": found.kept,
        "low_kept": found.low_kept,
        "slower": SLOWER,
    }
