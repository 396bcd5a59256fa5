"""Keeps the last view of now for who looks, and says how old it is and what is in the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from pushlane.core.errors import PushlaneError
from pushlane.model.presence import Process
from pushlane.operations.now import GetNow, NowView
from pushlane.operations.operation import Operation
from pushlane.operations.processes import ListProcesses
from pushlane.util.errors import NotAllowed

PATIENCE_S = 10.0
_OLD_S = 3.0
Result = TypeVar("Result")


class Do(Protocol):
    """Does an operation with the rights of who looks."""

    async def __call__(self, operation: Operation[Result], /) -> Result:
        """Return its view. Raises as the operation does."""


class Look:
    """The last picture. `error` says why there is no newer one, and is empty while there is."""

    def __init__(self, do: Do, first: NowView, clock: Callable[[], float] = time.monotonic) -> None:
        self.view = first
        self.processes: Sequence[Process] = ()
        self.refusal = ""
        self.error = first.error or ""
        self._do = do
        self._clock = clock
        self._seen_s = clock()

    @property
    def age_s(self) -> float:
        """How long ago the picture was seen, by the clock of this machine."""
        return self._clock() - self._seen_s

    @property
    def is_old(self) -> bool:
        return bool(self.error) or self.age_s > _OLD_S

    async def again(self, *, with_processes: bool = False) -> None:
        """Look once more. What does not answer is told, and leaves the picture as it was."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                view = await self._do(GetNow())
                if with_processes:
                    await self._ask_for_processes()
        except TimeoutError:
            self.error = f"no answer within {PATIENCE_S:g} s"
        except PushlaneError as error:
            self.error = str(error)
        else:
            if not view.error or view.at_ms != self.view.at_ms:
                self._seen_s = self._clock()
            self.view, self.error = view, view.error or ""

    async def _ask_for_processes(self) -> None:
        try:
            found = await self._do(ListProcesses())
        except NotAllowed as refusal:
            self.processes, self.refusal = (), str(refusal)
        else:
            self.processes, self.refusal = found, ""
