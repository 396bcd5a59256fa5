"""Operations that report from receipts what was sent, delivered, dead and opened, and why."""

from __future__ import annotations

from collections.abc import Iterable

from pushlane.client.connection import Connection
from pushlane.operations.reports import (
    GetReport,
    GetTaskShares,
    ListReported,
    ReportedReceipt,
    ReportView,
    TaskSharesView,
)
from pushlane.producers.new_times import Moment

_LISTED = 1_000


class ReportOperations(Connection):
    """Reports made of receipts: of a task by its id, key or name, or of all in a period.

    `since` and `until` are times, or like `2h` for how long ago: the last day unless given, of a
    task all there is. `where` are conditions like `outcome=dead`. Each raises BadInput for a
    question that cannot be answered, or is too large, and UnknownTask.
    """

    async def report(
        self,
        task_id: str | None = None,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        by: str | None = None,
        where: Iterable[str] | str = (),
        limit: int = _LISTED,
        latency: bool = False,
        recipients: bool = False,
    ) -> ReportView:
        """Report what became of a task's pushes, or of all, broken down by dimensions.

        `by` is like `level,hour`. The store of reports answers, or the log of receipts where there
        is none.
        """
        wanted = GetReport.made(
            task=task_id,
            since_ms=since,
            until_ms=until,
            by=by,
            where=where,
            limit=limit,
            latency=latency,
            recipients=recipients,
        )
        return await self.do(wanted)

    async def task_shares(self, task_id: str) -> TaskSharesView:
        """Show what the task got over all of its life beside its fair share.

        The store of reports answers: raises BadInput where there is none.
        """
        return await self.do(GetTaskShares.made(task=task_id))

    async def reported(
        self,
        task_id: str | None = None,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        where: Iterable[str] | str = (),
        limit: int = _LISTED,
    ) -> list[ReportedReceipt]:
        """List the last receipts, to see what a number of a report is made of."""
        wanted = ListReported.made(
            task=task_id, since_ms=since, until_ms=until, where=where, limit=limit
        )
        return await self.do(wanted)
