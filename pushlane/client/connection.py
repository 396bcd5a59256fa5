"""A client's connection to a backend, or to a server, for the event loop that it was opened on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from pushlane.backends.backend import Backend, Connect, connect, this_user
from pushlane.core.errors import PushlaneError
from pushlane.operations.doing import do
from pushlane.operations.operation import Operation
from pushlane.operations.session import Begun, Beside, Caller, untold
from pushlane.settings import Settings, load
from pushlane.util.conversion import instance
from pushlane.util.errors import NeedsBackend
from pushlane.util.trace_context import callers_traceparent

if TYPE_CHECKING:
    from pushlane.client.remote import Remote

Result = TypeVar("Result")


class Connection:
    """Opens a backend for as long as it is entered, and does operations on it.

    With the setting `url` it does them through a server of `pushlane serve` instead.
    """

    face = "python"
    """The word in the audit for what is done through it."""

    def __init__(self, settings: Settings | None = None, *, connect: Connect = connect) -> None:
        self._settings = load() if settings is None else instance("settings", settings, Settings)
        self._connect = connect
        self._exits = AsyncExitStack()
        self._backend: Backend | None = None
        self._remote: Remote | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if self._settings.url and self._connect is connect:
            from pushlane.client.remote import Remote

            self._remote = await self._exits.enter_async_context(Remote(self._settings))
        else:
            self._backend = await self._exits.enter_async_context(self._connect(self._settings))
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._backend = self._remote = None
        await self._exits.__aexit__(*error)

    @property
    def settings(self) -> Settings:
        """The settings that it was opened with."""
        return self._settings

    @property
    def remote(self) -> Remote | None:
        """The server that it works through, None on a backend."""
        return self._remote

    @property
    def backend(self) -> Backend:
        """The open backend. Raises NeedsBackend where there is a server instead."""
        return self._open

    async def do(self, operation: Operation[Result], begun: Begun = untold) -> Result:
        """Do one operation of the list, and return what it shows; `begun` gets each new task."""
        traceparent = callers_traceparent()
        if self._remote is not None:
            self._refuse_other_loop()
            return await self._remote.do(operation, traceparent)
        caller, beside = Caller(this_user(), self.face), Beside(traceparent=traceparent)
        return await do(self._open, self._settings, caller, operation, begun, beside)

    async def pages(self, operation: Operation[Result]) -> AsyncIterator[Result]:
        """Yield what a list shows, a page of its `limit` at a time."""
        cursor = operation.cursor  # type: ignore[attr-defined]
        while cursor is not None:
            asked = msgspec.structs.replace(operation, cursor=cursor)
            if self._remote is not None:
                self._refuse_other_loop()
                shown, cursor = await self._remote.page(asked)
            else:
                caller, beside = Caller(this_user(), self.face), Beside()
                shown = await do(self._open, self._settings, caller, asked, beside=beside)
                cursor = beside.next
            yield shown
            cursor = cursor or None

    @property
    def _open(self) -> Backend:
        if self._remote is not None:
            raise NeedsBackend(self._remote.url)
        if self._backend is None:
            raise PushlaneError(
                "the client is not open; use it inside `async with Client() as ...`"
            )
        self._refuse_other_loop()
        return self._backend

    def _refuse_other_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise PushlaneError(
                "the client was opened on another event loop; open one on each, or use "
                "Client.sync(), which any thread may call"
            )
