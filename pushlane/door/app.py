"""The application: routes made from the list of operations, and what comes before each of them."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pushlane.backends.backend import Backend
from pushlane.core.errors import PushlaneError
from pushlane.door.events import MEDIA_TYPE as EVENTS
from pushlane.door.events import WATCHES, EventStream, most_wait_s, watcher
from pushlane.door.gate import Gate
from pushlane.door.issuer import Issuer
from pushlane.door.openapi import document
from pushlane.door.problems import encode, refusal_of
from pushlane.door.requests import MOST_BYTES, operation_of, tags_of
from pushlane.door.single import SinglePushes, TakenPush, body_of
from pushlane.door.streams import receive, safe_line
from pushlane.door.watched import TASKS
from pushlane.door.watching import Watch, Watching
from pushlane.model.access import Role
from pushlane.model.read_bounds import AT_A_SERVER
from pushlane.operations.doing import do, refuse_role
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.long_reads import LongReads
from pushlane.operations.operation import Operation, Result
from pushlane.operations.problems import MEDIA_TYPE, UNKNOWN_PATH, UNREAD_HEADER, problem
from pushlane.operations.session import Beside, Caller, Session
from pushlane.operations.task_views import TaskNow
from pushlane.operations.views import plain
from pushlane.settings import Settings
from pushlane.util.trace_context import given_traceparent

log = logging.getLogger("pushlane.serve")

PREFIX = "/v1"
SEAL_S = 10.0
"""Longest time that sealing the tasks of single pushes may take at shutdown, in seconds."""

_JSON = "application/json"

Endpoint = Callable[[Request], Awaitable[Response]]


def build(door: Door, beside: Sequence[Route] = (), *, for_agents: bool = False) -> Starlette:
    """Return the application, whose backend stays open for as long as it is served.

    `beside` are routes of the console. It has the tools of agents, too, if that is asked for: that
    needs the extra `mcp`.
    """

    @asynccontextmanager
    async def opened(app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            if for_agents:
                from pushlane.door.agents import Agents

                agents = await stack.enter_async_context(Agents(door).opened())
                app.router.routes.append(Route("/mcp", agents))
            yield {"door": door}

    by_path: dict[str, dict[str, type[Operation[Any]]]] = defaultdict(dict)
    for kind in OPERATIONS:
        by_path[kind.path][kind.method] = kind
    routes = [
        Route(f"{PREFIX}{_pattern(path)}", _of_operations(kinds), methods=[*kinds])
        for path, kinds in sorted(by_path.items(), key=lambda one: one[0].endswith("}"))
    ]  # with a field that may have a slash at its end, a path takes all that others leave
    routes.append(Route(f"{PREFIX}/openapi.json", _openapi))
    sending = Route(f"{PREFIX}{_pattern('/tasks/{task}/pushes')}", _pushes, methods=["POST"])
    putting = Route(f"{PREFIX}/streams/{{name}}/pushes/{{key:path}}", _push, methods=["PUT"])
    routes[:0] = [sending, putting]
    routes += [Route(f"{PREFIX}{_pattern(path)}", _watching(path)) for path in WATCHES]
    routes += [Route("/health", _health), *beside]
    handlers = {
        PushlaneError: _refused,
        HTTPException: _http_refused,
        ClientDisconnect: _gone,
        Exception: _failed,
    }
    app = Starlette(routes=routes, lifespan=opened, exception_handlers=handlers)
    app.router.redirect_slashes = False  # an empty id is not found: it is not asked for elsewhere
    return app


class Door:
    """Answers requests: checks their token, and does the operation that they ask for."""

    def __init__(
        self, backend: Backend, settings: Settings, most_per_s: float | None = None
    ) -> None:
        self.backend = backend
        self.settings = settings
        self.issuer = Issuer(settings) if settings.oidc_issuer else None
        self.gate = Gate(backend.documents, self.issuer, most_per_s)
        self.stopping = asyncio.Event()
        self.reads = LongReads(AT_A_SERVER)
        self.single = SinglePushes(backend, settings)
        self.watching = Watching(backend, settings, self.gate, self.stopping)

    async def caller(self, request: Request) -> Caller:
        """Return who makes a request. Raises Unauthorized and TooMany."""
        peer = request.client.host if request.client else ""
        return await self.gate.caller(request.headers.get("authorization", ""), peer)

    async def do(
        self, caller: Caller, operation: Operation[Result], beside: Beside | None = None
    ) -> Result:
        """Do an operation, and return its view. Raises what `doing.do` does."""
        return await do(
            self.backend, self.settings, caller, operation, beside=beside, reads=self.reads
        )

    async def answer(self, request: Request, kind: type[Operation[Any]]) -> Response:
        """Do the operation that a request asks for."""
        caller = await self.caller(request)
        body = await body_of(request, MOST_BYTES)
        operation = operation_of(kind, request.path_params, request.query_params, body)
        traceparent = given_traceparent(request.headers.get("traceparent", ""))
        seen = tags_of(kind, request.headers.getlist("if-match"))
        beside = Beside(seen, traceparent=traceparent)
        shown = await self.do(caller, operation, beside)
        applied = {}
        if isinstance(shown, TaskNow) and (
            wait_s := most_wait_s(request.headers.get("prefer", ""))
        ):
            await self._wait(request, caller, shown, wait_s)
            shown = await do(self.backend, self.settings, caller, operation, beside=beside)
            applied = {"Preference-Applied": f"wait={wait_s}"}
        headers = _headers(request, beside) | applied
        return Response(msgspec.json.encode(plain(shown)), 200, headers, _JSON)

    async def _wait(self, request: Request, caller: Caller, task: TaskNow, wait_s: int) -> None:
        """Return once a task has ended, or so much time is over, or this process stops."""
        if task.has_ended:
            return
        watch = Watch(TASKS, caller, request.headers["authorization"], task=task.id)
        try:
            async with asyncio.timeout(wait_s), self.watching.joined(watch):
                await watch.ended_task()
        except TimeoutError:
            return

    async def watch(self, request: Request, path: str) -> Response:
        """Send what is watched at a path, until it is no longer read."""
        caller = await self.caller(request)
        at = Session(self.backend, self.settings, caller)
        watch = await watcher(request, at, path)
        if request.method == "HEAD":
            return Response(media_type=EVENTS)
        last_id = request.headers.get("last-event-id", "")
        return EventStream(self.watching.joined(watch), watch.frames(last_id))

    async def take_push(self, request: Request) -> Response:
        """Put a single push on the lane of a stream."""
        caller = await self.caller(request)
        refuse_role(caller, Role.SUBMITTER, "sending a push")
        at = Session(self.backend, self.settings, caller)
        taken = await self.single.take(request, at)
        status = HTTPStatus.CREATED if taken.is_new else HTTPStatus.OK
        return Response(msgspec.json.encode(TakenPush(taken.id)), status, media_type=_JSON)

    async def close(self) -> None:
        """Look no more, and seal the tasks that this process feeds, as far as that is done soon."""
        self.reads.close()
        await self.watching.close()
        await self.single.feeds.close(SEAL_S)

    async def take_lines(self, request: Request) -> Response:
        """Put the pushes of a body on the lane of a task."""
        at = Session(self.backend, self.settings, await self.caller(request))
        word = request.path_params["task"]
        received = await receive(request, at, word, self.stopping)
        return Response(msgspec.json.encode(received), media_type=_JSON)


def _headers(request: Request, beside: Beside) -> dict[str, str]:
    """Return what goes beside an answer. A tag is of what operators set, not of all that it has."""
    headers = {"ETag": beside.tag, "Cache-Control": "no-store"} if beside.tag else {}
    if beside.unread:
        headers[UNREAD_HEADER] = str(beside.unread)
    if beside.next:
        query = [pair for pair in request.query_params.multi_items() if pair[0] != "cursor"]
        there = urlencode([*query, ("cursor", beside.next)])
        headers["Link"] = f'<{quote(request.scope["path"])}?{there}>; rel="next"'
    return headers


async def _pushes(request: Request) -> Response:
    door: Door = request.state.door
    return await door.take_lines(request)


async def _push(request: Request) -> Response:
    door: Door = request.state.door
    return await door.take_push(request)


def _watching(path: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        door: Door = request.state.door
        return await door.watch(request, path)

    return endpoint


def _pattern(path: str) -> str:
    """Return a path for the router: a subject like `app/shop`, or a key, may have a slash."""
    return path.replace("}", ":path}")


def _of_operations(kinds: Mapping[str, type[Operation[Any]]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        kind = kinds["GET" if request.method == "HEAD" else request.method]
        door: Door = request.state.door
        return await door.answer(request, kind)

    return endpoint


async def _openapi(request: Request) -> Response:
    await request.state.door.caller(request)
    return Response(msgspec.json.encode(document()), media_type=_JSON)


async def _health(request: Request) -> Response:
    return Response("ok\n", media_type="text/plain")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, PushlaneError)
    refusal = refusal_of(error, safe_line(error))
    return Response(encode(refusal.problem), refusal.problem.status, refusal.headers, MEDIA_TYPE)


async def _http_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    name = UNKNOWN_PATH
    if error.status_code != HTTPStatus.NOT_FOUND:
        name = HTTPStatus(error.status_code).phrase.title().replace(" ", "")
    shown = problem(error.status_code, name, f"{request.method} {request.url.path[:200]}")
    return Response(encode(shown), error.status_code, error.headers, MEDIA_TYPE)


async def _gone(request: Request, error: Exception) -> Response:
    """Answer who is not there any longer: nobody reads it."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _failed(request: Request, error: Exception) -> Response:
    told = "%s %s ended in an unexpected %s: this is a defect in pushlane; please report it"
    extra = {"action": "request_failed"}
    path = quote(request.scope["path"][:200])  # which may have the end of a line in it
    log.error(told, request.method, path, type(error).__name__, exc_info=error, extra=extra)
    told = "this is a defect in pushlane; the log of the server has more"
    return Response(encode(problem(500, "Defect", told)), 500, media_type=MEDIA_TYPE)
