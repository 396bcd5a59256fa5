"""The one way in which producers wait for a service that went away, and then go on.

Waits grow to five seconds, each cut by chance, so that many processes do not come back at once.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pushlane.lanes.errors import StorageFull, Unreachable
from pushlane.producers.lease_guard import Sleep

Result = TypeVar("Result")

_FIRST_S = 0.1
_LONGEST_S = 5.0


async def until_reachable(
    action: Callable[[], Awaitable[Result]],
    tell: Callable[[str], None],
    sleep: Sleep,
    *,
    on_try: Callable[[str], None] = lambda trouble: None,
    waits_for_space: bool = False,
) -> Result:
    """Return the result of an action, which is repeated until its service answers.

    `tell` is told once that it waits, and once that the service is back; `on_try` after every try
    what went wrong, which is empty when nothing did.

    Raises:
        StorageFull: at once, since waiting frees no space; unless `waits_for_space`, for others
            may free some.
    """
    wait_s = _FIRST_S
    told = False
    while True:
        try:
            result = await action()
        except Unreachable as error:
            on_try(str(error))
            if isinstance(error, StorageFull) and not waits_for_space:
                raise
            if not told:
                tell(f"waiting: {error}")
                told = True
            await sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(_LONGEST_S, wait_s * 2)
        else:
            on_try("")
            if told:
                tell("the service is back")
            return result
