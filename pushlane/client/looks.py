"""Operations that look on: why a task waits, how one went, what became of single pushes."""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.client.connection import Connection
from pushlane.operations.access import CallerView, GetCaller
from pushlane.operations.ends import EndView, HashRecipients, ListEnds
from pushlane.operations.examining import Examine, ExaminedView
from pushlane.operations.hour import GetHour, GetTaskHour, HourView, TaskHourView
from pushlane.operations.looks import (
    GetOverview,
    GetPush,
    GetResults,
    ListReceipts,
    Overview,
    PushView,
    ReceiptsView,
    ResultsView,
    WhyTask,
    WhyView,
)
from pushlane.operations.now import GetNow, NowView
from pushlane.operations.tracing import TracePushes, TraceView
from pushlane.producers.new_times import Moment


class LookOperations(Connection):
    """What can be seen of tasks and pushes beside what the registry has of them."""

    async def me(self) -> CallerView:
        """Return who asks, with which role and apps: of a server, whose the token is."""
        return await self.do(GetCaller())

    async def why(self, task_id: str) -> WhyView:
        """Say what the task waits for now and when it ends; it takes a second."""
        return await self.do(WhyTask.made(task=task_id))

    async def overview(self) -> Overview:
        """Say of all sinks and unfinished tasks what they wait for, the worst first."""
        return await self.do(GetOverview())

    async def now(self) -> NowView:
        """Show who gets what of each sink, beside their fair share, and what holds it."""
        return await self.do(GetNow())

    async def hour(self, by: str = "level") -> HourView:
        """Show what went in the last hour by level or app, as far as this process was looked at."""
        return await self.do(GetHour.made(by=by))

    async def task_hour(self, task_id: str) -> TaskHourView:
        """Show what the task got in the last hour beside its right, as far as somebody looked."""
        return await self.do(GetTaskHour.made(task=task_id))

    async def examine(self) -> ExaminedView:
        """Say what `doctor` finds: of a server, where that runs, once in a minute at most."""
        return await self.do(Examine())

    async def results(self, task_id: str) -> ResultsView:
        """Count by receipts how the task went: what was delivered, died of what, and took how long.

        Raises Unreachable when the log of receipts does not answer.
        """
        return await self.do(GetResults.made(task=task_id))

    async def ends(self, task_id: str, *, hashes: bool = False, limit: int = 0) -> list[EndView]:
        """List how the pushes of the task ended, one by one; with a `limit` only the first so many.

        Recipients are masked; with `hashes` each has the one that `recipient_hashes` returns. A
        push that ended twice is there twice: the earlier one counts.
        """
        return await self.do(ListEnds.made(task=task_id, hashes=hashes, limit=limit))

    async def recipient_hashes(self, recipients: Sequence[str]) -> list[str]:
        """Return the hashes that receipts have for these recipients, 10,000 at most at once."""
        return [*(await self.do(HashRecipients.made(recipients=recipients))).hashes]

    async def receipts(
        self,
        task_id: str | None = None,
        *,
        seq: int | None = None,
        recipient: str | None = None,
        trace_id: str = "",
        recipient_of: str = "",
    ) -> ReceiptsView:
        """Return what became of the pushes that fit all that is given, attempt by attempt.

        Recipients are masked. `recipient_of` is a push, TASK-SEQ: whom it was for. Without a task
        the whole log is looked through. Raises BadInput when neither a push, a recipient nor a
        trace id is named.
        """
        wanted = ListReceipts.made(
            task=task_id,
            seq=seq,
            recipient=recipient,
            trace_id=trace_id,
            recipient_of=recipient_of,
        )
        return await self.do(wanted)

    async def push(self, push: str, *, reveal: bool = False) -> PushView:
        """Return what became of one push, by its id, TASK-SEQ: each attempt, its end, and events.

        With `reveal` it has recipient and content, too, if its lane still has them. Raises
        UserError when the task has no such push.
        """
        return await self.do(GetPush.made(push=push, reveal=reveal))

    async def trace(
        self, what: str, *, reveal: bool = False, since: Moment | None = None
    ) -> TraceView:
        """Tell the story of a push (TASK-SEQ), or of the newest 20 of a trace or to a recipient.

        A word that is a push of a task is that; else it is looked for as a trace id and a
        recipient, in receipts since then (all). With `reveal` one push has recipient and content,
        too, if its lane still has them. Raises UserError when nothing is known of it.
        """
        asked = TracePushes.made(what=what, reveal=reveal, since_ms=since)
        return await self.do(asked)
