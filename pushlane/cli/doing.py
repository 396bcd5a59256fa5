"""Does operations for a command, through a client as applications have it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TypeVar

from pushlane.backends.backend import Backend
from pushlane.cli.flags import on_backend
from pushlane.client.connection import Connection
from pushlane.operations.operation import Operation
from pushlane.operations.session import Begun, untold
from pushlane.settings import Settings

T = TypeVar("T")


class CommandLine(Connection):
    """The client of a command, which may have a part that is no operation."""

    face = "cli"


def on_client(
    settings: Settings, work: Callable[[CommandLine], Awaitable[T]], *, create: bool = False
) -> T:
    """Open a client, do the work on it, close it, and return the work's result.

    With `create` an embedded store that is not there is made, and the user is told where.

    Raises:
        NoStore: there is no embedded store, and `create` is False.
    """
    if settings.url:
        return asyncio.run(_through_server(settings, work))

    async def through(backend: Backend) -> T:
        async with CommandLine(settings, connect=lambda _: nullcontext(backend)) as client:
            return await work(client)

    return on_backend(settings, through, create=create)


async def _through_server(settings: Settings, work: Callable[[CommandLine], Awaitable[T]]) -> T:
    async with CommandLine(settings) as client:
        return await work(client)


def done(
    settings: Settings, operation: Operation[T], *, create: bool = False, begun: Begun = untold
) -> T:
    """Do one operation, as `on_client` does its work, and return what it shows.

    `begun` is told of a task that it makes, before that is complete.
    """
    return on_client(settings, lambda client: client.do(operation, begun), create=create)
