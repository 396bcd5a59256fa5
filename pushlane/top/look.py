"""Keeps the last view of now for who looks, and says how old it is and what is in the way.

Beside it one more thing can be asked at each look: the processes, or a search for tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.operations.now import GetNow, NowView
from pushlane.operations.operation import Operation
from pushlane.util.errors import NotAllowed

PATIENCE_S = 10.0
_OLD_S = 3.0
_MOST_OF_A_CORE = 0.02
_RAREST_S = 2.5
Result = TypeVar("Result")


def every(wanted_s: float, used_s: float) -> float:
    """Return after how many seconds to look again, when a look uses so much processor time.

    It is as often as wanted, and less often where that would take more than 2 % of a core.
    """
    return max(wanted_s, min(used_s / _MOST_OF_A_CORE, _RAREST_S))


class Do(Protocol):
    """Does an operation with the rights of who looks."""

    async def __call__(self, operation: Operation[Result], /) -> Result:
        """Return its view. Raises as the operation does."""


class Look:
    """The last picture. `error` says why there is no newer one, and is empty while there is.

    `also` is what is asked beside it, `answer` what was answered last, and `refusal` why not.
    """

    def __init__(self, do: Do, first: NowView, clock: Callable[[], float] = time.monotonic) -> None:
        self.view = first
        self.also: Operation[Any] | None = None
        self.answer: Any = None
        self.refusal = ""
        self.error = first.error or ""
        self._do = do
        self._clock = clock
        self._seen_s = clock()
        self._answered: Operation[Any] | None = None

    @property
    def age_s(self) -> float:
        """How long ago the picture was seen, by the clock of this machine."""
        return self._clock() - self._seen_s

    @property
    def is_old(self) -> bool:
        return bool(self.error) or self.age_s > _OLD_S

    @property
    def is_answered(self) -> bool:
        """Whether the answer is of what is asked now."""
        return self.also is None or self._answered == self.also

    def want(self, also: Operation[Any] | None) -> None:
        """Ask this, too, from the next look on. The answer before stays until then."""
        if also != self.also:
            self.also, self.refusal, self._answered = also, "", None

    async def again(self) -> None:
        """Look once more. What does not answer is told, and leaves the picture as it was."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                view = await self._do(GetNow())
                await self._ask_also()
        except TimeoutError:
            self.error = f"no answer within {PATIENCE_S:g} s"
        except PushlaneError as error:
            self.error = str(error)
        else:
            if not view.error or view.at_ms != self.view.at_ms:
                self._seen_s = self._clock()
            self.view, self.error = view, view.error or ""

    async def _ask_also(self) -> None:
        """Ask what else is wanted. What comes when something else is asked already is left."""
        if (asked := self.also) is None:
            return
        answer, refused = None, ""
        try:
            answer = await self._do(asked)
        except (NotAllowed, BadInput) as refusal:
            refused = str(refusal)
        if asked == self.also:
            self.answer, self.refusal, self._answered = answer, refused, asked
