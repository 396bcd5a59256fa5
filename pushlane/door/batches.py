"""Makes changes of many tasks, one task after another, in the background.

Each is done with the rights that the token of who began it, or goes on with it, has by then. How
far it is all processes know, within a second. What a process leaves undone, any can go on with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from socket import gethostname
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pushlane.backends.leases import WORK_TTL_S, LeaseGuard
from pushlane.core.errors import BadInput, PushlaneError, TaskConflict, Unreachable
from pushlane.core.task import now_ms
from pushlane.door.within import Within
from pushlane.model import audit
from pushlane.model.batches import (
    Batch,
    add_batch,
    change_batch,
    find_batch,
    lease_of,
    newest,
    tasks_of,
)
from pushlane.operations.doing import refuse_role
from pushlane.operations.operation import Operation
from pushlane.operations.session import Beside, Caller
from pushlane.operations.tasks import (
    CancelTask,
    DemoteTask,
    PauseTask,
    PromoteTask,
    ResumeTask,
)
from pushlane.util.errors import NotFound, NotNow, Superseded, Unauthorized

if TYPE_CHECKING:
    from pushlane.door.app import Door

log = logging.getLogger("pushlane.serve")

MOST = 10_000
"""So many tasks are changed at once at most."""

KINDS: Mapping[str, type[Operation[Any]]] = {
    kind.word(): kind for kind in (PauseTask, ResumeTask, PromoteTask, DemoteTask, CancelTask)
}
_MOST_RUNNING = 8
_SAVE_EVERY_S = 1.0
_CLOSE_S = 10.0
_BUSY = "a process is making this change now; read the change to see how far it is"


def kind_of(word: str) -> type[Operation[Any]]:
    """Return the operation of this name. Raises BadInput for one that is not done to many tasks."""
    kind = KINDS.get(word)
    if kind is None:
        raise BadInput(
            f"{word[:40]!r} cannot be done to many tasks at once; these can: {', '.join(KINDS)}"
        )
    return kind


class Batches:
    """The changes of many tasks: those that this process makes, and what is known of all."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._backend = door.backend
        self._made: dict[str, _Making] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_closing = False

    async def start(
        self, caller: Caller, authorization: str, word: str, tasks: Sequence[str]
    ) -> Batch:
        """Begin to change these tasks. Raises BadInput, NotAllowed, and NotNow at the bound."""
        if not tasks or len(tasks) > MOST:
            raise BadInput(
                f"{len(tasks):,} tasks are named; from 1 to {MOST:,} are changed at once"
            )
        self._refuse(caller, word)
        batch = Batch(
            id=secrets.token_urlsafe(12),
            who=caller.name,
            word=word,
            count=len(tasks),
            began_ms=now_ms(),
            run=_another_run(),
            process=_place(),
        )
        await self._hold(batch.id, batch.run)
        await add_batch(self._backend.documents, batch, tasks)
        self._begin(batch, tasks, authorization)
        return batch

    async def go_on(self, caller: Caller, authorization: str, batch_id: str) -> None:
        """Change the tasks that are left, as the process that made it has stopped, or is gone.

        Raises NotFound when nothing is left, NotAllowed, and NotNow while a process makes it.
        """
        before, _ = await self.of(batch_id, caller)
        self._refuse(caller, before.word)
        run = _another_run()
        await self._hold(batch_id, run)
        tasks = await tasks_of(self._backend.documents, batch_id)
        before, _ = await self.of(batch_id, caller)  # as it is under the lease
        if not before.left or len(tasks) != before.count:
            raise NotFound("nothing is left to change, or this change is no longer kept")
        done = await self._done_since(before, tasks) if before.is_running else frozenset[str]()
        begun = replace(
            before, run=run, process=_place(), is_stopping=False, is_running=True, why=""
        )
        await change_batch(self._backend.documents, batch_id, lambda kept: begun)
        self._begin(begun, tasks, authorization, done)

    async def of(self, batch_id: str, caller: Caller) -> tuple[Batch, bool]:
        """Return a change that the caller has begun, and whether its process is gone.

        Raises NotFound when there is none.
        """
        documents = self._backend.documents
        batch = await find_batch(documents, batch_id)
        if batch is None or batch.who != caller.name:
            raise NotFound(
                "you have no such change, or it is no longer kept; the audit (`pushlane "
                "audit`, for operators) shows what was done"
            )
        if not batch.is_running or await self._backend.lease.is_held(lease_of(batch_id)):
            return batch, False
        again = await find_batch(documents, batch_id)  # it may have ended just now
        return again or batch, again == batch

    async def stop(self, batch_id: str, caller: Caller) -> None:
        """Have a change stopped within a second, wherever it is made. Raises NotFound."""
        await self.of(batch_id, caller)
        if (making := self._made.get(batch_id)) is not None:
            making.is_stopping = True
        edit = partial(replace, is_stopping=True)
        await change_batch(self._backend.documents, batch_id, edit)

    async def close(self) -> None:
        """Stop, once the changes that are under way are made, or after a while."""
        self._is_closing = True
        if self._running:
            await asyncio.wait(self._running, timeout=_CLOSE_S)

    def _refuse(self, caller: Caller, word: str) -> None:
        refuse_role(caller, kind_of(word).role, word)
        if len(self._running) >= _MOST_RUNNING:
            raise NotNow(f"{_MOST_RUNNING} such changes are under way; wait until one has ended")

    async def _hold(self, batch_id: str, run: str) -> None:
        """Take the lease, which its making then keeps. Raises NotNow while another has it."""
        if await self._backend.lease.acquire(lease_of(batch_id), run, WORK_TTL_S) is None:
            raise NotNow(_BUSY)

    def _begin(
        self,
        batch: Batch,
        tasks: Sequence[str],
        authorization: str,
        counted: frozenset[str] = frozenset(),
    ) -> None:
        making = self._made[batch.id] = _Making(self, self._door, batch, authorization, counted)
        running = asyncio.create_task(making.run(tasks), name=f"batch of {batch.word}")
        self._running.add(running)

        def ended(running: asyncio.Task[None]) -> None:
            self._running.discard(running)
            if self._made.get(batch.id) is making:
                del self._made[batch.id]

        running.add_done_callback(ended)

    async def _done_since(self, batch: Batch, tasks: Sequence[str]) -> frozenset[str]:
        """Return which tasks are done that a process could not count before it was gone."""
        left = set(tasks[batch.ended :])
        return frozenset(
            task
            for _, entry in await audit.entries(self._backend.documents)
            if entry.operation == batch.word
            and entry.who == batch.who
            and entry.at_ms >= batch.began_ms
            and (task := entry.subject.removeprefix("task/")) in left
        )

    @property
    def is_closing(self) -> bool:
        """True once this process stops: what is begun ends."""
        return self._is_closing or self._door.stopping.is_set()


def _another_run() -> str:
    return secrets.token_hex(8)


def _place() -> str:
    """Return where this process runs, for people."""
    return f"{gethostname()}, pid {os.getpid()}"


class _Making:
    """A change that this process makes. `counted` are tasks that are done, and not counted yet."""

    def __init__(
        self,
        batches: Batches,
        door: Door,
        batch: Batch,
        authorization: str,
        counted: frozenset[str],
    ) -> None:
        self._batches = batches
        self._door = door
        self._batch = batch
        self._authorization = authorization
        self._counted = counted
        self._save_at_s = monotonic() + _SAVE_EVERY_S
        self.is_stopping = False

    async def run(self, tasks: Sequence[str]) -> None:
        """Change them while the lease is held, and keep how far that came."""
        lease, name = self._door.backend.lease, lease_of(self._batch.id)
        guard = LeaseGuard(lease, name, _BUSY, asyncio.sleep, self._batch.run, waits=False)
        try:
            await guard.run(lambda: self._work(tasks), lambda: None)
        except PushlaneError as error:  # another goes on with it, or it is kept no longer
            told = "a change of many tasks stopped after %d of %d: %s"
            extra = {"action": "batch_lost"}
            log.warning(told, self._batch.ended, self._batch.count, error, extra=extra)

    async def _work(self, tasks: Sequence[str]) -> None:
        why = ""
        try:
            why = await self._changed(tasks[self._batch.ended :])
        except Superseded:
            raise
        except Exception as error:
            why = "this is a defect in pushlane; the log of the server has more"
            told = "a change of many tasks ended in an unexpected %s: please report it"
            extra = {"action": "batch_failed"}
            log.error(told, type(error).__name__, exc_info=error, extra=extra)
        self._batch = replace(self._batch, is_running=False, why=why)
        while True:
            try:
                return await self._save()
            except Unreachable:
                if self._batches.is_closing:
                    raise
                await asyncio.sleep(_SAVE_EVERY_S)

    async def _changed(self, left: Sequence[str]) -> str:
        """Change what is left; return why it stopped before the end, empty where it has not."""
        for task_id in left:
            try:
                if monotonic() >= self._save_at_s:
                    await self._save()
                if self.is_stopping or self._batches.is_closing:
                    return "somebody stopped it" if self.is_stopping else "serve stops"
                await self._change(task_id)
            except (Unauthorized, NotNow, NotFound, TaskConflict, Unreachable) as error:
                return str(error)
        return ""

    async def _change(self, task_id: str) -> None:
        """Change one task, or note why it cannot be. Raises for why none can be any more."""
        if task_id in self._counted:
            self._batch = replace(self._batch, done=self._batch.done + 1)
            return
        caller = await Within(self._door, self._authorization).caller()
        try:
            operation = kind_of(self._batch.word).made(task=task_id)
            await self._door.do(caller, operation, Beside())
            self._batch = replace(self._batch, done=self._batch.done + 1)
        except (NotNow, Unreachable):
            raise
        except PushlaneError as error:
            self._batch = self._batch.with_failed(task_id, str(error))

    async def _save(self) -> None:
        """Keep how far it is, and hear of a stop."""
        documents = self._door.backend.documents
        kept = await change_batch(documents, self._batch.id, newest(self._batch))
        self.is_stopping = self.is_stopping or kept.is_stopping
        self._save_at_s = monotonic() + _SAVE_EVERY_S
