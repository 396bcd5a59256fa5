"""Makes the task that options ask for, and tells what a repeated request has in common with it."""

from __future__ import annotations

from typing import Any

import msgspec

from pushlane.core.names import own_lane, pool_lane
from pushlane.core.task import Level, OnUnknown, Task, new_task_id, now_ms
from pushlane.lanes.quiet import parse_quiet
from pushlane.model.stop_rule import DEFAULT_STOP, stored_stop
from pushlane.producers.task_options import TaskOptions
from pushlane.producers.validate import validate
from pushlane.settings import Settings
from pushlane.settings.payload_limits import payload_limits

_NAMED_SINKS = 2  # the format of tasks that older processes, which know one sink, must not take


def new_task(options: TaskOptions, settings: Settings) -> Task:
    """Return a task as the options ask for it; nothing of it is stored yet.

    Raises:
        BadInput: a name, key, app, quota or time that cannot be.
    """
    now = now_ms()
    attempts = options.max_attempts if options.max_attempts is not None else settings.max_attempts
    validate(options, settings, now)
    task_id = new_task_id()
    lane = _first_lane(options, task_id, settings)
    return Task(
        id=task_id,
        level=options.level,
        lane=lane,
        first_lane=lane,
        name=options.name,
        key=options.key,
        app=options.app,
        quota=options.quota,
        max_attempts=attempts,
        retention_s=settings.retention_s if options.retention_s is None else options.retention_s,
        delivery=options.delivery,
        on_unknown=options.on_unknown or OnUnknown.RESEND,
        not_before_ms=options.not_before_ms,
        ordered=bool(options.ordered_by),
        dedupe=bool(options.dedupe),
        quiet=str(parse_quiet(options.quiet)) if options.quiet else "",
        zone=options.zone,
        zone_column=options.zone_column,
        start_column=options.not_before_column,
        created_at_ms=now,
        expires_at_ms=options.expires_at_ms,
        sinks=options.sinks,
        stop_if_dead=stored_stop(options.stop_if_dead) or DEFAULT_STOP,
        format=_NAMED_SINKS if _has_routes(options) else 1,
    )


def _first_lane(options: TaskOptions, task_id: str, settings: Settings) -> str:
    """Return the lane of all pushes of a submit; it stays theirs, so that a repeat finds them.

    A low task whose pushes wait for their time has a lane of its own, so as not to clog the pool,
    and so has one that is to be kept for a time of its own.
    """
    waits = options.not_before_ms or options.not_before_column or options.quiet
    is_pooled = options.level is Level.LOW and not waits and not options.retention_s
    if not is_pooled:
        return own_lane(task_id)
    return pool_lane(task_id, settings.pool_lanes, options.chain[0])


def _has_routes(options: TaskOptions) -> bool:
    """Tell whether its pushes have more than a recipient, which older processes would not heed."""
    return bool(options.sinks or options.address or options.payload)


def described(options: TaskOptions, settings: Settings) -> dict[str, Any]:
    """Return all that decides what pushes and batches are made of the same rows, by name.

    Start and expiry are left out: `in 2 hours` is another time at each call, and the first counts.
    """
    return {
        **{name: getattr(options, name) for name in _FROM_THE_FIRST},
        "batch": settings.batch,
        "pool_lanes": settings.pool_lanes if options.level is Level.LOW else 0,
        "attributes": options.attributes,
        "trace_id": options.trace_id,
        "sink": options.sinks,
        "address": options.address,
        "payload": options.payload,
        "limits": payload_limits(settings, options.chain).sinks,  # they decide which rows are bad
    }


def describe(options: TaskOptions, settings: Settings) -> bytes:
    """Return what is `described` as JSON, the same for what older versions have submitted."""
    parts = described(options, settings)
    first = [parts[name] for name in (*_FROM_THE_FIRST, "batch", "pool_lanes")]
    labels = [parts["attributes"], parts["trace_id"]]
    given = {name: parts[name] for name in _SINCE_THEN if parts[name]}
    return msgspec.json.encode(
        [*first, *(labels if any(labels) else ()), *([given] if given else ())]
    )


_FROM_THE_FIRST = (
    "level",
    "quota",
    "app",
    "recipient",
    "title",
    "body",
    "data",
    "ordered_by",
    "dedupe",
    "collapse",
    "not_before_column",
    "expires_column",
    "quiet",
    "zone",
    "zone_column",
    "bad_rows",
    "delivery",
    "on_unknown",
    "retention_s",
)
_SINCE_THEN = ("sink", "address", "payload", "limits")
DESCRIBED = (
    *_FROM_THE_FIRST,
    *("batch", "pool_lanes", "attributes", "trace_id"),
    *_SINCE_THEN,
)
"""The names of what is `described`, in its order; new ones go to the end."""
