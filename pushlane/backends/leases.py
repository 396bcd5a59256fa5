"""Holding a lease, and the clock by which its holder destroys something.

A lease is asked for again well before it runs out, and let go of at the end. A `Leader` asks before
each change, and shows its number with it: one that was stopped for longer than its lease lasts may
find out late, but changes nothing, since the registry refuses the number of an earlier one. A
`LeaseGuard` holds a lease while some work runs, so that the same submit never runs twice at once;
work whose lease is lost is stopped.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pushlane.backends.ports import Fence, Grant, Lease
from pushlane.core.errors import PushlaneError, TaskConflict, Unreachable
from pushlane.model import task_changes
from pushlane.model.names import receiving_lease, submit_lease
from pushlane.util.retrying import Sleep

_MOST_APART_S = 60.0
_WAIT_AFTER_STEP_S = 600.0


class StoreClock:
    """Tells the store's time, and watches it for steps.

    A leader hears it with each grant of its lease; in between it goes on by this machine's
    monotonic clock `clock_s`, so a step of its wall clock `wall_ms` (Unix ms) changes nothing.
    Where the two machines' clocks differ by over a minute, or the store's has stepped, nobody can
    tell which is right: then whatever destroys something waits.
    """

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = task_changes.now_ms,
    ) -> None:
        self._clock_s = clock_s
        self._wall_ms = wall_ms
        self._ahead_s: float | None = None  # of the monotonic clock, as last heard
        self._steady_s = 0.0  # the same when it had not stepped yet
        self._step_s = 0.0
        self._waits_until_s = 0.0
        self.apart_s = 0.0
        """By how many seconds the store's clock is ahead of this machine's, as last heard."""

    def heard(self, at_ms: int) -> None:
        """Hear the store's time in Unix milliseconds, as it was a moment ago.

        It may have taken long to be heard. Then the clock is behind rather than ahead, so that
        nothing is destroyed too early.
        """
        now_s = self._clock_s()
        self.apart_s = (at_ms - self._wall_ms()) / 1000
        ahead_s = at_ms / 1000 - now_s
        if self._ahead_s is None:
            self._steady_s = ahead_s
        elif abs(ahead_s - self._steady_s) > _MOST_APART_S:
            self._step_s = ahead_s - self._steady_s
            self._steady_s = ahead_s
            self._waits_until_s = now_s + _WAIT_AFTER_STEP_S
        self._ahead_s = ahead_s

    def now_ms(self) -> int:
        """Return the store's time in Unix milliseconds; this machine's before it was ever heard."""
        if self._ahead_s is None:
            return self._wall_ms()
        return round((self._clock_s() + self._ahead_s) * 1000)

    def doubt(self) -> str:
        """Say why nothing may be destroyed by this clock now; empty when something may."""
        if abs(self.apart_s) > _MOST_APART_S:
            side = "ahead of" if self.apart_s > 0 else "behind"
            return f"the store's clock is {abs(self.apart_s):,.0f} s {side} this machine's"
        if self._clock_s() < self._waits_until_s:
            side = "forward" if self._step_s > 0 else "back"
            return f"the clock stepped {side} by {abs(self._step_s):,.0f} s in the last 10 minutes"
        return ""


class SteadyClock:
    """Tells Unix milliseconds as they were at its making, and from then on by a monotonic clock.

    So a step of the wall clock does not change the order of what it told.
    """

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = task_changes.now_ms,
    ) -> None:
        self._clock_s = clock_s
        self._ahead_s = wall_ms() / 1000 - clock_s()

    def __call__(self) -> int:
        return round((self._clock_s() + self._ahead_s) * 1000)


LEADER_TTL_S = 10.0
WORK_TTL_S = 5.0

T = TypeVar("T")


@dataclass(eq=False)
class LeaseHolder:
    """One holder of one lease, which ends by itself `ttl_s` after it was acquired or renewed."""

    lease: Lease
    name: str
    holder: str
    ttl_s: float

    async def acquire(self) -> Grant | None:
        """Acquire the lease, or renew it; None while another holds it."""
        return await self.lease.acquire(self.name, self.holder, self.ttl_s)

    async def release(self) -> None:
        """Let another take over at once."""
        await self.lease.release(self.name, self.holder)

    async def renew(self, every_s: float, sleep: Sleep, forgiven: type[PushlaneError]) -> None:
        """Renew it every so often, whatever a service that is away says; until another holds it."""
        while True:
            await sleep(every_s)
            with suppress(forgiven):  # asked for again; what was lost meanwhile shows then
                if await self.acquire() is None:
                    return


class Leader(LeaseHolder):
    """The right of `holder` to lead while it holds the lease `name`."""

    def __init__(
        self,
        lease: Lease,
        name: str,
        holder: str,
        *,
        ttl_s: float = LEADER_TTL_S,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = task_changes.now_ms,
    ) -> None:
        super().__init__(lease, name, holder, ttl_s)
        self._clock = clock
        self.store_clock = StoreClock(clock, wall_ms)
        """The store's clock, as heard with each grant: what destroys something goes by it."""
        self._fence: Fence | None = None
        self._renew_at = 0.0
        self._until = 0.0

    @property
    def leads(self) -> bool:
        """True while the lease is surely this process's: not when it may have run out meanwhile."""
        return self._fence is not None and self._clock() < self._until

    async def acquire(self) -> Grant | None:
        asked_at = self._clock()
        grant = await super().acquire()
        self._fence = None if grant is None else Fence(self.name, grant.number)
        if grant is not None:
            self.store_clock.heard(grant.at_ms)
        self._renew_at = asked_at + self.ttl_s / 3
        self._until = asked_at + self.ttl_s
        return grant

    async def fence(self) -> Fence | None:
        """Return the fence that changes carry while this process leads; None while another does.

        Ask before each change: that renews the lease when a third of it is over.
        """
        if self._fence is None or self._clock() >= self._renew_at:
            await self.acquire()
        return self._fence

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Renew the lease inside the block, however long it takes."""
        keeping = asyncio.create_task(self._keep(), name=f"lease {self.name}")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self) -> None:
        while True:  # one that was lost is asked for again before a change
            await self.renew(self.ttl_s / 3, asyncio.sleep, PushlaneError)

    def step_down(self) -> None:
        """Note that another process leads: the lease is asked for again before the next change."""
        self._fence = None

    async def resign(self) -> None:
        """Let another process take over at once."""
        self._fence = None
        await self.release()


async def is_awaited(lease: Lease, task_id: str) -> bool:
    """Tell whether somebody makes a task's pushes now, or its next lines are waited for."""
    return await lease.is_held(submit_lease(task_id)) or await are_lines_awaited(lease, task_id)


async def are_lines_awaited(lease: Lease, task_id: str) -> bool:
    """Tell whether a task's pushes come as lines, and the next are waited for."""
    return await lease.is_held(receiving_lease(task_id))


class LeaseGuard:
    """Holds a lease while some work runs; `busy` is the error for a user while another has it.

    A `holder` that is given keeps the lease through a kill and a new start. One that several
    processes share is not let go of at the end of one's work (`lapses`): it runs out by itself.
    One that `waits` outlasts the lease of a holder that was killed.
    """

    def __init__(
        self,
        lease: Lease,
        name: str,
        busy: str,
        sleep: Sleep,
        holder: str | None = None,
        *,
        lapses: bool = False,
        waits: bool = True,
    ) -> None:
        self._held = LeaseHolder(lease, name, holder or secrets.token_hex(8), WORK_TTL_S)
        self._step_s = self._held.ttl_s / 5
        self._busy = busy
        self._sleep = sleep
        self._lapses = lapses
        self._waits = waits

    async def run(
        self, work: Callable[[], Coroutine[Any, Any, T]], on_wait: Callable[[], None]
    ) -> T:
        """Do the work while holding the lease; stop it when the lease is lost.

        Raises TaskConflict when another holder is alive.
        """
        await self._acquire(on_wait)
        working = asyncio.create_task(work(), name=self._held.name)
        renewing = asyncio.create_task(self._renew(), name=f"{self._held.name}-lease")
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                renewing.result()
            return await working
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
            if not self._lapses:
                with suppress(Unreachable):  # it ends by itself
                    await self._held.release()

    async def _acquire(self, on_wait: Callable[[], None]) -> None:
        waited_s = 0.0
        while await self._held.acquire() is None:
            if waited_s > self._held.ttl_s or not self._waits:
                raise TaskConflict(self._busy)
            if waited_s == 0.0:
                on_wait()
            await self._sleep(self._step_s)
            waited_s += self._step_s

    async def _renew(self) -> None:
        await self._held.renew(self._step_s, self._sleep, Unreachable)
        raise TaskConflict(self._busy)
