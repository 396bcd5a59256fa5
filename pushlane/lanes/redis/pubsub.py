"""Wakes callers that wait for a change, by pub/sub.

A message may get lost, so no caller waits for long. It never says what changed: the registry's
version number does.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from redis.asyncio.client import PubSub

from pushlane.backends.redis.client import RedisClient
from pushlane.core.errors import Unreachable

RECHECK_S = 0.5  # a message that is lost delays a change by this much


class ChangeSignal:
    """One subscription, opened when somebody first waits."""

    def __init__(self, client: RedisClient, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._pubsub: PubSub | None = None
        self._reading = asyncio.Lock()

    async def wait(self, timeout_s: float) -> None:
        """Return at the next change, and after RECHECK_S or `timeout_s` at the latest."""
        patience_s = min(timeout_s, RECHECK_S)
        until = time.monotonic() + patience_s
        try:
            async with asyncio.timeout(patience_s):
                await self._reading.acquire()
        except TimeoutError:
            return
        try:
            with self._client.reach():
                pubsub = await self._subscribed()
                await pubsub.get_message(
                    ignore_subscribe_messages=True, timeout=max(0.0, until - time.monotonic())
                )
        except BaseException:  # the next who waits subscribes anew
            await self.close()
            raise
        finally:
            self._reading.release()

    async def _subscribed(self) -> PubSub:
        if self._pubsub is None:
            self._pubsub = self._client.redis.pubsub()
            await self._pubsub.subscribe(self._channel)
        return self._pubsub

    async def close(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with suppress(Unreachable), self._client.reach():
                await pubsub.aclose()  # type: ignore[no-untyped-call]
