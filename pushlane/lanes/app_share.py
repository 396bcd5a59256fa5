"""Changes how much an app may have of each level, and of the high one, for every dispatcher."""

from __future__ import annotations

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.task import MAX_QUOTA
from pushlane.core.turns import EVERY_APP
from pushlane.lanes.ports import DocumentStore
from pushlane.model.limits import LEAST_PART, Limit, Subject, change_limit, read_limits
from pushlane.util.conversion import number, text, whole


async def set_app_share(
    documents: DocumentStore,
    app: str,
    *,
    quota: int | str | None = None,
    high_part: float | str | None = None,
) -> Limit:
    """Set the quota of an app, its part of the high level, or both; `*` is every app without one.

    What is None stays as it is. Returns all that the app is limited to.

    Raises:
        BadInput: the app has no name, or a value is out of range.
        TaskConflict: it is being changed elsewhere again and again.
    """
    _require_name(app)
    of = f" of app {app!r}"
    if quota is not None:
        quota = whole("quota", quota, 1, MAX_QUOTA, of=of, hint="; to stop a task, pause it")
    if high_part is not None:
        hint = "; give 0.5 for half of what the high level has"
        high_part = number("high part", high_part, LEAST_PART, 1, of=of, hint=hint)
    given = {"quota": quota, "high_part": high_part}
    changes = {name: value for name, value in given.items() if value is not None}

    def edit(limit: Limit) -> Limit:
        return msgspec.structs.replace(limit, **changes)

    return await change_limit(documents, Subject("app", app), edit)


async def clear_app_share(documents: DocumentStore, app: str) -> Limit:
    """Take the quota of an app and its part away; return what else it is limited to.

    Raises:
        BadInput: the app has no name.
        TaskConflict: it is being changed elsewhere again and again.
    """
    _require_name(app)

    def edit(limit: Limit) -> Limit:
        return msgspec.structs.replace(limit, quota=None, high_part=None)

    return await change_limit(documents, Subject("app", app), edit)


async def app_share(documents: DocumentStore, app: str) -> Limit:
    """Return what an app is limited to, its quota and its part among it.

    Raises:
        BadInput: the app has no name.
    """
    _require_name(app)
    return (await read_limits(documents)).get(Subject("app", app), Limit())


def _require_name(app: str) -> None:
    if not text("app", app):
        raise BadInput(f"app is empty; name who sends, or {EVERY_APP!r} for every app")
