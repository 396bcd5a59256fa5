"""What a program that uses pushlane imports: `Client` to submit and steer tasks, `Producer` to push
one by one, `Dispatcher` to deliver, and the values that they work with.

Re-exports only; everything else is private and may move.
"""

from dispatcher import Dispatcher
from dispatcher.sinks import open_sink
from dispatcher.sinks.processor import batch
from lanes.backend import Backend, connect
from lanes.errors import (
    BadInput,
    BufferFull,
    InvalidChange,
    OversizedPush,
    PushlaneError,
    StorageFull,
    TaskConflict,
    UnknownFormat,
    UnknownTask,
    Unreachable,
    UserError,
)
from lanes.ports import Delivery, Sink
from lanes.presence import Process, Resting
from lanes.push import Arrival, Kind, Outcome, Push, Scope
from lanes.receipt import Event
from lanes.settings import Settings
from lanes.settings import load as load_settings
from lanes.task import DeliveryMode, Level, OnUnknown, Progress, State, Task, Weights
from producers.client import Client
from producers.events.event import PushEvent
from producers.feed.options import ProducerOptions
from producers.feed.stats import ProducerStats
from producers.producer import Producer
from producers.request import SubmitProgress, SubmitRequest, SubmitResult

__all__ = [
    "Arrival",
    "Backend",
    "BadInput",
    "BufferFull",
    "Client",
    "Delivery",
    "DeliveryMode",
    "Dispatcher",
    "Event",
    "InvalidChange",
    "Kind",
    "Level",
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
    "Settings",
    "Sink",
    "State",
    "StorageFull",
    "SubmitProgress",
    "SubmitRequest",
    "SubmitResult",
    "Task",
    "TaskConflict",
    "UnknownFormat",
    "UnknownTask",
    "Unreachable",
    "UserError",
    "Weights",
    "batch",
    "connect",
    "load_settings",
    "open_sink",
]
