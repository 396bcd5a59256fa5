"""What a program that uses pushlane imports: `Client` to submit and steer tasks, `Producer` to push
one by one, `Dispatcher` to deliver, and the values that they work with.

Re-exports only; everything else is private and may move. A name is loaded when it is first used, so
that a part of pushlane loads nothing but what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pushlane.backends.backend import Backend, connect
    from pushlane.backends.memory import MemoryBackend
    from pushlane.client.client import Client
    from pushlane.client.producing import Producer
    from pushlane.client.sync import SyncClient
    from pushlane.core.errors import (
        BadInput,
        InvalidChange,
        PushlaneError,
        TaskConflict,
        UnknownFormat,
        Unreachable,
        UserError,
    )
    from pushlane.core.ports import Delivery, Sink
    from pushlane.core.push import Arrival, Kind, Outcome, Push, Scope
    from pushlane.core.task import DeliveryMode, Level, OnUnknown, Progress, State, Task, Weights
    from pushlane.dispatcher import Dispatcher
    from pushlane.dispatcher.sinks import open_sink
    from pushlane.dispatcher.sinks.processor import batch, on
    from pushlane.model.limits import Limit, Subject
    from pushlane.model.masks import FieldType, Masks, Sensitivity
    from pushlane.model.presence import Process, Resting
    from pushlane.model.receipt import Event
    from pushlane.operations.dead import DeadLetter
    from pushlane.operations.submitting import SubmitResult
    from pushlane.operations.task_views import ChangedTask, TaskNow, TaskView
    from pushlane.producers.device_events import PushEvent
    from pushlane.producers.outbox.buffer import ProducerStats
    from pushlane.producers.outbox.store import ProducerOptions
    from pushlane.producers.request import SubmitProgress, SubmitRequest
    from pushlane.settings import Settings
    from pushlane.settings import load as load_settings
    from pushlane.util.errors import BufferFull, OversizedPush, StorageFull, UnknownTask

_PLACES = {
    "dispatcher": "Dispatcher",
    "dispatcher.sinks": "open_sink",
    "dispatcher.sinks.processor": "batch on",
    "backends.backend": "Backend connect",
    "core.errors": "BadInput InvalidChange PushlaneError TaskConflict UnknownFormat Unreachable "
    "UserError",
    "util.errors": "BufferFull OversizedPush StorageFull UnknownTask",
    "model.limits": "Limit Subject",
    "model.masks": "FieldType Masks Sensitivity",
    "backends.memory": "MemoryBackend",
    "core.ports": "Delivery Sink",
    "model.presence": "Process Resting",
    "core.push": "Arrival Kind Outcome Push Scope",
    "model.receipt": "Event",
    "settings": "Settings",
    "core.task": "DeliveryMode Level OnUnknown Progress State Task Weights",
    "client.client": "Client",
    "client.sync": "SyncClient",
    "operations.dead": "DeadLetter",
    "operations.submitting": "SubmitResult",
    "operations.task_views": "ChangedTask TaskNow TaskView",
    "producers.device_events": "PushEvent",
    "producers.outbox.store": "ProducerOptions",
    "producers.outbox.buffer": "ProducerStats",
    "client.producing": "Producer",
    "producers.request": "SubmitProgress SubmitRequest",
}
_RENAMED = {"load_settings": ("settings", "load")}
_WHERE = {name: (place, name) for place, names in _PLACES.items() for name in names.split()}
_WHERE |= _RENAMED

__all__ = [
    "Arrival",
    "Backend",
    "BadInput",
    "BufferFull",
    "ChangedTask",
    "Client",
    "DeadLetter",
    "Delivery",
    "DeliveryMode",
    "Dispatcher",
    "Event",
    "FieldType",
    "InvalidChange",
    "Kind",
    "Level",
    "Limit",
    "Masks",
    "MemoryBackend",
    "OnUnknown",
    "Outcome",
    "OversizedPush",
    "Process",
    "Producer",
    "ProducerOptions",
    "ProducerStats",
    "Progress",
    "Push",
    "PushEvent",
    "PushlaneError",
    "Resting",
    "Scope",
    "Sensitivity",
    "Settings",
    "Sink",
    "State",
    "StorageFull",
    "Subject",
    "SubmitProgress",
    "SubmitRequest",
    "SubmitResult",
    "SyncClient",
    "Task",
    "TaskConflict",
    "TaskNow",
    "TaskView",
    "UnknownFormat",
    "UnknownTask",
    "Unreachable",
    "UserError",
    "Weights",
    "batch",
    "connect",
    "load_settings",
    "on",
    "open_sink",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, known_as = _WHERE[name]
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{place}"), known_as)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
