"""How fast many tasks go and when they end, by what `why` goes by for one, asked once for all.

Rates are what live processes say of their tasks. The broker is not asked: of tasks with pushes that
went on to a later sink no end is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pushlane.backends.backend import Backend
from pushlane.core.task import Progress, Task, now_ms
from pushlane.diagnosis.fluid import forecasts
from pushlane.diagnosis.look import active, end_of, loads, put_offs_of, rate_of
from pushlane.diagnosis.situation import Situation, unforeseen
from pushlane.model.due import PutOff
from pushlane.model.load import SinkLoad, entitled_rates, shared_by_lane, sink_now
from pushlane.model.presence import Process


class Pace(NamedTuple):
    """The pushes a second of a task: its rate, the rate it needs, and the seconds to its end.

    None is what nobody knows.
    """

    per_s: float | None = None
    ends_in_s: float | None = None
    entitled_per_s: float | None = None


async def paces_of(
    backend: Backend, going: Sequence[tuple[Task, Progress]], processes: Sequence[Process]
) -> dict[str, Pace]:
    """Return by id how these tasks go, which run and are not held."""
    dispatching = [one for one in processes if one.kind == "dispatcher"]
    rates = {task.id: rate_of(task, dispatching) for task, _ in going}
    sinks = {name: sink_now(dispatching, name) for name in {task.chain[0] for task, _ in going}}
    known = {name: sink for name, sink in sinks.items() if sink.capacity_per_s}
    if not known:
        return {task_id: Pace(rate) for task_id, rate in rates.items()}
    standings = [one for one in await active(backend, known) if one.is_active()]
    put_off = await put_offs_of(backend, [one.task for one in standings if one.later])
    load_of, _ = await loads(backend, [one.task for one in standings], now_ms())
    found: dict[str, Pace] = {}
    for name, sink in known.items():
        at_sink = [one for one in standings if one.task.chain[0] == name]
        mine = [one for one in going if one[0].chain[0] == name]
        found |= _paces(load_of(sink=sink, standings=at_sink), mine, rates, put_off)
    return {task_id: found.get(task_id, Pace(rate)) for task_id, rate in rates.items()}


def _paces(
    load: SinkLoad,
    going: Sequence[tuple[Task, Progress]],
    rates: Mapping[str, float | None],
    put_off: Mapping[str, Sequence[PutOff]],
) -> dict[str, Pace]:
    """Return the paces of tasks that go to the sink of the load first. Pure."""
    if load.spent:
        unspent = [one for one in load.standings if not load.spent_totals(one.task)]
        load = replace(load, standings=unspent)
    standings = {one.task.id: one for one in load.standings}
    per_s = load.per_s()
    goes = forecasts(load, [task.id for task, _ in going], per_s)
    heads = [tasks[0] for tasks in shared_by_lane(load.going).values()]
    own_per_s = entitled_rates(load, heads, per_s) if per_s else {}
    entitled = {one.task.id: own_per_s.get(one.task.lane) for one in heads}
    paces: dict[str, Pace] = {}
    for task, progress in going:
        rate, mine = rates[task.id], standings.get(task.id)
        ends_in_s = None
        if mine is not None and not task.reached:
            now = Situation(
                task=task,
                progress=progress,
                others=(),
                weights=load.weights,
                processes=(),
                now_ms=load.now_ms,
                observed_per_s=rate,
                waiting=1 if mine.backlog else 0,
                later=mine.later,
                put_off=put_off.get(task.id, ()),
            )
            expected = end_of(now, goes.get(task.id), own_per_s.get(task.lane))
            if expected is not None and not unforeseen(now, expected.ends_in_s):
                ends_in_s = expected.ends_in_s
        paces[task.id] = Pace(rate, ends_in_s, entitled.get(task.id, 0.0) if per_s else None)
    return paces
