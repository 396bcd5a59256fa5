"""Changes limits, and shows them beside what is held and spent of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.guard_ports import Usage
from pushlane.backends.ports import ALL
from pushlane.core.errors import BadInput
from pushlane.core.names import SINK_NAME
from pushlane.core.task import State, Task
from pushlane.model.limits import (
    Check,
    Limit,
    Subject,
    change_limit,
    limit_of,
    readable_limits,
    remove_limit,
)
from pushlane.util.conversion import text
from pushlane.util.errors import DamagedRecord, UnknownTask
from pushlane.util.texts import nearest

log = logging.getLogger("pushlane.limits")

_LOOKED_AT = 1_000
_NAMES = tuple(field.name for field in msgspec.structs.fields(Limit))
_TAKEN_AWAY = tuple(name for name in _NAMES if name not in ("quota", "high_part"))


class LimitInUse(NamedTuple):
    """The limits of a subject, and what is held and spent of them today."""

    subject: Subject
    limit: Limit
    usage: Usage


async def set_limit(
    backend: Backend,
    subject: str | Subject,
    changes: Mapping[str, Any],
    check: Check | None = None,
) -> Limit:
    """Replace these limits of a subject, None taking one away; return all that it has then.

    The check is made of its limits in the step that changes them.

    Raises:
        BadInput: there is no such kind of subject, or a limit cannot be so.
        UnknownTask: the subject is a task that is not there.
    """
    values = dict(changes)
    if values.get("recipient_a_day", {}) is None:
        values["recipient_a_day"] = {}
    found = await find_subject(backend, subject)
    if any(values.values()):
        _refuse_no_sink(found)
    return await change_limit(
        backend.documents, found, lambda limit: replace(limit, **values), check
    )


def _refuse_no_sink(subject: Subject) -> None:
    """Raise BadInput for what is no sink's name: a limit of it would hold nothing back."""
    if subject.kind == "sink" and not SINK_NAME.fullmatch(subject.name):
        raise BadInput(
            f"{subject.name[:40]!r} is not a sink's name: limit each sink by its own, like "
            "sink/default; `app/*` limits each app"
        )


async def clear_limit(
    backend: Backend, subject: str | Subject, check: Check | None = None
) -> Limit:
    """Take all limits of a subject away, but an app's turns; return what it has then.

    The check is as in `set_limit`; what cannot be read is removed without it.

    Raises:
        BadInput, UnknownTask: as `find_subject` does.
        TaskConflict: they cannot be read, and a live process of a newer version may.
    """
    found = await find_subject(backend, subject)
    try:
        return await set_limit(backend, found, dict.fromkeys(_TAKEN_AWAY), check)
    except DamagedRecord:
        await backend.refuse_newer(f"the limit of {found}")
        await remove_limit(backend.documents, found)
        return Limit()


async def limit_at_start(backend: Backend, task: Task, limit: Limit) -> Limit:
    """Limit a task that was not started yet, and return all that it is limited to.

    What is limited already stays as it is; so does a task that was started, since its limits may
    have been changed or taken away.

    Raises:
        BadInput: a limit cannot be so.
        DamagedRecord: the one that is there cannot be read.
    """

    def edit(had: Limit) -> Limit:
        if task.state is not State.SUBMITTED:
            return had
        names = (name for name in _NAMES if getattr(had, name) is None)
        return replace(had, **{name: getattr(limit, name) for name in names})

    return await change_limit(backend.documents, Subject("task", task.id), edit)


async def find_subject(backend: Backend, subject: str | Subject) -> Subject:
    """Return a subject by its text, or a task's by its id, key or name alone.

    Raises BadInput for no such kind of subject, UnknownTask for no such task.
    """
    given = str(subject) if isinstance(subject, Subject) else text("subject", subject)
    try:
        found = Subject.parse(given)
    except BadInput as error:
        return await _task_named(backend, given, error)
    if found.kind == "task":
        return Subject("task", (await backend.registry.get(found.name)).id)
    return found


async def _task_named(backend: Backend, given: str, otherwise: BadInput) -> Subject:
    """Return the subject of the task of this id, key or name.

    Raises BadInput as it is for what is of another form, UnknownTask for no such task.
    """
    try:
        return Subject("task", (await backend.registry.get(given)).id)
    except UnknownTask as error:
        if error.several:
            raise
        if "/" in given:
            raise otherwise from error
        page = await backend.registry.page(ALL, most=_LOOKED_AT)
        others = {sink: f"sink/{sink}" for task in page.tasks for sink in task.chain}
        others |= {task.app: f"app/{task.app}" for task in page.tasks}
        near = nearest(given, others)
        hint = f"; did you mean {others[near]!r}?" if near else ""
        raise UnknownTask(
            f"{error}; for an app or a sink give app/NAME or sink/NAME{hint}"
        ) from error


async def limit_in_use(backend: Backend, subject: Subject) -> LimitInUse:
    """Return the limits of one subject, and what is used of them. Raises DamagedRecord."""
    limit = await limit_of(backend.documents, subject)
    [used] = await backend.limiter.usage([str(subject)], _today())
    return LimitInUse(subject, limit, used)


async def limits_in_use(backend: Backend) -> list[LimitInUse]:
    """Return all limits that are set, by subject; a share of turns is none of them.

    Those that cannot be read are left out, and named in the log.
    """
    found, unread = await readable_limits(backend.documents)
    if unread:
        told = "left out, as they cannot be read (pushlane doctor): the limits of %s"
        log.warning(told, ", ".join(unread), extra={"action": "format_unknown"})
    limits = sorted(pair for pair in found.items() if not _is_share(pair[1]))
    usage = await backend.limiter.usage([str(subject) for subject, _ in limits], _today())
    return [LimitInUse(*pair, used) for pair, used in zip(limits, usage, strict=True)]


def _today() -> str:
    return datetime.fromtimestamp(time.time(), UTC).date().isoformat()


def _is_share(limit: Limit) -> bool:
    """Tell whether it only says how much an app may have of each level."""
    return replace(limit, quota=None, high_part=None).is_none
