"""A dead push as `dead list` and `dead show` present it.

Who it was for and what it said is shown to nobody who has not asked for just that.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pushlane.cli.render import Column
from pushlane.cli.times import age_text, time_text
from pushlane.lanes.errors import MalformedPush, UnknownFormat
from pushlane.lanes.push import DeadPush, Push, decode
from pushlane.lanes.task_transitions import now_ms
from pushlane.producers.dead import NO_TASK, push_id

COLUMNS: tuple[Column[DeadPush], ...] = (
    Column("PUSH", push_id),
    Column("TASK", lambda dead: dead.task_id or NO_TASK, from_width=100),
    Column("ATTEMPT", lambda dead: str(dead.attempt), number=True),
    Column("DIED", lambda dead: age_text(dead.died_at_ms, now_ms()), number=True),
    Column("REASON", lambda dead: dead.reason, elastic=True),
)
_HIDDEN = "hidden; --reveal shows it"


def as_json(dead: DeadPush) -> dict[str, Any]:
    return {
        "push": push_id(dead),
        "task": dead.task_id or NO_TASK,
        "seq": dead.seq,
        "attempt": dead.attempt,
        "reason": dead.reason,
        "died_at_ms": dead.died_at_ms,
    }


def shown_json(dead: DeadPush, reveal: bool) -> dict[str, Any]:
    """Return all of the push for programs; its message only if it is to be revealed."""
    shown = {**as_json(dead), "bytes": len(dead.body)}
    return {**shown, "message": _message(dead)} if reveal else shown


def as_fields(dead: DeadPush, reveal: bool) -> list[tuple[str, str]]:
    """Return all of the push for people, as names and values."""
    fields = [
        ("push", push_id(dead)),
        ("task", dead.task_id or NO_TASK),
        ("attempt", str(dead.attempt)),
        ("reason", dead.reason),
        ("died", time_text(dead.died_at_ms)),
        ("size", f"{len(dead.body):,} bytes"),
    ]
    if not reveal:
        return [*fields, ("message", _HIDDEN)]
    message = _message(dead)
    return [*fields, *((name, _text(value)) for name, value in message.items())]


def _message(dead: DeadPush) -> dict[str, Any]:
    """Return what the push holds, or the bytes of a message that is no push."""
    push = _decoded(dead)
    if push is None:
        return {"bytes_hex": dead.body.hex()}
    return {name: getattr(push, name) for name in ("recipient", "title", "body", "data")}


def _decoded(dead: DeadPush) -> Push | None:
    try:
        return decode(dead.body)
    except (MalformedPush, UnknownFormat):
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
