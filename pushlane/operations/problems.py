"""Problem documents (RFC 9457): how a server tells errors, and how who asked has them back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from pushlane.core.errors import (
    BadInput,
    InvalidChange,
    OutdatedFormat,
    PushlaneError,
    TaskConflict,
    UnknownFormat,
    UnknownLane,
    Unreachable,
    UserError,
)
from pushlane.util.errors import (
    BufferFull,
    DamagedRecord,
    Denied,
    MissingPermission,
    NoLeader,
    NotAllowed,
    NotFound,
    NotNow,
    OversizedPush,
    PreviewChanged,
    ReceiptsGone,
    RefillRefused,
    StorageFull,
    Unauthorized,
    UnknownTask,
)

MEDIA_TYPE = "application/problem+json"
VERSION_HEADER = "Pushlane-Version"
UNREAD_HEADER = "Pushlane-Unreadable"
"""Every answer of a server has it."""

UNKNOWN_PATH = "UnknownPath"
"""A path that a server does not have, as an older one."""

_OF_ONE_TEXT: tuple[type[PushlaneError], ...] = (
    *(UserError, BadInput, OversizedPush, TaskConflict, InvalidChange),
    *(NotFound, UnknownTask, NotAllowed, Unauthorized, NotNow, PreviewChanged),
    *(Unreachable, Denied, MissingPermission, RefillRefused, StorageFull),
    *(BufferFull, ReceiptsGone, NoLeader, UnknownLane),
)
_BY_STATUS: dict[int, type[PushlaneError]] = {
    400: BadInput,
    401: Unauthorized,
    403: NotAllowed,
    404: NotFound,
    409: UserError,
    412: UserError,
    413: OversizedPush,
    428: UserError,
    429: Unreachable,
    503: Unreachable,
}


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a refusal. `detail` says what is wrong, with which value, and what to do.

    `line` is the number of the line that is no push, `safe_line` the last that is on the lane.
    `present` is the value that is there instead of the one that was seen, `task` the id of a task
    that cannot be read.
    """

    type: str
    title: str
    status: int
    detail: str = ""
    line: int | None = None
    safe_line: int | None = None
    present: Mapping[str, Any] | None = None
    task: str | None = None


def problem(status: int, name: str, detail: str) -> Problem:
    """Return a problem of this name, like `UnknownTask`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return Problem(f"urn:pushlane:{words.replace(' ', '-')}", words.capitalize(), status, detail)


def error_of(shown: Problem) -> PushlaneError:
    """Return the error that a problem tells of: of its name, else the nearest for its status."""
    if shown.type in _UNREAD:
        return UnreadElsewhere(shown.detail, shown.task or "")
    kind = _BY_TYPE.get(shown.type) or _BY_STATUS.get(shown.status, PushlaneError)
    if kind is PreviewChanged:
        return PreviewChanged(shown.detail, shown.present)
    return kind(shown.detail or shown.title)


class UnreadElsewhere(UnknownFormat):
    """A server cannot read something that is stored there."""

    def __init__(self, told: str, task_id: str) -> None:
        self.version = 0
        fault, _, way_out = told.partition("; ")
        self._set(fault, way_out, task_id)
        PushlaneError.__init__(self, told)


_UNREAD = {
    problem(0, kind.__name__, "").type for kind in (UnknownFormat, OutdatedFormat, DamagedRecord)
}
_BY_TYPE = {problem(0, kind.__name__, "").type: kind for kind in _OF_ONE_TEXT}
