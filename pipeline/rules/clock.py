"""The time, and waiting for it: real here, a fake one in tests."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from pushlane.lanes import task_transitions


class Clock(Protocol):
    def now_ms(self) -> int:
        """Unix milliseconds."""

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        """Until the event is set, at most this long."""


class RealClock:
    def now_ms(self) -> int:
        return task_transitions.now_ms()

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), timeout_s)
