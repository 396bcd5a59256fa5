"""Side tasks of a dispatcher: each has a name, and says which it is when it dies."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from pushlane.core.errors import PushlaneError

log = logging.getLogger("pushlane.dispatcher")

_CANCEL_AGAIN_S = 0.5


def supervised(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begin a side task; an error of its own names it, as a PushlaneError."""

    async def run() -> None:
        try:
            await work
        except PushlaneError:
            raise
        except Exception as error:
            raise PushlaneError(f"the dispatcher's {name} task died of {_fault(error)}") from error

    return asyncio.create_task(run(), name=name)


def _fault(error: BaseException) -> str:
    """Name the kind and place of an error: its text might hold what a push holds."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


async def end_all(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel all until they have ended: a library below may swallow the first cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN_S)


def raise_cause(tasks: list[asyncio.Task[None]]) -> None:
    """Raise what the first of these tasks died of, if any did."""
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical(
                "stopped since its task %r has ended: %s",
                task.get_name(),
                error,
                extra={"action": "task_died"},
            )
            raise error
