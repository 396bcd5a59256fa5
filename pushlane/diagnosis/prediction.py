"""Predicts how a task would fare that is not there yet, from how its sinks stand now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from pushlane.backends.backend import Backend
from pushlane.core.names import pool_lanes
from pushlane.core.task import State, Task
from pushlane.diagnosis.cause import Cause
from pushlane.diagnosis.causes import causes
from pushlane.diagnosis.entitlement import entitled_share
from pushlane.diagnosis.forecast import Expected
from pushlane.diagnosis.look import active_at, expected_end, situation_of
from pushlane.diagnosis.situation import Situation
from pushlane.lanes.pool import pool_size
from pushlane.model.due import PutOff, Waiting
from pushlane.settings import Settings


@dataclass(frozen=True)
class SinkPrediction:
    """How the pushes of a task would fare at one sink; None for what cannot be told.

    `sink_per_s` is what the sink takes in all, `entitled_share` the part of it that is the task's
    at the start. `waits` is what of them waits for its time. `unread_limits` are left out, as they
    cannot be read.
    """

    sink: str
    pushes: int
    causes: Sequence[Cause]
    entitled_share: float | None
    sink_per_s: float | None
    expected: Expected | None
    waits: Sequence[Waiting] = ()
    unread_limits: Sequence[str] = ()


async def predict(
    backend: Backend,
    settings: Settings,
    task: Task,
    by_sink: Mapping[str, int],
    put_off: Mapping[str, Sequence[PutOff]] | None = None,
) -> list[SinkPrediction]:
    """Return for each sink how so many pushes of the task would fare, from now on.

    `put_off` are those of them that would wait for their time, by sink.
    """
    lane = await _pool_lane(backend, settings, task) if task.pooled else task.lane
    made = with_fields(task, state=State.RUNNING, lane=lane)
    predicted = []
    for sink, pushes in by_sink.items():
        if pushes:
            notes = (put_off or {}).get(sink, ())
            later = sum(one.pushes for one in notes)
            now = await situation_of(backend, _at(made, sink, pushes), settings)
            here = replace(now, waiting=pushes - later, later=later, put_off=notes, knows_rows=True)
            predicted.append(_predicted(here))
    return predicted


def _at(task: Task, sink: str, pushes: int) -> Task:
    """Return the task as its pushes at one sink alone would make it."""
    return with_fields(task, total=pushes, lane=task.lane_at(sink), sinks=(sink,))


def _predicted(now: Situation) -> SinkPrediction:
    """Return how the task would fare. Pure."""
    load, task = now.load, now.task
    per_s = load.per_s(but=task.id)
    found = causes(now)
    expected = expected_end(now, found, per_s)
    begins = replace(now, now_ms=max(now.now_ms, task.not_before_ms))
    share = entitled_share(begins)
    return SinkPrediction(
        task.chain[0],
        task.total or 0,
        found,
        share,
        per_s,
        expected,
        now.waits,
        now.unread_limits,
    )


async def _pool_lane(backend: Backend, settings: Settings, task: Task) -> str:
    """Return the lane of the pool with the least left on it, as a submit chooses about."""
    sink = task.chain[0]
    left = dict.fromkeys(
        pool_lanes(await pool_size(backend.documents, settings.pool_lanes), sink), 0.0
    )
    for one in await active_at(backend, sink):
        if one.task.lane in left:
            left[one.task.lane] += one.backlog
    return min(left, key=lambda lane: left[lane])
