"""Changes of many tasks at once: of just those that a view had when they were counted.

Their ids come with the form, so what begins to fit later is left alone. They are changed one after
another, in the background, each with the rights that the caller's token has by then. How far it is
only this process knows.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from pushlane.console.pages import Ask, Page, elsewhere, may
from pushlane.console.tasks import FILTERS, address_of
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.core.task import now_ms
from pushlane.door.app import Door
from pushlane.operations.finding import FindTasks
from pushlane.operations.operation import Operation
from pushlane.operations.session import Beside, Caller
from pushlane.operations.tasks import (
    CancelTask,
    DemoteTask,
    PauseTask,
    PromoteTask,
    ResumeTask,
)
from pushlane.util.errors import NotAllowed, NotFound, NotNow, TooMany, Unauthorized

log = logging.getLogger("pushlane.serve")

MOST = 10_000
"""So many tasks are changed at once at most."""

_KINDS: Mapping[str, type[Operation[Any]]] = {
    kind.word(): kind for kind in (PauseTask, ResumeTask, PromoteTask, DemoteTask, CancelTask)
}
_A_PAGE = 1_000
_NAMED = 20
_MOST_KEPT = 100
_MOST_RUNNING = 8
_FAILURES_SHOWN = 200
_CLOSE_S = 10.0


@dataclass
class Batch:
    """A change of many tasks, and how far it is. `why` says why it has stopped before its end."""

    id: str
    who: str
    word: str
    tasks: Sequence[str]
    began_ms: int
    done: int = 0
    failed: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    is_stopping: bool = False
    is_running: bool = True
    why: str = ""

    @property
    def verb(self) -> str:
        return verb(self.word)

    @property
    def ended(self) -> int:
        return self.done + self.failed


class Batches:
    """The changes of many tasks that this process makes, and the newest that it has made."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._by_id: dict[str, Batch] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def start(self, caller: Caller, authorization: str, word: str, tasks: Sequence[str]) -> Batch:
        """Begin to change these tasks. Raises BadInput, NotAllowed, and NotNow at the bound."""
        kind = _kind(word)
        if not tasks or len(tasks) > MOST:
            raise BadInput(
                f"{len(tasks):,} tasks are named; from 1 to {MOST:,} are changed at once"
            )
        if not may(caller, kind):
            has = caller.access.role
            raise NotAllowed(f"{caller.name} has the role {has}, and {word} needs {kind.role}")
        if len(self._running) >= _MOST_RUNNING:
            raise NotNow(f"{_MOST_RUNNING} such changes are under way; wait until one has ended")
        batch = Batch(secrets.token_urlsafe(12), caller.name, word, tasks, now_ms())
        self._by_id[batch.id] = batch
        while len(self._by_id) > _MOST_KEPT:
            del self._by_id[next(iter(self._by_id))]
        running = asyncio.create_task(self._run(batch, authorization), name=f"batch of {word}")
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return batch

    async def close(self) -> None:
        """Stop, once the changes that are under way are made, or after a while."""
        self._is_closing = True
        if self._running:
            await asyncio.wait(self._running, timeout=_CLOSE_S)

    def of(self, batch_id: str, caller: Caller) -> Batch:
        """Return a change that the caller has begun. Raises NotFound."""
        batch = self._by_id.get(batch_id)
        if batch is None or batch.who != caller.name:
            raise NotFound(
                "this process knows no such change of yours: another process of `serve` may make "
                "it, or it is long ago; the audit has what was done"
            )
        return batch

    async def _run(self, batch: Batch, authorization: str) -> None:
        try:
            for task_id in batch.tasks:
                if batch.is_stopping or self._is_closing or self._door.stopping.is_set():
                    batch.why = "somebody has stopped it" if batch.is_stopping else "serve stops"
                    return
                await self._change(batch, task_id, authorization)
                if batch.why:
                    return
        except Exception as error:
            batch.why = "this is a defect in pushlane; the log of the server has more"
            told = "a change of many tasks ended in an unexpected %s: please report it"
            extra = {"action": "batch_failed"}
            log.error(told, type(error).__name__, exc_info=error, extra=extra)
        finally:
            batch.is_running = False

    async def _change(self, batch: Batch, task_id: str, authorization: str) -> None:
        """Change one task; note why it cannot be, or why none can be any more."""
        try:
            caller = await self._caller(authorization)
            operation = _kind(batch.word).made(task=task_id)
            await self._door.do(caller, operation, Beside())
            batch.done += 1
        except (Unauthorized, NotNow, Unreachable) as error:
            batch.why = str(error)
        except PushlaneError as error:
            batch.failed += 1
            if len(batch.failures) < _FAILURES_SHOWN:
                batch.failures.append((task_id, str(error)))

    async def _caller(self, authorization: str) -> Caller:
        """Return whose the token is now; who may ask only so often waits."""
        while True:
            try:
                return await self._door.gate.caller(authorization)
            except TooMany as error:
                await asyncio.sleep(error.wait_s)

    def page(self) -> Page:
        """Return the page of how far one is."""

        async def values(ask: Ask) -> Mapping[str, Any]:
            batch = self.of(ask.parts["batch"], ask.caller)
            return {"title": f"{batch.verb} {len(batch.tasks):,} tasks", "batch": batch}

        return Page("/batches/{batch}", "Batch", "batch.html", FindTasks, values)


def verb(word: str) -> str:
    """Return what an operation on tasks is called: `Pause`."""
    return word.partition("-")[0].capitalize()


def _kind(word: str) -> type[Operation[Any]]:
    kind = _KINDS.get(word)
    if kind is None:
        raise BadInput(f"{word[:40]!r} is not done to many tasks; these are: {', '.join(_KINDS)}")
    return kind


async def _counted(ask: Ask) -> Mapping[str, Any]:
    """Count what fits now, and name it: just these are changed."""
    kind = _kind(ask.query.get("action", ""))
    given = {name: ask.query[name] for name in FILTERS if ask.query.get(name)}
    wanted = FindTasks.made(**{**given, "sort": "created"}, limit=_A_PAGE)
    beside = Beside()
    found = (await ask.do(wanted, beside)).tasks
    while beside.next and len(found) <= MOST:
        following, beside = replace(wanted, cursor=beside.next), Beside()
        found += (await ask.quietly(following, beside)).tasks
    named = kind.made(task="TASK")
    return {
        "title": f"{verb(kind.word())} {len(found):,} {'task' if len(found) == 1 else 'tasks'}",
        "action": kind.word(),
        "tasks": found[:_NAMED],
        "more": max(0, len(found) - _NAMED),
        "ids": " ".join(one.id for one in found),
        "in_all": len(found),
        "is_too_many": len(found) > MOST,
        "most": MOST,
        "may": ask.may(kind),
        "destroys": kind.destroys,
        "return_to": address_of(given),
        "how": elsewhere(named),
    }


COUNTED = Page(
    "/all",
    "All that fit",
    "all.html",
    FindTasks,
    _counted,
    query=(*FILTERS, "action"),
    is_live=False,
)
