"""Makes the task that options ask for, or finds the one that the same key stands for.

A key stands for one task: of the same rows and options, and not one that was stopped. With a task
are kept short hashes of all that its key stands for, in a fixed order, so that what differs can be
named. Versions that know fewer parts than another compare those that both have.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.names import DEFAULT_SINK, own_lane, pool_lane
from pushlane.core.task import Level, OnUnknown, Progress, State, Task, now_ms
from pushlane.model.names import another_key, new_task_id
from pushlane.model.stop_rule import DEFAULT_STOP, stored_stop
from pushlane.model.task_changes import settled
from pushlane.model.times import parse_quiet
from pushlane.producers.task_options import TaskOptions
from pushlane.producers.validate import validate
from pushlane.settings import Settings
from pushlane.settings.payload_limits import PayloadLimits, payload_limits
from pushlane.util.errors import UnknownTask
from pushlane.util.texts import did_you_mean

_NAMED_SINKS = 2  # the format of tasks that processes which know one sink alone must not take


def new_task(options: TaskOptions, settings: Settings, *, on_own_lane: bool = False) -> Task:
    """Return a task as the options ask for it, not stored yet. Raises BadInput if it cannot be.

    With `on_own_lane` it shares none, whatever its level.
    """
    now = now_ms()
    attempts = options.max_attempts if options.max_attempts is not None else settings.max_attempts
    validate(options, settings, now)
    task_id = new_task_id()
    lane = own_lane(task_id) if on_own_lane else _first_lane(options, task_id, settings)
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
        format=_NAMED_SINKS if options.sinks or options.address or options.payload else 1,
    )


def _first_lane(options: TaskOptions, task_id: str, settings: Settings) -> str:
    """Return the lane of all pushes of a submit; it stays theirs, so that a repeat finds them.

    A low task whose pushes wait for their time has a lane of its own, so as not to clog the pool,
    and so has one that is to be kept for a time of its own, or has a quota.
    """
    waits = options.not_before_ms or options.not_before_column or options.quiet
    is_alone = waits or options.retention_s or options.quota != 1
    if options.level is not Level.LOW or is_alone:
        return own_lane(task_id)
    return pool_lane(task_id, settings.pool_lanes, options.chain[0])


def described(
    options: TaskOptions, settings: Settings, limits: PayloadLimits | None = None
) -> dict[str, Any]:
    """Return all that decides what pushes and batches are made of the same rows, by name.

    The `limits` of its sinks decide which rows are bad; they are those of the settings unless
    given. Start and expiry are left out: `in 2 hours` is another time at each call, and the first
    counts.
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
        "limits": (limits or payload_limits(settings, options.chain)).sinks,
    }


def describe(
    options: TaskOptions, settings: Settings, limits: PayloadLimits | None = None
) -> bytes:
    """Return what is `described` as JSON, the same for what older versions have submitted."""
    parts = described(options, settings, limits)
    first = [parts[name] for name in (*_FROM_THE_FIRST, "batch", "pool_lanes")]
    labels = [parts["attributes"], parts["trace_id"]]
    given = {name: parts[name] for name in _SINCE_THEN if parts[name]}
    return msgspec.json.encode(
        [*first, *(labels if any(labels) else ()), *([given] if given else ())]
    )


_OF_PUSHES = ("level", "quota", "app", "recipient", "title", "body", "data", "ordered_by", "dedupe")
_TIMES = ("collapse", "not_before_column", "expires_column", "quiet", "zone", "zone_column")
_POLICIES = ("bad_rows", "delivery", "on_unknown", "retention_s")
_FROM_THE_FIRST = (*_OF_PUSHES, *_TIMES, *_POLICIES)
_SINCE_THEN = ("sink", "address", "payload", "limits")
DESCRIBED = (*_FROM_THE_FIRST, "batch", "pool_lanes", "attributes", "trace_id", *_SINCE_THEN)
"""The names of what is `described`, in its order; new ones go to the end."""


async def refuse_unknown_sinks(backend: Backend, settings: Settings, task: Task) -> None:
    """Refuse a new task for a sink that neither the settings nor a live process names.

    So is one that names no sink, where the settings have named ones and nothing is `default`.

    A task that is there already was accepted once, so its submit goes on. Raises BadInput with the
    sink, the nearest that is known, and all that are.
    """
    if all(name in settings.served for name in task.chain):
        return
    processes = await backend.presence.list()
    live = (name for process in processes for name in process.sink_names)
    known = list(dict.fromkeys((*settings.served, *live)))
    unknown = next((name for name in task.chain if name not in known), None)
    if unknown is None or await task_of_key(backend, task.key) is not None:
        return
    if unknown == DEFAULT_SINK:
        raise BadInput(
            "the settings name sinks, and none of them is `default`: name a sink with --sink "
            f"({', '.join(known)}), or set `sink`"
        )
    raise BadInput(
        f"no sink is named {unknown!r}, neither in the settings nor by a live process"
        f"{did_you_mean(unknown, known)}; known are: {', '.join(known)}"
    )


async def known_limits(
    backend: Backend, settings: Settings, options: TaskOptions, task: Task
) -> PayloadLimits:
    """Return the limits of a new task's sinks. Raises as `refuse_unknown_sinks`."""
    await refuse_unknown_sinks(backend, settings, task)
    return payload_limits(settings, task.chain)


async def task_of_key(backend: Backend, key: str) -> Task | None:
    """Return the task that was made of this key, None when there is none."""
    if not key:
        return None
    try:
        found = await backend.registry.get(key)
    except UnknownTask:
        return None
    return found if found.key == key else None


_PART_BYTES = 2
_FOLLOWS = {"pool_lanes": "level"}
"""Parts that differ by themselves where another one does."""

_SHOWN_AS = {
    "retention_s": "retention",
    "attributes": "attribute",
    "batch": "the setting batch",
    "pool_lanes": "the setting pool_lanes",
    "limits": "the settings of its sinks",
}


class KeyEnded(TaskConflict):
    """The key's task was cancelled or has expired; nothing more is sent of it."""

    def __init__(self, message: str, task: Task) -> None:
        super().__init__(message)
        self.task = task


def short_hashes(parts: Iterable[Any]) -> bytes:
    """Return two bytes for each part, by which it is known whether another one is the same."""
    encoded = map(msgspec.json.encode, parts)
    return b"".join(zlib.crc32(part).to_bytes(4, "big")[:_PART_BYTES] for part in encoded)


def other_content(task: Task, kept: Task, names: Sequence[str], possible: str) -> TaskConflict:
    """Return the error for a key whose task `kept` was made of something else than `task`.

    It says what differs, by the `names` of the parts that both have hashes of; what is `possible`
    if the hashes do not tell, as of tasks of older versions.
    """
    differing = _differing(task.made_of, kept.made_of, names)
    what = f"with other {possible}"
    if differing:
        *others, last = differing
        listed = f"{', '.join(others)} and {last}" if others else last
        what = f"which differs in {listed}"
    return TaskConflict(
        f"key {task.key!r} is used by task {kept.id}, {what}; repeat that submit as it was, or "
        f"choose another key, such as {another_key(task.key)}"
    )


async def progress_of(backend: Backend, task: Task) -> Progress:
    """Return how many of the task's pushes have ended, and in which way."""
    [progress] = await backend.registry.progress([task.id])
    return settled(task, progress)


async def refuse_stopped(backend: Backend, kept: Task) -> None:
    """Raise KeyEnded, with how much was delivered, for a task that was cancelled or has expired."""
    stopped = {State.CANCELLED: "was cancelled", State.EXPIRED: "has expired"}
    if kept.state not in stopped:
        return
    delivered = (await progress_of(backend, kept)).delivered
    of_total = "" if kept.total is None else f" of its {kept.total:,}"
    again = f", those {delivered:,} again too" if delivered else ""
    raise KeyEnded(
        f"key {kept.key!r} is that of task {kept.id}, which {stopped[kept.state]}: {delivered:,}"
        f"{of_total} pushes were delivered, and nothing was submitted now. To send all of these "
        f"rows{again}, use another key, such as {another_key(kept.key)}",
        kept,
    )


def _differing(ours: bytes, theirs: bytes, names: Sequence[str]) -> list[str]:
    known = min(len(ours), len(theirs)) // _PART_BYTES
    places = ((n, slice(_PART_BYTES * n, _PART_BYTES * (n + 1))) for n in range(known))
    found = [names[n] for n, part in places if ours[part] != theirs[part]]
    told = (name for name in found if _FOLLOWS.get(name) not in found)
    return [_SHOWN_AS.get(name, name.replace("_", "-")) for name in told]
