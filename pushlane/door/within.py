"""Does operations in this process for somebody who does not wait for them.

Each is done with the rights that their token has by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from pushlane.door.streams import receiving
from pushlane.operations.operation import Operation, Result
from pushlane.operations.receiving import GetSafeLine
from pushlane.operations.session import Beside, Caller, Session
from pushlane.producers.received import BadLine, LineGap
from pushlane.util.errors import TooMany

if TYPE_CHECKING:
    from pushlane.door.app import Door

_AT_ONCE = 128
"""So many lines are read before others have their turn."""


class Within:
    """A way to do operations, by the token of a header."""

    def __init__(self, door: Door, authorization: str) -> None:
        self._door = door
        self._authorization = authorization

    async def caller(self) -> Caller:
        """Return whose the token is now; who may ask only so often waits. Raises Unauthorized."""
        while True:
            try:
                return await self._door.gate.caller(self._authorization)
            except TooMany as error:
                await asyncio.sleep(error.wait_s)

    async def do(self, operation: Operation[Result], traceparent: str = "") -> Result:
        """Do an operation. Raises what `Door.do` does."""
        beside = Beside(traceparent=traceparent)
        return await self._door.do(await self.caller(), operation, beside)

    def lines(self, task_id: str) -> LinesWithin:
        """Return the lines of a task."""
        return LinesWithin(self, self._door, task_id)


class LinesWithin:
    """The lines of a task; `safe` is the last that is known to be on its lane."""

    def __init__(self, way: Within, door: Door, task_id: str) -> None:
        self._way = way
        self._door = door
        self._task_id = task_id
        self.safe = 0

    async def look(self) -> int:
        """Return which line is safe. Raises LinesBusy."""
        self.safe = (await self._way.do(GetSafeLine(task=self._task_id))).safe_line
        return self.safe

    async def send(self, lines: Sequence[bytes], first: int) -> None:
        """Put lines on the lane, of which the first is line `first`. Raises as `receive` does."""
        at = Session(self._door.backend, self._door.settings, await self._way.caller())
        try:
            self.safe = await (await receiving(at, self._task_id)).take(_some(lines), first)
        except (BadLine, LineGap) as error:
            self.safe = error.safe
            raise


async def _some(lines: Sequence[bytes]) -> AsyncIterator[Sequence[bytes]]:
    """Yield lines, some at a time, and let others have their turn between."""
    for place in range(0, len(lines), _AT_ONCE):
        yield lines[place : place + _AT_ONCE]
        await asyncio.sleep(0)
