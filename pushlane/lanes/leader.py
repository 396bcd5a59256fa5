"""Lets one process lead: it holds a lease, renews it, and shows its number with every change.

A leader that was stopped for longer than its lease lasts may find out late, but changes nothing:
the registry refuses the number of an earlier one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from pushlane.lanes import task_transitions
from pushlane.lanes.errors import PushlaneError
from pushlane.lanes.ports import Fence, Lease
from pushlane.lanes.store_clock import StoreClock

TTL_S = 10.0


class Leader:
    """The right of `holder` to lead while it holds the lease `name`."""

    def __init__(
        self,
        lease: Lease,
        name: str,
        holder: str,
        *,
        ttl_s: float = TTL_S,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = task_transitions.now_ms,
    ) -> None:
        self._lease = lease
        self._name = name
        self.holder = holder
        self._ttl_s = ttl_s
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

    async def fence(self) -> Fence | None:
        """Return the fence that changes carry while this process leads; None while another does.

        Ask before each change: that renews the lease when a third of it is over.
        """
        if self._fence is None or self._clock() >= self._renew_at:
            asked_at = self._clock()
            grant = await self._lease.acquire(self._name, self.holder, self._ttl_s)
            self._fence = None if grant is None else Fence(self._name, grant.number)
            if grant is not None:
                self.store_clock.heard(grant.at_ms)
            self._renew_at = asked_at + self._ttl_s / 3
            self._until = asked_at + self._ttl_s
        return self._fence

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Renew the lease inside the block, however long it takes."""
        keeping = asyncio.create_task(self._keep(), name=f"lease {self._name}")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / 3)
            with suppress(PushlaneError):  # it is asked for again before a change
                await self.fence()

    def step_down(self) -> None:
        """Note that another process leads: the lease is asked for again before the next change."""
        self._fence = None

    async def resign(self) -> None:
        """Let another process take over at once."""
        self._fence = None
        await self._lease.release(self._name, self.holder)
