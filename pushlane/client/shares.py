"""Operations on who gets how much: limits, the turns of apps, the weights of levels."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from pushlane.client.connection import Connection
from pushlane.core.task import MAX_WEIGHT, Weights
from pushlane.model.limits import (
    Limit,
    Limits,
    Subject,
    app_share,
    clear_app_share,
    read_limits,
    set_app_share,
)
from pushlane.model.presence import Process
from pushlane.producers.limit_changes import (
    LimitInUse,
    clear_limit,
    find_subject,
    limit_in_use,
    limits_in_use,
    set_limit,
)
from pushlane.util.conversion import text, whole


class ShareOperations(Connection):
    """What can be done about limits and shares. A subject is like `app/shop`, or a task's name."""

    async def limits(self) -> Limits:
        """Return all limits that are set, by their subject."""
        return await read_limits(self._open.documents)

    async def limits_in_use(self) -> list[LimitInUse]:
        """Return all limits that are set, with what is held and spent of them today."""
        return await limits_in_use(self._open)

    async def limit(self, subject: str | Subject) -> LimitInUse:
        """Return the limits of a subject, with what is held and spent of them today."""
        return await limit_in_use(self._open, await find_subject(self._open, subject))

    async def set_limit(
        self,
        subject: str | Subject,
        *,
        rate_per_s: float | str | UnsetType | None = UNSET,
        in_flight: int | str | UnsetType | None = UNSET,
        total: int | str | UnsetType | None = UNSET,
        total_cost: float | str | UnsetType | None = UNSET,
        a_day: int | str | UnsetType | None = UNSET,
        cost_a_day: float | str | UnsetType | None = UNSET,
        recipient_a_day: Mapping[str, int] | UnsetType | None = UNSET,
        quota: int | str | UnsetType | None = UNSET,
        high_part: float | str | UnsetType | None = UNSET,
    ) -> Limit:
        """Change limits of a subject like `app/shop`, as `Limit` has them; None takes one off.

        A rate may be a text like `100/s`. Those that are not named stay. Every dispatcher keeps to
        them within a second. Returns all that the subject has now. Raises BadInput when there is no
        such kind of subject, or a limit cannot be so.
        """
        given = {
            "rate_per_s": rate_per_s,
            "in_flight": in_flight,
            "total": total,
            "total_cost": total_cost,
            "a_day": a_day,
            "cost_a_day": cost_a_day,
            "recipient_a_day": recipient_a_day,
            "quota": quota,
            "high_part": high_part,
        }
        changes = {name: value for name, value in given.items() if value is not UNSET}
        return await set_limit(self._open, subject, changes)

    async def clear_limit(self, subject: str | Subject) -> Limit:
        """Take all limits of a subject away, but an app's turns; return what it has then."""
        return await clear_limit(self._open, subject)

    async def app_quota(self, app: str) -> Limit:
        """Return what an app is limited to: its quota and its part of the high level, too."""
        return await app_share(self._open.documents, app)

    async def set_app_quota(
        self, app: str, quota: int | str | None = None, *, high_part: float | str | None = None
    ) -> Limit:
        """Set how many pushes an app sends in its turn within a level, from now on.

        `high_part` is the part of the high level that it may have at most, as long as another app
        or level has something to send. `*` is every app that has no such limit of its own. What is
        None stays as it is. Returns all limits of the app. Raises BadInput when the app has no
        name, or a value is out of range.
        """
        documents = self._open.documents
        return await set_app_share(documents, app, quota=quota, high_part=high_part)

    async def clear_app_quota(self, app: str) -> Limit:
        """Take the quota of an app and its part away; return its other limits."""
        return await clear_app_share(self._open.documents, app)

    async def weights(self) -> Weights:
        """Return the weights by which the levels share the sink."""
        return await self._open.registry.weights()

    async def set_levels(self, weights: Weights | str) -> None:
        """Share the sink like this from now on: `6:3:1`. Raises BadInput for other texts."""
        if isinstance(weights, Weights):
            each = weights.by_level().items()
            parts = (whole(f"weight of {level}", one, 0, MAX_WEIGHT) for level, one in each)
            given = ":".join(map(str, parts))
        else:
            given = text("levels", weights)
        await self._open.registry.set_weights(Weights.parse(given))

    async def processes(self) -> list[Process]:
        """Return what is known of the live dispatchers, in the order of their starts."""
        return await self._open.presence.list()
