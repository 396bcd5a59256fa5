"""Keeps a lease while some work runs, so that the same submit never runs twice at once.

A holder that dies lets go when its time is over. Work whose lease is lost is stopped.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from pushlane.lanes.errors import TaskConflict, Unreachable
from pushlane.lanes.ports import Lease

Result = TypeVar("Result")
Sleep = Callable[[float], Awaitable[None]]

TTL_S = 5.0
_STEP_S = TTL_S / 5


class LeaseGuard:
    """One holder of one lease; `busy` is the error for a user while another one has it.

    A `holder` that is given keeps the lease through a kill and a new start. One that several
    processes share is not let go of at the end of one's work (`lapses`): it runs out by itself.
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
    ) -> None:
        self._lease = lease
        self._name = name
        self._busy = busy
        self._sleep = sleep
        self._holder = holder or secrets.token_hex(8)
        self._lapses = lapses

    async def run(
        self, work: Callable[[], Coroutine[Any, Any, Result]], on_wait: Callable[[], None]
    ) -> Result:
        """Do the work while holding the lease; stop it when the lease is lost.

        Raises:
            TaskConflict: another holder is alive.
        """
        await self._acquire(on_wait)
        working = asyncio.create_task(work(), name=self._name)
        renewing = asyncio.create_task(self._renew(), name=f"{self._name}-lease")
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
                    await self._lease.release(self._name, self._holder)

    async def _acquire(self, on_wait: Callable[[], None]) -> None:
        waited_s = 0.0
        while await self._lease.acquire(self._name, self._holder, TTL_S) is None:
            if waited_s == 0.0:
                on_wait()
            if waited_s > TTL_S:
                raise TaskConflict(self._busy)
            await self._sleep(_STEP_S)
            waited_s += _STEP_S

    async def _renew(self) -> None:
        while True:
            await self._sleep(_STEP_S)
            with suppress(Unreachable):  # tried again; a lease that ends meanwhile shows then
                if await self._lease.acquire(self._name, self._holder, TTL_S) is None:
                    raise TaskConflict(self._busy)
