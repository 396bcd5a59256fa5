"""Offers agents their tools over HTTP: the same tokens, roles and apps as all else here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, Self

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from pushlane.agents.server import Context, Hands, over_http
from pushlane.backends.backend import Backend
from pushlane.operations.doing import do
from pushlane.operations.operation import Role
from pushlane.operations.session import Caller
from pushlane.settings import Settings

_CALLER = "pushlane.caller"


class Doorkeeper(Protocol):
    """Knows who makes a request."""

    backend: Backend
    settings: Settings

    async def caller(self, request: Request) -> Caller:
        """Return who makes it. Raises Unauthorized and TooMany."""


class Agents:
    """The application at `/mcp`, once it is opened."""

    def __init__(self, door: Doorkeeper) -> None:
        self._door = door
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        async with over_http(self._rights) as self._manager:
            yield self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Unauthorized and TooMany before anything is read of it."""
        scope[_CALLER] = await self._door.caller(Request(scope))
        assert self._manager is not None
        await self._manager.handle_request(scope, receive, send)

    async def _rights(self, ctx: Context) -> Hands:
        request = ctx.request
        assert isinstance(request, Request)
        caller: Caller = request.scope[_CALLER]
        hands = partial(do, self._door.backend, self._door.settings, caller)
        return Hands(hands, caller.access.role.may(Role.SUBMITTER))
