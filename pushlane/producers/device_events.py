"""Puts events into the log of receipts, in batches that are durable when they are counted.

What a receipt says of its task is looked up, so that reports have one set of columns. An event that
is recorded again counts once: whoever reads the log knows it by its push.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput
from pushlane.core.task import Task, Weights
from pushlane.lanes.ports import ReceiptLog
from pushlane.model.receipt import VERSION, ReceiptBatch, TaskLabel, encode_receipts
from pushlane.producers.events.event import PushEvent
from pushlane.settings import Settings
from pushlane.util.conversion import instance, kind_of

MOST_A_BODY = 500
_KNOWN_TASKS = 10_000


class Recorder:
    """Takes events one by one; `recorded` counts those that are durable.

    Raises:
        BadInput: receipts are off.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        if settings.receipts == "off":
            raise BadInput("receipts are off, and so are events; set receipts=on")
        self._registry = backend.registry
        self._log: ReceiptLog = backend.receipts
        self._source = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._tasks: dict[str, Task] = {}
        self._waiting: list[tuple[PushEvent, Task]] = []
        self._weights: Weights | None = None
        self.recorded = 0

    async def add(self, event: PushEvent) -> None:
        """Take an event, and write a batch when there are enough of them.

        Raises:
            UnknownTask: no task of this id is kept; names the nearest.
            BadInput: its task has no such push.
        """
        task = await self._task(event.task_id)
        if task.total is not None and event.seq > task.total:
            raise BadInput(f"task {task.id} has {task.total:,} pushes, so none is {event.push_id}")
        self._waiting.append((event, task))
        if len(self._waiting) >= MOST_A_BODY:
            await self.flush()

    async def flush(self) -> None:
        """Write the events that wait for a batch to be full."""
        if not self._waiting:
            return
        if self._weights is None:
            self._weights = await self._registry.weights()
        await self._log.append([encode_receipts(self._batch(self._weights))])
        self.recorded += len(self._waiting)
        self._waiting = []

    async def _task(self, task_id: str) -> Task:
        known = self._tasks.get(task_id)
        if known is None:
            known = await self._registry.get(task_id)
            if len(self._tasks) >= _KNOWN_TASKS:
                self._tasks.clear()
            self._tasks[task_id] = known
        return known

    def _batch(self, weights: Weights) -> ReceiptBatch:
        events = [event for event, _ in self._waiting]
        tasks = [task for _, task in self._waiting]
        labels = {task.id: TaskLabel(task.id, task.app, task.name) for task in tasks}
        places = {task_id: place for place, task_id in enumerate(labels)}
        by_level = weights.by_level()
        none, nothing = [0] * len(events), [""] * len(events)
        return ReceiptBatch(
            version=VERSION,
            batch_id=f"{self._source}-{next(self._numbers)}",
            sink="",
            tasks=list(labels.values()),
            task=[places[task.id] for task in tasks],
            seq=[event.seq for event in events],
            level=[task.level for task in tasks],
            outcome=[str(event.event) for event in events],
            reason=nothing,
            attempt=none,
            recipient=nothing,
            recipient_hash=none,
            quota=[task.quota for task in tasks],
            weight=[by_level[task.level] for task in tasks],
            submitted_at_ms=none,
            eligible_at_ms=none,
            dispatched_at_ms=none,
            responded_at_ms=[event.at_ms for event in events],
            trace_ids=[event.trace_id for event in events],
            attributes=[dict(event.attributes) if event.attributes else None for event in events],
        )


async def record_events(backend: Backend, settings: Settings, events: Iterable[PushEvent]) -> int:
    """Record all the events; return how many there were.

    Raises:
        UnknownTask: no task of an event's id is kept. Those before it may be recorded.
        BadInput: an event's task has no such push, or receipts are off.
    """
    recorder = Recorder(backend, settings)
    if not isinstance(events, Iterable):
        raise BadInput(f"events is {kind_of(events)}; give an iterable of PushEvent")
    for event in events:
        await recorder.add(instance("one of events", event, PushEvent))
    await recorder.flush()
    return recorder.recorded
