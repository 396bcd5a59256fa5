"""Pulsar's admin REST: the few calls that lanes need, with its statuses translated.

The client asks and answers in JSON values, and knows nothing of topics' and policies' uses.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import msgspec
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from pushlane.backends.pulsar.credentials import Credentials, credentials_of
from pushlane.backends.pulsar.vendor_errors import refusal, unanswered
from pushlane.core.errors import BadInput, PushlaneError, UnknownLane, Unreachable
from pushlane.settings import Settings
from pushlane.settings.transport import tls_files
from pushlane.util.errors import MissingPermission
from pushlane.util.texts import each_host, masked
from pushlane.util.tls import TlsFiles, is_of_our_authority, url_tls_problem


@dataclass(eq=False, repr=False)
class BrokerHosts:
    """The hosts that a token may be sent to: our own, and the brokers that it names.

    Only superusers may ask for these names; so a host with a certificate of an authority that was
    set for this cluster is a broker too. It never goes from https to http.
    """

    _shown_url: str
    _credentials: Credentials
    _files: TlsFiles
    _named: frozenset[str] = frozenset()
    _signed: set[tuple[str, int]] = field(default_factory=set)

    async def check(
        self, own: str, target: SplitResult, list_brokers: Callable[[], Awaitable[bytes]]
    ) -> None:
        """Raise Unreachable for a target that no token may be sent to."""
        asked = urlsplit(own)
        if target.scheme != asked.scheme or target.hostname is None:
            raise self._misled(target)
        if not self._credentials.has_token or target.hostname == asked.hostname:
            return
        if await self._is_signed(target.hostname, target):
            return
        if target.hostname not in self._named:
            self._named = _hosts(await list_brokers())
            if target.hostname not in self._named:
                raise self._misled(target)

    async def _is_signed(self, host: str, target: SplitResult) -> bool:
        """Look for ourselves: the client trusts the authorities of this system besides."""
        if target.scheme != "https" or self._files.ca_file is None:
            return False
        place = host, target.port or 443
        if place not in self._signed and await is_of_our_authority(*place, self._files):
            self._signed.add(place)
        return place in self._signed

    def _misled(self, target: SplitResult) -> Unreachable:
        return Unreachable(
            f"Pulsar's admin REST at {self._shown_url} leads to {target.scheme}://"
            f"{target.hostname}, which is not one of its active brokers over the same scheme: no "
            "token is sent there; check --admin-url / PUSHLANE_ADMIN_URL and what brokers "
            "advertise, or use https:// with pulsar_ca_file"
        )


def _hosts(content: bytes) -> frozenset[str]:
    """Return the hosts of a list of brokers, each host:port; none when it is no such list."""
    try:
        names = msgspec.json.decode(content, type=list[str])
    except msgspec.DecodeError:
        return frozenset()
    return frozenset(host for name in names if (host := urlsplit(f"//{name}").hostname))


_TIMEOUT_S = 15
_CONNECTIONS = 32
_THREAD_ENDS_S = 0.03


class AdminClients:
    """The present HTTP client, made anew when files of certificates are replaced.

    One before it ends by itself with the requests that it has under way.

    Raises:
        BadInput: a file of certificates cannot be used.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamp = files.stamp()
        self._client = _made(files)

    def current(self) -> Client:
        """Return the client, a new one when files have changed.

        Files that cannot be used any more leave it as it was.
        """
        stamp = self._files.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            with suppress(BadInput):
                self._client = _made(self._files)
        return self._client

    async def close(self) -> None:
        """Let go of the client while the interpreter lives.

        Its thread ends then, and aborts a process whose interpreter ends at the same moment.
        """
        await self._client.close()
        del self._client
        await asyncio.sleep(_THREAD_ENDS_S)


def _made(files: TlsFiles) -> Client:
    builder = ClientBuilder().timeout(timedelta(seconds=_TIMEOUT_S)).follow_redirects(False)
    builder = builder.max_connections(_CONNECTIONS)
    if pem := files.check_ca():
        builder = builder.add_root_certificate_pem(pem)
    if pem := files.check_pair():
        builder = builder.identity_pem(pem)
    return builder.build()


_API = "/admin/v2"
_REDIRECTS = 5
# Two makers of one thing: 409, or 500 with the metadata store's word for it.
_UNSETTLED = (404, 409, 412, 500, 502, 503, 504)
_ASK_AGAIN_S = 0.2
HEARD_OF_WITHIN_S = 10.0  # brokers hear of each other's changes within a second or so

_NO_FILES = TlsFiles("pulsar")

EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


T = TypeVar("T")


class Reply(NamedTuple):
    status: int
    value: Any


class Page(NamedTuple):
    """A page of the broker's web server, and the time (HTTP date) at which it was sent."""

    status: int
    content: bytes
    date: str


class Admin:
    """A client of the admin REST, used as an async context manager.

    `url` may name several hosts, as `http://HOST:PORT,HOST:PORT`: while one does not answer, the
    next is asked. `files` are certificates to trust besides those that are trusted by default, and
    our own.
    """

    def __init__(
        self, url: str, credentials: Credentials | None = None, files: TlsFiles = _NO_FILES
    ) -> None:
        self._urls = each_host(url)
        self._answering = 0  # the place among them of the one that answered last
        self.credentials = credentials or Credentials()
        self._shown_url = masked(url.rstrip("/"))
        self._files = files
        self._hosts = BrokerHosts(self._shown_url, self.credentials, files)
        self._clients = AdminClients(files)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._clients.close()

    async def call(
        self, method: str, path: str, doing: str, body: Any = None, allow: tuple[int, ...] = ()
    ) -> Reply:
        """Send a request; return the reply when it is a success or its status is allowed.

        Raises:
            BadInput: the URL is none, or a value is refused.
            Unreachable: no answer, half of one, one of another server, or a refusal.
            UnknownLane: there is no such topic.
        """
        status, content, _ = await self._answer(method, _API + path, doing, body)
        try:
            value = json.loads(content) if content else None
        except ValueError as error:
            if status < 300:
                raise self.garbled(doing) from error
            value = None  # the page of some other server
        if status < 300 or status in allow:
            return Reply(status, value)
        raise self._refusal(Reply(status, value), doing)

    def _refusal(self, reply: Reply, doing: str) -> PushlaneError:
        reason = str(reply.value.get("reason", "")) if isinstance(reply.value, dict) else ""
        return refusal(reply.status, reason, self._shown_url, doing, self.credentials)

    async def page(self, path: str, doing: str) -> Page:
        """Get a page of the broker's web server, in the admin REST or beside it.

        Raises:
            BadInput: the URL is none.
            Unreachable: no answer, or a refusal.
        """
        page = await self._answer("GET", path, doing)
        if page.status >= 300:
            raise self._refusal(Reply(page.status, None), doing)
        return page

    async def _answer(self, method: str, path: str, doing: str, body: Any = None) -> Page:
        try:
            return await self._ask_any(method, path, body)
        except ValueError as error:  # pyreqwest's own errors of a URL are among them
            raise BadInput(
                f"admin URL {self._shown_url!r} cannot be used; give one like http://127.0.0.1:8080"
            ) from error
        except PyreqwestError as error:
            advice = await url_tls_problem(self._urls[self._answering], self._files)
            raise unanswered(error, self._shown_url, doing, advice) from error

    async def read(self, path: str, doing: str, shape: type[T]) -> T:
        """Get a value in the expected shape. A reply that lacks a part of it raises Unreachable."""
        return self._shaped(await self.call("GET", path, doing), doing, shape)

    async def find(self, path: str, doing: str, shape: type[T]) -> T | None:
        """Get a value as `read` does; None when there is no such topic."""
        try:
            return await self.read(path, doing, shape)
        except UnknownLane:
            return None

    async def find_any(self, path: str, doing: str, shape: type[T]) -> T | None:
        """Get a value as `read` does; None for every 404, of a tenant or a namespace too."""
        reply = await self.call("GET", path, doing, allow=(404,))
        return None if reply.status == 404 else self._shaped(reply, doing, shape)

    def garbled(self, doing: str) -> PushlaneError:
        """Make the error for an answer that is cut off, or from another server than Pulsar."""
        return Unreachable(
            f"Pulsar's admin REST at {self._shown_url} could not {doing}: its answer is "
            "incomplete or unexpected; try again, and if that does not help, check --admin-url "
            "/ PUSHLANE_ADMIN_URL"
        )

    def _shaped(self, reply: Reply, doing: str, shape: type[T]) -> T:
        try:
            return msgspec.convert(reply.value, shape)
        except msgspec.ValidationError as error:
            raise self.garbled(doing) from error

    async def insist(
        self, method: str, path: str, doing: str, body: Any = None, allow: tuple[int, ...] = ()
    ) -> Reply:
        """Send a request as `call` does, to make or change something that may be new or shared.

        A broker may not have heard yet of the tenant, namespace or topic (404), be busy with the
        same for somebody else (409, 412, 500), or be just starting: it is asked again for some
        seconds.
        """
        deadline_s = time.monotonic() + HEARD_OF_WITHIN_S
        while True:
            reply = await self.call(method, path, doing, body, (*allow, *_UNSETTLED))
            if reply.status < 300 or reply.status in allow:
                return reply
            refused = self._refusal(reply, doing)
            if isinstance(refused, BadInput) or time.monotonic() >= deadline_s:
                raise refused
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _ask_any(self, method: str, path: str, body: Any) -> Page:
        """Ask the host that answered last, and the next one where it does not answer.

        Nothing changes more than once by that, as all calls are idempotent.
        """
        for away in range(len(self._urls)):
            place = (self._answering + away) % len(self._urls)
            try:
                response = await self._follow(method, self._urls[place], path, body)
                content = bytes(await response.bytes())
            except PyreqwestError as error:
                if away + 1 == len(self._urls) or isinstance(error, ValueError):  # no URL at all
                    raise
            else:
                self._answering = place
                return Page(response.status, content, response.get_header("date") or "")
        raise AssertionError("there is at least one host")

    async def _follow(self, method: str, own: str, path: str, body: Any) -> Response:
        """Follow redirects to the broker that owns the topic, with the token."""
        url = own + path
        response = await self._send(method, url, body)
        for _ in range(_REDIRECTS):
            target = response.get_header("location")
            if response.status not in (302, 307, 308) or target is None:
                break
            url = urljoin(url, target)
            await self._hosts.check(own, urlsplit(url), lambda: self._list_brokers(own))
            response = await self._send(method, url, body)
        return response

    async def _list_brokers(self, own: str) -> bytes:
        response = await self._send("GET", f"{own}{_API}/brokers", None)
        return bytes(await response.bytes())

    async def _send(self, method: str, url: str, body: Any) -> Response:
        request = self._clients.current().request(method, url)
        if token := await self.credentials.fresh_token():
            request = request.bearer_auth(token)
        if body is not None:
            request = request.body_json(body)
        return await request.build().send()


def connect_admin(settings: Settings) -> Admin:
    """Return the admin REST that the settings name. Nothing is connected before the first call.

    Raises:
        BadInput: a file of certificates, or of a secret, cannot be used.
    """
    files = tls_files(settings, "pulsar")
    return Admin(settings.admin_url, credentials_of(settings), files)


def topic_path(namespace: str, topic: str) -> str:
    """Return the path of a persistent topic."""
    return f"/persistent/{namespace}/{quote(topic, safe='')}"


async def make_topic(admin: Admin, path: str, doing: str) -> None:
    """Make a topic that is not there yet. Who may not make topics may use one that is there."""
    try:
        await admin.insist("PUT", path, doing, allow=(409,))
    except MissingPermission:
        if await admin.find(f"{path}/stats", doing, dict[str, Any]) is None:
            raise


async def make_subscription(
    admin: Admin, path: str, name: str, doing: str, properties: Mapping[str, str] | None = None
) -> None:
    """Make a durable subscription from the first message on. One that is there stays as it is."""
    body = {**EARLIEST, "properties": properties} if properties else EARLIEST
    await admin.insist("PUT", f"{path}/subscription/{name}", doing, body, allow=(409,))
