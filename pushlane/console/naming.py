"""Finds the names of tasks that a page has the ids of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pushlane.console.pages import Ask
from pushlane.operations.finding import FindTasks
from pushlane.operations.task_views import TaskNow
from pushlane.operations.tasks import ANY_STATE

_MOST = 10
_LOOKED_AT = 50


async def the_task(ask: Ask, task_id: str) -> TaskNow | None:
    """Return the task of this id, None for none: by the index, which is asked often."""
    if not task_id:
        return None
    page = await ask.quietly(FindTasks.made(find=task_id, state=ANY_STATE, limit=_LOOKED_AT))
    return next((one for one in page.tasks if one.id == task_id), None)


async def names_of(ask: Ask, task_ids: Iterable[str]) -> Mapping[str, str]:
    """Return by their ids the names of the first ten of these tasks, as far as there are some."""
    wanted = [*dict.fromkeys(task_ids)][:_MOST]
    found = [await the_task(ask, task_id) for task_id in wanted]
    return {one.id: one.name for one in found if one is not None and one.name}
