"""A client's connection to a backend, for the event loop that it was opened on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Self

from pushlane.backends.backend import Backend, Connect, connect
from pushlane.core.errors import PushlaneError
from pushlane.settings import Settings, load
from pushlane.util.conversion import instance, text


class Connection:
    """Opens a backend for as long as it is entered; operations are methods on it."""

    def __init__(self, settings: Settings | None = None, *, connect: Connect = connect) -> None:
        self._settings = load() if settings is None else instance("settings", settings, Settings)
        self._connect = connect
        self._exits = AsyncExitStack()
        self._backend: Backend | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._backend = await self._exits.enter_async_context(self._connect(self._settings))
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._backend = None
        await self._exits.__aexit__(*error)

    @property
    def _open(self) -> Backend:
        if self._backend is None:
            raise PushlaneError(
                "the client is not open; use it inside `async with Client() as ...`"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise PushlaneError(
                "the client was opened on another event loop; open one on each, or use "
                "Client.sync(), which any thread may call"
            )
        return self._backend


def task_word(task_id: Any) -> str:
    """Return what names a task. Raises BadInput for what is no text."""
    return text("task_id", task_id)
