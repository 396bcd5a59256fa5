"""What tests of diagnoses share: tasks, processes and situations in one call."""

from __future__ import annotations

from typing import Any

from pushlane.core.names import own_lane
from pushlane.core.task import Level, Progress, State, Task, Weights
from pushlane.diagnosis.causes import causes
from pushlane.diagnosis.situation import Situation
from pushlane.model.load import SinkLoad, Standing, sink_now
from pushlane.model.presence import Process, Resting, ServedSink

NOW_MS = 1_790_000_000_000


def task_of(task_id: str = "t", level: Level = Level.HIGH, **fields: Any) -> Task:
    """A running task of a thousand pushes on a lane of its own."""
    default = {"lane": own_lane(task_id), "state": State.RUNNING, "total": 1_000}
    return Task(id=task_id, level=level, **{**default, **fields})


def process_of(*served: ServedSink, **fields: Any) -> Process:
    """A dispatcher that serves the sink `default`, or these."""
    stands = served or (ServedSink(name="default", slots=10),)
    names = tuple(one.name for one in stands)
    default = {"id": "d", "kind": "dispatcher", "pid": 7, "version": "1", "serves": names}
    return Process(**{**default, "served": stands, **fields})


def busy_sink(per_s: float = 100.0, slots: int = 10, **fields: Any) -> ServedSink:
    """The sink `default`, all of whose slots are busy."""
    default = {"name": "default", "slots": slots, "in_flight": slots, "delivery_s": slots / per_s}
    return ServedSink(**{**default, "delivered_per_s": {"high": per_s}, **fields})


def situation_of(
    task: Task | None = None, delivered: int = 0, *others: Standing, **fields: Any
) -> Situation:
    """A task that has the sink to itself, in a process with nothing to do."""
    task = task or task_of()
    default = {
        "progress": Progress(task.id, delivered=delivered),
        "weights": Weights(),
        "processes": [process_of()],
        "now_ms": NOW_MS,
        "waiting": 0 if {"later", "at_later"} & set(fields) else 1,
    }
    return Situation(task=task, others=others, **{**default, **fields})


def load_of(*standings: Standing, per_s: float = 100.0, **fields: Any) -> SinkLoad:
    """A sink that delivers so many pushes a second, and what it has to do."""
    sink = sink_now([process_of(busy_sink(per_s))], "default")
    default = {"sink": sink, "weights": Weights(), "now_ms": NOW_MS}
    return SinkLoad(standings=standings, **{**default, **fields})


def resting_sink(state: str = "open", name: str = "default") -> ServedSink:
    """A sink which is down since a second ago."""
    why = Resting(f"sink webhook ({state})", NOW_MS - 1_000, "no connection", NOW_MS + 4_000)
    return ServedSink(name=name, slots=10, resting=why)


def names(situation: Situation) -> list[str]:
    """What a task waits for, as the names of its causes."""
    return [cause.name for cause in causes(situation)]
