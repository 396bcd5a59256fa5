"""Takes single pushes of a stream: each is answered once the broker has it."""

from __future__ import annotations

import asyncio
import time

import msgspec
from starlette.requests import Request

from pushlane.backends.backend import Backend
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.core.push import UNREADABLE
from pushlane.model.mode import refuse_read_only
from pushlane.model.streams import only_stream
from pushlane.operations.session import Session
from pushlane.producers.feeds import Feeds, Taken
from pushlane.producers.producer import Content
from pushlane.producers.received import LONGEST_LINE, PushLine, why_no_push
from pushlane.settings import Settings
from pushlane.util.errors import OversizedPush
from pushlane.util.trace_context import given_traceparent

BODY_S = 60.0
"""The longest time that a body may take which has a longest length, in seconds."""

_MODE_S = 0.5
_decode = msgspec.json.Decoder(PushLine).decode


class TakenPush(msgspec.Struct, frozen=True):
    """A push that is on its lane: its id, as `push show` takes it."""

    id: str


class SinglePushes:
    """The pushes that this process takes one at a time."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self.feeds = Feeds(backend, settings)
        self._backend = backend
        self._allowed_until_s = 0.0

    async def take(self, request: Request, at: Session) -> Taken:
        """Put the push of a request on its stream.

        Raises what `Feeds.push` does, BadInput for a query or a body that cannot be, NotFound for a
        stream that the caller does not see, and NotNow while nothing may be changed.
        """
        app = _app(request)
        if app:
            at.require_app(app)
        await self._refuse_read_only()
        name = request.path_params["name"]
        stream = only_stream(await self.feeds.find(name, [app] if app else at.apps), name)
        body = await body_of(request, LONGEST_LINE)
        try:
            push = _decode(body)
        except UNREADABLE as error:
            raise BadInput(f"the body is not a push: {why_no_push(error)}") from error
        key = request.path_params["key"]
        if not key:
            raise BadInput("the key is empty; give one of yours: PUT .../pushes/KEY")
        if push.key is not None:
            raise BadInput("the key of a push is in the path: leave it out of the body")
        content = push.content._replace(key=key)
        if not push.trace_id:
            content = _with_trace(content, request)
        return await self.feeds.push(stream, content, len(body))

    async def _refuse_read_only(self) -> None:
        """Raise NotNow while nothing may be changed; that it may is remembered for a moment."""
        now_s = time.monotonic()
        if now_s >= self._allowed_until_s:
            await refuse_read_only(self._backend.documents)
            self._allowed_until_s = now_s + _MODE_S


class SlowBody(PushlaneError):
    """A body has not come to its end in time."""


async def body_of(request: Request, most: int) -> bytes:
    """Return the body.

    Raises OversizedPush for one that is too long, as soon as that is known, and SlowBody for one
    that takes longer than a minute.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    told = f"the body is longer than {most:,} bytes; send less at a time"
                    raise OversizedPush(told)
    except TimeoutError:
        raise SlowBody(f"the body did not end within {BODY_S:g} s") from None
    return bytes(body)


def _with_trace(content: Content, request: Request) -> Content:
    """Put the push into the trace that headers name; there may be several of `tracestate`.

    Without a `traceparent` these mean nothing.
    """
    traceparent = given_traceparent(request.headers.get("traceparent", ""))
    if not traceparent:
        return content
    tracestate = ",".join(request.headers.getlist("tracestate"))
    return content._replace(trace_id=traceparent, tracestate=tracestate)


def _app(request: Request) -> str:
    query = request.query_params
    if other := [name for name in query if name != "app"]:
        raise BadInput(f"{other[0][:40]!r} is not a parameter here; `app` is, for the stream's app")
    if len(query.getlist("app")) > 1:
        raise BadInput("app is given several times; give it once")
    return query.get("app", "")
