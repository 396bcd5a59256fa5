"""Operations that look on: why a task waits, how one went, what became of single pushes."""

from __future__ import annotations

from pushlane.backends.queries import receipt_hasher
from pushlane.client.connection import Connection, task_word
from pushlane.core.errors import BadInput
from pushlane.diagnosis.look import Diagnosis, why
from pushlane.diagnosis.overview import Overview, overview
from pushlane.diagnosis.results import Results, results_of
from pushlane.diagnosis.story import Story, Wanted, story_of
from pushlane.producers.suppress import usable_value
from pushlane.util.conversion import text, whole


class LookOperations(Connection):
    """What can be seen of tasks and pushes beside what the registry has of them."""

    async def why(self, task_id: str) -> Diagnosis:
        """Say what the task waits for now and when it ends; it takes a second."""
        return await why(self._open, task_word(task_id), self._settings)

    async def overview(self) -> Overview:
        """Say of all sinks and unfinished tasks what they wait for, the worst first."""
        return await overview(self._open)

    async def results(self, task_id: str) -> Results:
        """Count by receipts how the task went: what was delivered, died of what, and took how long.

        Raises Unreachable when the log of receipts does not answer.
        """
        task = await self._open.registry.get(task_word(task_id))
        [progress] = await self._open.registry.progress([task.id])
        [reasons] = await self._open.registry.reasons([task.id])
        results, _ = await results_of(self._open.receipts, task, progress, reasons)
        return results

    async def receipts(
        self,
        task_id: str | None = None,
        *,
        seq: int | None = None,
        recipient: str | None = None,
        trace_id: str = "",
    ) -> Story:
        """Return what became of the pushes that fit all that is given, attempt by attempt.

        Recipients are masked. Without a task the whole log is looked through. Raises BadInput when
        neither a push, a recipient nor a trace id is named.
        """
        if seq is None and recipient is None and not text("trace_id", trace_id):
            raise BadInput("say which receipts: give a seq of the task, a recipient or a trace_id")
        if seq is not None and task_id is None:
            raise BadInput("a seq is of a task: give its task_id, too")
        hashed = None
        if recipient is not None:
            hasher = await receipt_hasher(self._open.receipts, self._settings)
            [hashed] = hasher.hashes([usable_value(recipient)])
        task = None if task_id is None else await self._open.registry.get(task_word(task_id))
        number = None if seq is None else whole("seq", seq, 1)
        wanted = Wanted(task=task, seq=number, recipient_hash=hashed, trace_id=trace_id)
        return await story_of(self._open.receipts, wanted)
