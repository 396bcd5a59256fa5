"""Reads tasks, shares and sinks for those who watch, and says of each which app it is of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import msgspec

from pushlane.backends.backend import Backend
from pushlane.backends.ports import TaskQuery, pages
from pushlane.core.task import ACTIVE_STATES, Task
from pushlane.model.limits import Subject
from pushlane.operations.operation import Operation
from pushlane.operations.session import Session
from pushlane.operations.shares import GetLevels, ListLimits
from pushlane.operations.sinks import ListSinks
from pushlane.operations.task_views import look_at
from pushlane.operations.tasks import ListTasks
from pushlane.operations.views import plain

MOST_TASKS = 1_000
"""So many unfinished tasks are shown, the newest: of all, or of each app that is asked for."""

_LOOKED_AT = 10 * MOST_TASKS

ALL = ""
"""The tasks of all apps, among the names of those that are asked for."""


class Shown(NamedTuple):
    """A thing as it is shown: the name of its event, its view as JSON, and its app.

    What all apps share has no app. A task that is not listed is shown alone, to who asked for it.
    """

    event: str
    body: bytes
    app: str | None = None
    is_listed: bool = True
    has_ended: bool = False


Things = Mapping[str, Shown]


class Wanted(NamedTuple):
    """The tasks to read: those of these apps (or `ALL`), and those of these ids."""

    apps: AbstractSet[str]
    tasks: AbstractSet[str]


class Topic(NamedTuple):
    """Things that are watched together, by the value of `key` in their views.

    `operation` shows the same once: who may do that may watch. `look` is told what was there at
    the look before; `listing` makes the parts of a document of some of them.
    """

    key: str
    operation: Operation[Any]
    look: Callable[[Session, Wanted, Things], Awaitable[dict[str, Shown]]]
    listing: Callable[[Iterable[Shown]], list[bytes]]


async def _tasks(at: Session, wanted: Wanted, before: Things) -> dict[str, Shown]:
    """Show unfinished tasks; one that has ended since the look before is shown once more."""
    listed = await _unfinished(at.backend, wanted.apps)
    found = {task.id for task in listed}
    was_listed = {key: one for key, one in before.items() if one.is_listed}
    others = wanted.tasks - found
    if wanted.apps:
        others |= was_listed.keys() - found
    known = (await at.backend.registry.some(sorted(others))).tasks if others else []
    known = [task for task in known if task.id in wanted.tasks or task.state.is_terminal]
    processes = await at.backend.presence.list()
    views = await look_at(at.backend, [*listed, *known], processes)
    shown: dict[str, Shown] = {} if wanted.apps else was_listed
    for view in views:
        shown[view.id] = Shown("task", _json(view), view.app, view.id in found, view.has_ended)
    return shown


async def _unfinished(backend: Backend, apps: AbstractSet[str]) -> list[Task]:
    """Return the newest unfinished tasks of these apps, oldest first."""
    room = dict.fromkeys(apps, MOST_TASKS)
    found: list[Task] = []
    looked_at = 0
    if not room:
        return found
    async for page in pages(backend.registry, TaskQuery(ACTIVE_STATES)):
        for task in page:
            has_room = [app for app in (ALL, task.app) if room.get(app)]
            for app in has_room:
                room[app] -= 1
            if has_room:
                found.append(task)
        looked_at += len(page)
        if looked_at >= _LOOKED_AT or not any(room.values()):
            break
    return found[::-1]


async def _shares(at: Session, wanted: Wanted, before: Things) -> dict[str, Shown]:
    """Show the levels, and the limits that are set."""
    shown = {"levels": Shown("levels", _json(await GetLevels().run(at)))}
    limits = await ListLimits().run(at)
    apps = await _apps(at.backend, [Subject.parse(one.subject) for one in limits])
    for one in limits:
        shown[one.subject] = Shown("limit", _json(one), apps.get(one.subject))
    return shown


async def _apps(backend: Backend, subjects: Sequence[Subject]) -> dict[str, str]:
    """Return the apps of subjects that have one."""
    apps = {str(one): one.name for one in subjects if one.kind == "app"}
    ids = [one.name for one in subjects if one.kind == "task"]
    tasks = (await backend.registry.some(ids)).tasks if ids else []
    return apps | {f"task/{task.id}": task.app for task in tasks}


async def _sinks(at: Session, wanted: Wanted, before: Things) -> dict[str, Shown]:
    return {one.sink: Shown("sink", _json(one)) for one in await ListSinks().run(at)}


def _json(view: Any) -> bytes:
    return msgspec.json.encode(plain(view))


def _list(things: Iterable[Shown]) -> list[bytes]:
    return [b"[", *_with_commas(things), b"]"]


def _list_of_shares(things: Iterable[Shown]) -> list[bytes]:
    each = list(things)
    levels = [part for one in each if one.event == "levels" for part in (b'"levels":', one.body)]
    limits = _list(one for one in each if one.event == "limit")
    return [b"{", *levels, b"," if levels else b"", b'"limits":', *limits, b"}"]


def _with_commas(things: Iterable[Shown]) -> list[bytes]:
    parts = [part for one in things for part in (b",", one.body)]
    return parts[1:]


TASKS = Topic("id", ListTasks(), _tasks, _list)
SHARES = Topic("subject", ListLimits(), _shares, _list_of_shares)
SINKS = Topic("sink", ListSinks(), _sinks, _list)
