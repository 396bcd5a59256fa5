"""A browser of the console without a network or a screen: it keeps cookies and reads HTML."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html import unescape
from http.cookies import SimpleCookie
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode, urljoin

import pytest

from pushlane import Settings
from pushlane.backends.backend import Backend, connect
from pushlane.console.app import Console
from pushlane.console.issued import CodeFlow
from pushlane.console.sessions import Sessions, sessions
from pushlane.door.app import Door, build
from pushlane.door.gate import Gate
from pushlane.door.issuer import Issuer
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from tests.door.asking import ADMIN, Answer, Asking, Events

FORM = "application/x-www-form-urlencoded"


class Provider(Protocol):
    """An issuer at which people log in."""

    async def fetch(self, url: str) -> bytes: ...

    async def post(self, url: str, form: Mapping[str, str], authorization: str) -> bytes: ...


class Sent(NamedTuple):
    """An event; one without a name is HTML."""

    name: str
    data: str


class PageEvents(Events):
    """Reads what the stream of a page sends."""

    async def sent(self) -> Sent | None:
        """The next event, None at the end."""
        while True:
            while b"\n\n" not in self._text:
                self._text += await asyncio.wait_for(self._sent.get(), 30)
                if self._text == b"END":
                    return None
            text, _, self._text = self._text.partition(b"\n\n")
            fields = [line.split(": ", 1) for line in text.decode().splitlines()]
            if fields[0][0] == "retry":
                continue
            name = "".join(one[1] for one in fields if one[0] == "event")
            return Sent(name, "\n".join(one[1] for one in fields if one[0] == "data"))

    async def html(self) -> str:
        """The page as it is sent next."""
        while (found := await self.sent()) is not None:
            if not found.name:
                return found.data
        raise AssertionError("the stream has ended")

    async def named(self, name: str) -> str:
        """The next event of a name."""
        while (found := await self.sent()) is not None:
            if found.name == name:
                return found.data
        raise AssertionError("the stream has ended")


class Browser(Asking):
    """One person's browser."""

    def __init__(self, console: Console, door: Door, backend: Backend, token: str) -> None:
        super().__init__(build(door, console.routes()), door, backend, token)
        self.console = console
        self.cookies: dict[str, str] = {}
        self.scheme = "http"
        self.set_cookie = ""

    def _scope(self, *asked: Any) -> dict[str, Any]:
        scope = super()._scope(*asked)
        jar = "; ".join(f"{name}={one}" for name, one in self.cookies.items())
        more = [(b"host", b"push.test")] + ([(b"cookie", jar.encode())] if jar else [])
        return scope | {"scheme": self.scheme, "headers": [*scope["headers"], *more]}

    def other(self) -> Browser:
        """Another browser of the same server."""
        return Browser(self.console, self.door, self.backend, self.token)

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        path, _, query = path.partition("?")
        pairs = dict(parse_qsl(query, keep_blank_values=True))
        return self._kept(await self("GET", path, query=pairs, headers=headers, token=""))

    async def post(
        self, path: str, fields: dict[str, str], headers: dict[str, str] | None = None
    ) -> Answer:
        path, _, query = path.partition("?")
        pairs = dict(parse_qsl(query))
        body = urlencode(fields).encode()
        given = {"content-type": FORM, **(headers or {})}
        return self._kept(
            await self("POST", path, query=pairs, headers=given, parts=[body], token="")
        )

    async def log_in(self, token: str | None = None, **more: str) -> Answer:
        return await self.post("/console/login", {"token": token or self.token, **more})

    async def fields(self, path: str, action: str) -> dict[str, str]:
        """The fields of a form of a page, as they are before somebody types."""
        return form_of((await self.get(path)).body.decode(), action)

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[PageEvents]:
        path, _, query = path.partition("?")
        pairs = dict(parse_qsl(query, keep_blank_values=True))
        found = PageEvents()
        scope = self._scope("GET", path, pairs, {})
        running = asyncio.ensure_future(self.app(scope, found.receive, found.send))
        running.add_done_callback(found.close)
        try:
            yield found
        finally:
            found.leave()
            await running

    def _kept(self, answer: Answer) -> Answer:
        self.set_cookie = answer.headers.get("set-cookie", "")
        for name, morsel in SimpleCookie(self.set_cookie).items():
            self.cookies.pop(name, None)
            if morsel.value:
                self.cookies[name] = morsel.value
        return answer


def form_of(html: str, action: str) -> dict[str, str]:
    """The fields of a form, by the end of its action."""
    [form] = re.findall(rf'<form[^>]*action="[^"]*{action}"[^>]*>(.*?)</form>', html, re.DOTALL)
    found = {}
    for tag in re.findall(r"<input[^>]*>", form):
        attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if "name" in attributes:
            found[attributes["name"]] = unescape(attributes.get("value", ""))
    return found


def led_to(answer: Answer, path: str) -> str:
    """Where an answer leads, as a browser at a path reads it."""
    assert answer.status == 303
    return urljoin(path, answer.headers["location"])


@asynccontextmanager
async def browsing(
    settings: Settings, by: Sessions | None = None, provider: Provider | None = None
) -> AsyncIterator[Browser]:
    """A browser of a server with a store of its own, and the token of an admin."""
    async with connect(settings) as backend:
        wanted = CreateToken.made(name="me", grants="admin")
        token = (await do(backend, settings, ADMIN, wanted)).token
        door, flow = Door(backend, settings), None
        if provider is not None:
            issuer = Issuer(settings, provider.fetch)
            door.gate = Gate(backend.documents, issuer)
            flow = CodeFlow(issuer, settings, provider.post)
        console = Console(door, by or sessions(None), flow)
        try:
            yield Browser(console, door, backend, token)
        finally:
            await console.close()
            await door.close()


async def get(browser: Browser, path: str) -> str:
    """The HTML of a page."""
    answer = await browser.get(f"/console/{path}".partition("#")[0])
    assert answer.status == 200, answer.body.decode()
    return answer.body.decode()


async def log_in_as(browser: Browser, role: str, **more: Any) -> None:
    wanted = CreateToken.made(name="eve", grants=role, **more)
    token = (await do(browser.backend, Settings(), ADMIN, wanted)).token
    await browser.log_in(token)


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))


def row(html: str, row_id: str) -> str:
    """The text of one row."""
    [found] = re.findall(rf'<tr id="{re.escape(row_id)}">(.*?)</tr>', html, re.DOTALL)
    return text_of(found)


def link(html: str, label: str) -> str:
    """The address behind the link of this label."""
    [there] = re.findall(rf'<a [^>]*href="\./([^"]*)" aria-label="{re.escape(label)}"', html)
    return unescape(there)


def without(monkeypatch: pytest.MonkeyPatch, package: str, *loaded_by: str) -> None:
    """Make a package absent, also for the modules that have loaded it already."""
    for name in [one for one in sys.modules if one.startswith(loaded_by)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
