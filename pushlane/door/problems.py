"""Errors as HTTP has them: problem documents (RFC 9457) that say what the command line says."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from pushlane.core.errors import (
    BadInput,
    InvalidChange,
    PushlaneError,
    TaskConflict,
    UnknownFormat,
    Unreachable,
    UserError,
)
from pushlane.door.single import SlowBody
from pushlane.door.streams import StreamEnded
from pushlane.operations.problems import Problem, problem
from pushlane.util.errors import (
    BufferFull,
    LinesBusy,
    NotAllowed,
    NotFound,
    NotNow,
    OversizedPush,
    Overtaken,
    PreviewChanged,
    TooMany,
    Unauthorized,
    Unseen,
)

_RETRY_AFTER_S = 5

_STATUS: tuple[tuple[type[PushlaneError], int], ...] = (
    (Unauthorized, 401),
    (NotAllowed, 403),
    (NotFound, 404),
    (TaskConflict, 409),
    (InvalidChange, 409),
    (Overtaken, 412),
    (SlowBody, 408),
    (OversizedPush, 413),
    (Unseen, 428),
    (BadInput, 400),
    (NotNow, 503),
    (TooMany, 429),
    (UserError, 409),
    (UnknownFormat, 409),
    (Unreachable, 503),
    (BufferFull, 503),
    (StreamEnded, 503),
)


class Refusal(NamedTuple):
    """A problem, and the headers that go with it."""

    problem: Problem
    headers: dict[str, str]


def refusal_of(error: PushlaneError, safe_line: int | None = None) -> Refusal:
    """Return how an error is told. One that is nobody's fault outside says so, and no more."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    is_for_now = status == 503 or isinstance(error, LinesBusy)
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if is_for_now else {}
    if isinstance(error, TooMany):
        headers = {"Retry-After": str(math.ceil(error.wait_s))}
    if status == 401:
        headers = {"WWW-Authenticate": 'Bearer realm="pushlane"'}
    present = None
    if isinstance(error, Overtaken):
        present, headers = error.present, {"ETag": error.tag}
    if isinstance(error, PreviewChanged):
        present = error.present
    shown = problem(status, type(error).__name__, str(error))
    line = getattr(error, "line", None)
    whole = msgspec.structs.replace(shown, line=line, safe_line=safe_line, present=present)
    if isinstance(error, UnknownFormat) and error.task_id:
        whole = msgspec.structs.replace(whole, task=error.task_id)
    return Refusal(whole, headers)


def encode(shown: Problem) -> bytes:
    """Return the document of a problem."""
    return msgspec.json.encode(shown)
