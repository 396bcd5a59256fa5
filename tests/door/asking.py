"""Asks the application as a server would, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette

from pushlane import Settings
from pushlane.backends.backend import Backend, Connect, connect
from pushlane.door.app import Door, build
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.operations.session import Caller

ADMIN = Caller("root", "cli")


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Event(NamedTuple):
    """An event, or a comment without a name."""

    name: str
    id: str
    data: Any


class Events:
    """Reads events as they are sent. `holds` holds what is sent back until it is set."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.holds: asyncio.Event | None = None
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()
        self._text = b""
        self._left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): one.decode() for name, one in message["headers"]}
            return
        if self.holds is not None:
            await self.holds.wait()
        self._sent.put_nowait(message.get("body", b""))

    def leave(self) -> None:
        self._left.set()

    def close(self, running: Any) -> None:
        self._sent.put_nowait(b"END")

    async def next(self) -> Event:
        """The next one, which there has to be."""
        found = await self._next()
        assert found is not None, "the stream has ended"
        return found

    async def has_ended(self) -> bool:
        """Whether there are no more, once that is known."""
        return await self._next() is None

    async def _next(self) -> Event | None:
        while b"\n\n" not in self._text:
            self._text += await asyncio.wait_for(self._sent.get(), 30)
            if self._text == b"END":
                return None
        text, _, self._text = self._text.partition(b"\n\n")
        fields = dict(line.split(": ", 1) for line in text.decode().splitlines() if line != ":")
        if fields.keys() == {"retry"}:
            return await self._next()
        data = fields.get("data")
        decoded = None if data is None else msgspec.json.decode(data)
        return Event(fields.get("event", ""), fields.get("id", ""), decoded)


class Asking:
    """Asks one application, with a token of an admin unless another is given."""

    def __init__(self, app: Starlette, door: Door, backend: Backend, token: str) -> None:
        self.app = app
        self.door = door
        self.backend = backend
        self.token = token

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, Any] | None = None,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        parts: Iterable[bytes] | None = None,
        cut: bool = False,
    ) -> Answer:
        """Ask; `cut` ends the connection behind the parts, in the middle of the body."""
        token = self.token if token is None else token
        given = dict(headers or {})
        if token:
            given["authorization"] = f"Bearer {token}"
        if parts is None:
            parts = [b"" if body is None else msgspec.json.encode(body)]
        return await self._answer(method, path, query or {}, given, list(parts), cut)

    async def _answer(
        self,
        method: str,
        path: str,
        query: dict[str, Any],
        headers: dict[str, str],
        parts: list[bytes],
        cut: bool,
    ) -> Answer:
        sent: list[Any] = []
        left = list(parts)

        async def receive() -> dict[str, Any]:
            if cut and not left:
                return {"type": "http.disconnect"}
            part = left.pop(0) if left else b""
            return {"type": "http.request", "body": part, "more_body": cut or bool(left)}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(self._scope(method, path, query, headers), receive, send)
        [start, *bodies] = sent
        shown = {name.decode(): one.decode() for name, one in start["headers"]}
        return Answer(start["status"], shown, b"".join(one.get("body", b"") for one in bodies))

    @asynccontextmanager
    async def events(
        self, path: str, *, token: str = "", last_id: str = "", query: dict[str, Any] | None = None
    ) -> AsyncIterator[Events]:
        """The events of a path, for as long as they are read."""
        headers = {"authorization": f"Bearer {token or self.token}"}
        if last_id:
            headers["last-event-id"] = last_id
        found = Events()
        scope = self._scope("GET", path, query or {}, headers)
        running = asyncio.ensure_future(self.app(scope, found.receive, found.send))
        running.add_done_callback(found.close)
        try:
            yield found
        finally:
            found.leave()
            await running

    def _scope(
        self, method: str, path: str, query: dict[str, Any], headers: dict[str, str]
    ) -> dict[str, Any]:
        return {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(query, doseq=True).encode(),
            "headers": [(name.lower().encode(), one.encode()) for name, one in headers.items()],
            "state": {"door": self.door},
            "server": ("127.0.0.1", 1),
            "scheme": "http",
        }

    async def made(self, role: str, *apps: str, **more: Any) -> str:
        """The text of a token."""
        wanted = CreateToken.made(name=role, grants=role, apps=apps, **more)
        return (await do(self.backend, Settings(), ADMIN, wanted)).token


@asynccontextmanager
async def asking(settings: Settings, connect: Connect = connect) -> AsyncIterator[Asking]:
    async with connect(settings) as backend:
        token = (
            await do(backend, settings, ADMIN, CreateToken.made(name="me", grants="admin"))
        ).token
        door = Door(backend, settings)
        try:
            yield Asking(build(door), door, backend, token)
        finally:
            await door.close()
