"""Server-sent events: what is watched, as it comes, for as long as it is read."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pushlane.core.errors import BadInput
from pushlane.door.watched import SHARES, SINKS, TASKS, Topic
from pushlane.door.watching import CUT_OFF, Watch
from pushlane.operations.doing import refuse
from pushlane.operations.operation import Operation
from pushlane.operations.session import Session
from pushlane.operations.tasks import GetTask, ListTasks

log = logging.getLogger("pushlane.serve")

MEDIA_TYPE = "text/event-stream"
SLOW_S = 40.0
"""A part of an event that is not read for longer ends the stream, where the system has not."""

ABORT = "pushlane.abort"
"""The extension of a scope that ends its connection at once, with all that is unread."""

MOST_WAIT_S = 60
_PART = 64 * 1024
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_WAIT = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=$|[,;])', re.IGNORECASE)

WATCHES: dict[str, Topic] = {
    "/watch/tasks/{task}": TASKS,
    "/watch/tasks": TASKS,
    "/watch/shares": SHARES,
    "/watch/sinks": SINKS,
}


async def watcher(request: Request, at: Session, path: str) -> Watch:
    """Return who watches what. Raises BadInput, and as the operation that shows it once."""
    app = _app(request, path)
    authorization = request.headers["authorization"]
    task = request.path_params.get("task", "")
    topic = WATCHES[path]
    operation: Operation[Any] = topic.operation
    if topic is TASKS:
        operation = GetTask(task=task) if task else ListTasks(app=app)
    refuse(at, operation)
    if task:
        task = (await at.task(task)).id
    return Watch(topic, at.caller, authorization, task=task, app=app)


def _app(request: Request, path: str) -> str:
    query = request.query_params
    takes = {"app"} if path == "/watch/tasks" else set()
    if other := [name for name in query if name not in takes]:
        has = "`app`" if takes else "nothing"
        raise BadInput(f"{other[0][:40]!r} is not a parameter of this query, which takes {has}")
    return query.get("app", "")


def most_wait_s(prefer: str) -> int:
    """Return how long an answer may take, by the header Prefer (RFC 7240); 0 unless it says so."""
    found = _WAIT.search(prefer)
    return min(int(found[1]), MOST_WAIT_S) if found else 0


class Reader(Protocol):
    """Whoever reads events, until it is ended."""

    def end(self) -> None: ...


class EventStream(Response):
    """Events of a reader, as an answer that ends with it, or once they are no longer read.

    `joined` has the reader for as long as they are sent.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self, joined: AbstractAsyncContextManager[Reader], frames: AsyncIterator[Sequence[bytes]]
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._joined = joined
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._joined as reader:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            reading = asyncio.ensure_future(_end_unread(receive, reader))
            try:
                await self._send(self._frames, send)
            except TimeoutError:
                log.info("a watcher does not read: its connection is closed", extra=CUT_OFF)
                if (connection := scope.get("extensions", {}).get(ABORT)) is not None:
                    connection["abort"]()  # closed, it would wait until what is unread is read
            finally:
                reading.cancel()

    async def _send(self, frames: AsyncIterator[Sequence[bytes]], send: Send) -> None:
        async for frame in frames:
            for part in _parts(frame):
                async with asyncio.timeout(SLOW_S):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            del frame, part  # which nobody needs until the next one
        await send({"type": "http.response.body"})


async def _end_unread(receive: Receive, reader: Reader) -> None:
    """End a reader when it goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.end()


def _parts(frame: Iterable[bytes]) -> Iterator[bytes]:
    """Yield some of what is to be sent at a time: a snapshot may be long."""
    found = bytearray()
    for one in frame:
        found += one
        if len(found) >= _PART:
            yield bytes(found)
            found.clear()
    if found:
        yield bytes(found)
