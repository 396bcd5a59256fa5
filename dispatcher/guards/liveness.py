"""A mark in the ledger that a process leaves while it lives, and takes away when it stops.

Who finds one at its start comes after a process that died, or beside one that runs, and has reason
to be careful. It says nothing of who died, or of what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pushlane.dispatcher.guards.degradable_call import DegradableCall
from pushlane.lanes.ports import ClaimResult, Ledger
from pushlane.lanes.push import Push

MARK = Push("~alive", 1, "")
_TTL_S = 60.0


class Liveness:
    """`found_none` is False until it is known that there was no mark."""

    def __init__(self, ledger: Ledger, reach: DegradableCall, process: str) -> None:
        self._ledger = ledger
        self._reach = reach
        self._process = process
        self.found_none = False

    async def keep(self) -> None:
        """Leave the mark, unless another process has it; go on until cancelled."""
        self.found_none = await self._leave() == [ClaimResult.WON]
        while True:
            await asyncio.sleep(_TTL_S / 3)
            await self._leave()

    async def take_away(self) -> None:
        """Raises Unreachable: the next process will find it."""
        await self._ledger.release([MARK], self._process)

    async def _leave(self) -> Sequence[ClaimResult] | None:
        return await self._reach.ask(lambda: self._ledger.claim([MARK], self._process, _TTL_S), 0)
