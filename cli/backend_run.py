"""Runs one piece of work on a backend that is opened for it and closed after it.

Errors are not handled here: `cli.flags.with_flags` reports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pushlane.lanes.backend import Backend, connect
from pushlane.lanes.settings import Settings

T = TypeVar("T")


def on_backend(settings: Settings, work: Callable[[Backend], Awaitable[T]]) -> T:
    """Open a backend, do the work on it, close it, and return the work's result."""

    async def session() -> T:
        async with connect(settings) as backend:
            return await work(backend)

    return asyncio.run(session())
