"""Reads what devices report of pushes (displayed, clicked), and puts it with the receipts.

A line of JSON names its push as `push_id`, or as `task_id` and `seq`. Messages name places and ids,
never what an attribute holds. Events are durable when they are counted; one that is recorded again
counts once, as whoever reads the log knows it by its push. What a receipt says of its task is
looked up, so that reports have one set of columns. Memory is flat in the number of lines.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pushlane.backends.backend import Backend
from pushlane.backends.ports import ReceiptLog
from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_SEQ
from pushlane.core.task import Task, Weights, now_ms
from pushlane.model.receipt import VERSION, Event, ReceiptBatch, TaskLabel, encode_receipts
from pushlane.model.times import FIRST_MS, LAST_MS, UTC
from pushlane.producers.columns import checked, moment_ms
from pushlane.settings import Settings
from pushlane.util.conversion import moment_ms as given_ms
from pushlane.util.conversion import text
from pushlane.util.texts import did_you_mean

_WORD = re.compile(r"[a-z_]{1,40}")  # what may be an event that we do not know, and no value
_KNOWN = ("push_id", "task_id", "seq", "event", "at", "attributes", "trace_id")


@dataclass(frozen=True)
class PushEvent:
    """An event of the push `push_id` (TASK-SEQ), which happened at `at_ms` (Unix milliseconds).

    Raises BadInput when no such push can be, or the event, time or attributes are out of bounds.
    """

    push_id: str
    event: Event | str
    at_ms: int
    attributes: Mapping[str, str] | None = None
    trace_id: str = ""

    def __post_init__(self) -> None:
        text("push_id", self.push_id)
        at_ms = given_ms("at_ms", self.at_ms, now_ms())
        object.__setattr__(self, "at_ms", at_ms)
        task_id, _, seq = self.push_id.rpartition("-")
        is_number = seq.isascii() and seq.isdigit() and len(seq) <= len(str(MAX_SEQ))
        if not (task_id and is_number and 1 <= int(seq) <= MAX_SEQ):
            raise BadInput("push_id is not the id of a push; give TASK-SEQ, as the sink got it")
        known = [event.value for event in Event]
        if self.event not in known:
            word = self.event if isinstance(self.event, str) else ""
            shown = f" {word!r}" if _WORD.fullmatch(word) else ""
            raise BadInput(
                f"unknown event{shown}; use {', '.join(known)}{did_you_mean(word[:40], known)}"
            )
        if not FIRST_MS <= at_ms <= LAST_MS:
            raise BadInput("an event's time is not from 2001 to 3000; give Unix milliseconds")
        checked(self.attributes, self.trace_id)

    @property
    def task_id(self) -> str:
        return self.push_id.rpartition("-")[0]

    @property
    def seq(self) -> int:
        return int(self.push_id.rpartition("-")[2])


_decoder = msgspec.json.Decoder(dict[str, Any])


def parse_event(line: bytes) -> PushEvent:
    """Return the event on a line. Raises BadInput, with the reason, when there is none."""
    try:
        found = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("it is not one JSON object") from error
    for name in found:
        if name not in _KNOWN:
            hint = did_you_mean(name, _KNOWN)
            raise BadInput(f"there is no field {name[:40]!r}{hint}; known: {', '.join(_KNOWN)}")
    if "push_id" not in found and not {"task_id", "seq"} <= found.keys():
        raise BadInput("it has no push_id, nor task_id and seq")
    push_id = found["push_id"] if "push_id" in found else f"{found['task_id']}-{found['seq']}"
    return PushEvent(
        str(push_id),
        str(found.get("event", "")),
        _at_ms(found.get("at")),
        found.get("attributes"),
        found.get("trace_id") or "",
    )


def _at_ms(at: Any) -> int:
    """Read a time. Numbers from 2001 on as milliseconds are that; smaller ones are seconds."""
    if isinstance(at, int | float) and not isinstance(at, bool) and FIRST_MS <= at <= LAST_MS:
        return int(at)
    at_ms = moment_ms(at, UTC)
    if not at_ms:
        raise BadInput(
            "it has no time in 'at': an ISO time like 2030-01-31T18:00Z, or Unix seconds or "
            "milliseconds, from 2001 to 3000"
        )
    return at_ms


MOST_A_BODY = 500
_KNOWN_TASKS = 10_000


class Recorder:
    """Takes events of tasks that `find` returns by their ids; `recorded` counts the durable ones.

    Raises BadInput when receipts are off.
    """

    def __init__(
        self, backend: Backend, settings: Settings, find: Callable[[str], Awaitable[Task]]
    ) -> None:
        if settings.receipts == "off":
            raise BadInput("receipts are off, and so are events; set receipts=on")
        self._registry = backend.registry
        self._find = find
        self._log: ReceiptLog = backend.receipts
        self._source = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._tasks: dict[str, Task] = {}
        self._waiting: list[tuple[PushEvent, Task]] = []
        self._weights: Weights | None = None
        self.recorded = 0

    async def add(self, event: PushEvent) -> None:
        """Take an event, and write a batch when there are enough.

        Raises:
            UnknownTask: there is no task of its id.
            BadInput: its task has no such push.
        """
        task = await self._task(event.task_id)
        if 0 < task.highest_seq < event.seq:
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
        if task_id not in self._tasks:
            if len(self._tasks) >= _KNOWN_TASKS:
                self._tasks.clear()
            self._tasks[task_id] = await self._find(task_id)
        return self._tasks[task_id]

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
