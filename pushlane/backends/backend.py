"""Opens all ports that a process works with from its settings, and makes changes that span two.

A lane is opened before a task points at it, whoever asks for the change.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, TypeVar, cast

from msgspec.structs import replace

from pushlane.backends.formats import format_to_write
from pushlane.backends.guard_ports import (
    DeadAddresses,
    Ledger,
    Limiter,
    RecipientWindows,
    Suppressions,
)
from pushlane.backends.ports import (
    Broker,
    Fence,
    Lease,
    Presence,
    ReceiptLog,
    Registry,
    TaskQuery,
)
from pushlane.backends.queries import pool_size
from pushlane.core.errors import TaskConflict, TaskInDoubt, Unreachable
from pushlane.core.names import (
    dead_lane,
    lane_at,
    later_lane,
    own_lane,
    pool_lanes,
    spread_over,
    task_of,
)
from pushlane.core.task import ACTIVE_STATES, Level, Task
from pushlane.model import task_changes
from pushlane.model.documents import DocumentStore
from pushlane.model.limits import Subject, remove_limit
from pushlane.model.names import PARTS
from pushlane.model.task_changes import Check
from pushlane.settings import Settings, default_data_dir
from pushlane.settings.adapters import package_of
from pushlane.util.errors import Denied, NoStore, UnknownTask
from pushlane.wire import BUNDLE, MOST_POOLED, MOST_PUSHES

_MADE = "`pushlane submit` makes a store there"

log = logging.getLogger("pushlane.backend")

T = TypeVar("T")

_ASK_AGAIN_S = 5.0
_LOOKED_AT = 64
_NEAR = 4  # messages
_NAMED = 5
_LARGER = 4

MANY_PUSHES = 16_384
"""From so many on a task has larger bundles; each process still gets dozens of them."""

_COUNTED = 2_000  # the newest tasks: the backlog of older ones shows on the lanes


def no_store(settings: Settings) -> NoStore:
    """Return the error that names the folder, and says what to set and what makes a store."""
    return NoStore(": ".join(missing_store(settings)))


def missing_store(settings: Settings) -> tuple[str, str]:
    """Return what is missing, and what mends that."""
    if settings.data_dir.is_file():
        return f"{settings.data_dir} is a file, not a folder", "check --data-dir, PUSHLANE_DATA_DIR"
    what = f"there is no pushlane store {settings.place}"
    if settings.data_dir != default_data_dir():
        return what, f"check --data-dir and PUSHLANE_DATA_DIR; {_MADE}"
    return (
        f"{what} (the default of user {this_user()})",
        "if a service of another user has it, give --data-dir DIR or set PUSHLANE_DATA_DIR=DIR; "
        f"{_MADE}",
    )


def this_user() -> str:
    """Return the name of the user that this process runs as, or its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def bundle_of(batch: int, pushes: int) -> int:
    """Return how many pushes a message of a task has that has so many; one stays one."""
    return batch * _LARGER if batch > 1 and pushes >= MANY_PUSHES else batch


@dataclass(frozen=True)
class Backend:
    """A broker, a registry and the other ports, opened together by `connect`."""

    broker: Broker
    registry: Registry
    lease: Lease
    ledger: Ledger
    recipient_windows: RecipientWindows
    documents: DocumentStore
    receipts: ReceiptLog
    presence: Presence
    limiter: Limiter
    suppressions: Suppressions
    dead_addresses: DeadAddresses

    async def add(self, task: Task, settings: Settings, pushes: int = 0) -> Task:
        """Keep a new task, as `Registry.add` does, with the size of its bundles.

        `pushes` is how many it will have, 0 where nobody knows.
        A low task gets the pool lane of its first sink with the smallest backlog; of several that
        are about as short, the one with the fewest tasks. The pool has as many lanes as the
        settings say, unless another size was set for all. Of a large pool only some lanes are
        looked at.
        """
        if task.pooled:
            count = await pool_size(self.documents, settings.pool_lanes)
            lanes = pool_lanes(count, task.chain[0])
            start = spread_over(task.id, len(lanes))
            lane = await self._emptiest(task.id, [*lanes[start:], *lanes[:start]][:_LOOKED_AT])
            task = replace(task, lane=lane, first_lane=lane)
        return await self.registry.add(await self.sized(task, settings, pushes))

    async def sized(self, task: Task, settings: Settings, pushes: int = 0) -> Task:
        """Return the task with the size of its bundles, as the settings and all readers allow.

        One of many pushes has larger ones: each push then costs a dispatcher and the broker less.
        A task that has a size keeps it.
        """
        if task.bundle:
            return task
        number = await format_to_write(self.documents, self.registry, self.presence)
        if number < BUNDLE:
            return replace(task, bundle=1)
        most = MOST_POOLED if task.pooled else MOST_PUSHES
        return replace(task, bundle=min(bundle_of(settings.batch, pushes), most))

    async def find(self, task_id: str) -> Task | None:
        """Return the task of this id, None when it was forgotten.

        Unlike `Registry.get`, this finds no task by its key or name.

        Raises:
            TaskInDoubt: the registry does not have it now, and it may be under way.
            UnknownFormat: only a newer version understands it, or it is damaged.
        """
        found = await self.registry.find_out([task_id])
        if found.tasks:
            return found.tasks[0]
        if found.unread:
            return await self.registry.get(task_id)  # says why it cannot be read
        if found.forgotten:
            return None
        raise TaskInDoubt(task_id)

    async def known(self, task_id: str) -> Task:
        """Return a task that was added before. Raises as `find` does, or UnknownTask."""
        if task := await self.find(task_id):
            return task
        raise UnknownTask(f"task {task_id} is no longer kept: it has ended, and was forgotten")

    async def change_known(self, task_id: str, edit: task_changes.Edit) -> Task:
        """Change a task that was added before, as `Registry.change` does.

        Raises TaskInDoubt when the registry does not have it now, and it may be under way.
        """
        try:
            return await self.registry.change(task_id, edit)
        except UnknownTask as error:
            await self.known(task_id)
            raise TaskInDoubt(task_id) from error  # it is there again

    async def pause(self, task_id: str, reason: str = "", check: Check | None = None) -> Task:
        """Hold a task. A pooled one moves to a lane of its own, where its pushes wait.

        Here and below the check is made of the task in the step that changes it.
        """
        return await self._move(task_id, task_changes.pause(reason), check)

    async def hold(self, task_id: str, reason: str) -> Task:
        """Pause a task that was not started yet, so that it never runs before it is resumed."""
        return await self._move(task_id, task_changes.hold(reason))

    async def stop(self, task_id: str, reason: str) -> Task:
        """Pause a running task of which too many pushes died, unless it was for that before."""
        return await self._move(task_id, task_changes.stop(reason))

    async def set_stop_if_dead(self, task_id: str, rule: str, check: Check | None = None) -> Task:
        """Set the share of dead pushes, of those that end from now on, that pauses a task.

        Raises:
            BadInput: no such rule, see `model.stop_rule.parse_stop_rule`.
            InvalidChange: the task is finished.
        """
        task = await self.registry.get(task_id)
        [now] = await self.registry.progress([task.id])
        edit = task_changes.checked(check, task_changes.set_stop_if_dead(rule, now))
        return await self.registry.change(task.id, edit)

    async def promote(self, task_id: str, level: Level | str, check: Check | None = None) -> Task:
        """Move a task to another level; its backlog follows."""
        return await self._move(task_id, task_changes.promote(level), check)

    async def set_quota(self, task_id: str, quota: int | str, check: Check | None = None) -> Task:
        """Let a task send so many pushes in its turn.

        A pooled one moves to a lane of its own, at its level; its backlog follows.

        Raises:
            BadInput: no such quota.
            InvalidChange: the task is finished.
        """
        return await self._move(task_id, task_changes.set_quota(quota), check)

    async def reschedule(
        self, task_id: str, times: task_changes.NewTimes, check: Check | None = None
    ) -> Task:
        """Change start, expiry and quiet hours of a task, whatever lies on its lanes.

        A pooled one that is to wait moves to a lane of its own. What waits on later lanes and may
        go earlier now comes within a minute, once a dispatcher leads.

        Raises:
            BadInput: a time, hours or a zone that cannot be.
            InvalidChange: the task is finished.
        """
        edit = task_changes.reschedule(times, task_changes.now_ms())
        return await self._move(task_id, edit, check)

    async def isolate(self, task_id: str) -> Task:
        """Give a task that shares a lane one of its own; its backlog follows."""
        return await self._move(task_id, task_changes.isolate)

    async def open_later(self, task_id: str) -> Task:
        """Give a task's own lane a later lane. A task that has ended gets none."""
        task = await self.registry.get(task_id)
        if task.state.is_terminal or task.has_later:
            return task
        return await self._open([later_lane(own_lane(task.id))], task.id, task_changes.later_opened)

    async def reach(self, task_id: str, sink: str) -> Task:
        """Open a task's lane at a later sink of its chain. A task that has ended gets none."""
        task = await self.registry.get(task_id)
        if task.state.is_terminal or sink in task.reached:
            return task
        lane = lane_at(task.id, sink)
        return await self._open([later_lane(lane), lane], task.id, task_changes.reached(sink))

    async def _open(self, lanes: Sequence[str], task_id: str, edit: task_changes.Edit) -> Task:
        for lane in lanes:
            await self.broker.open_lane(lane)
        task = await self.registry.change(task_id, edit)
        if task.state.is_terminal:  # it ended meanwhile, and its lanes may be dropped already
            for lane in lanes:
                await self.broker.drop_lane(lane)
        return task

    async def forget(self, task: Task, fence: Fence | None = None) -> bool:
        """Remove a task that has ended, with the lanes that are its alone.

        Its pushes on shared lanes are dropped when they come off. False when somebody still reads
        one of its lanes: try again a little later. Raises InvalidChange when it has not ended.
        """
        task_changes.check_forgettable(task)
        own = [] if task.pooled else [dead_lane(task.id)]
        lanes = own if task.lane_dropped else [*own, *reversed(task.own_lanes())]
        for name in lanes:
            if not await self.broker.drop_lane(name):
                return False
        await self.registry.forget(task.id, fence)
        await self._forget_documents(task.id)
        return True

    async def discard(self, task_id: str) -> bool:
        """Remove a task that cannot be read, with the lanes that are its alone.

        Its pushes on shared lanes are dropped when they come off. False when somebody still reads
        one of its lanes: try again a little later. Harmless when repeated.

        Raises:
            TaskConflict: a live process of a newer version may read it.
            InvalidChange: it can be read.
        """
        await self.refuse_newer(f"task {task_id}")
        await self.registry.discard(task_id)
        await self._forget_documents(task_id)
        own = [lane for lane in await self.broker.lanes() if task_of(lane) == task_id]
        dropped = [await self.broker.drop_lane(lane) for lane in own]
        return all(dropped)

    async def refuse_newer(self, what: str) -> None:
        """Raise TaskConflict while a live process of a newer version may read what we cannot."""
        if newer := await self.presence.newer():
            raise TaskConflict(
                f"{what} is not removed: a live process of a newer version may read it, "
                f"{'; '.join(newer[:_NAMED])}; do it with that version, or stop these first"
            )

    async def _forget_documents(self, task_id: str) -> None:
        limited = Subject("task", task_id)
        await remove_limit(self.documents, limited)
        await self.documents.remove(PARTS, task_id)
        await self.limiter.forget([str(limited)])

    async def _emptiest(self, task_id: str, lanes: Sequence[str]) -> str:
        left = await asyncio.gather(*(self.broker.backlog(lane) for lane in lanes))
        least = min(left)
        near = least + max(_NEAR, least // 10)  # pushes submitted just now are not there yet
        lanes = [lane for lane, count in zip(lanes, left, strict=True) if count <= near]
        if len(lanes) > 1:
            page = await self.registry.page(TaskQuery(ACTIVE_STATES), most=_COUNTED)
            tasks = Counter(task.first_lane or task.lane for task in page.tasks)
            fewest = min(tasks[lane] for lane in lanes)
            lanes = [lane for lane in lanes if tasks[lane] == fewest]
        return lanes[spread_over(task_id, len(lanes))]

    async def _move(
        self, task_id: str, edit: task_changes.Edit, check: Check | None = None
    ) -> Task:
        edit = task_changes.checked(check, edit)
        task = await self.registry.get(task_id)
        changed = edit(task)  # or refuse, before anything is made
        if changed == task:
            return task
        if changed.lane != task.lane:
            await self.broker.open_lane(changed.lane)
        return await self.registry.change(task.id, edit)


class AdapterPackage(Protocol):
    """The functions that every adapter's package has; more are in modules of their own
    (`backends/operations.py`), which only their commands load.
    """

    def connect(self, settings: Settings) -> AbstractAsyncContextManager[Backend]: ...

    def connect_receipts(self, settings: Settings) -> AbstractAsyncContextManager[ReceiptLog]: ...


def _load_package(settings: Settings) -> AdapterPackage:
    """Load the package of the adapter that the settings name."""
    return cast(AdapterPackage, import_module(package_of(settings)))


Connect = Callable[[Settings], AbstractAsyncContextManager[Backend]]
"""Opens a backend for some settings, as `connect` does."""


@asynccontextmanager
async def connect(settings: Settings, *, create: bool = True) -> AsyncIterator[Backend]:
    """Open the backend that the settings name, and close it in the end.

    An embedded store that is not there is made, unless `create` is False.

    Raises:
        NoStore: there is none and `create` is False; names the folder.
        Unreachable: a service has not answered for `start_patience_s`; names its URL.
        NeedsBackend: the settings name a server to work through instead.
    """
    is_new = settings.is_store_missing
    if is_new and not create:
        raise no_store(settings)
    package = _load_package(settings)
    async with AsyncExitStack() as stack:
        opened = await _opened(stack, lambda: package.connect(settings), settings.start_patience_s)
        if is_new:
            log.info("made a new store %s", settings.place, extra={"action": "store_made"})
        yield opened


@asynccontextmanager
async def connect_receipts(settings: Settings) -> AsyncIterator[ReceiptLog]:
    """Open the log of receipts alone, without the other ports, and close it in the end.

    Raises Unreachable when the service that holds it has not answered for `start_patience_s`.
    """
    package, patience_s = _load_package(settings), settings.start_patience_s
    async with AsyncExitStack() as stack:
        yield await _opened(stack, lambda: package.connect_receipts(settings), patience_s)


async def _opened(
    stack: AsyncExitStack, closed: Callable[[], AbstractAsyncContextManager[T]], patience_s: float
) -> T:
    """Open it, again and again while a service does not answer, until one refuses us."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            return await stack.enter_async_context(closed())
        except Unreachable as error:
            if isinstance(error, Denied) or time.monotonic() >= deadline_s:
                raise
            log.warning("%s; it is asked again", error, extra={"action": "service_awaited"})
            await asyncio.sleep(_ASK_AGAIN_S)
