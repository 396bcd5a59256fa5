"""Changes how much an app may have of each level, and of the high one, for every dispatcher."""

from __future__ import annotations

import msgspec

from pushlane.lanes.errors import BadInput
from pushlane.lanes.limits import EVERY_APP, Limit, Subject, change_limit, read_limits
from pushlane.lanes.ports import DocumentStore
from pushlane.lanes.task import MAX_QUOTA

LEAST_PART = 0.001


async def set_app_share(
    documents: DocumentStore, app: str, *, quota: int | None = None, high_part: float | None = None
) -> Limit:
    """Set the quota of an app, its part of the high level, or both; `*` is every app without one.

    What is None stays as it is. Returns all that the app is limited to.

    Raises:
        BadInput: the app has no name, or a value is out of range.
        TaskConflict: it is being changed elsewhere again and again.
    """
    _require_name(app)
    if quota is not None and not 1 <= quota <= MAX_QUOTA:
        raise BadInput(
            f"quota {quota} of app {app!r} is not from 1 to {MAX_QUOTA}; to stop a task, pause it"
        )
    if high_part is not None and not LEAST_PART <= high_part <= 1:
        raise BadInput(
            f"high part {high_part:g} of app {app!r} is not from {LEAST_PART:g} to 1; give 0.5 for "
            "half of what the high level has"
        )
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
    if not app:
        raise BadInput(f"app is empty; name who sends, or {EVERY_APP!r} for every app")
