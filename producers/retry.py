"""Waits for a service that went away in mid-submit: longer each time, said once, then goes on."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pushlane.lanes.errors import StorageFull, Unreachable
from pushlane.producers.lease_guard import Sleep

Result = TypeVar("Result")

_FIRST_S = 0.1
_LONGEST_S = 5.0


async def patiently(
    action: Callable[[], Awaitable[Result]], tell: Callable[[str], None], sleep: Sleep
) -> Result:
    """The result of an action that may be tried again, once its service answers.

    Raises:
        StorageFull: at once, since waiting frees no space.
    """
    wait_s = _FIRST_S
    told = False
    while True:
        try:
            result = await action()
        except StorageFull:
            raise
        except Unreachable as error:
            if not told:
                tell(f"waiting: {error}")
                told = True
            await sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(_LONGEST_S, wait_s * 2)
        else:
            if told:
                tell("the service is back")
            return result
