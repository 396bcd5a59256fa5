"""Operations on who gets how much: limits, the turns of apps, the weights of levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from pushlane.client.connection import Connection
from pushlane.core.task import Weights
from pushlane.model.audit import Entry
from pushlane.model.limits import Subject
from pushlane.model.presence import Process
from pushlane.operations.pool import GetPool, PoolView, SetPool
from pushlane.operations.previewing import AppliedView, Apply, Preview, PreviewView
from pushlane.operations.processes import (
    FormatsView,
    GetFormats,
    ListAudit,
    ListProcesses,
    SetFormats,
)
from pushlane.operations.shares import (
    AppQuota,
    ClearAppQuota,
    ClearLimit,
    GetAppQuota,
    GetLevels,
    GetLimit,
    LevelShares,
    LimitView,
    ListLimits,
    SetAppQuota,
    SetLevels,
    SetLimit,
)
from pushlane.operations.sinks import AcceptedView, AcceptSink, GetAccepted, ListSinks, SinkView


class ShareOperations(Connection):
    """What can be done about limits and shares. A subject is like `app/shop`, or a task's name."""

    async def limits(self) -> list[LimitView]:
        """Return all limits that are set, with what is held and spent of them today."""
        return await self.do(ListLimits())

    async def limit(self, subject: str | Subject) -> LimitView:
        """Return the limits of a subject, with what is held and spent of them today."""
        return await self.do(GetLimit.made(subject=subject))

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
    ) -> LimitView:
        """Change limits of a subject like `app/shop`, as `Limit` has them; None takes one off.

        A rate may be a text like `100/s`. Those that are not named stay. Every dispatcher keeps to
        them within a second. Returns all that the subject has now. Raises BadInput when there is no
        such kind of subject, or a limit cannot be so.
        """
        wanted = SetLimit.made(
            subject=subject,
            rate_per_s=rate_per_s,
            in_flight=in_flight,
            total=total,
            total_cost=total_cost,
            a_day=a_day,
            cost_a_day=cost_a_day,
            recipient_a_day=recipient_a_day,
            quota=quota,
            high_part=high_part,
        )
        return await self.do(wanted)

    async def clear_limit(self, subject: str | Subject) -> LimitView:
        """Take all limits of a subject away, but an app's turns; return what it has then."""
        return await self.do(ClearLimit.made(subject=subject))

    async def app_quota(self, app: str) -> AppQuota:
        """Return how many pushes an app sends in its turn, and its part of the high level."""
        return await self.do(GetAppQuota.made(app=app))

    async def set_app_quota(
        self, app: str, quota: int | str | None = None, *, high_part: float | str | None = None
    ) -> AppQuota:
        """Set how many pushes an app sends in its turn within a level, from now on.

        `high_part` is the part of the high level that it may have at most, as long as another app
        or level has something to send. `*` is every app that has no such limit of its own. None
        leaves a value as it is. Returns both as they are now. Raises BadInput when the app has no
        name, or a value is out of range.
        """
        return await self.do(SetAppQuota.made(app=app, quota=quota, high_part=high_part))

    async def clear_app_quota(self, app: str) -> AppQuota:
        """Take the quota of an app and its part of the high level away."""
        return await self.do(ClearAppQuota.made(app=app))

    async def weights(self) -> Weights:
        """Return the weights by which the levels share the sink."""
        return (await self.do(GetLevels())).weights

    async def preview(self, operation: str, parameters: Mapping[str, Any]) -> PreviewView:
        """Return what a change would do, to all ends or to how many; name and fields as over HTTP.

            await client.preview("set-quota", {"task": "sale", "quota": 5})

        Raises BadInput for what cannot be previewed, and as the change itself would.
        """
        return await self.do(Preview(operation=operation, parameters=dict(parameters)))

    async def apply(self, token: str) -> AppliedView:
        """Do a change just as it was previewed, within ten minutes.

        Raises PreviewChanged, with the preview of now, when it would do otherwise.
        """
        return await self.do(Apply(token=token))

    async def set_levels(self, weights: Weights | str) -> LevelShares:
        """Share the sink like this from now on: `6:3:1`. Raises BadInput for other texts."""
        return await self.do(SetLevels.made(weights=weights))

    async def processes(self) -> list[Process]:
        """Return what is known of the live dispatchers, in the order of their starts."""
        return await self.do(ListProcesses())

    async def formats(self) -> FormatsView:
        """Return which formats of messages are read, and which may be written."""
        return await self.do(GetFormats())

    async def set_formats(self, min_format: int | str) -> FormatsView:
        """Let producers write messages up to this format, once every live process reads it.

        Raises:
            BadInput: there is no such format, or this version does not read it.
            TaskConflict: a live process does not read it.
        """
        return await self.do(SetFormats.made(min_format=min_format))

    async def pool(self) -> PoolView:
        """Return the lanes that low tasks share, and what is left on each."""
        return await self.do(GetPool())

    async def set_pool(self, lanes: int | str) -> PoolView:
        """Let low tasks that come from now on share so many lanes. Raises BadInput over 1,024."""
        return await self.do(SetPool.made(lanes=lanes))

    async def sinks(self) -> list[SinkView]:
        """Return the sinks that live processes serve or unfinished tasks go to."""
        return await self.do(ListSinks())

    async def accepted_sink(self, sink: str) -> AcceptedView:
        """Return whether final answers of a sink are believed in any case.

        Raises NotFound when no live process serves it, BadInput when it delivers nothing.
        """
        return await self.do(GetAccepted.made(sink=sink))

    async def accept_sink(self, sink: str, *, undo: bool = False) -> AcceptedView:
        """Believe final answers of a sink that live processes serve and that never delivered.

        With `undo` believe them no longer. Raises BadInput when it has delivered, or nobody serves
        it.
        """
        return await self.do(AcceptSink.made(sink=sink, undo=undo))

    async def audit(self, find: str = "", *, limit: int = 100) -> list[Entry]:
        """Return who changed what, from what to what, newest first; a `limit` of 0 is none.

        With `find` only what has it in who it was, what was done or the subject.
        """
        return await self.do(ListAudit.made(find=find, limit=limit))
