"""What a program that uses pushlane imports: `Client` to submit and steer tasks, `Dispatcher` to
deliver them, and the values that both work with.

Re-exports only; everything else is private and may move.
"""

from dispatcher import Dispatcher
from dispatcher.sinks import open_sink
from dispatcher.sinks.processor import batch
from lanes.backend import Backend, connect
from lanes.errors import (
    BadInput,
    InvalidChange,
    OversizedPush,
    PushlaneError,
    StorageFull,
    TaskConflict,
    UnknownTask,
    Unreachable,
    UserError,
)
from lanes.ports import Delivery, Sink
from lanes.push import Arrival, Kind, Outcome, Push
from lanes.settings import Settings
from lanes.settings import load as load_settings
from lanes.task import DeliveryMode, Level, OnUnknown, Progress, State, Task, Weights
from producers.client import Client
from producers.request import SubmitProgress, SubmitRequest, SubmitResult

__all__ = [
    "Arrival",
    "Backend",
    "BadInput",
    "Client",
    "Delivery",
    "DeliveryMode",
    "Dispatcher",
    "InvalidChange",
    "Kind",
    "Level",
    "OnUnknown",
    "Outcome",
    "OversizedPush",
    "Progress",
    "Push",
    "PushlaneError",
    "Settings",
    "Sink",
    "State",
    "StorageFull",
    "SubmitProgress",
    "SubmitRequest",
    "SubmitResult",
    "Task",
    "TaskConflict",
    "UnknownTask",
    "Unreachable",
    "UserError",
    "Weights",
    "batch",
    "connect",
    "load_settings",
    "open_sink",
]
