"""The operation that searches all tasks, finished ones too, in any order: by an index in memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput
from pushlane.core.task import ACTIVE_STATES, TERMINAL_STATES, Level, State, Task, now_ms
from pushlane.model.states import SHOWN_STATES, STALLED, STATES
from pushlane.operations.operation import Of, Operation, Role, read_by
from pushlane.operations.paging import AtMost, Cursor, cut, place_of
from pushlane.operations.session import Session
from pushlane.operations.task_views import TaskNow, look_at
from pushlane.operations.tasks import ANY_STATE, read_states, stored_as
from pushlane.util.conversion import one_of

if TYPE_CHECKING:
    from pushlane.diagnosis.index import Row
    from pushlane.diagnosis.pace import Pace
    from pushlane.now.picture import Picture, TaskPicture
    from pushlane.now.view import View

SHOWN_UNFINISHED = frozenset({*ACTIVE_STATES, *SHOWN_STATES})
"""The states in which an unfinished task may be shown."""
SHOWN_PAUSED = frozenset({State.PAUSED, STALLED})
"""The states in which a paused task may be shown."""

_MOST_ASKED = 1_000
_MANY = 5_000
_LEVELS = {level: number for number, level in enumerate(Level)}

Value = float | str | None
Place = tuple[bool, float | str, str]


Values = Callable[[Sequence["Row"], Mapping[str, "TaskPicture"]], list[Value]]
"""Returns by what rows are sorted; one call is for all of them, which may be very many."""


def _of_row(read: Callable[[Row], Value]) -> Values:
    return lambda rows, by_id: [*map(read, rows)]


def _of_now(read: Callable[[TaskPicture], Value]) -> Values:
    """Sort by what the picture has, which tasks that are finished are not in."""

    def values(rows: Sequence[Row], by_id: Mapping[str, TaskPicture]) -> list[Value]:
        tasks = [by_id.get(row.id) for row in rows]
        return [None if one is None else read(one) for one in tasks]

    return values


def _ends(rows: Sequence[Row], by_id: Mapping[str, TaskPicture]) -> list[Value]:
    going = _of_now(lambda now: now.ends_at_ms)(rows, by_id)
    return [row.finished_at_ms or ends for row, ends in zip(rows, going, strict=True)]


def _states(rows: Sequence[Row], by_id: Mapping[str, TaskPicture]) -> list[Value]:
    going = _of_now(lambda now: str(now.status.state))(rows, by_id)
    return [state or row.state.value for row, state in zip(rows, going, strict=True)]


_SORTS: Mapping[str, Values] = {
    "created": _of_row(operator.attrgetter("created_at_ms")),
    "end": _ends,
    "name": _of_row(lambda row: row.name.lower()),
    "app": _of_row(operator.attrgetter("app")),
    "level": _of_row(lambda row: _LEVELS[row.level]),
    "quota": _of_row(operator.attrgetter("quota")),
    "total": _of_row(operator.attrgetter("total")),
    "left": _of_now(lambda now: now.left),
    "rate": _of_now(lambda now: now.observed_per_s),
    "entitled": _of_now(lambda now: now.entitled_per_s),
    "slots": _of_now(lambda now: now.slots),
    "state": _states,
    "expires": _of_row(lambda row: row.expires_at_ms or None),
}
SORTS = tuple(word for name in _SORTS for word in (name, f"-{name}"))
"""By what tasks can be sorted; with a minus the largest first."""


class FoundPage(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of a page, and how many fit in all, seen at `at_ms` (Unix ms).

    While the registry does not answer, `error` says so.
    """

    tasks: list[TaskNow]
    in_all: int
    at_ms: int
    error: str | None


def _sort(what: str, given: object) -> str:
    return one_of(what, given, SORTS)


class FindTasks(Operation[FoundPage], frozen=True, kw_only=True):
    """Search all tasks, and count those that fit: not finished ones alone, unless states are given.

    It is quick among very many. By what changes while they go, like rate, left and end, a task may
    be in two pages, or in none. Where over 1,000 tasks are half-made, or have pushes that wait for
    their time, only the newest of them are surely found as stalled, receiving or resting.
    """

    method, path, role, of = "GET", "/find/tasks", Role.VIEWER, Of.APPS

    state: Annotated[
        tuple[str, ...],
        read_by(read_states),
        Meta(description=f"Only in these: {', '.join(STATES)}; or {ANY_STATE}."),
    ] = ()
    find: Annotated[
        str, Meta(max_length=1_000, description="Only if id, key or name hold this, in any case.")
    ] = ""
    app: Annotated[str, Meta(description="Only of this app.")] = ""
    level: Annotated[Level | None, Meta(description="Only of this level.")] = None
    sink: Annotated[str, Meta(description="Only if this is the first sink that it goes to.")] = ""
    sort: Annotated[str, read_by(_sort), Meta(description=f"By one of: {', '.join(SORTS)}.")] = (
        "-created"
    )
    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> FoundPage:
        from pushlane.now.view import view_of

        read_states("state", self.state)
        sort = _sort("sort", self.sort)
        behind = _decoded(place_of(self))
        view = view_of(at.backend)
        now = await view.followed(at.backend)
        fits = await self._fitting(at, view, now)
        places = _Key(sort, now).first(fits, self.limit and self.limit + 1, behind)
        ids = [task_id for _, _, task_id in cut(at, self, places, _encoded)]
        found = {task.id: task for task in (await at.backend.registry.some(ids)).tasks}
        tasks = [found[task_id] for task_id in ids if task_id in found]
        return FoundPage(
            tasks=await look_at(at.backend, tasks, now.processes, _paces(tasks, now)),
            in_all=len(fits),
            at_ms=now.at_ms,
            error=str(view.error) if view.error else None,
        )

    @staticmethod
    def size(page: FoundPage) -> int:
        return len(page.tasks)

    @staticmethod
    def joined(page: FoundPage, following: FoundPage) -> FoundPage:
        return msgspec.structs.replace(following, tasks=[*page.tasks, *following.tasks])

    async def _fitting(self, at: Session, view: View, now: Picture) -> list[Row]:
        """Return the rows that fit all that is given, in the order of the index."""
        index = view.index
        stored = frozenset(State if ANY_STATE in self.state else stored_as(self.state))
        if not self.find and stored.isdisjoint(TERMINAL_STATES):  # of very many these are few
            fits = [index.rows[task_id] for task_id in index.unfinished]
        else:
            fits = index.find(self.find)
        if len(stored) < len(State):
            fits = [row for row in fits if row.state in stored]
        if (apps := at.apps) is not None:
            fits = [row for row in fits if row.app in apps]
        for name, wanted in (("app", self.app), ("level", self.level), ("sink", self.sink)):
            if wanted:
                fits = [row for row in fits if getattr(row, name) == wanted]
        if not self.state or ANY_STATE in self.state:
            return fits
        words = {*self.state}
        tasks = (index.unfinished.get(row.id) for row in fits)
        shown = await _shown_states(at, (task for task in tasks if task is not None), now)
        return [row for row in fits if words & (shown.get(row.id) or {row.state.value})]


def _paces(tasks: Iterable[Task], now: Picture) -> dict[str, Pace]:
    """Return by id how tasks go, as the picture has it."""
    from pushlane.diagnosis.pace import Pace

    paces = {}
    at_ms = now_ms()
    for task in tasks:
        if (one := now.by_id.get(task.id)) is not None and task.state is State.RUNNING:
            ends_in_s = None
            if one.ends_at_ms is not None:
                ends_in_s = max(0.0, one.ends_at_ms - at_ms) / 1000
            paces[task.id] = Pace(one.observed_per_s, ends_in_s, one.entitled_per_s)
    return paces


async def _shown_states(at: Session, tasks: Iterable[Task], now: Picture) -> Mapping[str, set[str]]:
    """Return in which states tasks that are not finished are shown.

    Those that may wait in a way that the picture does not tell are looked at, the newest of many.
    """
    shown: dict[str, set[str]] = {}
    asked: list[Task] = []
    for task in tasks:
        one = now.by_id.get(task.id)
        may_wait = task.has_later or task.pooled or task.is_half_made
        if one is None or one.task is not task or may_wait:
            asked.append(task)
        shown[task.id] = {task.state.value, one.status.state if one else task.state.value}
    views = await look_at(at.backend, asked[-_MOST_ASKED:], now.processes, {})
    return shown | {one.id: {one.state, one.shown_state} for one in views}


class _Key:
    """Puts rows in an order. What has no value comes last; of alike ones the id decides."""

    def __init__(self, sort: str, now: Picture) -> None:
        self._is_descending = sort.startswith("-")
        self._values = _SORTS[sort.removeprefix("-")]
        self._by_id = now.by_id

    def first(self, rows: list[Row], most: int, behind: Place | None) -> list[Place]:
        """Return the places of the first so many that come behind one; 0 for all."""
        values = self._values(rows, self._by_id)
        places: Iterable[int] = range(len(rows))
        if behind is None and most and len(rows) > _MANY:
            places = self._among_first(values, most)
        placed = [self._place(values[place], rows[place]) for place in places]
        if behind is not None:
            is_behind = operator.lt if self._is_descending else operator.gt
            try:
                placed = [one for one in placed if is_behind(one, behind)]
            except TypeError as error:
                raise BadInput(_NO_PLACE) from error
        return self._choose(most or len(placed), placed)

    def _among_first(self, values: Sequence[Any], most: int) -> Iterable[int]:
        """Return the places of all that can be among the first: to put all in order takes long."""
        known = [value for value in values if value is not None]
        if self._is_descending:  # rows are oldest first: the largest come early, most often
            known.reverse()
        first = self._choose(most, known)
        if len(first) < most:
            return range(len(values))
        last, places = first[-1], enumerate(values)
        if self._is_descending:
            return [place for place, value in places if value is not None and value >= last]
        return [place for place, value in places if value is not None and value <= last]

    def _place(self, value: Value, row: Row) -> Place:
        lacks = (value is None) is not self._is_descending
        return lacks, 0 if value is None else value, row.id

    def _choose(self, most: int, found: Iterable[Any]) -> list[Any]:
        """Return the first so many in order."""
        return nlargest(most, found) if self._is_descending else nsmallest(most, found)


def _encoded(place: Place) -> str:
    return msgspec.json.encode(place).decode()


def _decoded(place: str) -> Place | None:
    """Return what a place of the list says. Raises BadInput for none."""
    if not place:
        return None
    try:
        found: Place = msgspec.json.decode(place, type=Place)
    except msgspec.DecodeError as error:
        raise BadInput(_NO_PLACE) from error
    return found


_NO_PLACE = "there is no such place in the list; leave the cursor out to start again"
